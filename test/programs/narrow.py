"""Steps on tensors of narrow floats: selected and changed bit by bit before they are multiplied or widened."""

from __future__ import annotations

import mx_operands
import numpy as np
import products
from drawing import Drawing
from iree.compiler import ir
from iree.compiler.dialects import arith
from mx_operands import Operand
from nodes import BITS, VALUES, Node
from steps_matmul import Scale

from mxcomp.mlir import build

CHANGES = {"select": 2, "negate": 1, "absolute": 1}


def changed_product(drawing: Drawing, scale: Scale) -> Node:
    """A product whose left elements are chosen from two tensors, or have their sign bits changed."""
    dice = drawing.dice
    sizes = scale.matmul(dice)
    lhs = changed(drawing, mx_operands.draw(drawing, "mki", sizes, tame=dice.chance(scale.tame)))
    return products.draw(drawing, lhs, mx_operands.draw(drawing, "nki", sizes, tame=dice.chance(scale.tame)), "mn")


def widened(drawing: Drawing, scale: Scale) -> Node:
    """Such elements as f32, [rows, K]."""
    operand = changed(drawing, mx_operands.draw(drawing, "mki", scale.matmul(drawing.dice), tame=True))
    f32, node = ir.F32Type.get(), operand.elements
    result = build.tensor_type(build.static_sizes(node.ir), f32)
    maps = [ir.AffineMap.get_identity(result.rank)] * 2
    init = build.empty(result, build.dynamic_sizes(node.ir))
    body = lambda x, _: arith.ExtFOp(f32, x).result  # noqa: E731
    value = build.generic(result, [node.ir], init, maps, ["parallel"] * result.rank, body).results[0]
    return Node(value, VALUES[node.kind][node.data], "f32")


def changed(drawing: Drawing, operand: Operand) -> Operand:
    """An operand with other elements."""
    node, kind = operand.elements, operand.elements.kind
    bits = BITS[kind]
    element, integer = ir.Type.parse(kind), ir.IntegerType.get_signless(bits)
    change = drawing.dice.noted("bits", CHANGES)
    inputs, codes = [node.ir], node.data
    sign = 1 << bits - 1
    if change == "select":
        other = _like(drawing, operand)
        chosen = drawing.dice.numbers.integers(0, 2, node.shape).astype(np.uint8)
        inputs += [other.ir, drawing.argument(chosen, "i8")]
        codes = np.where(chosen != 0, codes, other.data)
    else:
        codes = codes ^ sign if change == "negate" else codes & (sign - 1)

    def body(x: ir.Value, *others: ir.Value) -> ir.Value:
        if change == "select":
            zero = arith.ConstantOp(others[1].type, 0).result
            return arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.ne, others[1], zero).result, x, others[0]).result
        number = sign if change == "negate" else sign - 1
        mask = arith.ConstantOp(integer, number - (1 << bits) if number >= sign else number).result
        make = arith.XOrIOp if change == "negate" else arith.AndIOp
        return arith.BitcastOp(element, make(arith.BitcastOp(integer, x).result, mask).result).result

    result = ir.RankedTensorType(node.ir.type)
    maps = [ir.AffineMap.get_identity(result.rank)] * (len(inputs) + 1)
    init = build.empty(result, build.dynamic_sizes(node.ir))
    value = build.generic(result, inputs, init, maps, ["parallel"] * result.rank, body).results[0]
    return Operand(Node(value, codes, kind), operand.scales, operand.axes, operand.scale_axes)


def _like(drawing: Drawing, operand: Operand) -> Node:
    """Other elements in the same order."""
    sizes = dict(zip(operand.axes, operand.elements.shape, strict=True))
    return mx_operands.draw(drawing, "mki", sizes, operand.elements.kind, order=operand.axes).elements
