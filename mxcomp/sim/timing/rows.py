"""Reads and estimates tables of GEMMs, one a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mxcomp.profiling import Estimate
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.timing.aiter import Gemm, Kernels
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.examination import Examination
from mxcomp.support import lines, workers
from mxcomp.support.lines import Fault

COLUMNS = ("m", "n", "k", "tile_m", "tile_n")
MEASURED = "us"
Found = TypeVar("Found")
_GROUP = 40
"""The number of rows that a worker estimates at a time; later ones reuse the traces of a kernel."""


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        line: Its number in the file, from 1.
        fields: As they were read.
    """

    line: int
    fields: Mapping[str, str]
    gemm: Gemm
    us: float | None = None


def read(path: Path) -> tuple[list[Row], list[Fault], list[str]]:
    """Returns rows, faulty lines, and the names of all columns. Raises InputError for a file that is no such table."""
    return lines.read(path, COLUMNS, [MEASURED], _row)


def _row(line: int, fields: dict[str, str]) -> Row | Fault:
    try:
        gemm = Gemm(*(int(fields[name]) for name in COLUMNS))
    except (TypeError, ValueError):
        values = ",".join(str(fields[name]) for name in COLUMNS)
        return Fault(line, f"{values}: expected whole numbers {','.join(COLUMNS)}")
    try:
        us = float(fields[MEASURED]) if fields.get(MEASURED) else None
    except ValueError:
        return Fault(line, f"{MEASURED} is {fields[MEASURED]}: expected a number")
    return Row(line, fields, gemm, us)


Task = Callable[[Path, Sequence[Row]], list[Found]]


def in_parallel(task: Task[Found], aiter: Path, rows: Sequence[Row], jobs: int | None = None) -> Iterator[Found]:
    """Applies a task to rows in several processes; rows of a kernel come together, so that traces are reused."""
    Kernels(aiter)  # raises for what is no checkout
    ordered = sorted(rows, key=lambda row: (row.gemm.tile_m, row.gemm.tile_n, row.gemm.m))
    groups = [ordered[start : start + _GROUP] for start in range(0, len(ordered), _GROUP)]
    with workers.pool(jobs) as executor:
        for results in executor.map(task, [aiter] * len(groups), groups):
            yield from results


def examined(kernels: Kernels, row: Row) -> Examination | Fault:
    """Examines the launch of a row."""
    try:
        return kernels.examine(row.gemm)
    except SimulationError as error:
        return Fault(row.line, str(error))


def estimated(aiter: Path, rows: Sequence[Row]) -> list[tuple[Row, Estimate | Fault]]:
    """Returns the modelled time of each row; a task for `in_parallel`."""
    kernels = Kernels(aiter)
    works = [(row, examined(kernels, row)) for row in rows]
    return [(row, work if isinstance(work, Fault) else estimate(work)) for row, work in works]
