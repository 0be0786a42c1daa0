"""--input of mxcomp-run for what iree-run-module cannot read: MX data and bf16 in .npy files, and typed scalars.

A .npy file has no bf16 and no fp8: what holds their codes, as uint8 or uint16, is viewed as the type that the argument
has. Of a number for a scalar argument iree-run-module takes what its parser makes of it: 2 of 2.5, 44 of 300 for an i8,
the bits of a bf16.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mxcomp.errors import InputError
from mxcomp.run import scalars
from mxcomp.run.signature import ELEMENTS, TensorType
from mxcomp.tools import signature

_FLAG = re.compile(r"--?input=(?P<value>.*)", re.DOTALL)
_NPY = re.compile(r"@(?P<file>.+\.npy)", re.DOTALL)
_BYTES = {"ui8": 1, "si8": 1} | {name: kind.itemsize for name, kind in ELEMENTS.items() if kind.itemsize <= 2}
"""The types whose codes .npy files store as other types, and their sizes in bytes."""


@contextmanager
def taken(flags: list[str]) -> Iterator[list[str]]:
    """Returns flags for iree-run-module with inputs as it reads them. Raises InputError."""
    indices = [position for position, flag in enumerate(flags) if _FLAG.fullmatch(flag)]
    types = signature.arguments(flags) if indices else []
    changed = list(flags)
    with tempfile.TemporaryDirectory() as directory:
        for index, (position, kind) in enumerate(zip(indices, types, strict=False)):
            found = _FLAG.fullmatch(flags[position])
            value = found["value"] if found else ""
            if isinstance(kind, str) and not value.startswith(("@", "&", "+")) and "=" not in value:
                changed[position] = f"--input={scalars.parsed(value, kind, index)}"
            elif isinstance(kind, TensorType) and (npy := _NPY.fullmatch(value)):
                path = Path(directory) / f"{index}.bin"
                if (shape := _codes(npy["file"], kind, index, path)) is not None:
                    sizes = "".join(f"{size}x" for size in shape)
                    changed[position] = f"--input={sizes}{kind.element}=@{path}"
        yield changed


def _codes(name: str, kind: TensorType, index: int, path: Path) -> tuple[int, ...] | None:
    """Writes the bytes of an array of codes, and returns its shape; None where IREE reads the file itself."""
    if kind.element not in _BYTES:
        return None
    try:
        data = np.load(name, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # which IREE says
    if data.dtype.kind in "fb" or (data.dtype.kind == "i" and kind.element.lstrip("us").startswith("i")):
        return None
    if data.dtype.kind not in "uiV" or data.dtype.itemsize != _BYTES[kind.element]:
        raise InputError(
            f"--input=@{name}: argument {index} is {kind}, the file holds {data.dtype}: expected its codes as "
            f"uint{8 * _BYTES[kind.element]}"
        )
    np.ascontiguousarray(data, data.dtype.newbyteorder("<")).tofile(path)
    return tuple(data.shape)
