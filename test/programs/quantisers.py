"""Quantisation in the program: as `mxcomp.ir.quantisation` writes it, spelled by others, and to static scales."""

from __future__ import annotations

import numpy as np
import reference
import spellings
from drawing import Drawing
from elementwise import scalar
from iree.compiler import ir
from iree.compiler.dialects import arith
from mx_operands import Operand
from nodes import BLOCK, LARGEST, SCALE, Node
from spellings import MODES, blocked, expanded, f32, sizes_of

from mxcomp.ir import quantisation
from mxcomp.mlir import build

SPELLINGS = {"mxcomp": 1, "others": 1}


def draw(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
    """An exact tensor [rows…, K], whose rows have these letters, quantised along K."""
    if drawing.dice.noted("quantiser", SPELLINGS) == "mxcomp" or not node.finite:
        return _ours(drawing, node, axes, kind)
    return spellings.draw(drawing, node, axes, kind)


def _ours(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
    mode = drawing.dice.noted("mode", MODES)
    rows = build.static_sizes(node.ir)[:-1]
    flat = node.ir
    if len(rows) != 1:
        flat = build.collapse(flat, [list(range(len(rows))), [len(rows)]])
    elements, scales = quantisation.quantise(flat, kind, mode)
    if len(rows) != 1:
        outer, blocks = list(range(len(rows))), node.shape[-1] // BLOCK
        sizes = sizes_of(node.ir)[:-1]
        elements, scales = (
            expanded(value, [outer, *([len(rows) + i] for i in range(len(tail)))], [*rows, *tail], [*sizes, *tail])
            for value, tail in ((elements, [blocks, BLOCK]), (scales, [blocks]))
        )
    codes, scale_codes = reference.quantise(node.data, kind, mode)
    return Operand(Node(elements, codes, kind), Node(scales, scale_codes, SCALE), f"{axes}ki", f"{axes}k")


def narrowed(drawing: Drawing, node: Node, kind: str) -> Node:
    """Static quantisation, scale 1.0 to all: numbers that are saturated before, where the format would not do it."""
    result, rank = build.tensor_type(build.static_sizes(node.ir), kind), len(node.shape)
    plain = kind == "f4E2M1FN" and drawing.dice.chance(0.4, "truncf")
    largest = LARGEST[kind]

    def body(x: ir.Value, _: ir.Value) -> ir.Value:
        if kind.startswith("f8"):
            x = arith.MinimumFOp(arith.MaximumFOp(x, scalar(x, -largest)).result, scalar(x, largest)).result
        if plain:
            return arith.TruncFOp(result.element_type, x).result
        one = arith.ConstantOp(ir.Type.parse(SCALE), 1.0).result
        return arith.ScalingTruncFOp(result.element_type, f32(x), one).result

    maps = [ir.AffineMap.get_identity(rank)] * 2
    init = build.empty(result, build.dynamic_sizes(node.ir))
    value = build.generic(result, [node.ir], init, maps, ["parallel"] * rank, body).results[0]
    codes = reference.element_codes(node.data, kind)
    return Node(value, codes, kind)


def static(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
    """A tensor [rows…, K] as elements whose scales are constants."""
    narrow = narrowed(drawing, node, kind)
    value = blocked(narrow)
    shape = [*node.shape[:-1], node.shape[-1] // BLOCK]
    codes = np.full(shape[-1:] if drawing.dice.chance(0.5) or not node.static else shape, 127, np.uint8)
    if drawing.dice.chance(0.3):
        codes += np.uint8(1)
    scale_axes = "k" if codes.ndim == 1 else f"{axes}k"
    byte = drawing.value(codes, "i8", place="constant")
    scales = Node(build.bitcast(byte, build.tensor_type(codes.shape, SCALE)), codes, SCALE)
    return Operand(narrow.at(value, lambda array: array.reshape(*shape, BLOCK)), scales, f"{axes}ki", scale_axes)
