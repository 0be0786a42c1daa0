"""--output of mxcomp-run for what iree-run-module cannot write: MX data as numbers, bf16 and fp8 results as .npy.

iree-run-module writes the bytes to files of its own; here they become numbers, or .npy.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxcomp.errors import InputError
from mxcomp.layout.logical import SCALE_TYPES, TYPES, numbers
from mxcomp.run.arrays import npy_bytes
from mxcomp.run.signature import OF_ML_DTYPES, TensorType
from mxcomp.support import files
from mxcomp.tools import signature

_FLAG = re.compile(r"--?output=(?P<value>.*)", re.DOTALL)
_SPEC = re.compile(rf"(?P<kind>{'|'.join(TYPES)})(\*(?P<scales>\d+))?(@(?P<file>.+))?")

_NPY = re.compile(r"(?P<mode>[@+])(?P<file>.+\.npy)", re.DOTALL)
_MOST_PRINTED = 1024
"""The number of elements above which only the ends of an array are printed (as iree-run-module's
--output_max_element_count)."""


@dataclass(frozen=True)
class Shown:
    """A result to show: `scales` is the index of the result with its scales, `file` the file to write to."""

    index: int
    flag: str
    kind: str
    scales: int | None
    file: str | None


@dataclass(frozen=True)
class Saved:
    """A result that is written as a .npy file of codes."""

    index: int
    flag: str
    type: TensorType
    file: str


@contextmanager
def shown(flags: list[str]) -> Iterator[list[str]]:
    """Yields flags for iree-run-module without those it does not know; shows and writes the results afterwards.

    Raises InputError, before anything runs where that can be known.
    """
    values = [(position, found["value"]) for position, flag in enumerate(flags) if (found := _FLAG.fullmatch(flag))]
    for position, value in values:
        _check_writable(flags[position], value)
    specs = {k: spec for k, (_, value) in enumerate(values) if (spec := _SPEC.fullmatch(value))}
    results = [
        Shown(k, flags[values[k][0]], spec["kind"], int(spec["scales"]) if spec["scales"] else None, spec["file"])
        for k, spec in specs.items()
    ]
    for result in results:
        _check(result, results)
    saved = _saved([(flags[position], value) for position, value in values], flags)
    if not results and not saved:
        yield flags
        return
    with tempfile.TemporaryDirectory() as directory:
        files = {result.index: Path(directory) / f"{result.index}.npy" for result in results}
        codes = {result.index: Path(directory) / f"{result.index}.bin" for result in saved}
        taken_over = list(flags)
        for index, path in (files | codes).items():
            taken_over[values[index][0]] = f"--output=@{path}"
        yield taken_over
        if all(file.exists() for file in (files | codes).values()):  # else the call failed, and has said why
            data = {index: np.load(file) for index, file in files.items()}
            for result in results:
                _show(result, data)
            for each in saved:
                _save(each, codes[each.index].read_bytes())


def _check_writable(flag: str, value: str) -> None:
    """Raises InputError for a file that cannot be: a simulation takes too long to find that out behind it."""
    spec = _SPEC.fullmatch(value)
    name = spec["file"] if spec else value[1:] if value.startswith(("@", "+")) else None
    files.check_writable(name, f"{flag}: ")


def _saved(values: list[tuple[str, str]], flags: list[str]) -> list[Saved]:
    """Returns the results to be written as .npy that iree-run-module cannot write. Raises InputError."""
    named = {index: found for index, (_, value) in enumerate(values) if (found := _NPY.fullmatch(value))}
    types = signature.results(flags) if named else []
    saved = []
    for index, found in named.items():
        kind = types[index] if index < len(types) else None
        if not isinstance(kind, TensorType) or kind.element not in OF_ML_DTYPES:
            continue
        flag = values[index][0]
        if found["mode"] == "+":
            raise InputError(f"{flag}: result {index} is {kind}: expected --output=@{found['file']}, a file of its own")
        if kind.shape.count(None) > 1:
            raise InputError(
                f"{flag}: result {index} is {kind}, whose bytes do not tell its shape: expected a file that does not "
                "end in .npy, which gets the bytes"
            )
        saved.append(Saved(index, flag, kind, found["file"]))
    return saved


def _save(result: Saved, data: bytes) -> None:
    codes = np.frombuffer(data, f"u{OF_ML_DTYPES[result.type.element].itemsize}")
    known = math.prod(size for size in result.type.shape if size is not None)
    dynamic = codes.size // known if known else 0
    shape = [dynamic if size is None else size for size in result.type.shape]
    _write(result.flag, result.file, codes.reshape(shape))


def _write(flag: str, name: str, values: NDArray[np.generic]) -> None:
    try:
        files.write({name: npy_bytes(values)})
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None


def _check(result: Shown, results: list[Shown]) -> None:
    if result.scales is None:
        return
    if result.kind in SCALE_TYPES:
        raise InputError(f"{result.flag}: {result.kind} is a type of scales: they have no scales themselves")
    if not any(other.index == result.scales and other.kind in SCALE_TYPES for other in results):
        raise InputError(f"{result.flag}: result {result.scales} are scales: its --output has to be {SCALE_TYPES[0]}")


def _show(result: Shown, data: dict[int, NDArray[np.generic]]) -> None:
    scales = None if result.scales is None else data[result.scales]
    try:
        values = numbers(data[result.index], result.kind, scales)
    except ValueError as error:
        raise InputError(f"{result.flag}: {error}") from None
    if result.file is not None:
        _write(result.flag, result.file, values)
        return
    what = result.kind if scales is None else f"{result.kind} * result[{result.scales}]"
    print(f"result[{result.index}]: {what}")
    print(text(values))
    sys.stdout.flush()


def text(values: NDArray[np.float32]) -> str:
    """Returns numbers as iree-run-module writes them: the shape, then rows in brackets; of long arrays the ends."""
    shape = "".join(f"{size}x" for size in values.shape)
    return f"{shape}f32=" + np.array2string(values, threshold=_MOST_PRINTED, separator=" ", floatmode="unique")
