"""AITER's kernels, replayed for a grid of latencies and rates: what a fit of the timing model goes by."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mxcomp.sim.timing import rows as table
from mxcomp.sim.timing.aiter import Kernels
from mxcomp.sim.timing.chip import Floats
from mxcomp.sim.timing.examination import Examination
from mxcomp.sim.timing.parameters import Machine, mi355x
from mxcomp.sim.timing.rows import Row
from mxcomp.sim.timing.workgroup import replayed
from mxcomp.support.lines import Fault

LATENCIES = np.array([150, 300, 400, 500, 700, 900, 1000, 1100, 1250, 1500, 2000, 3000, 5000], float)
RATES = np.array([8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 31, 34, 38, 44, 64], float)


@dataclass(frozen=True)
class Case:
    """A row, examined.

    Attributes:
        work: Without traces.
        cycles: float64[latencies, rates]: of a workgroup of the first batch.
        later: Of those behind it.
        matrix: Cycles that an MFMA pipe is busy in them.
    """

    row: Row
    work: Examination
    cycles: Floats
    later: Floats
    matrix: float


def examine(aiter: Path, rows: Sequence[Row]) -> list[Case | Fault]:
    return list(table.in_parallel(_cases, aiter, rows))


def _cases(aiter: Path, rows: Sequence[Row]) -> list[Case | Fault]:
    kernels, machine = Kernels(aiter), mi355x().machine
    found: list[Case | Fault] = []
    for row in rows:
        work = table.examined(kernels, row)
        if isinstance(work, Fault):
            found.append(work)
            continue
        cycles, later = (_grid(work, machine, is_first) for is_first in (True, False))
        matrix = replayed(work, machine, LATENCIES[0], RATES[0], True).matrix
        found.append(Case(row, replace(work, parts=()), cycles, later, matrix))
    return found


def _grid(work: Examination, machine: Machine, is_first: bool) -> Floats:
    grid = [[replayed(work, machine, latency, rate, is_first) for rate in RATES] for latency in LATENCIES]
    return np.array([[one.cycles for one in line] for line in grid])


def load(path: Path | None, aiter: Path | None, data: Path) -> list[Case]:
    """The cases that a file keeps; if there is none, those of a table, which the file then keeps.

    Args:
        aiter: A checkout of ROCm/aiter, whose kernels are replayed.
    """
    if path and path.exists():
        kept: list[Case] = pickle.loads(path.read_bytes())
        return kept
    if aiter is None:
        raise SystemExit("--aiter: expected a checkout of ROCm/aiter")
    rows, faults, _ = table.read(data)
    found = examine(aiter, [row for row in rows if row.us])
    faults += [case for case in found if isinstance(case, Fault)]
    for fault in faults:
        print(f"{data}:{fault.line}: {fault.message}")
    cases = [case for case in found if isinstance(case, Case)]
    if path:
        path.write_bytes(pickle.dumps(cases))
    return cases
