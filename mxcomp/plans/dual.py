"""The dual GEMM plan: two matmuls of the same activations in one dispatch, by a ukernel that quantises them in
registers.

    %g, %u = linalg.generic {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_fused_quant16_dual_…", tensor>}
        ins(%x, %gate, %gate_scales, %up, %up_scales) outs(%zero, %zero)
    %h = linalg.generic ins(%g, %u) { … }      what was fused behind one of them, which read the other

As `packing.quantising_matmul` it is a generic whose loops and operands are the ukernel's, and whose body is not
computed. Whether it can be is known when consumers are fused: those behind one matmul must be all that reads the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.layout import ACC
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build, graph, notes
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.options import FASTEST, OFF
from mxcomp.packing import quantising_matmul, result_tiles
from mxcomp.packing.packer import part_location
from mxcomp.packing.result_tiles import EPILOGUE, UNROLL
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans.building import Building, Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.fused_quant import FusedQuant, brought, of_bits
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection.quantising import modelled_us, separate_us, takes, times
from mxcomp.selection.ranking import fastest
from mxcomp.ukernels import dual


@dataclass(frozen=True)
class Dual(FusedQuant):
    """`dual_ukernel` computes both; each of them quantises by itself if they cannot be in one dispatch after all.

    `partner` is the index of the other matmul.
    """

    plan: str = "dual"
    dual_ukernel: str = ""
    partner: int = -1

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options, registry, problem = context.options, context.registry, site.problem
        if site.partner is None or not context.may_pack or options.fuse_quantisers == OFF:
            return ""
        found = context.activations(site)
        if isinstance(found, str):
            return ""
        candidates = [each for each in dual.INSTANCES if takes(each, problem, found.bits)]
        named = next((each for each in registry.runnable(candidates) if each.name == options.ukernels), None)
        if named is None and options.ukernels != FASTEST:
            return ""
        timed = times(candidates, problem, registry, site.result_bytes)
        separate = _separate_us(best, found.bits, site, context)
        if not named and (not timed or separate is None):
            return ""
        chosen = named or min(timed, key=lambda each: timed[each])
        us = timed.get(chosen)
        note = f"LHS is quantised by {chosen.name}, for matmul {site.partner} as well"
        note += f", modelled {us:.1f} µs for both" if us is not None else ""
        plan = cls.of(best, dual_ukernel=chosen.name, partner=site.partner, note=note, reason=None)
        plan = plan.with_instance(chosen, registry, fused=dual.single(chosen).name)
        return Proposal(plan) if named else Proposal(plan, us, separate)

    @classmethod
    def slower(cls, found: Proposal) -> str:
        assert isinstance(found.plan, Dual)
        return (
            f"with matmul {found.plan.partner} in one dispatch, both would take {found.us:.1f} µs, modelled, "
            f"apart {found.instead_us:.1f}"
        )

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float | None:
        """Returns modelled µs of both."""
        return modelled_us(registry[self.dual_ukernel], problem, result_bytes)

    def of_bits(self, bits: int) -> Tiled:
        found, other = super().of_bits(bits), of_bits(self.dual_ukernel, bits)
        if not isinstance(found, Dual):
            return found
        return FusedQuant.of(found) if other is None else replace(found, dual_ukernel=other)

    def build(self, op: ir.Operation, building: Building) -> None:
        """Builds both when the second one is reached, if they are to be in one dispatch."""
        index = self.index or 0
        pair = None if building.options.reference else _joined_in(index, self, building)
        plan, matmul = self.prepared(op, building)
        if pair is None:
            building.plans.pop(index, None)
            plan.finish(matmul, building)
            return
        building.waiting[index] = plan, matmul
        if self.partner in building.waiting:
            first, joined = pair
            matmuls = building.waiting.pop(first), building.waiting.pop(index + self.partner - first)
            _finish(*matmuls, joined, building)

    def finish(self, matmul: Matmul, building: Building) -> None:
        reason = f"not in one dispatch with matmul {self.partner}: what is fused behind does not read both"
        if not building.options.reference:
            notes.note(matmul.op, self.index or 0, reason)
        super().finish(matmul, building)


def _separate_us(best: Plan, bits: int, site: Site, context: Context) -> float | None:
    """Returns µs of two such matmuls with their current plans: LHS quantised by each of them, or once for both.

    Where a third one has the same LHS, that is done for it anyway.
    """
    if isinstance(best, FusedQuant):
        us = best.cost(site.problem, site.result_bytes, context.registry)
        return None if us is None else 2 * us
    ranked = fastest(site.problem, context.registry, context.options, site.result_bytes)
    quantising = separate_us(context.options.target, site.problem, bits) if len(site.siblings) < 2 else 0.0
    return 2 * ranked[0].us + quantising if ranked else None


def _joined_in(index: int, plan: Dual, building: Building) -> tuple[int, ir.Value] | None:
    """Returns the matmul of a pair into which consumers are fused, and the other's result that they read."""
    op, (other, partner) = building.plans[index][0], building.plans.get(plan.partner, (None, None))
    if not isinstance(partner, Dual) or (partner.dual_ukernel, partner.partner) != (plan.dual_ukernel, index):
        return None
    for first, ops in ((index, (op, other)), (plan.partner, (other, op))):
        if (joined := _joined_result(*ops)) is not None:
            return first, joined
    return None


def _joined_result(op: ir.Operation, other: ir.Operation) -> ir.Value | None:
    """Returns the result of `other` if its only reader is the epilogue of `op`, at the same indices."""
    behind, result = graph.only_user(op), graph.only_user(other)
    if result is not None and EPILOGUE in result.attributes:
        result = graph.only_user(result)
    if behind is None or result is None or EPILOGUE not in behind.attributes:
        return None
    *maps, identity = indexing_maps(behind) or []
    value = result.results[0]
    uses = [(use.owner.operation, use.operand_number) for use in value.uses]
    if not uses or any(user != behind or maps[position] != identity for user, position in uses):
        return None
    return value


def _finish(first: tuple[Tiled, Matmul], second: tuple[Tiled, Matmul], joined: ir.Value, building: Building) -> None:
    """Builds one dispatch for two matmuls; or one for each, if one of them cannot quantise after all."""
    (plan, matmul), (another, other) = first, second
    if not (isinstance(plan, Dual) and isinstance(another, Dual)):
        for each, of in (second, first):
            each.finish(of, building)
        return
    op = matmul.op
    with op.context, part_location(plan.index, "matmul", op, other.op), ir.InsertionPoint(matmul.unset):
        result = _dispatch(plan, matmul, another, other, joined)
        notes.drop(op, another.index or 0)  # its consumers are fused, into the first
    matmul.unset.results[0].replace_all_uses_with(result)
    matmul.erase()
    other.erase()


def _dispatch(plan: Dual, matmul: Matmul, another: Dual, other: Matmul, joined: ir.Value) -> ir.Value:
    """Returns one dispatch of both; the epilogue of the first reads `joined` of the other."""
    limits, tiles = plan.hidden(matmul), plan.tiles(matmul)
    known = [limit for limit in limits if limit is not None]
    with build.dispatch_region([tiles.type(matmul.element, limits)], known) as region:
        counts = TileCounts(matmul.sizes, plan.layout)
        inputs, both = [*matmul.packed, *other.packed[1:]], replace(plan, ukernel=plan.dual_ukernel)
        tiled, other_tiles = quantising_matmul.accumulate(
            inputs, brought(matmul), tiles.accumulators, matmul.problem, plan.layout, both, UNROLL, count=2
        )
        tiled = plan.finished(matmul, tiled, counts, {joined: another.finished(other, other_tiles, counts)})
        region.returned = [result_tiles.unpack(tiled, tiles, counts.of(ACC), limits)]
    return plan.cast(matmul, region.results[0])
