"""The dual GEMM plan: two matmuls of the same activations in one dispatch, by a ukernel that quantises them in
registers.

    %g, %u = linalg.generic {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_fused_quant16_dual_…", tensor>}
        ins(%x, %gate, %gate_scales, %up, %up_scales) outs(%zero, %zero)
    %h = linalg.generic ins(%g, %u) { … }      what was fused behind one of them, which read the other

As `packing.quantising_matmul` it is a generic whose loops and operands are the ukernel's, and whose body is not
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.matching.activations import Activations
from mxcomp.options import OFF
from mxcomp.packing.result_tiles import UNROLL
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.fused_quant import PAIRS, SINGLES, FusedQuant, cheapest, fused_norm_us, variant
from mxcomp.plans.joint import Joint
from mxcomp.plans.plan import Plan, Proposal, modelled
from mxcomp.plans.tiled import Tiled
from mxcomp.selection.quantising import separate_us, takes, times
from mxcomp.selection.ranking import fastest
from mxcomp.selection.times import UNKNOWN


@dataclass(frozen=True)
class Dual(Joint, FusedQuant):
    """`fused` computes both; each of them quantises by itself if they cannot be in one dispatch after all."""

    plan: str = "dual"

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        registry, problem = context.registry, site.problem
        if site.partner is None or not context.may_pack or context.options.fuse_quantisers == OFF:
            return ""
        found = context.activations(site)
        if isinstance(found, str) or found.shared:
            return ""
        asked = context.asked_for(each for each in PAIRS if takes(each, problem, found.bits))
        if not asked:
            return ""
        chosen, norm, us = cheapest(times(asked, problem, registry, site.result_bytes), found, context, 1)
        separate = _separate_us(best, found, site, context)
        if context.by_time and UNKNOWN in (us, separate):
            return ""
        note = f"LHS is {'normalised and ' * norm}quantised by {chosen.name}, for matmul {site.partner} as well"
        note += modelled(us, " for both")
        plan = cls.of(best, partner=site.partner, note=note, reason=None, norm=norm).with_instance(chosen, registry)
        return Proposal(plan, us, separate) if context.by_time else Proposal(plan)

    @property
    def apart(self) -> FusedQuant:
        return FusedQuant.of(self, fused=variant(self.fused, matrices=1))

    def of_bits(self, bits: int) -> Tiled:
        found = super().of_bits(bits)
        return found if isinstance(found, Dual) else self.apart.of_bits(bits)

    def of_both(self, matmul: Matmul, other: Matmul) -> Sequence[ir.Value]:
        inputs, kind = [*matmul.packed, *other.packed[1:]], self.tiles(matmul).accumulators
        return self.by_kernel(self.fused, inputs, matmul, kind, UNROLL, count=2)


def _separate_us(best: Plan, found: Activations, site: Site, context: Context) -> float:
    """Returns µs of two such matmuls with their current plans: LHS quantised by each of them, or once for both.

    Where a third one has the same LHS, that is done for it anyway.
    """
    if isinstance(best, FusedQuant):
        us = best.cost(site.problem, site.result_bytes, context.registry)
        norm = next((fused_norm_us(found, each, context, 2) for each in SINGLES if each.name == best.fused), 0.0)
        return 2 * (us + norm * best.norm)
    ranked = fastest(site.problem, context.registry, site.result_bytes)
    quantising = separate_us(context.options.target, site.problem, found.bits) if len(site.siblings) < 2 else 0.0
    return 2 * ranked[0].us + quantising if ranked else UNKNOWN
