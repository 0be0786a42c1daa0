"""A matmul whose K is split: a batch of parts, each a piece of the same packed operands, and their sum.

    %r = flow.dispatch.region {
      %a = iree_linalg_ext.gather dimension_map = [0]
             ins(%lhs, %parts : tensor<1x8x16x24x…>, tensor<4xi32>) -> tensor<4x8x16x24x…>
      %t = iree_codegen.inner_tiled ins(%a, %b, …) {mxcomp.in_parts}
      … unpacked: tensor<4x2048x512xf32>
    }
    %s = linalg.generic ins(%r, %r, %r, %r) … ((%0 + %1) + %2) + %3 -> tensor<2048x512xf32>

mxcomp-fold-gathers gives part p the p-th of equal pieces of K. What is elementwise behind the sum IREE fuses with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.mlir import build
from mxcomp.packing import expert_tiles
from mxcomp.problem import Problem


def problem_of_parts(problem: Problem, parts: int) -> Problem:
    """What is multiplied, as a batch of parts."""
    return replace(problem, batch=(parts,))


def operands(elements: Sequence[ir.Value], parts: int) -> list[ir.Value]:
    """Packed operands with a matrix for each part, in the region of a dispatch."""
    numbers = ir.DenseElementsAttr.get(np.arange(parts, dtype=np.int32))
    ids = arith.ConstantOp(ir.RankedTensorType.get([parts], ir.IntegerType.get_signless(32)), numbers).result
    return [expert_tiles.gathered(_in_front(value), ids) for value in elements]


def summed(parts: ir.Value) -> ir.Value:
    """[M, N] from [parts, M, N], added in order."""
    count, *sizes = build.static_sizes(parts)
    kind = build.tensor_type(sizes, build.element(parts))
    places = [ir.AffineExpr.get_dim(i) for i in range(len(sizes))]
    maps = [
        *(ir.AffineMap.get(2, 0, [ir.AffineExpr.get_constant(i), *places]) for i in range(count or 1)),
        ir.AffineMap.get(2, 0, places),
    ]

    def body(*values: ir.Value) -> ir.Value:
        return reduce(lambda a, b: arith.AddFOp(a, b).result, values[:-1])

    inputs = [parts] * (count or 1)
    return build.generic(kind, inputs, build.empty(kind), maps, ["parallel"] * 2, body).results[0]


def _in_front(value: ir.Value) -> ir.Value:
    """A tensor with one more dimension, of size 1, in front."""
    kind = ir.RankedTensorType(value.type)
    shape = [1, *kind.shape]
    groups = [[0, 1], *([i] for i in range(2, len(shape)))]
    return tensor.ExpandShapeOp(build.tensor_type(shape, kind.element_type), value, groups, [], shape).result
