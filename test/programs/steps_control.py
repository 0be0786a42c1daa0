"""Steps with control flow: a branch, a loop, a call."""

from __future__ import annotations

import re
from dataclasses import replace

import mx_operands
import numpy as np
import products
import quantisers
from drawing import Drawing
from iree.compiler import ir
from iree.compiler.dialects import arith, func, scf, tensor
from mx_operands import KINDS, Operand
from nodes import BLOCK, Node
from steps_elementwise import binary, unary
from steps_matmul import Scale, quantisable, stored_product, times_stored

from mxcomp.mlir import build


def branch(drawing: Drawing, node: Node, scale: Scale) -> Node:
    """One of two matmuls or operations, as an argument says."""
    taken = drawing.dice.chance(0.5)
    flag = drawing.argument(np.array([taken], np.int32), "i32")
    zero = build.constant_index(0)
    value = tensor.ExtractOp(flag, [zero]).result
    none = arith.ConstantOp(value.type, 0).result
    condition = arith.CmpIOp(arith.CmpIPredicate.ne, value, none).result
    op = scf.IfOp(condition, [node.ir.type], has_else=True)
    made = []
    for block in (op.then_block, op.else_block):
        with drawing.scope(), ir.InsertionPoint(block):
            found = node
            if drawing.dice.chance(0.7):
                found = _multiplied_alike(drawing, node, scale)
            found = unary(drawing, found)
            scf.YieldOp([found.ir])
        made.append(found)
    return made[0 if taken else 1].at(op.results[0])


def _multiplied_alike(drawing: Drawing, node: Node, scale: Scale) -> Node:
    """A product of the same type, if sizes are such that there is one, and not too large; else the value itself."""
    if len(node.shape) != 2 or not node.static or node.kind != "f32":
        return node
    if node.data.size * BLOCK > scale.most(drawing.dice):
        return node
    own = replace(scale, rows={node.shape[0]: 1}, columns={node.shape[1]: 1}, blocks={1: 1, 2: 1}, dynamic={"": 1})
    found = stored_product(drawing, own)
    return found if found.ir.type == node.ir.type else node


def loop(drawing: Drawing, node: Node, scale: Scale) -> Node:
    """A matmul added up over a few experts, whose elements and scales are slices at the loop's index."""
    if len(node.shape) != 2 or not node.static or node.kind != "f32":
        return node
    dice = drawing.dice
    count = dice.pick([1, 2, 3])
    sizes = {"m": node.shape[0], "n": node.shape[1], "k": dice.pick([1, 2, 4]), "e": count}
    lhs = mx_operands.draw(drawing, "mki", sizes, tame=True)
    experts = mx_operands.draw(drawing, "enki", sizes, tame=True)
    bounds = [build.constant_index(number) for number in (0, count, 1)]
    op = scf.ForOp(*bounds, iter_args=[node.ir])
    with drawing.scope(), ir.InsertionPoint(op.body):
        inside = _expert(experts, op.induction_variable, 0)
        scf.YieldOp([products.draw(drawing, lhs, inside, "mn", node.at(op.inner_iter_args[0])).ir])
    total = node
    for i in range(count):
        total = products.numbers(op.results[0], lhs, _expert(experts, None, i), "mn", "f32", total)
    return total


def _expert(stack: Operand, at: ir.Value | None, number: int) -> Operand:
    """One expert of a stack: the numbers of one, and IR for the one at an index."""
    parts = []
    for node, axes in ((stack.elements, stack.axes), (stack.scales, stack.scale_axes)):
        axis = axes.find("e")
        if axis < 0:
            parts.append(node)
            continue
        sizes = [1 if i == axis else size for i, size in enumerate(node.shape)]
        offsets = [ir.ShapedType.get_dynamic_size() if i == axis else 0 for i in range(len(sizes))]
        kind = build.tensor_type([size for i, size in enumerate(node.shape) if i != axis], node.kind)
        value = node.ir
        if at is not None:
            value = tensor.ExtractSliceOp(kind, value, [at], [], [], offsets, sizes, [1] * len(sizes)).result
        parts.append(node.at(value, lambda array, axis=axis: array.take(number, axis)))
    elements, scales = parts
    return Operand(elements, scales, stack.axes.replace("e", ""), stack.scale_axes.replace("e", ""))


def call(drawing: Drawing, node: Node, scale: Scale) -> Node:
    """An operation, or a product, in a function of its own, which others may call, too; now and then called twice."""
    dice = drawing.dice
    private = dice.chance(0.7, "private callee")
    state, tensors = dice.state(), dice.numbers_from(0)
    dice.numbers_from(tensors)
    callee, result = _callee(drawing, node, scale, private)
    found = result.at(_called(callee, node, result))
    if result.ir.type != node.ir.type or not result.exact or not dice.chance(0.7):
        return found
    after, numbers = dice.state(), dice.numbers_from(tensors)
    dice.restore(state)
    again, second = _callee(drawing, found, scale, private)  # for its numbers: what it computes is the same
    alike = _body(again) == _body(callee)
    again.operation.erase()
    dice.restore(after)
    dice.numbers_from(numbers)
    if not alike:
        return found
    dice.features.add("called twice")
    return second.at(_called(callee, found, result))


def _body(function: func.FuncOp) -> str:
    """Its text, whatever it and its values are called."""
    names: dict[str, str] = {}
    text = str(function.operation).replace(function.name.value, "")
    return re.sub(r"%\w+", lambda found: names.setdefault(found[0], f"%{len(names)}"), text)


def _called(callee: func.FuncOp, given: Node, result: Node) -> ir.Value:
    name = ir.FlatSymbolRefAttr.get(callee.name.value)
    return func.CallOp([result.ir.type], name, [given.ir]).results[0]


def _callee(drawing: Drawing, node: Node, scale: Scale, private: bool) -> tuple[func.FuncOp, Node]:
    """A function of a value like this one, whose weights are constants, and what it gives for this one."""
    name = f"{drawing.name}_{len(drawing.module.ir.body.operations)}"
    inner = Drawing(drawing.module, name, {"constant": 1}, private=private)
    with ir.InsertionPoint(inner.block):
        (given,) = inner.take_over([node])
        inner.pool.append(given)
        result = unary(inner, given)
        if node.static and quantisable(inner) and inner.dice.chance(0.6, "product in a callee"):
            lhs = quantisers.draw(inner, given, "b" * (len(node.shape) - 2) + "m", inner.dice.noted("type", KINDS))
            result = times_stored(inner, scale, lhs, node.shape[-1] if inner.dice.chance(0.5) else 0)
        elif inner.dice.chance(0.5) and node.static:
            result = binary(inner, result)
    inner.finish([result.ir])
    return inner.function, result
