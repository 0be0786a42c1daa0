"""mxcomp-legalise-zeros: removes constant-0 subscripts of elementwise operations, on which IREE may crash.

Where IREE moves a transposition across one, it takes every subscript for a loop, and that of a 0 from memory that is
no loop's. The operand is read without the dimension instead.

Before:

    %r = linalg.generic {indexing_maps = [(m, n) -> (m, n), (m, n) -> (0, n), (m, n) -> (m, n)], …}
        ins(%x, %bias : tensor<64x128xf32>, tensor<1x128xf32>) …

After:

    %b = tensor.collapse_shape %bias [[0, 1]] : tensor<1x128xf32> into tensor<128xf32>
    %r = linalg.generic {indexing_maps = [(m, n) -> (m, n), (m, n) -> (n), (m, n) -> (m, n)], …}
        ins(%x, %b : tensor<64x128xf32>, tensor<128xf32>) …

A dimension with more elements becomes a slice of one.
"""

from __future__ import annotations

from itertools import pairwise

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise


def run(module: ir.Operation) -> None:
    """Rewrites operations outside of dispatches below `module`."""
    graph.rewrite(module, lambda op: op.name == "linalg.generic" and is_elementwise(op), _drop_zeros, outside=True)


def _drop_zeros(op: ir.Operation) -> None:
    """Makes an operation read each operand by loops alone."""
    *inputs, output = indexing_maps(op) or []
    maps = []
    for position, affine_map in enumerate(inputs):
        value = op.operands[position]
        zeros = [i for i, expression in enumerate(affine_map.results) if _is_zero(expression)]
        if zeros and not (is_sub_byte(build.element(value)) and _has_more(value, zeros)):  # which IREE cannot slice
            op.operands[position] = _without(value, zeros)
            kept = [expression for i, expression in enumerate(affine_map.results) if i not in zeros]
            affine_map = ir.AffineMap.get(affine_map.n_dims, 0, kept)
        maps.append(affine_map)
    if maps != inputs:
        op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in (*maps, output)])


def _is_zero(expression: ir.AffineExpr) -> bool:
    return isinstance(expression, ir.AffineConstantExpr) and ir.AffineConstantExpr(expression).value == 0


def _has_more(value: ir.Value, dims: list[int]) -> bool:
    sizes = build.static_sizes(value)
    return any(sizes[i] != 1 for i in dims)


def _without(value: ir.Value, zeros: list[int]) -> ir.Value:
    """Returns a tensor's slice at 0 of these dimensions, without them."""
    kept = [i for i in range(ir.RankedTensorType(value.type).rank) if i not in zeros]
    if _has_more(value, zeros):
        return _slice(value, kept)
    cuts = [0, *kept[1:], ir.RankedTensorType(value.type).rank]
    return build.collapse(value, [list(range(*cut)) for cut in pairwise(cuts)] if kept else [])


def _slice(value: ir.Value, kept: list[int]) -> ir.Value:
    sizes = build.static_sizes(value)
    taken = [(build.dim(value, i) if size is None else size) if i in kept else 1 for i, size in enumerate(sizes)]
    result = build.tensor_type([sizes[i] for i in kept], build.element(value))
    return build.sliced(value, [0] * len(taken), taken, result)
