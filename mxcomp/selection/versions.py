"""Kernels for ranges of a dynamic M: one of a few rows is no kernel for thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from mxcomp.layout import DataTiledLayout
from mxcomp.matching.decision import Version
from mxcomp.problem import Problem
from mxcomp.selection import times
from mxcomp.selection.ranking import Candidate
from mxcomp.ukernels.waves import UNIT_ROWS


@dataclass(frozen=True)
class Range:
    """Numbers of rows up to `max_m`, None for all; LHS is padded to multiples of `step` units of 16 rows.

    `points` are what kernels are compared at.
    """

    max_m: int | None
    step: int
    points: tuple[int, ...]


RANGES = (
    Range(16, 1, (1, 16)),
    Range(64, 4, (32, 64)),
    Range(512, 8, (128, 256, 512)),
    Range(1024, 16, (768, 1024)),
    Range(None, 16, (2048, 4096, 8192)),
)
"""The same for all matmuls, so that those of one activation share its packing. With five of them kernels take 1.09 × as
long as the best for each M (modelled; geometric mean of 9 layers and M from 1 to 8192), with one for all 1.36 ×."""

_LEAST_GAIN = 0.1
"""Of the modelled time, below which several kernels are not worth compiling."""


@dataclass(frozen=True)
class Choice:
    """Versions, ascending, and geometric means of modelled µs over all points: with them, and with the best alone."""

    versions: tuple[Version, ...]
    us: float
    alone_us: float


def choose(problem: Problem, ranked: Sequence[Candidate], result_bytes: int) -> Choice | None:
    """The fastest kernel of each range, if that gains anything; `ranked` are those for any M, the best first.

    Raises nothing: None where M is static, N or K is dynamic, or there is a batch.
    """
    if problem.m is not None or problem.batch or not ranked or (packing := _packing(ranked[0])) is None:
        return None
    fitting = [each for each in ranked if _packing(each) == packing]
    versions: list[Version] = []
    best: list[float] = []
    alone: list[float] = []
    for each in RANGES:
        able = [candidate for candidate in fitting if each.step % _units(candidate)[0] == 0]
        if not able:
            return None
        timed = {candidate.ukernel.name: _us(candidate, problem, each, result_bytes) for candidate in able}
        fastest = min(able, key=lambda candidate: geometric_mean(timed[candidate.ukernel.name]))
        versions.append(_version(fastest, each))
        best += timed[fastest.ukernel.name]
        alone += _us(ranked[0], problem, Range(None, _units(ranked[0])[0], each.points), result_bytes)
    us, alone_us = geometric_mean(best), geometric_mean(alone)
    return Choice(tuple(versions), us, alone_us) if us < (1 - _LEAST_GAIN) * alone_us else None


def _packing(candidate: Candidate) -> DataTiledLayout | None:
    """How operands are packed for a candidate, whatever its tile; None if not in units of 16 rows, as ranges count."""
    layout = candidate.ukernel.layout
    if layout is None or layout.units is None or layout.shape.m != UNIT_ROWS:
        return None
    return layout.packed((1, 1))


def _units(candidate: Candidate) -> tuple[int, int]:
    layout = candidate.ukernel.layout
    assert layout is not None
    assert layout.units is not None
    return layout.units


def _us(candidate: Candidate, problem: Problem, rows: Range, result_bytes: int) -> list[float]:
    """Modelled µs at the points of a range, with the padding that it has."""
    tile = candidate.ukernel.tile
    unit = tile[0] // _units(candidate)[0] * rows.step
    sizes = [{"m": -(-m // unit) * unit, "n": problem.n or 0, "k": problem.k or 0} for m in rows.points]
    return [times.modelled(candidate.times, tile, problem, each, result_bytes, order=candidate.order) for each in sizes]


def _version(candidate: Candidate, rows: Range) -> Version:
    ukernel = candidate.ukernel
    assert ukernel.layout is not None
    return Version(
        rows.max_m,
        rows.step,
        ukernel.layout,
        ukernel.name,
        candidate.order,
        ukernel.workgroup_size,
        ukernel.llvm_func_attrs,
    )
