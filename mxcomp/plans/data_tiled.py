"""The plan of packed operands: a dispatch to pack each, and one that multiplies, applies the epilogue, and unpacks.

The ukernel is the one of shortest modelled time among those that fit, or that of highest benefit. Without any, IREE
generates code for a layout of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mxcomp.formats import element_format
from mxcomp.layout import LHS
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.options import BENEFIT, FASTEST, NONE
from mxcomp.plans import by_id
from mxcomp.plans.context import Context, Site
from mxcomp.plans.plan import Plan, Proposal, left_to_iree
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Ukernel
from mxcomp.selection.ranking import DYNAMIC_M, Candidate, candidate, fastest
from mxcomp.selection.sharing import best_order
from mxcomp.ukernels.data_tiled import layout_of
from mxcomp.ukernels.weight_only import ACTIVATIONS

_NAMED = 2
"""The number of candidates that a report names in addition to the best."""

CODEGEN_LAYOUTS = {64: layout_of(2, 4, 4, waves=2, parts=2), None: layout_of(4, 8, 2, waves=2, parts=2)}
"""The layouts for matmuls without a ukernel, by the largest M they are meant for.

IREE's code generation spills registers with other splits of the same tiles into subgroups: 1591 of them with the
1 × 4 subgroups of the m128_n256_k256 ukernel.
"""


@dataclass(frozen=True)
class DataTiled(Tiled):
    """All operands are packed, and one kernel computes the whole result."""

    is_open: ClassVar[bool] = False

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        if not context.options.data_tiling or site.problem.types[LHS] == ACTIVATIONS:
            return ""
        return Proposal(by_id.best(site, context, lambda problem: _chosen(problem, site, context)))


def _chosen(problem: Problem, site: Site, context: Context) -> Plan:
    """Returns the plan with a tuned, the fastest or the most beneficial ukernel, or a layout for IREE's code."""
    options, registry, entry = context.options, context.registry, context.entry(site)[0]
    by_time = options.ukernels == FASTEST and not site.is_symmetric
    ranked = fastest(problem, registry, site.result_bytes) if by_time else ()
    ukernel, reason = (ranked[0].ukernel, "") if ranked else select(DATA_TILED, problem, context)
    note = _why(ranked, problem.m)
    if entry is not None:
        ukernel, note = entry.ukernel, entry.note
    if site.is_symmetric and ukernel is not None and ukernel.has_inner_tiles:
        reason, ukernel = f"{ukernel.name}: LHS and RHS may be one tensor", None
    if ukernel is not None and ukernel.layout is not None:
        is_ranked = bool(ranked) and ukernel is ranked[0].ukernel
        order = ranked[0].order if is_ranked else order_of(problem, ukernel, site.result_bytes)
        return DataTiled(note=note).by(ukernel, order).bounded(problem, options)
    layout = next(each for most, each in CODEGEN_LAYOUTS.items() if most is None or (problem.m or most + 1) <= most)
    missing = options.target.lacks_instruction(layout.intrinsic, problem.types)
    if missing or not all(element_format(kind).loadable for kind in problem.types[:2]):
        return left_to_iree(missing or reason, problem)
    order = best_order(problem, layout.workgroup_tile, options.target)
    chosen = DataTiled(layout=layout, workgroup_size=(layout.threads, 1, 1), order=order, reason=reason)
    return chosen.bounded(problem, options)


def select(operands: str, problem: Problem, context: Context) -> tuple[Ukernel | None, str]:
    """Returns the ukernel of highest benefit, or that of the name that is asked for; or why there is none."""
    ukernels = context.options.ukernels
    if ukernels == NONE:
        return None, "--ukernels=none"
    name = None if ukernels in (FASTEST, BENEFIT) else ukernels
    return context.registry.select(operands, problem, name)


def order_of(problem: Problem, ukernel: Ukernel, result_bytes: int = 4) -> Order:
    """Returns the order of workgroups: the fastest of a ukernel whose times are known, else that with the least to
    load."""
    timed = candidate(ukernel, problem, result_bytes)
    return best_order(problem, ukernel.tile, ukernel.target) if timed is None else timed.order


def _why(ranked: Sequence[Candidate], m: int | None) -> str | None:
    """Returns the modelled times of the best candidates, where they decided."""
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
