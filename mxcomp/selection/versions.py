"""Chooses kernels for ranges of a dynamic M, as one for a few rows is slow for thousands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import geometric_mean
from typing import TypeVar

from mxcomp.layout import DataTiledLayout
from mxcomp.layout.inner_tiles import INNER_ROWS
from mxcomp.layout.problem import Problem
from mxcomp.selection import times
from mxcomp.selection.ranking import Candidate

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Range:
    """Numbers of rows up to `max_m`, None for all; kernels are compared at `points`."""

    max_m: int | None
    points: tuple[int, ...]


RANGES = (
    Range(16, (1, 16)),
    Range(64, (32, 64)),
    Range(256, (128, 256)),
    Range(512, (384, 512)),
    Range(1024, (768, 1024)),
    Range(None, (2048, 4096, 8192)),
)
"""The ranges of all matmuls. With six of them kernels take 1.06 × as long as the best for each M (modelled; geometric
mean of 9 layers and M from 1 to 8192), with one for all 1.40 ×."""

COLUMNS = 16
"""RHS, packed once for all versions, is padded to no more than a multiple of so many inner tiles of columns."""


@dataclass(frozen=True)
class Ranked:
    """A problem with a dynamic M, its candidates for any M, the best first, and the bytes of a result's element."""

    problem: Problem
    candidates: Sequence[Candidate]
    result_bytes: int

    @property
    def packing(self) -> DataTiledLayout | None:
        """The packing of operands for the best of the candidates that versions may have."""
        return next(filter(None, map(self.packing_for, self.candidates)), None)

    def packing_for(self, candidate: Candidate) -> DataTiledLayout | None:
        """Returns the packing of operands for a candidate, independent of its tile.

        None if other candidates cannot share it: its columns have to divide those of RHS, padded for all.
        """
        layout, columns = candidate.ukernel.layout, -(-(self.problem.n or 0) // (COLUMNS * INNER_ROWS)) * COLUMNS
        if layout is None or layout.inner_tiles is None or layout.shape.m != INNER_ROWS:
            return None
        return None if columns % layout.inner_tiles[1] else layout.packed((1, 1))


@dataclass(frozen=True)
class Choice:
    """Says which kernels there are, by the most rows that they are for, ascending, no neighbours alike.

    Times are geometric means of modelled µs over all points: with them, and with the best alone.
    """

    kernels: tuple[tuple[int | None, Candidate], ...]
    us: float
    alone_us: float


def choose(ranked: Ranked, siblings: Iterable[Ranked] = ()) -> Choice | None:
    """Returns the fastest kernel of each range.

    Rows are padded to a multiple of what that kernel takes. So that matmuls `siblings` this one, of the same LHS, share
    what is packed, in each range all have kernels of as many rows if they can, those that are fastest together.
    Raises nothing: None where M is static, N or K is dynamic, or there is a batch.
    """
    if ranked.problem.m is not None or ranked.problem.batch or ranked.packing is None:
        return None
    together = [ranked, *(each for each in siblings if each.packing == ranked.packing)]
    fastest = [[_by_step(each, rows) for each in together] for rows in RANGES]
    if not all(of_each for of_range in fastest for of_each in of_range):
        return None
    steps = [_step(of_range) for of_range in fastest]
    found = [of_range[0][step] for of_range, step in zip(fastest, steps, strict=True)]
    us = geometric_mean(us for each in found for us in each.us)
    alone_us = geometric_mean(us for rows in RANGES for us in _timed(ranked.candidates[0], ranked, rows).us)
    kernels = last_of_runs(((rows.max_m, each.candidate) for each, rows in zip(found, RANGES, strict=True)), _name)
    return Choice(kernels, us, alone_us)


def last_of_runs(items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> tuple[_Item, ...]:
    """Returns the last one of neighbours with the same key, as of ranges of rows with the same kernel."""
    return tuple(deque(run, maxlen=1).pop() for _, run in groupby(items, key))


def _name(version: tuple[int | None, Candidate]) -> str:
    return version[1].ukernel.name


@dataclass(frozen=True)
class Timed:
    """A candidate, and its modelled µs at the points of a range, including its padding."""

    candidate: Candidate
    us: list[float]

    @property
    def mean(self) -> float:
        return geometric_mean(self.us)


def _by_step(ranked: Ranked, rows: Range) -> dict[int, Timed]:
    """Returns the fastest candidate for each number of inner tiles of rows, of those that are packed as the best."""
    ascending = sorted(timed(ranked, rows), key=lambda each: each.mean, reverse=True)
    return {_inner_tiles(each.candidate)[0]: each for each in ascending}  # the last one with a key wins


def timed(ranked: Ranked, rows: Range) -> Iterator[Timed]:
    """Returns times over a range of all candidates that versions may have: those that are packed as the best is."""
    packing = ranked.packing
    return (_timed(each, ranked, rows) for each in ranked.candidates if ranked.packing_for(each) == packing)


def _step(together: Sequence[Mapping[int, Timed]]) -> int:
    """Returns the inner tiles of rows of the kernels that are fastest together. If there are none for all matmuls, of
    the first one's."""
    first, *others = together
    common = [step for step in first if all(step in each for each in others)]
    if not common:
        return min(first, key=lambda step: first[step].mean)
    return min(common, key=lambda step: sum(each[step].mean for each in together))


def _inner_tiles(candidate: Candidate) -> tuple[int, int]:
    layout = candidate.ukernel.layout
    assert layout is not None
    assert layout.inner_tiles is not None
    return layout.inner_tiles


def _timed(candidate: Candidate, ranked: Ranked, rows: Range) -> Timed:
    tile = candidate.ukernel.tile
    padded = (replace(ranked.problem, m=-(-m // tile[0]) * tile[0]) for m in rows.points)
    works = (times.Matmul(each, ranked.result_bytes) for each in padded)
    return Timed(candidate, [times.modelled(candidate.times, tile, work, candidate.order) for work in works])
