"""LHS that a ukernel reads as it is stored, row-major, where all else is packed.

In the dispatch of the matmul, units of LHS as they would be packed, for which IREE tiles:

    %a = iree_tensor_ext.bitcast %rows : tensor<10000x8192xi8> -> tensor<10000x16384xf4E2M1FN>
    %u = linalg.generic … tensor.extract %a[%row, %k] -> tensor<40x16x32x1x4x4x16x32xf4E2M1FN>
    %r = iree_codegen.inner_tiled ins(%u, …) {mxcomp.lhs_in_rows}

mxcomp-fold-rows gives workgroups the rows themselves, so that this is never computed.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.formats import BLOCK_SIZE, element_format
from mxcomp.layout import LHS, DataTiledLayout
from mxcomp.matching.storage import storage
from mxcomp.mlir import build
from mxcomp.problem import Problem

IN_ROWS = "mxcomp.lhs_in_rows"
"""The attribute of a matmul that mxcomp-fold-rows gives its LHS as it is stored."""


def rows(source: ir.Value, problem: Problem) -> ir.Value:
    """The bytes [M, K·bits/8] of LHS, where they are stored."""
    bits = element_format(problem.types[LHS]).bits
    return build.bitcast(storage(source), build.tensor_type((problem.m, (problem.k or 0) * bits // 8), "i8"))


def units(stored: ir.Value, problem: Problem, layout: DataTiledLayout) -> ir.Value:
    """Units of LHS from its `rows`, in the region of a dispatch; rows that are padding repeat the last."""
    swizzle, element = layout.packing(LHS), problem.types[LHS]
    outer = [swizzle.tiles(dim, size) for dim, size in enumerate((problem.m, (problem.k or 0) // BLOCK_SIZE))]
    shape = layout.multiplied_shape(LHS, layout.packed_shape(LHS, outer))
    _, of_tile, _, _, steps, blocks, of_unit, inner = (size or 1 for size in shape)
    elements = build.bitcast(stored, build.tensor_type((problem.m, problem.k), element))
    tile, unit, k_tile, _, step, block, row, within = (ir.AffineExpr.get_dim(i) for i in range(len(shape)))
    row = (tile * of_tile + unit) * of_unit + row
    column = ((k_tile * steps + step) * blocks + block) * inner + within

    def body(loops: list[ir.Value]) -> ir.Value:
        place = [build.clamp(build.apply(row, loops), problem.m or 1), build.apply(column, loops)]
        return tensor.ExtractOp(elements, place).result

    return build.by_place(build.tensor_type(shape, element), body)
