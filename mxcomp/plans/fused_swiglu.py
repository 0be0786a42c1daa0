"""The plan of experts whose hidden activations are computed of gate and up, and quantised, by the product behind them.

For few rows it is one dispatch less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mxcomp.options import FASTEST, ON
from mxcomp.plans import by_id
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.problem import Problem
from mxcomp.selection.layers import us_of, ways
from mxcomp.selection.quantising import takes
from mxcomp.ukernels import swiglu

if TYPE_CHECKING:
    from mxcomp.plans.context import Context, Site

_NOT = "LHS is not quantised by the ukernel: "


@dataclass(frozen=True)
class FusedSwiglu(FusedQuant):
    """The ukernel takes gate and up as they are."""

    plan: str = "fused_swiglu"

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options = context.options
        if not cls.is_asked_for(site, context, best) or not context.may_pack:
            return ""
        found = context.activations(site)
        named = next((each for each in swiglu.INSTANCES if each.name == options.ukernels), None)
        if isinstance(found, str) or found.pair is None or not (named or options.ukernels == FASTEST):
            return ""
        chosen = _named(named, site.stored) if named else _fastest(site.stored, context, options.fuse_quantisers == ON)
        if isinstance(chosen, str):
            return f"{_NOT}{chosen}"
        plan = cls.of(best, note=chosen.note, reason=None).with_instance(chosen.instance, context.registry)
        reads = by_id.operands(site, context, plan)
        is_alike = plan.gathered == (() if isinstance(reads, str) else reads)
        return Proposal(plan) if is_alike else f"{_NOT}all experts would exceed a buffer"


@dataclass(frozen=True)
class _Found:
    instance: swiglu.Instance
    note: str


def _named(instance: swiglu.Instance, problem: Problem) -> _Found | str:
    if not takes(instance, problem, swiglu.BITS):
        return f"{instance.name} is not for {'x'.join(str(problem.sizes[axis]) for axis in 'mnk')}"
    return _Found(instance, f"LHS is computed and quantised by {instance.name}")


def _fastest(problem: Problem, context: Context, itself: bool) -> _Found | str:
    """The ukernel that quantises, if that is modelled to be faster, or if `itself` asks for it."""
    _, outside = ways(problem, context.registry, itself)
    if outside is None:
        return "the times of none are known"
    us, instance = f"modelled {us_of(outside):.1f} µs with gate and up", outside[1].ukernel.instance
    if not isinstance(instance, swiglu.Instance):
        return f"in a dispatch of its own it takes no longer, {us}"
    return _Found(instance, f"LHS is computed and quantised by {instance.name}, {us}")
