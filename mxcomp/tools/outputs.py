"""--output of mxcomp-run for MX data: iree-run-module writes the bytes to files, and they are shown as numbers."""

from __future__ import annotations

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
from mxcomp.report.numbers import SCALE_TYPES, TYPES, numbers

_FLAG = re.compile(r"--?output=(?P<value>.*)", re.DOTALL)
_SPEC = re.compile(rf"(?P<kind>{'|'.join(TYPES)})(\*(?P<scales>\d+))?(@(?P<file>.+))?")

_MOST_PRINTED = 1024
"""Numbers; of longer arrays the ends (as iree-run-module's --output_max_element_count)."""


@dataclass(frozen=True)
class Shown:
    """A result to show: `scales` is the index of the result with its scales, `file` where to write to."""

    index: int
    flag: str
    kind: str
    scales: int | None
    file: str | None


@contextmanager
def shown(flags: list[str]) -> Iterator[list[str]]:
    """Flags for iree-run-module without what it does not know; shows the results afterwards. Raises InputError."""
    values = [(place, found["value"]) for place, flag in enumerate(flags) if (found := _FLAG.fullmatch(flag))]
    specs = {k: spec for k, (_, value) in enumerate(values) if (spec := _SPEC.fullmatch(value))}
    results = [
        Shown(k, flags[values[k][0]], spec["kind"], int(spec["scales"]) if spec["scales"] else None, spec["file"])
        for k, spec in specs.items()
    ]
    for result in results:
        _check(result, results)
    if not results:
        yield flags
        return
    with tempfile.TemporaryDirectory() as directory:
        files = {result.index: Path(directory) / f"{result.index}.npy" for result in results}
        taken_over = list(flags)
        for result in results:
            taken_over[values[result.index][0]] = f"--output=@{files[result.index]}"
        yield taken_over
        if all(file.exists() for file in files.values()):  # else the call failed, and has said why
            data = {index: np.load(file) for index, file in files.items()}
            for result in results:
                _show(result, data)


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
        if result.file is not None:
            with open(result.file, "wb") as file:
                np.save(file, values)
            return
    except ValueError as error:
        raise InputError(f"{result.flag}: {error}") from None
    except OSError as error:
        raise InputError(f"{result.flag}: cannot write {result.file}: {error.strerror}") from None
    what = result.kind if scales is None else f"{result.kind} * result[{result.scales}]"
    print(f"result[{result.index}]: {what}")
    print(text(values))
    sys.stdout.flush()


def text(values: NDArray[np.float32]) -> str:
    """Numbers as iree-run-module writes them: the shape, then rows in brackets; of long arrays the ends."""
    shape = "".join(f"{size}x" for size in values.shape)
    return f"{shape}f32=" + np.array2string(values, threshold=_MOST_PRINTED, separator=" ", floatmode="unique")
