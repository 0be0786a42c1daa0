"""Finds the loop in which workgroups spend most time: its cycles, and how many of them matrix instructions take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.timing.costs import Costs, Unit
from mxcomp.sim.timing.examination import SIMDS, Examination
from mxcomp.sim.timing.parameters import Parameters, parameters_of
from mxcomp.sim.timing.trace import Trace
from mxcomp.sim.timing.workgroup import Issues, first_issues

_LEAST = 3
"""The least number of times that a wave reaches the head of a loop: a backward branch that is taken once is no loop."""
_WARM_UP = 3
"""The first iterations, one of so many, do not count: in them a wave still waits for the first loads."""


class Loop(NamedTuple):
    """The figures of a loop in a replay.

    Attributes:
        first, last: Numbers of its first instruction and of the last branch back to it.
        iterations: Of a wave, on average.
        cycles: Of an iteration, on average.
        matrix: Of these, how many a SIMD's matrix pipe works, on average over SIMDs.
    """

    first: int
    last: int
    iterations: float
    cycles: float
    matrix: float

    @property
    def share(self) -> float:
        """The fraction of the time that a SIMD's matrix pipe is busy."""
        return self.matrix / self.cycles


def of_launch(work: Examination, parameters: Parameters | None = None) -> Loop | None:
    """Returns the hottest loop of the workgroups that share a CU in a launch's first batch, or None."""
    trace, _ = work.parts[-1]
    return hottest(trace, first_issues(work, trace, parameters or parameters_of(work.target)))


def hottest(trace: Trace, waves: Sequence[Issues]) -> Loop | None:
    """Returns the loop in which waves spend most time, not counting loops inside it, or None."""
    spans = _spans(trace)
    spent = np.zeros(len(trace.instructions))
    for wave, when in waves:
        spent += np.bincount(wave[:-1], np.diff(when), len(spent))
    if not spans:
        return None
    first, last = max(spans, key=lambda span: _own(span, spans, spent))
    costs = Costs.of(trace.instructions)
    matrix = np.where(costs.unit == Unit.MATRIX, costs.busy, 0)
    measured = [_iteration(first, last, wave, when, matrix) for wave, when in waves]
    each = np.array([one for one in measured if one is not None])
    iterations, cycles, _ = each.mean(axis=0)
    share = float((each[:, 2] / each[:, 1]).sum()) / SIMDS
    return Loop(first, last, float(iterations), float(cycles), share * float(cycles))


def _spans(trace: Trace) -> list[tuple[int, int]]:
    """Returns the first instruction and last branch of each loop, as waves have taken them."""
    last: dict[int, int] = {}
    for wave in trace.codes:
        heads = np.flatnonzero(np.bincount(wave, minlength=1) >= _LEAST)
        back = np.flatnonzero(wave[1:] <= wave[:-1])
        for k in back[np.isin(wave[back + 1], heads)]:
            head, branch = int(wave[k + 1]), int(wave[k])
            last[head] = max(last.get(head, branch), branch)
    return sorted(last.items())


def _own(span: tuple[int, int], spans: list[tuple[int, int]], spent: NDArray[np.float64]) -> float:
    """Returns the time spent in a loop but not in loops inside it."""
    first, last = span
    outside = np.zeros(len(spent), np.bool_)
    outside[first : last + 1] = True
    for begin, end in spans:
        if (begin, end) != span and first <= begin and end <= last:
            outside[begin : end + 1] = False
    return float(spent[outside].sum())


def _iteration(
    first: int, last: int, wave: NDArray[np.int32], when: NDArray[np.float64], matrix: NDArray[np.int64]
) -> tuple[float, float, float] | None:
    """Returns a wave's number of iterations, and the cycles and matrix cycles of one on average. None if the wave is
    not in that loop for long."""
    starts = np.flatnonzero(wave == first)
    left = np.concatenate([[0], np.cumsum((wave < first) | (wave > last))])
    begin, end = starts[:-1], starts[1:]
    through = left[begin] == left[end]  # one iteration follows the other
    begin, end = begin[through], end[through]
    begin, end = begin[len(begin) // _WARM_UP :], end[len(end) // _WARM_UP :]
    if not len(begin):
        return None
    total = np.concatenate([[0], np.cumsum(matrix[wave])])
    return len(starts), float(np.mean(when[end] - when[begin])), float(np.mean(total[end] - total[begin]))
