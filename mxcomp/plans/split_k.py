"""The split-K plan: K is split over workgroups, as a batch of parts of the same packed operands, and their sum.

    %r = flow.dispatch.region {
      %a = iree_linalg_ext.gather dimension_map = [0]
             ins(%lhs, %parts : tensor<1x8x16x24x…>, tensor<4xi32>) -> tensor<4x8x16x24x…>
      %t = iree_codegen.inner_tiled ins(%a, %b, …) {mxcomp.in_parts}
      … unpacked: tensor<4x2048x512xf32>
    }
    %s = linalg.generic ins(%r, %r, %r, %r) … ((%0 + %1) + %2) + %3 -> tensor<2048x512xf32>

mxcomp-fold-gathers gives part p the p-th of equal slices of K. IREE fuses elementwise consumers with the sum. Parts are
added in order, so results are the same in every run. Split-K pays where a product has fewer tiles than the chip has
compute units, and K is long.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout.problem import Problem
from mxcomp.mlir import build
from mxcomp.options import FASTEST
from mxcomp.packing import expert_tiles, result_tiles, stored_operand
from mxcomp.packing.packer import part_location
from mxcomp.packing.result_tiles import IN_PARTS
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection import split_k
from mxcomp.selection.ranking import candidate


@dataclass(frozen=True)
class SplitK(Tiled):
    """`parts` of K, each multiplied by separate workgroups."""

    plan: str = "split_k"
    parts: int = 1

    fuses_consumers: ClassVar[bool] = False  # they are fused into the dispatch that sums parts
    is_open: ClassVar[bool] = False

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        entry, _ = context.entry(site)
        if entry is not None:
            is_split = isinstance(best, Tiled) and best.ukernel == entry.ukernel.name and entry.line.split_k > 1
            plan = cls.of(best, parts=entry.line.split_k, note=entry.note, reason=None)
            return Proposal(plan.by(entry.ukernel, plan.order)) if is_split else ""
        if site.partner is not None or site.is_symmetric or context.options.ukernels != FASTEST:
            return ""
        if type(best) is not DataTiled or best.ukernel is None or best.gathered:
            return ""
        problem, registry, size = site.problem, context.registry, site.result_bytes
        whole = candidate(registry[best.ukernel], problem, size)
        found = None if whole is None else split_k.faster(problem, whole, registry, context.options, size)
        if whole is None or found is None:
            return ""
        note = f"K in {found.parts} parts, modelled {found.us:.1f} µs with their sum, {whole.us:.1f} by {best.ukernel}"
        plan = cls.of(best, parts=found.parts, note=note, reason=None)
        return Proposal(plan.by(found.candidate.ukernel, found.candidate.order))

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        assert self.ukernel is not None
        each = split_k.part(problem, registry[self.ukernel], self.parts)
        us = super().cost(each, split_k.PART_BYTES, registry)
        return us + split_k.sum_us(registry.target, problem, self.parts, result_bytes)

    @property
    def marks(self) -> tuple[str, ...]:
        return (*super().marks, IN_PARTS)

    def result(self, matmul: Matmul) -> ir.Value:
        problem = replace(matmul.problem, batch=(self.parts,))
        tiles = replace(self.tiles(matmul), problem=problem)
        with build.dispatch_region([tiles.type("f32")], []) as region:
            elements = [stored_operand.elements(value, problem.types[i], []) for i, value in enumerate(matmul.packed)]
            pieces = _pieces(elements, self.parts)
            tiled = result_tiles.accumulate(pieces, tiles.zeros([]), problem, self.layout, self, {})
            region.returned = [result_tiles.unpack(tiled, tiles, [], [None, None])]
        with part_location(self.index, "sum", matmul.op):
            return _summed(region.results[0])


def _pieces(elements: list[ir.Value], parts: int) -> list[ir.Value]:
    """Returns packed operands with a matrix for each part, in the region of a dispatch."""
    numbers = ir.DenseElementsAttr.get(np.arange(parts, dtype=np.int32))
    ids = arith.ConstantOp(ir.RankedTensorType.get([parts], ir.IntegerType.get_signless(32)), numbers).result
    in_front = (build.split(value, 0, (1, build.static_sizes(value)[0])) for value in elements)
    return [expert_tiles.gathered(value, ids) for value in in_front]


def _summed(parts: ir.Value) -> ir.Value:
    """Returns [M, N] from [parts, M, N], added in order."""
    count, *sizes = build.static_sizes(parts)
    kind = build.tensor_type(sizes, build.element(parts))
    dims = [ir.AffineExpr.get_dim(i) for i in range(len(sizes))]
    maps = [
        *(ir.AffineMap.get(2, 0, [ir.AffineExpr.get_constant(i), *dims]) for i in range(count or 1)),
        ir.AffineMap.get(2, 0, dims),
    ]

    def body(*values: ir.Value) -> ir.Value:
        return reduce(lambda a, b: arith.AddFOp(a, b).result, values[:-1])

    inputs = [parts] * (count or 1)
    return build.generic(kind, inputs, build.empty(kind), maps, ["parallel"] * 2, body).results[0]
