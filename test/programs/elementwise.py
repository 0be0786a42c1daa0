"""Elementwise operations, each as IR of scalars and in NumPy; and operations that move or add up numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, math, tensor
from nodes import FLOATS, Floats, Node, clean, float_node, steps, summed

from mxcomp.mlir import build

Errors = Sequence[Floats]
Operands = Sequence[Floats]


def _sum_of_errors(values: Operands, errors: Errors) -> Floats:
    return sum(errors[1:], errors[0])


@dataclass(frozen=True)
class Elementwise:
    """An operation on scalars of one type; `error` bounds that of its result. `inexact` is its own relative error."""

    body: Callable[..., ir.Value]
    compute: Callable[..., Floats]
    error: Callable[[Operands, Errors], Floats] = _sum_of_errors
    inexact: float = 0.0
    keeps_nan: bool = True


def scalar(like: ir.Value, value: float) -> ir.Value:
    return arith.ConstantOp(like.type, value).result


def times(factor: float) -> Elementwise:
    return Elementwise(
        lambda x: arith.MulFOp(x, scalar(x, factor)).result, lambda x: x * factor, lambda _, e: abs(factor) * e[0]
    )


def plus(term: float) -> Elementwise:
    return Elementwise(lambda x: arith.AddFOp(x, scalar(x, term)).result, lambda x: x + term)


def clamp(bound: float) -> Elementwise:
    """To ±`bound`, for numbers that are no NaN."""

    def body(x: ir.Value) -> ir.Value:
        return arith.MaximumFOp(arith.MinimumFOp(x, scalar(x, bound)).result, scalar(x, -bound)).result

    return Elementwise(body, lambda x: np.clip(x, -bound, bound), keeps_nan=False)


def _relu(x: ir.Value) -> ir.Value:
    """As models from PyTorch spell it; a NaN stays one."""
    zero = scalar(x, 0.0)
    return arith.SelectOp(arith.CmpFOp(arith.CmpFPredicate.UGT, x, zero), x, zero).result


def _silu(x: ir.Value) -> ir.Value:
    return arith.DivFOp(x, arith.AddFOp(math.ExpOp(arith.NegFOp(x).result).result, scalar(x, 1.0)).result).result


def _silu_value(x: Floats) -> Floats:
    return x / (1 + np.exp(-x))


def _silu_error(values: Operands, errors: Errors) -> Floats:
    """Its slope is below 1.1; where the exponential overflows, 0 is right."""
    x = clean(values[0])
    return 1.1 * errors[0] + 2.0**-20 * (1 + np.abs(x)) * np.abs(clean(_silu_value(x))) + 1e-36


def _product_error(values: Operands, errors: Errors) -> Floats:
    (x, y), (ex, ey) = map(clean, values), errors
    return np.abs(x) * ey + np.abs(y) * ex + ex * ey


UNARY = {
    "relu": Elementwise(_relu, lambda x: np.where(x <= 0, 0.0, x)),
    "maximum": Elementwise(
        lambda x: arith.MaximumFOp(x, scalar(x, 0.0)).result, lambda x: np.maximum(x, 0), keeps_nan=False
    ),
    "minimum": Elementwise(
        lambda x: arith.MinimumFOp(x, scalar(x, 24.0)).result, lambda x: np.minimum(x, 24), keeps_nan=False
    ),
    "half": times(0.5),
    "times": times(0.75),
    "minus": times(-2.0),
    "plus": plus(-3.0),
    "absolute": Elementwise(lambda x: math.AbsFOp(x).result, np.abs),
    "negate": Elementwise(lambda x: arith.NegFOp(x).result, np.negative),
}
"""What keeps exact values exact."""
FINAL = {
    "silu": Elementwise(_silu, _silu_value, _silu_error, inexact=1.0),
    "divide": Elementwise(
        lambda x: arith.DivFOp(x, scalar(x, 3.0)).result, lambda x: x / 3, lambda _, e: e[0] / 3, inexact=1.0
    ),
    "tanh": Elementwise(
        lambda x: math.TanhOp(x).result, np.tanh, lambda v, e: e[0] + 2.0**-19, inexact=1.0
    ),
}  # fmt: skip
BINARY = {
    "add": Elementwise(lambda x, y: arith.AddFOp(x, y).result, np.add),
    "subtract": Elementwise(lambda x, y: arith.SubFOp(x, y).result, np.subtract),
    "multiply": Elementwise(lambda x, y: arith.MulFOp(x, y).result, np.multiply, _product_error),
    "largest": Elementwise(lambda x, y: arith.MaximumFOp(x, y).result, np.maximum, keeps_nan=False),
}


def apply(op: Elementwise, *nodes: Node, axes: Sequence[Sequence[int | None]] = (), reads_init: bool = False) -> Node:
    """`op` of each element of the first and those of the others; `axes` are the first's dimensions that they have.

    None stands for place 0. With `reads_init` the last is the tensor that the result is written over.
    """
    first = nodes[0]
    rank = len(first.shape)
    every = [list(range(rank)), *(axes or [list(range(rank))] * (len(nodes) - 1))]
    maps = [loops_of(rank, dims) for dims in every]
    identity = ir.AffineMap.get_identity(rank)
    result = ir.RankedTensorType(first.ir.type)
    if reads_init:
        inputs, init = [node.ir for node in nodes[:-1]], nodes[-1].ir
        maps, count = maps[:-1], len(nodes)
    else:
        inputs, init = [node.ir for node in nodes], build.empty(result, build.dynamic_sizes(first.ir))
        count = len(nodes)
    body = lambda *values: op.body(*values[:count])  # noqa: E731
    value = build.generic(result, inputs, init, [*maps, identity], ["parallel"] * rank, body).results[0]
    return computed(op, value, nodes, every)


def computed(
    op: Elementwise, value: ir.Value | None, nodes: Sequence[Node], axes: Sequence[Sequence[int | None]]
) -> Node:
    """The numbers of `op`, of which `value` is the IR; operands have these dimensions of the first."""
    shape, kind = nodes[0].shape, nodes[0].kind
    with np.errstate(all="ignore"):
        values = [_placed(node.data, dims, shape) for node, dims in zip(nodes, axes, strict=True)]
        if all(node.exact for node in nodes) and not op.inexact:
            return float_node(value, op.compute(*values), kind)
        errors = [
            np.zeros(shape) if node.error is None else _placed(node.error, dims, shape)
            for node, dims in zip(nodes, axes, strict=True)
        ]
        return float_node(value, op.compute(*values), kind, op.error(values, errors))


def loops_of(rank: int, dims: Sequence[int | None]) -> ir.AffineMap:
    """The map of a tensor that has these of the loops as dimensions; None is place 0."""
    zero = ir.AffineExpr.get_constant(0)
    return ir.AffineMap.get(rank, 0, [zero if d is None else ir.AffineExpr.get_dim(d) for d in dims])


def _placed(data: np.ndarray, dims: Sequence[int | None], shape: tuple[int, ...]) -> np.ndarray:
    """Numbers in some of the dimensions, at all places of `shape`."""
    data = data[tuple(0 if d is None else slice(None) for d in dims)]
    kept = [d for d in dims if d is not None]
    data = data.transpose(np.argsort(kept))
    return np.broadcast_to(data.reshape([shape[d] if d in kept else 1 for d in range(len(shape))]), shape)


def cast(node: Node, kind: str) -> Node:
    """Another float type; to a narrower one this is one rounding."""
    if node.kind == kind:
        return node
    element, wide = ir.Type.parse(kind), kind == "f32"
    rank = len(node.shape)
    result = build.tensor_type(build.static_sizes(node.ir), kind)
    maps = [ir.AffineMap.get_identity(rank)] * 2
    make = arith.ExtFOp if wide else arith.TruncFOp
    init = build.empty(result, build.dynamic_sizes(node.ir))
    body = lambda x, _: make(element, x).result  # noqa: E731
    value = build.generic(result, [node.ir], init, maps, ["parallel"] * rank, body).results[0]
    return converted(node, value, kind)


def converted(node: Node, value: ir.Value | None, kind: str) -> Node:
    """The numbers of a cast."""
    if node.error is not None:
        return float_node(value, node.data, kind, node.error)
    with np.errstate(over="ignore"):
        return Node(value, node.data.astype(FLOATS[kind]).astype(np.float64), kind)


def transposed(node: Node, permutation: Sequence[int], named: bool) -> Node:
    """By linalg.transpose, or by a linalg.generic."""
    sizes, dynamic = build.static_sizes(node.ir), dict.fromkeys(range(len(node.shape)))
    result = build.tensor_type([sizes[d] for d in permutation], ir.RankedTensorType(node.ir.type).element_type)
    own = [build.dim(node.ir, d) for d in permutation if sizes[d] is None]
    if named:
        value = build.transpose(node.ir, permutation, own)
    else:
        rank = len(dynamic)
        maps = [loops_of(rank, [list(permutation).index(d) for d in range(rank)]), ir.AffineMap.get_identity(rank)]
        init = build.empty(result, own)
        value = build.generic(result, [node.ir], init, maps, ["parallel"] * rank, lambda x, _: x).results[0]
    return node.at(value, lambda array: array.transpose(permutation))


def sliced(
    node: Node, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int], first: ir.Value | None = None
) -> Node:
    """A part of a static tensor; `first` is the first offset, where it is known at run time only."""
    result = build.tensor_type(sizes, ir.RankedTensorType(node.ir.type).element_type)
    known = [ir.ShapedType.get_dynamic_size() if first is not None and i == 0 else at for i, at in enumerate(offsets)]
    given = [] if first is None else [first]
    value = tensor.ExtractSliceOp(result, node.ir, given, [], [], known, list(sizes), list(strides)).result
    parts = tuple(
        slice(at, at + (size - 1) * stride + 1, stride)
        for at, size, stride in zip(offsets, sizes, strides, strict=True)
    )
    return node.at(value, lambda array: array[parts])


def reshaped(node: Node, shape: Sequence[int]) -> Node:
    """A static tensor in another shape, by way of one dimension."""
    if tuple(shape) == node.shape:
        return node
    element = ir.RankedTensorType(node.ir.type).element_type
    flat, value = node.data.size, node.ir
    if len(node.shape) > 1:
        value = tensor.CollapseShapeOp(build.tensor_type([flat], element), value, [list(range(len(node.shape)))]).result
    if len(shape) > 1:
        result = build.tensor_type(shape, element)
        value = tensor.ExpandShapeOp(result, value, [list(range(len(shape)))], [], list(shape)).result
    return node.at(value, lambda array: array.reshape(shape))


def row_sums(node: Node, axis: int) -> Node:
    """Sums along one axis."""
    rank, kind = len(node.shape), node.kind
    kept = [d for d in range(rank) if d != axis]
    sizes = build.static_sizes(node.ir)
    result = build.tensor_type([sizes[d] for d in kept], kind)
    dynamic = [build.dim(node.ir, d) for d in kept if sizes[d] is None]
    init = linalg.fill(arith.ConstantOp(result.element_type, 0.0).result, outs=[build.empty(result, dynamic)])
    maps = [ir.AffineMap.get_identity(rank), loops_of(rank, kept)]
    iterators = ["reduction" if d == axis else "parallel" for d in range(rank)]
    value = build.generic(result, [node.ir], init, maps, iterators, lambda x, s: arith.AddFOp(s, x).result).results[0]
    magnitude = np.abs(clean(node.data)).sum(axis)
    with np.errstate(invalid="ignore"):
        total = summed(value, node.data.sum(axis), magnitude, steps(node.data, (axis,)), node.shape[axis], kind)
    if node.error is None:
        return total
    own = 0.0 if total.error is None else total.error
    return Node(value, total.data, kind, own + 1.01 * node.error.sum(axis))
