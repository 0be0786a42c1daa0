"""Steps that do not multiply matrices: elementwise operations, other ways to read a value, and bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from drawing import Drawing
from elementwise import BINARY, FINAL, UNARY, apply, cast, reshaped, row_sums, scalar, sliced, times, transposed
from iree.compiler import ir
from iree.compiler.dialects import arith, tensor
from nodes import BITS, BLOCK, DIGITS, Node, clean
from quantisers import narrowed
from steps_matmul import floats

from mxcomp.mlir import build

LARGEST_CAST = {"f16": 60000.0, "bf16": 1e37, "f32": 1e37}


def _fit(node: Node, op: str) -> bool:
    return node.finite or op not in ("maximum", "minimum", "largest")


def unary(drawing: Drawing, node: Node) -> Node:
    op = drawing.dice.noted("unary", dict.fromkeys([name for name in UNARY if _fit(node, name)], 1))
    return apply(UNARY[op], node)


def final(drawing: Drawing, node: Node) -> Node:
    """What leaves a value inexact, in f32: its bound counts on that for what lies between."""
    node = node if node.kind == "f32" else cast(node, "f32")
    return apply(FINAL[drawing.dice.noted("final", dict.fromkeys(FINAL, 1))], node)


SHAPES = {"columns": 3, "whole": 3, "rows": 1, "one row": 1, "one": 0.5}


def binary(drawing: Drawing, node: Node) -> Node:
    """With another tensor: of its shape, of its columns (a bias), of its rows, one row at place 0."""
    dice, rank = drawing.dice, len(node.shape)
    op = dice.noted("binary", dict.fromkeys([name for name in BINARY if _fit(node, name)], 1))
    form = dice.noted("other", SHAPES)
    dims: list[int | None] = {
        "columns": [rank - 1],
        "whole": list(range(rank)),
        "rows": [0],
        "one row": [None, *range(1, rank)],
        "one": [None] * rank,
    }[form]
    sizes = build.static_sizes(node.ir)
    shape = tuple(1 if d is None else node.shape[d] for d in dims)
    dynamic = tuple(i for i, d in enumerate(dims) if d is not None and sizes[d] is None)
    other = floats(drawing, shape, node.kind, "", dynamic)
    return apply(BINARY[op], node, other, axes=[dims], reads_init=form == "whole" and dice.chance(0.3, "reads outs"))


def pair(drawing: Drawing, node: Node) -> Node:
    """With another value of the program of the same shape, or with itself."""
    alike = [other for other in drawing.pool if other.shape == node.shape and other.kind == node.kind and other.static]
    other = drawing.dice.pick(alike or [node]) if node.static else node
    if not other.finite:
        other = node
    op = drawing.dice.noted("pair", {"add": 2, "subtract": 1, **({"largest": 1} if node.finite else {})})
    return apply(BINARY[op], node, other)


def casted(drawing: Drawing, node: Node) -> Node:
    kind = drawing.dice.noted("cast", {kind: 1 for kind in DIGITS if kind != node.kind})
    if np.abs(clean(node.data)).max(initial=0.0) > LARGEST_CAST[kind]:
        return node
    if "f32" not in (kind, node.kind):
        node = cast(node, "f32")
    return cast(node, kind)


def transpose(drawing: Drawing, node: Node) -> Node:
    if len(node.shape) < 2:
        return node
    permutation = [*range(len(node.shape) - 2), len(node.shape) - 1, len(node.shape) - 2]
    return transposed(node, permutation, drawing.dice.chance(0.5))


def row(drawing: Drawing, node: Node) -> Node:
    """Minus its row 0, or its column 0."""
    rank = len(node.shape)
    dims: list[int | None] = list(range(rank))
    dims[drawing.dice.pick([rank - 1, rank - 2])] = None
    return apply(BINARY[drawing.dice.pick(["add", "subtract"])], node, node, axes=[dims]) if rank > 1 else node


def symmetric(drawing: Drawing, node: Node) -> Node:
    """h + hᵀ, or hᵀ alone where it is not square."""
    other = transpose(drawing, node)
    return apply(BINARY["add"], node, other) if other.shape == node.shape and node.static else other


def part(drawing: Drawing, node: Node) -> Node:
    """A slice: of rows, or of columns in blocks."""
    if not node.static:
        return node
    dice, sizes = drawing.dice, list(node.shape)
    offsets, strides = [0] * len(sizes), [1] * len(sizes)
    axis = dice.below(len(sizes))
    unit = BLOCK if axis == len(sizes) - 1 and sizes[axis] % BLOCK == 0 and dice.chance(0.7) else 1
    count = sizes[axis] // unit
    offsets[axis] = unit * dice.below((count + 1) // 2)
    sizes[axis] -= offsets[axis]
    if sizes[axis] > 2 and unit == 1 and dice.chance(0.3):
        strides[axis], sizes[axis] = 2, sizes[axis] // 2
    first = None
    if axis == 0 and dice.chance(0.5, "dynamic offset"):
        first = index(drawing, offsets[0])
    return sliced(node, offsets, sizes, strides, first)


def index(drawing: Drawing, value: int) -> ir.Value:
    """An index that is known at run time only."""
    given = drawing.argument(np.array([value], np.int32), "i32")
    return arith.IndexCastOp(ir.IndexType.get(), tensor.ExtractOp(given, [build.constant_index(0)]).result).result


def sums(drawing: Drawing, node: Node) -> Node:
    return row_sums(node, drawing.dice.below(len(node.shape))) if len(node.shape) > 1 else node


def flat(drawing: Drawing, node: Node) -> Node:
    """Dimensions joined, or split."""
    if not node.static:
        return node
    if len(node.shape) > 2:
        return reshaped(node, [int(np.prod(node.shape[:-1])), node.shape[-1]])
    height = node.shape[0]
    return reshaped(node, [2, height // 2, *node.shape[1:]]) if height % 2 == 0 and len(node.shape) == 2 else node


def captured(drawing: Drawing, node: Node) -> Node:
    """Times a scalar that is extracted from a tensor outside of the operation: an f32, which hosts calculate with."""
    node = node if node.kind == "f32" else cast(node, "f32")
    factor = drawing.dice.pick([0.5, 1.5, -1.0])
    given = drawing.argument(np.array([factor], np.float32), "f32")
    value = tensor.ExtractOp(given, [build.constant_index(0)]).result
    return apply(replace(times(factor), body=lambda x: arith.MulFOp(x, value).result), node)


def integers(drawing: Drawing, node: Node) -> Node:
    """As i4: what comes out of fptosi of numbers that have been clamped."""
    if not _returnable(node, 4):
        return node
    result = build.tensor_type(build.static_sizes(node.ir), "i4")

    def body(x: ir.Value, _: ir.Value) -> ir.Value:
        bounded = arith.MinimumFOp(arith.MaximumFOp(x, scalar(x, -8.0)).result, scalar(x, 7.0)).result
        return arith.FPToSIOp(result.element_type, bounded).result

    maps = [ir.AffineMap.get_identity(result.rank)] * 2
    init = build.empty(result, build.dynamic_sizes(node.ir))
    value = build.generic(result, [node.ir], init, maps, ["parallel"] * result.rank, body).results[0]
    codes = np.trunc(np.clip(node.data, -8, 7)).astype(np.int8).view(np.uint8) & 15
    return Node(value, codes, "i4")


def elements(drawing: Drawing, node: Node) -> Node:
    """Elements of a static quantisation, to be returned as bytes."""
    kind = drawing.dice.noted("returned", {"f4E2M1FN": 2, "f6E2M3FN": 1, "f8E4M3FN": 1, "f8E5M2": 1})
    return narrowed(drawing, node, kind) if _returnable(node, BITS[kind]) else node


def _returnable(node: Node, bits: int) -> bool:
    """Whether it can become integers or elements that fill bytes."""
    return node.exact and node.finite and build.static_sizes(node.ir)[-1] is not None and node.shape[-1] * bits % 8 == 0
