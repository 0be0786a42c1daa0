"""The plan of gate and up as one product of many rows, by a ukernel whose tile has columns of both.

    %g, %u = linalg.generic {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_dual_…", tensor>}
        ins(%x, %x_scale, %gate, %gate_scale, %up, %up_scale) outs(%zero, %zero)
    %h = linalg.generic ins(%g, %u) { … }      what was fused behind one of them, which read the other

Tiles are as large as those of one matmul of all columns, and one of both results is never in memory. As in
`packing.quantising_matmul` the generic is a placeholder, from which IREE takes loops over tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.layout import ACC, LHS_SCALE
from mxcomp.layout.inner_tiles import LANES
from mxcomp.layout.order import PLAIN_ORDER, Order
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build
from mxcomp.packing import result_tiles, standing
from mxcomp.packing.result_tiles import UNROLL
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.joint import Joint, operands
from mxcomp.plans.plan import Plan, Proposal, modelled
from mxcomp.registry import Registry
from mxcomp.selection.ranking import candidate
from mxcomp.selection.times import UNKNOWN
from mxcomp.ukernels import dual_packed
from mxcomp.ukernels.waves import BEYOND


@dataclass(frozen=True)
class DualPacked(Joint):
    """The kernel takes both."""

    plan: str = "dual_packed"

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        registry, problem = context.registry, site.problem
        if site.partner is None or not context.may_pack or type(best) is not DataTiled or site.is_symmetric:
            return ""
        if problem.batch or problem.dynamic:
            return ""
        size = min(each.result_bytes for each in (site, context.sites[site.partner]))  # both choose the same
        asked = context.asked_for(each for each in dual_packed.INSTANCES if takes(each, problem))
        timed = [(each, *_timed(each, problem, size, registry)) for each in asked]
        chosen, order, us = min(timed, key=lambda each: each[-1], default=(None, PLAIN_ORDER, UNKNOWN))
        if chosen is None or (context.by_time and us == UNKNOWN):
            return ""
        note = f"{chosen.name} computes matmul {site.partner} as well{modelled(us, ' for both')}"
        both = cls(partner=site.partner, instead=best, note=note).by(registry[chosen.name], order)
        plan = both.bounded(problem, context.options)
        return Proposal(plan, us, 2 * best.cost(problem, size, registry)) if context.by_time else Proposal(plan)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        """Returns modelled µs of both."""
        instance = registry[self.joint_kernel].instance
        assert isinstance(instance, dual_packed.Instance)
        _, us = _timed(instance, problem, result_bytes, registry)
        return us

    def taking(self, matmul: Matmul, stored: list[ir.Value]) -> Matmul:
        """Returns the matmul with operands in bytes: [tiles, inner tiles, K tiles, bytes of an inner tile]."""
        packed = []
        for index, value in enumerate(matmul.packed):
            *outer, _, _, size = build.static_sizes(value)
            each = self.layout.intrinsics_k * LANES * (1 if index >= LHS_SCALE else size or 1)
            packed.append(build.bitcast(value, build.tensor_type((*outer[:3], each), "i8")))
        return replace(matmul, packed=packed)

    def of_both(self, matmul: Matmul, other: Matmul) -> Sequence[ir.Value]:
        kind, counts = self.tiles(matmul).accumulators, self.counts(matmul).of(ACC)
        *result, k, left, left_scale, right, right_scale = range(_LOOPS)
        m, n, inner_m, inner_n, *_ = result
        rows = [(m, inner_m, k, each) for each in (left, left_scale)]
        columns = [(n, inner_n, k, each) for each in (right, right_scale)]
        accs = [build.zero_filled(kind, counts) for _ in range(2)]
        dims, tile = [*rows, *columns, *columns, result, result], [1, 1] + [0] * (_LOOPS - 2)
        op, tile = standing.generic([kind] * 2, operands(matmul, other), accs, dims, len(result), tile)
        result_tiles.annotate(op, self, tile, False, UNROLL)
        return list(op.results)


_LOOPS = 12
"""Tiles along M and N, inner tiles along both, groups, rows and values of a fragment; K tiles, and bytes of each
operand."""


def takes(instance: dual_packed.Instance, problem: Problem) -> bool:
    """Returns whether an instance computes problems alike two at a time; a dynamic M has any number of tiles."""
    m, n, k = (problem.sizes[axis] or BEYOND for axis in "mnk")
    return instance.types == problem.types and instance.covers(m, n, k)


def _timed(
    instance: dual_packed.Instance, problem: Problem, result_bytes: int, registry: Registry
) -> tuple[Order, float]:
    """Returns order and µs of the ukernel for one matmul with all columns; half of its results are stored."""
    both = replace(problem, n=2 * (problem.n or 0))
    found = candidate(registry[instance.plain.name], both, max(1, result_bytes // 2))
    return (PLAIN_ORDER, UNKNOWN) if found is None else (found.order, found.us)
