"""The choice of a layout and a ukernel for one problem, as a `Decision`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mxcomp.formats import element_format
from mxcomp.layout import LHS, DataTiledLayout
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.matching.decision import DATA_TILED, ROW_MAJOR, Decision
from mxcomp.matching.operands import warning_of
from mxcomp.options import BENEFIT, FASTEST, NONE, Options
from mxcomp.problem import Problem
from mxcomp.selection import unquantised, versions
from mxcomp.selection.limits import limits
from mxcomp.selection.ranking import DYNAMIC_M, Candidate, candidate, fastest
from mxcomp.selection.sharing import least
from mxcomp.selection.tuned import Entry
from mxcomp.target import Target
from mxcomp.ukernels import Registry, Ukernel, weight_only

_NAMED = 2
"""Candidates beside the best that a report names."""

_SCALES_INTERLEAVED: dict[str, Any] = {
    "operands_interleaving_intrinsics_m": (2,),
    "operands_interleaving_intrinsics_n": (3,),
    "operands_interleaving_intrinsics_k": (2, 3),
}
CODEGEN_LAYOUTS = {
    64: DataTiledLayout(
        intrinsics_m=2, intrinsics_n=4, intrinsics_k=4, subgroups_m=2, subgroups_n=2, **_SCALES_INTERLEAVED
    ),
    None: DataTiledLayout(
        intrinsics_m=4, intrinsics_n=8, intrinsics_k=2, subgroups_m=2, subgroups_n=2, **_SCALES_INTERLEAVED
    ),
}
"""Layouts for matmuls without a ukernel, by the largest M they are meant for.

IREE's code generation spills registers with other splits of the same tiles into subgroups: 1591 of them with the
1 × 4 subgroups of the m128_n256_k256 ukernel.
"""


@dataclass(frozen=True)
class Place:
    """What a matmul's place in its module says.

    Attributes:
        is_gathered: An operand is stored in another order.
        is_symmetric: LHS and RHS may be one tensor, which ukernels over units, and row-major ones, cannot be given.
        result_bytes: Of an element as it is stored, behind what is fused.
        beside: Other matmuls of the same LHS, which are to share what is packed, and the bytes of their results.
    """

    is_gathered: bool = False
    is_symmetric: bool = False
    result_bytes: int = 4
    beside: tuple[tuple[Problem, int], ...] = ()


def choose(
    problem: Problem, place: Place, registry: Registry, options: Options, tuned: Entry | None = None
) -> Decision:
    """How a problem is computed, and why not otherwise.

    What a tuned table says of the problem comes first. Raises UkernelError for a ukernel by a name that does not exist.
    """
    if problem.types[LHS] == weight_only.ACTIVATIONS:
        chosen = unquantised.choose(problem, registry, options, place.result_bytes)
        return _bounded(chosen, problem, (weight_only.MOST_ROWS, 1, 1), options) if chosen.is_ours else chosen
    if options.data_tiling:
        return _data_tiled(problem, place, registry, options, tuned)
    return _row_major(problem, place, registry, options)


def choose_transposed(
    problem: Problem, name: str, registry: Registry, options: Options, gated: bool = False
) -> Decision:
    """A problem computed transposed by the ukernel of this name, with blocks of results in lanes; or left to IREE.

    `gated`: of gate and up, of which each tile has as much.
    """
    flipped = problem.flipped
    ukernel, reason = registry.select(DATA_TILED, flipped, name)
    if ukernel is None or ukernel.layout is None:
        return _left(reason, flipped)
    layout = replace(ukernel.layout, lane_rows=True, gated=gated)
    order = _order(flipped, ukernel.layout, ukernel, options.target)
    chosen = _with(ukernel, Decision(operands=DATA_TILED, transposed=True, layout=layout, order=order))
    return _bounded(chosen, flipped, ukernel.layout.workgroup_tile, options)


def _data_tiled(problem: Problem, place: Place, registry: Registry, options: Options, tuned: Entry | None) -> Decision:
    by_time = options.ukernels == FASTEST and not place.is_symmetric
    ranked = fastest(problem, registry, options, place.result_bytes) if by_time else ()
    ukernel, reason = (ranked[0].ukernel, "") if ranked else _select(DATA_TILED, problem, registry, options)
    note = _why(ranked, problem.m)
    if tuned is not None:
        ukernel, note = tuned.ukernel, tuned.note
    if place.is_symmetric and ukernel is not None and ukernel.layout is not None and ukernel.layout.units is not None:
        reason, ukernel = f"{ukernel.name}: LHS and RHS may be one tensor", None
    if ukernel is not None and ukernel.layout is not None:
        layout = ukernel.layout
        chosen = _with(ukernel, Decision(operands=DATA_TILED, layout=layout, note=note))
    else:
        layout = _codegen_layout(problem.m)
        missing = options.target.lacks_instruction(layout.intrinsic, problem.types)
        if missing or not all(element_format(kind).loadable for kind in problem.types[:2]):
            return _left(missing or reason, problem)
        chosen = Decision(operands=DATA_TILED, layout=layout, workgroup_size=(layout.threads, 1, 1), reason=reason)
    is_ranked = bool(ranked) and ukernel is ranked[0].ukernel
    if (
        is_ranked
        and tuned is None
        and options.versions
        and not options.reference
        and (found := versions.choose(*_with_others(problem, ranked, place, registry, options)))
    ):
        return _by_rows(chosen, found, problem, options)
    order = ranked[0].order if is_ranked else _order(problem, layout, ukernel, options.target, place.result_bytes)
    return _bounded(replace(chosen, order=order), problem, layout.workgroup_tile, options)


def _by_rows(chosen: Decision, found: versions.Choice, problem: Problem, options: Options) -> Decision:
    """A decision with kernels by ranges of M, of which the last is the one that it names."""
    *others, last = found.versions
    names = [f"{each.ukernel} up to M = {each.max_m}" for each in others]
    note = f"{', '.join(names)}; modelled {found.us:.1f} µs, a geometric mean, against {found.alone_us:.1f} with one"
    decision = replace(chosen.of(last), versions=found.versions, note=note)
    assert decision.packing is not None
    units = max(each.units[0] for each in found.versions)
    m, n, k = decision.packing.workgroup_tile
    return _bounded(decision, problem, (m * units, n, k), options)


def _with_others(
    problem: Problem, ranked: Sequence[Candidate], place: Place, registry: Registry, options: Options
) -> tuple[versions.Ranked, list[versions.Ranked]]:
    """A problem with its candidates, and the others that share its LHS with theirs."""
    others = [versions.Ranked(other, fastest(other, registry, options, size), size) for other, size in place.beside]
    return versions.Ranked(problem, ranked, place.result_bytes), others


def _order(
    problem: Problem, layout: DataTiledLayout, ukernel: Ukernel | None, target: Target, result_bytes: int = 4
) -> Order:
    """The order of workgroups: the fastest of a ukernel whose times are known, else that with the least to load."""
    timed = None if ukernel is None else candidate(ukernel, problem, result_bytes)
    return least(problem, layout.workgroup_tile, target) if timed is None else timed.order


def _row_major(problem: Problem, place: Place, registry: Registry, options: Options) -> Decision:
    ukernel, reason = _select(ROW_MAJOR, problem, registry, options)
    if ukernel is None:
        return _left(f"--data-tiling=off and {reason}", problem)
    if problem.batch or place.is_gathered:
        return _left(f"--data-tiling=off and {ukernel.name}: it takes row-major operands without a batch", problem)
    if place.is_symmetric:
        return _left(f"--data-tiling=off and {ukernel.name}: LHS and RHS may be one tensor", problem)
    chosen = _with(ukernel, Decision(operands=ROW_MAJOR, tile=ukernel.tile))
    return _bounded(chosen, problem, (1, 1, 1), options)


def _select(operands: str, problem: Problem, registry: Registry, options: Options) -> tuple[Ukernel | None, str]:
    if options.ukernels == NONE:
        return None, "--ukernels=none"
    name = None if options.ukernels in (FASTEST, BENEFIT) else options.ukernels
    return registry.select(operands, problem, name)


def _why(ranked: Sequence[Candidate], m: int | None) -> str | None:
    """What the modelled times of the best candidates are, where they decided."""
    if not ranked:
        return None
    best, *others = ranked
    prefix = best.ukernel.name.partition("_f32_")[0] + "_f32_"
    others_text = ", ".join(f"{each.ukernel.name.removeprefix(prefix)} {each.us:.1f}" for each in others[:_NAMED])
    low, high = best.interval
    us = f"modelled {best.us:.1f} µs ({low:.1f} to {high:.1f})"
    over = "" if m is not None else f", a geometric mean over M of {DYNAMIC_M[0]} to {DYNAMIC_M[-1]}"
    order = "" if best.order == PLAIN_ORDER else f", {best.order}"
    return us + over + order + (f"; {others_text}" if others_text else "")


def _codegen_layout(m: int | None) -> DataTiledLayout:
    return next(layout for limit, layout in CODEGEN_LAYOUTS.items() if limit is None or (m is not None and m <= limit))


def _with(ukernel: Ukernel, decision: Decision) -> Decision:
    """A decision with how a ukernel is launched."""
    return replace(
        decision,
        ukernel=ukernel.name,
        workgroup_size=ukernel.workgroup_size,
        llvm_func_attrs=ukernel.llvm_func_attrs,
    )


def _bounded(chosen: Decision, problem: Problem, padding: tuple[int, int, int], options: Options) -> Decision:
    """A choice with the limits of dynamic sizes, if all fits into buffers; operands are padded to whole `padding`."""
    max_bytes = options.target.max_buffer_bytes
    found = limits(problem, padding, max_bytes)
    if found is None:
        return _left(f"an operand or the result exceeds {max_bytes} bytes", problem)
    result = max_bytes if problem.m is problem.n is None else None
    return replace(chosen, max_m=found.get("m"), max_n=found.get("n"), max_k=found.get("k"), max_bytes=result)


def _left(reason: str, problem: Problem) -> Decision:
    """The decision to leave a matmul to IREE."""
    return Decision(reason=f"left to IREE: {reason}", warning=warning_of(problem.types[:2]) or None)
