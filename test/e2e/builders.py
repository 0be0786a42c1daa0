"""MLIR modules made with the bindings: quantisation, scaled matmuls of any rank, elementwise operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, func, tensor

from mxcomp.mlir import build

Body = Callable[..., list[ir.Value]]
Arguments = Sequence[tuple[tuple[int | None, ...], str]]


def module(body: Body, arguments: Arguments) -> str:
    """A module with one function, its body built on arguments of these shapes and types."""
    return functions({"main": (body, arguments)})


def functions(named: Mapping[str, tuple[Body, Arguments]]) -> str:
    """The same with several functions, by name."""
    with ir.Context(), ir.Location.unknown():
        made = ir.Module.create()
        for name, (body, arguments) in named.items():
            types = [build.tensor_type(shape, element) for shape, element in arguments]
            with ir.InsertionPoint(made.body):
                func.FuncOp.from_py_func(*types, name=name)(body)
        return str(made)


def constant(data: np.ndarray) -> ir.Value:
    """Bytes as a constant."""
    return arith.ConstantOp(build.tensor_type(data.shape, "i8"), ir.DenseElementsAttr.get(data.view(np.int8))).result


def stored(elements: ir.Value, scales: ir.Value, kind: str) -> tuple[ir.Value, ir.Value]:
    """Bytes [..., K·bits/8] and [..., K/32] as elements [..., K/32, 32] of type `kind` and their scales."""
    *lead, blocks = build.static_sizes(scales)
    typed = build.bitcast(elements, build.tensor_type((*lead, blocks, 32), kind))
    return typed, build.bitcast(scales, build.tensor_type((*lead, blocks), "f8E8M0FNU"))


def _product(a: ir.Value, b: ir.Value, accumulator: ir.Value) -> ir.Value:
    return arith.AddFOp(accumulator, arith.MulFOp(a, b).result).result


def _scaled_product(a: ir.Value, b: ir.Value, a_scale: ir.Value, b_scale: ir.Value, accumulator: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    return _product(
        arith.ScalingExtFOp(f32, a, a_scale).result, arith.ScalingExtFOp(f32, b, b_scale).result, accumulator
    )


def scaled_matmul(lhs: tuple[ir.Value, ir.Value], rhs: tuple[ir.Value, ir.Value]) -> ir.Value:
    """LHS · RHSᵀ in f32, both as elements [..., rows, K/32, 32] and scales [..., rows, K/32].

    The batch of the LHS is one of the RHS too if that has a dimension for it.
    """
    *batch, m, _ = build.static_sizes(lhs[1])
    *both, n, _ = build.static_sizes(rhs[1])
    loops = len(batch) + 4
    *outer, i, j, ko, kb = (ir.AffineExpr.get_dim(loop) for loop in range(loops))
    shared = outer if both else []
    dims = ([*outer, i, ko, kb], [*shared, j, ko, kb], [*outer, i, ko], [*shared, j, ko], [*outer, i, j])
    maps = [ir.AffineMap.get(loops, 0, expressions) for expressions in dims]
    result = build.tensor_type((*batch, m, n), "f32")
    init = build.zero_filled(result, build.dynamic_sizes(lhs[1])[: result.rank - 1])
    iterators = ["parallel"] * (loops - 2) + ["reduction"] * 2
    inputs = [lhs[0], rhs[0], lhs[1], rhs[1]]
    return build.generic(result, inputs, init, maps, iterators, _scaled_product).results[0]


def elementwise(
    body: Callable[..., ir.Value], first: ir.Value, others: Sequence[ir.Value] = (), element: str | None = None
) -> ir.Value:
    """`body` of each element of `first` and those of `others`, which may lack leading dimensions; as `element`."""
    plain = ir.RankedTensorType(first.type)
    result = build.tensor_type(build.static_sizes(first), element or plain.element_type)
    dims = [ir.AffineExpr.get_dim(d) for d in range(plain.rank)]
    ranks = [plain.rank, *(ir.RankedTensorType(other.type).rank for other in others), plain.rank]
    maps = [ir.AffineMap.get(plain.rank, 0, dims[plain.rank - rank :]) for rank in ranks]
    init = build.empty(result, build.dynamic_sizes(first))
    inputs = [first, *others]
    op = build.generic(result, inputs, init, maps, ["parallel"] * plain.rank, lambda *values: body(*values[:-1]))
    return op.results[0]


def rounded(value: ir.Value, element: str) -> ir.Value:
    """f32 as f16 or bf16."""
    kind = ir.Type.parse(element)
    return elementwise(lambda x: arith.TruncFOp(kind, x).result, value, element=element)


def unfused_matmul(lhs: tuple[ir.Value, ir.Value], rhs: tuple[ir.Value, ir.Value]) -> ir.Value:
    """The same as `scaled_matmul` for operands without a batch: dequantised to f32 first, then multiplied."""
    a, b = _dequantised(*lhs), _dequantised(*rhs)
    m, n = (build.static_sizes(value)[0] for value in (a, b))
    i, j, k = (ir.AffineExpr.get_dim(loop) for loop in range(3))
    maps = [ir.AffineMap.get(3, 0, expressions) for expressions in ([i, k], [j, k], [i, j])]
    result = build.tensor_type((m, n), "f32")
    init = build.zero_filled(result, build.dynamic_sizes(lhs[1]))
    return build.generic(result, [a, b], init, maps, ["parallel", "parallel", "reduction"], _product).results[0]


def _dequantised(elements: ir.Value, scales: ir.Value) -> ir.Value:
    """[rows, K/32, 32] and [rows, K/32] as [rows, K] of f32."""
    rows, blocks = build.static_sizes(scales)
    f32 = ir.F32Type.get()
    result = build.tensor_type((rows, blocks, 32), f32)
    per_block, whole = (ir.AffineMap.get(3, 0, [ir.AffineExpr.get_dim(d) for d in range(rank)]) for rank in (2, 3))

    def body(element: ir.Value, scale: ir.Value, _: ir.Value) -> ir.Value:
        return arith.MulFOp(arith.ExtFOp(f32, element).result, arith.ExtFOp(f32, scale).result).result

    init = build.empty(result, build.dynamic_sizes(scales))
    values = build.generic(result, [elements, scales], init, [whole, per_block, whole], ["parallel"] * 3, body)
    collapsed = build.tensor_type((rows, blocks * 32), f32)
    return tensor.CollapseShapeOp(collapsed, values.results[0], [[0], [1, 2]]).result


def reshaped(value: ir.Value, lead: Sequence[int], kept: int) -> ir.Value:
    """Leading dimensions, all static, given other sizes; the last `kept` stay."""
    kind = ir.RankedTensorType(value.type)
    before, inner = kind.rank - kept, kind.shape[kind.rank - kept :]
    result = build.tensor_type((*lead, *inner), kind.element_type)
    wide = max(before, len(lead))
    groups = [list(range(wide)), *([wide + i] for i in range(kept))]
    if before == wide:
        return tensor.CollapseShapeOp(result, value, groups).result
    return tensor.ExpandShapeOp(result, value, groups, [], list(result.shape)).result
