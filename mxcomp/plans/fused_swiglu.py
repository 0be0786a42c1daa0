"""The plan of experts whose down product computes hidden activations from gate and up, and quantises them.

This saves a dispatch for few rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.options import FASTEST, ON
from mxcomp.plans import by_id
from mxcomp.plans.context import Context, Site
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.selection.layers import us_of, ways
from mxcomp.selection.quantising import takes
from mxcomp.ukernels import swiglu

_NOT = "LHS is not quantised by the ukernel: "


@dataclass(frozen=True)
class FusedSwiglu(FusedQuant):
    """The ukernel takes gate and up as they are."""

    plan: str = "fused_swiglu"

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options, problem = context.options, site.stored
        if not cls.is_asked_for(site, context, best) or not context.may_pack:
            return ""
        found = context.activations(site)
        chosen = next((each for each in swiglu.INSTANCES if each.name == options.ukernels), None)
        if isinstance(found, str) or found.pair is None or not (chosen or options.ukernels == FASTEST):
            return ""
        us = ""
        if chosen is None:
            _, outside = ways(problem, context.registry, itself=options.fuse_quantisers == ON)
            if outside is None:
                return f"{_NOT}the times of none are known"
            us, fastest = f", modelled {us_of(outside):.1f} µs with gate and up", outside[1].ukernel.instance
            if not isinstance(fastest, swiglu.Instance):
                return f"{_NOT}in a dispatch of its own it takes no longer{us}"
            chosen = fastest
        elif not takes(chosen, problem, swiglu.BITS):
            return f"{_NOT}{chosen.name} is not for {'x'.join(str(problem.sizes[axis]) for axis in 'mnk')}"
        note = f"LHS is computed and quantised by {chosen.name}{us}"
        plan = cls.of(best, note=note, reason=None).with_instance(chosen, context.registry)
        reads = by_id.operands(site, context, plan)
        is_alike = plan.gathered == (() if isinstance(reads, str) else reads)
        return Proposal(plan) if is_alike else f"{_NOT}all experts would exceed a buffer"
