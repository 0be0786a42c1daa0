"""The plan of row-major operands: the ukernel reads them as they are stored, without data tiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE
from mxcomp.layout.problem import Problem
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import ROW_MAJOR
from mxcomp.mlir import build, graph
from mxcomp.packing import result_tiles
from mxcomp.packing.packer import part_location
from mxcomp.packing.runtime_sizes import guarded
from mxcomp.plans.building import Building
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import select
from mxcomp.plans.plan import Launched, Plan, Proposal, left_to_iree
from mxcomp.ukernels.weight_only import ACTIVATIONS


@dataclass(frozen=True)
class RowMajor(Launched):
    """The matmul itself in a dispatch, with the ukernel's name; `tile` is a workgroup's (M, N, K) in elements."""

    plan: str = ROW_MAJOR
    tile: tuple[int, ...] = ()

    operands: ClassVar[str] = ROW_MAJOR
    is_open: ClassVar[bool] = False

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        problem = site.problem
        if context.options.data_tiling or problem.types[LHS] == ACTIVATIONS:
            return ""
        ukernel, reason = select(ROW_MAJOR, problem, context)
        if ukernel is not None and (problem.batch or site.is_gathered):
            reason = f"{ukernel.name}: it takes row-major operands without a batch"
        elif ukernel is not None and site.is_symmetric:
            reason = f"{ukernel.name}: LHS and RHS may be one tensor"
        if ukernel is None or reason:
            return Proposal(left_to_iree(f"--data-tiling=off and {reason}", problem))
        return Proposal(RowMajor().by(ukernel).bounded(problem, context.options))

    def build(self, op: ir.Operation, building: Building) -> None:
        if building.options.reference:
            return
        problem = problem_of(op)
        with op.context, part_location(self.index, "matmul", op), ir.InsertionPoint(op):
            result = build.tensor_type((problem.m, problem.n), problem.types[ACC])
            rows = list(guarded(list(op.operands), problem, self.limits).values.values())
            for index in (LHS, LHS_SCALE) if rows else ():
                op.operands[index] = build.tie_shape(op.operands[index], rows)
            tile_m, tile_n, _ = self.tile
            result_tiles.annotate(op, self, [tile_m, tile_n, 0, 0], _can_reorder(problem, tile_m, tile_n))
            with build.dispatch_region([result], rows) as region:
                acc = build.zero_filled(result, rows)
                inner = op.clone()
                inner.operands[ACC] = acc
                region.returned = [inner.results[0]]
        graph.replace(op, region.results[0])


def _can_reorder(problem: Problem, tile_m: int, tile_n: int) -> bool:
    """Returns whether IREE may reorder the workgroups of row-major tiles: it ignores the smaller tiles at the
    border."""
    m, n = problem.m or 0, problem.n or 0
    return m > tile_m and n > tile_n and m % tile_m == n % tile_n == 0
