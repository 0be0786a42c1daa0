"""Steps that keep something from call to call: totals, and caches that rows are written into, of floats or of MX."""

from __future__ import annotations

import mx_operands
import numpy as np
import products
import quantisers
from drawing import Drawing
from elementwise import BINARY, apply
from iree.compiler import ir
from iree.compiler.dialects import arith, tensor, util
from mx_operands import KINDS, Operand
from nodes import BITS, BLOCK, Bytes, Node, packed, unpacked
from steps_elementwise import index
from steps_matmul import Scale, floats

from mxcomp.mlir import build

CALLS = 5
"""For which a cache has room."""
POSITIONS = {"argument": 2, "counted": 1}
"""Where rows go: to a place that is an argument, or behind those before."""
CACHED = ("f4E2M1FN", "f8E4M3FN", "f6E3M2FN")


def total(drawing: Drawing, node: Node) -> Node:
    """Added to what calls before have added up; now and then the value before, too."""
    if not node.static or node.kind != "f32" or not node.exact:
        return node
    name, before = _kept(drawing, node)
    after = apply(BINARY["add"], before, node)
    _keep(drawing, name, after)
    return before if drawing.dice.chance(0.2, "state before") else after


def cache(drawing: Drawing, node: Node) -> Node:
    """Rows written into a cache of more, all of which is what the program goes on with."""
    if not node.static or len(node.shape) != 2 or node.error is not None or node.shape[0] > 32:
        return node
    height, width = node.shape
    empty = Node(node.ir, np.zeros((CALLS * height, width)), node.kind)
    name, before = _kept(drawing, empty)
    place, at = _position(drawing, height)
    data = before.data.copy()
    data[at : at + height] = node.data
    after = Node(_inserted(before.ir, node.ir, place), data, node.kind)
    _keep(drawing, name, after)
    return after


def cached_product(drawing: Drawing, scale: Scale) -> Node:
    """Rows that are quantised into a cache of MX bytes, all of which is multiplied with what is stored."""
    dice, sizes = drawing.dice, scale.matmul(drawing.dice)
    height = min(sizes["n"], 8)
    kind = dice.noted("cached", dict.fromkeys(CACHED, 1))
    x = floats(drawing, (height, sizes["k"] * BLOCK), dice.pick(["f32", "bf16"]), "")
    rows = quantisers.draw(drawing, x, "n", kind)
    if rows.axes != "nki":
        return products.draw(drawing, mx_operands.draw(drawing, "mki", sizes, tame=True), rows, "mn")
    place, at = _position(drawing, height)
    elements = _byte_cache(drawing, rows.elements, BITS[kind], place, at)
    scales = _byte_cache(drawing, rows.scales, 8, place, at)
    stored = Operand(elements, scales, "nki", "nk")
    left = mx_operands.draw(drawing, "mki", sizes, dice.noted("type", KINDS), tame=True)
    return products.draw(drawing, left, stored, "mn")


def _byte_cache(drawing: Drawing, rows: Node, bits: int, place: ir.Value, at: int) -> Node:
    """A cache of the bytes of narrow rows, as what they are."""
    height, *inner = rows.shape
    width = int(np.prod(inner)) * bits // 8
    shape = (CALLS * height, width)
    flat = build.bitcast(rows.ir, build.tensor_type((height, width), "i8"))
    name, before = _kept(drawing, Node(flat, np.zeros(shape, np.uint8), "i8"))
    data: Bytes = before.data.copy()
    data[at : at + height] = packed(rows.data, bits).reshape(height, width)
    after = Node(_inserted(before.ir, flat, place), data, "i8")
    _keep(drawing, name, after)
    outer = (CALLS * height, *inner)
    codes = unpacked(data, bits).reshape(outer)
    return Node(build.bitcast(after.ir, build.tensor_type(outer, rows.kind)), codes, rows.kind)


def _position(drawing: Drawing, height: int) -> tuple[ir.Value, int]:
    """The row where the next ones go, as an index and as a number."""
    if drawing.dice.noted("position", POSITIONS) == "argument":
        at = drawing.dice.again(0, (CALLS - 1) * height)
        return index(drawing, at), at
    kind = ir.IndexType.get()
    name = drawing.state_name()
    with ir.InsertionPoint.at_block_begin(drawing.module.ir.body):
        util.GlobalOp(name, kind, sym_visibility="private", is_mutable=True, initial_value=ir.IntegerAttr.get(kind, 0))
    at = int(drawing.module.state.get(name, np.array(0)))
    before = util.GlobalLoadOp(kind, name).result
    util.GlobalStoreOp(arith.AddIOp(before, build.constant_index(height)).result, name)
    drawing.module.state[name] = np.array(at + height)
    return before, at


def _kept(drawing: Drawing, like: Node) -> tuple[str, Node]:
    """A variable of the program that starts with zeros: its name, and what it holds now."""
    name = drawing.state_name()
    kind = build.tensor_type(like.shape, build.element(like.ir))
    zero = ir.FloatAttr.get(kind.element_type, 0.0) if like.kind != "i8" else ir.IntegerAttr.get(kind.element_type, 0)
    with ir.InsertionPoint.at_block_begin(drawing.module.ir.body):
        initial = ir.DenseElementsAttr.get_splat(kind, zero)
        util.GlobalOp(name, kind, sym_visibility="private", is_mutable=True, initial_value=initial)
    value = util.GlobalLoadOp(kind, name).result
    return name, Node(value, drawing.module.state.get(name, np.zeros(like.shape, like.data.dtype)), like.kind)


def _keep(drawing: Drawing, name: str, node: Node) -> None:
    util.GlobalStoreOp(node.ir, name)
    drawing.module.state[name] = node.data


def _inserted(whole: ir.Value, rows: ir.Value, place: ir.Value) -> ir.Value:
    """Rows written over some of a tensor."""
    sizes, none = build.static_sizes(rows), ir.ShapedType.get_dynamic_size()
    return tensor.InsertSliceOp(rows, whole, [place], [], [], [none, 0], sizes, [1, 1]).result
