"""Split-K: in how many parts a ukernel multiplies K, by modelled time, and what that takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.options import Options
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection.ranking import Candidate, candidate
from mxcomp.selection.streaming import streaming_us
from mxcomp.target import Target

SPLITS = (2, 3, 4, 6, 8)
"""The numbers of parts of K that are considered."""

_LEAST_GAIN = 0.05
"""The least gain, as a fraction of the modelled time, that is worth another dispatch."""

_LEAST_TILES = 4
"""The least number of K tiles of a part: with fewer, a workgroup's prologue and epilogue dominate."""

PART_BYTES = 4
"""The bytes of an element of a part's result, which is f32."""


@dataclass(frozen=True)
class Split:
    """A ukernel for so many parts of K, and µs including the dispatch that sums them."""

    candidate: Candidate
    parts: int
    us: float

    @property
    def kernel(self) -> str:
        return self.candidate.ukernel.name


def is_possible(options: Options) -> bool:
    """Returns whether compilation reaches mxcomp-fold-gathers, which finds parts in packed operands."""
    return options.reads_in_place and not options.reference


def misfit(problem: Problem, ukernel: Ukernel, parts: int, target: Target) -> str:
    """Returns why K of a problem cannot be split in so many parts for a ukernel; "" if it can."""
    if problem.dynamic or problem.batch:
        return "K is split for static sizes without a batch"
    if min(problem.m or 0, problem.n or 0) < 2:
        return "K is not split for a single row or column"
    if ukernel.operands != DATA_TILED or not ukernel.has_inner_tiles:
        return f"{ukernel.name} takes no part of K: it is not over inner tiles"
    if parts * PART_BYTES * _elements(problem) > target.max_buffer_bytes:
        return f"results of {parts} parts exceed {target.max_buffer_bytes} bytes"
    tiles = _k_tiles(problem, ukernel)
    return f"K has {tiles} tiles of {ukernel.tile[2]}, which are not {parts} equal parts" if tiles % parts else ""


def best(problem: Problem, ukernels: Iterable[Ukernel], target: Target, result_bytes: int) -> Split | None:
    """Returns the fastest split K; None if there is none."""
    found: list[Split] = []
    for ukernel in ukernels:
        if ukernel.types[:2] != problem.types[:2]:
            continue
        for parts in SPLITS:
            if misfit(problem, ukernel, parts, target) or _k_tiles(problem, ukernel) < parts * _LEAST_TILES:
                continue
            each = part(problem, ukernel, parts)
            if ukernel.mismatch(each) or (timed := candidate(ukernel, each, PART_BYTES)) is None:
                continue
            found.append(Split(timed, parts, timed.us + sum_us(target, problem, parts, result_bytes)))
    return min(found, key=lambda each: each.us, default=None)


def sum_us(target: Target, problem: Problem, parts: int, result_bytes: int) -> float:
    """Returns modelled µs of the dispatch that sums parts."""
    return streaming_us(target, _elements(problem) * (parts * PART_BYTES + result_bytes))


def is_worth_asking(problem: Problem, chosen: Candidate) -> bool:
    """Returns whether a product leaves compute units idle, and has K enough for parts."""
    if problem.dynamic or problem.batch:
        return False
    rows, columns, k_tiles = (
        -(-(size or 0) // step) for size, step in zip(problem.sizes.values(), chosen.ukernel.tile, strict=True)
    )
    tiles, cus = rows * columns, chosen.ukernel.target.cus
    return tiles < 2 * cus and tiles != cus and k_tiles >= 2 * _LEAST_TILES


def faster(problem: Problem, whole: Candidate, registry: Registry, options: Options, result_bytes: int) -> Split | None:
    """Returns the fastest split K, if it is possible, and clearly faster than a whole K."""
    if not is_possible(options) or not is_worth_asking(problem, whole):
        return None
    found = best(problem, registry.ukernels.values(), options.target, result_bytes)
    return None if found is None or found.us > (1 - _LEAST_GAIN) * whole.us else found


def _elements(problem: Problem) -> int:
    """Returns the number of elements of the result."""
    return (problem.m or 0) * (problem.n or 0)


def _k_tiles(problem: Problem, ukernel: Ukernel) -> int:
    return -(-(problem.k or 0) // ukernel.tile[2])


def part(problem: Problem, ukernel: Ukernel, parts: int) -> Problem:
    """Returns the problem of a batch of parts; with one part the problem itself."""
    if parts == 1:
        return problem
    return replace(problem, k=_k_tiles(problem, ukernel) // parts * ukernel.tile[2], batch=(parts,))
