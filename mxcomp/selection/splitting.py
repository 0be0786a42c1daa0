"""Whether K of a matmul is split over workgroups: parts are multiplied like a batch, and added up by a second dispatch.

That pays where a product has fewer tiles than the chip has compute units, and K is long. Parts are added in order, so
results are the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection.ranking import Candidate, candidate
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.target import Target
from mxcomp.ukernels import Registry, Ukernel

if TYPE_CHECKING:
    from mxcomp.selection.choice import Place

SPLITS = (2, 3, 4, 6, 8)
"""Parts of K that are considered."""

_LEAST_GAIN = 0.05
"""Of the modelled time, below which another dispatch is not worth it."""

_LEAST_TILES = 4
"""K tiles of a part, below which beginning and ending a workgroup are most of its time."""

_PART_BYTES = 4
"""Of an element of a part's result: f32."""


@dataclass(frozen=True)
class Split:
    """A ukernel for so many parts of K, and µs with the dispatch that adds them up."""

    candidate: Candidate
    parts: int
    us: float

    @property
    def kernel(self) -> str:
        return self.candidate.ukernel.name


def is_possible(options: Options) -> bool:
    """Whether what is compiled comes to mxcomp-fold-gathers, which finds parts in packed operands."""
    return options.reads_in_place and not options.reference


def misfit(problem: Problem, ukernel: Ukernel, parts: int, target: Target) -> str:
    """Why K of a problem cannot be split in so many parts for a ukernel; "" if it can."""
    if problem.dynamic or problem.batch:
        return "K is split for static sizes without a batch"
    if min(problem.m or 0, problem.n or 0) < 2:
        return "K is not split for a single row or column"
    if ukernel.operands != DATA_TILED or ukernel.layout is None or ukernel.layout.units is None:
        return f"{ukernel.name} takes no part of K: it is not over units"
    if ukernel.layout.pairs:
        return f"{ukernel.name} takes no part of K: it multiplies units two by two, which lie as far apart as K is long"
    if parts * _PART_BYTES * _elements(problem) > target.max_buffer_bytes:
        return f"results of {parts} parts exceed {target.max_buffer_bytes} bytes"
    tiles = _k_tiles(problem, ukernel)
    return f"K has {tiles} tiles of {ukernel.tile[2]}, which are not {parts} equal parts" if tiles % parts else ""


def best(problem: Problem, ukernels: Iterable[Ukernel], target: Target, result_bytes: int) -> Split | None:
    """The fastest way with K split; None if there is none."""
    found: list[Split] = []
    for ukernel in ukernels:
        if ukernel.types[:2] != problem.types[:2]:
            continue
        for parts in SPLITS:
            if misfit(problem, ukernel, parts, target) or _k_tiles(problem, ukernel) < parts * _LEAST_TILES:
                continue
            each = part(problem, ukernel, parts)
            if ukernel.mismatch(each) or (timed := candidate(ukernel, each, _PART_BYTES)) is None:
                continue
            found.append(Split(timed, parts, timed.us + sum_us(target, problem, parts, result_bytes)))
    return min(found, key=lambda each: each.us, default=None)


def sum_us(target: Target, problem: Problem, parts: int, result_bytes: int) -> float:
    """Modelled µs of the dispatch that adds parts up: a launch, a load's latency, and its bytes at HBM's rate."""
    p = parameters_of(target)
    moved = _elements(problem) * (parts * _PART_BYTES + result_bytes)
    return p.launch_us + p.cold_latency / (p.clock_ghz * 1e3) + moved / (p.hbm_terabytes * 1e6)


def is_worth_asking(problem: Problem, chosen: Candidate) -> bool:
    """Whether a product leaves compute units idle, and has K enough for parts."""
    if problem.dynamic or problem.batch:
        return False
    rows, columns, k_tiles = (
        -(-(size or 0) // step) for size, step in zip(problem.sizes.values(), chosen.ukernel.tile, strict=True)
    )
    tiles, cus = rows * columns, chosen.ukernel.target.cus
    return tiles < 2 * cus and tiles != cus and k_tiles >= 2 * _LEAST_TILES


def faster(problem: Problem, whole: Candidate, registry: Registry, options: Options, result_bytes: int) -> Split | None:
    """The fastest way with K split, if it is clearly faster than with a whole K."""
    if not is_worth_asking(problem, whole):
        return None
    found = best(problem, registry.ukernels.values(), options.target, result_bytes)
    return None if found is None or found.us > (1 - _LEAST_GAIN) * whole.us else found


def choose(chosen: Decision, problem: Problem, registry: Registry, options: Options, place: Place) -> Decision:
    """A decision, made one with K split if that is modelled to be faster."""
    if place.is_symmetric:
        return chosen
    if options.ukernels != FASTEST or not is_possible(options) or chosen.ukernel is None:
        return chosen
    if chosen.operands != DATA_TILED or not _is_plain(chosen):
        return chosen
    whole = candidate(registry[chosen.ukernel], problem, place.result_bytes)
    found = None if whole is None else faster(problem, whole, registry, options, place.result_bytes)
    if whole is None or found is None:
        return chosen
    note = f"K in {found.parts} parts, modelled {found.us:.1f} µs with their sum, {whole.us:.1f} by {chosen.ukernel}"
    return split(chosen, found.candidate.ukernel, found.parts, note, found.candidate)


def split(chosen: Decision, ukernel: Ukernel, parts: int, note: str, timed: Candidate | None) -> Decision:
    """A decision with K in so many parts for a ukernel."""
    return replace(
        chosen,
        layout=ukernel.layout,
        ukernel=ukernel.name,
        parts=parts,
        order=chosen.order if timed is None else timed.order,
        workgroup_size=ukernel.workgroup_size,
        llvm_func_attrs=ukernel.llvm_func_attrs,
        note=note,
        reason=None,
    )


def _is_plain(chosen: Decision) -> bool:
    """Whether nothing else was decided that makes a dispatch of its own kind."""
    others = (chosen.versions, chosen.quantising, chosen.paired, chosen.gathered, chosen.lhs_in_rows, chosen.transposed)
    return not any(others) and chosen.requantised_for is None


def _elements(problem: Problem) -> int:
    """Of the result."""
    return (problem.m or 0) * (problem.n or 0)


def _k_tiles(problem: Problem, ukernel: Ukernel) -> int:
    return -(-(problem.k or 0) // ukernel.tile[2])


def part(problem: Problem, ukernel: Ukernel, parts: int) -> Problem:
    """What a batch of parts is, as a problem; of one part the problem itself."""
    if parts == 1:
        return problem
    return replace(problem, k=_k_tiles(problem, ukernel) // parts * ukernel.tile[2], batch=(parts,))
