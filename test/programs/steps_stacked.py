"""Layers alike, whose operands are slices of stacked tensors: dispatches that differ in which slices they read."""

from __future__ import annotations

import mx_operands
import products
import quantisers
from drawing import Drawing
from elementwise import BINARY, apply, sliced
from iree.compiler.dialects import tensor
from mx_operands import KINDS, Operand
from nodes import BLOCK, Node
from steps_matmul import SOURCES, Scale, floats

from mxcomp.mlir import build

LAYERS = {2: 3, 3: 2, 4: 0.5}
LHS = {"quantised": 2, "stored": 1, "one for all": 1}
COMBINED = {"add": 2, "largest": 1}


def stacked_product(drawing: Drawing, scale: Scale) -> Node:
    """x[i] · w[i]ᵀ, and a stacked row on top, for each layer i in an order drawn; their sum or the largest of them."""
    dice, sizes = drawing.dice, scale.matmul(drawing.dice)
    count = sizes["l"] = dice.pick(LAYERS)
    how, kind = dice.noted("stacked", LHS), dice.noted("type", KINDS)
    rhs = mx_operands.draw(drawing, "lnki", sizes, tame=True)
    rows = floats(drawing, (count, sizes["n"]), "f32", "") if dice.chance(0.5, "stacked rows") else None
    if how == "quantised":
        x = floats(drawing, (count, sizes["m"], sizes["k"] * BLOCK), dice.noted("source", SOURCES), "")
    else:
        lhs = mx_operands.draw(drawing, "lmki" if how == "stored" else "mki", sizes, kind, tame=True)
    combined, total, state = BINARY[dice.noted("combined", COMBINED)], None, dice.state()
    for layer in dice.shuffled(range(count)):
        dice.restore(state)  # what follows is drawn alike for all of them
        if how == "quantised":
            side = quantisers.draw(drawing, _matrix(x, layer), "m", kind)
        else:
            side = _layer(lhs, layer) if how == "stored" else lhs
        node = products.draw(drawing, side, _layer(rhs, layer), "mn")
        if rows is not None and node.kind == rows.kind:
            node = apply(BINARY["add"], node, _matrix(rows, layer), axes=[[1]])
        total = node if total is None or total.kind != node.kind else apply(combined, node, total)
    assert total is not None
    return total


def _matrix(node: Node, layer: int) -> Node:
    """One of a stack of matrices, or of rows, without its dimension."""
    sizes = [1, *node.shape[1:]]
    part = sliced(node, [layer] + [0] * (len(sizes) - 1), sizes, [1] * len(sizes))
    return Node(build.collapse(part.ir, _first_dropped(len(sizes))), node.data[layer], node.kind)


def _first_dropped(rank: int) -> list[list[int]]:
    return [[0, 1]] + [[i] for i in range(2, rank)]


def _layer(operand: Operand, layer: int) -> Operand:
    """What a stack has for one layer."""
    elements, axes = _at(operand.elements, operand.axes, layer)
    scales, scale_axes = _at(operand.scales, operand.scale_axes, layer)
    return Operand(elements, scales, axes, scale_axes)


def _at(node: Node, axes: str, layer: int) -> tuple[Node, str]:
    """A tensor without its axis of layers, if it has that."""
    if "l" not in axes:
        return node, axes
    at, rank = axes.index("l"), len(axes)
    sizes = [1 if i == at else size for i, size in enumerate(node.shape)]
    offsets = [layer if i == at else 0 for i in range(rank)]
    result = build.tensor_type([size for i, size in enumerate(sizes) if i != at], build.element(node.ir))
    value = tensor.ExtractSliceOp(result, node.ir, [], [], [], offsets, sizes, [1] * rank).result
    return Node(value, node.data.take(layer, at), node.kind), axes.replace("l", "")
