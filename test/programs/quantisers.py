"""Quantisation in the program: as `mxcomp.quantisation` writes it, spelled by hand, and to static scales."""

from __future__ import annotations

import numpy as np
from drawing import Drawing
from elementwise import scalar
from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, math, tensor
from mx_operands import Operand
from nodes import BLOCK, ELEMENTS, EMAX, FLOATS, LARGEST, SCALE, Bytes, Node

from mxcomp import formats, quantisation
from mxcomp.mlir import build

MODES = {"even": 4, "floor": 2, "ceil": 1.5, "rceil": 1.5}
SPELLINGS = {"mxcomp": 6, "maximumf": 2, "maxui": 2, "divide": 1.5}
MANTISSA = 23


def draw(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
    """An exact tensor [rows…, K], whose rows have these letters, quantised along K."""
    spelling = drawing.dice.noted("quantiser", SPELLINGS)
    if spelling == "mxcomp" or not node.finite or (kind not in ("f4E2M1FN",) and spelling == "divide"):
        return _ours(drawing, node, axes, kind)
    return _spelled(drawing, node, axes, kind, spelling)


def _ours(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
    mode = drawing.dice.noted("mode", MODES)
    rows = build.static_sizes(node.ir)[:-1]
    flat = node.ir
    if len(rows) != 1:
        flat = build.collapse(flat, [list(range(len(rows))), [len(rows)]])
    elements, scales = quantisation.quantise(flat, kind, mode)
    if len(rows) != 1:
        outer, blocks = list(range(len(rows))), node.shape[-1] // BLOCK
        sizes = _sizes(node.ir)[:-1]
        elements, scales = (
            _expanded(value, [outer, *([len(rows) + i] for i in range(len(tail)))], [*rows, *tail], [*sizes, *tail])
            for value, tail in ((elements, [blocks, BLOCK]), (scales, [blocks]))
        )
    data = node.data.astype(FLOATS[node.kind])
    codes, scale_codes = formats.quantise(data, kind, mode)
    return _operand(elements, scales, codes, scale_codes, axes, kind)


def _sizes(value: ir.Value) -> list[int | ir.Value]:
    return [build.dim(value, i) if size is None else size for i, size in enumerate(build.static_sizes(value))]


def _expanded(
    value: ir.Value, groups: list[list[int]], shape: list[int | None], sizes: list[int | ir.Value]
) -> ir.Value:
    result = build.tensor_type(shape, ir.RankedTensorType(value.type).element_type)
    dynamic = [size for size in sizes if not isinstance(size, int)]
    static = [size if isinstance(size, int) else build.DYNAMIC for size in sizes]
    return tensor.ExpandShapeOp(result, value, groups, dynamic, static).result


def _operand(elements: ir.Value, scales: ir.Value, codes: Bytes, scale_codes: Bytes, axes: str, kind: str) -> Operand:
    blocked = codes.reshape(*scale_codes.shape, BLOCK)
    return Operand(Node(elements, blocked, kind), Node(scales, scale_codes, SCALE), f"{axes}ki", f"{axes}k")


def blocked(node: Node) -> ir.Value:
    """[…, K] as […, K/32, 32]."""
    *rows, _ = build.static_sizes(node.ir)
    tail = [node.shape[-1] // BLOCK, BLOCK]
    groups = [*([i] for i in range(len(rows))), [len(rows), len(rows) + 1]]
    return _expanded(node.ir, groups, [*rows, *tail], [*_sizes(node.ir)[:-1], *tail])


def _spelled(drawing: Drawing, node: Node, axes: str, kind: str, spelling: str) -> Operand:
    """Largest magnitudes as floats or as bits, their exponents with a carry, then a division by the scale.

    What is larger than an 8-bit format's largest is not clamped, so that scales are rounded up there.
    """
    modes = {"ceil": 1, "rceil": 1} if kind.startswith("f8") else MODES
    carry = quantisation.SCALE_CARRIES[drawing.dice.pick(modes)](formats.element_format(kind))
    blocks = blocked(node)
    least = 1 if spelling == "divide" else 0
    amax = _amax(blocks, bits=spelling == "maxui")
    scales = _scales(amax, kind, carry, least)
    elements = _elements(blocks, scales, kind, spelling == "divide")
    x = node.data.reshape(*node.shape[:-1], -1, BLOCK).astype(np.float32)
    largest = np.abs(x).max(axis=-1).view(np.int32)
    scale_codes = np.clip(((largest + carry) >> MANTISSA) - EMAX[kind], least, 254).astype(np.uint8)
    scaled = x.astype(np.float64) * np.exp2(127.0 - scale_codes)[..., None]
    codes = scaled.astype(np.float32).astype(ELEMENTS[kind]).view(np.uint8)
    return _operand(elements, scales, codes, scale_codes, axes, kind)


def _maps(value: ir.Value) -> tuple[ir.AffineMap, ir.AffineMap]:
    rank = ir.RankedTensorType(value.type).rank
    dims = [ir.AffineExpr.get_dim(i) for i in range(rank)]
    return ir.AffineMap.get(rank, 0, dims), ir.AffineMap.get(rank, 0, dims[:-1])


def _amax(blocks: ir.Value, bits: bool) -> ir.Value:
    """The largest magnitude of each block: in the type of the numbers, or the bits of f32."""
    source = ir.RankedTensorType(blocks.type)
    element = ir.IntegerType.get_signless(32) if bits else source.element_type
    result = build.tensor_type(build.static_sizes(blocks)[:-1], element)
    zero = arith.ConstantOp(element, 0 if bits else 0.0).result
    dynamic = build.dynamic_sizes(blocks)
    init = linalg.fill(zero, outs=[build.empty(result, dynamic)])

    def body(x: ir.Value, largest: ir.Value) -> ir.Value:
        if not bits:
            return arith.MaximumFOp(math.AbsFOp(x).result, largest).result
        return arith.MaxUIOp(arith.BitcastOp(element, math.AbsFOp(_f32(x)).result).result, largest).result

    iterators = ["parallel"] * (source.rank - 1) + ["reduction"]
    return build.generic(result, [blocks], init, _maps(blocks), iterators, body).results[0]


def _scales(amax: ir.Value, kind: str, carry: int, least: int) -> ir.Value:
    i32, rank = ir.IntegerType.get_signless(32), ir.RankedTensorType(amax.type).rank
    result = build.tensor_type(build.static_sizes(amax), SCALE)

    def number(value: int) -> ir.Value:
        return arith.ConstantOp(i32, value).result

    def body(x: ir.Value, _: ir.Value) -> ir.Value:
        bits = x if x.type == i32 else arith.BitcastOp(i32, _f32(x)).result
        exponent = arith.ShRUIOp(arith.AddIOp(bits, number(carry)).result, number(MANTISSA)).result
        code = arith.MaxSIOp(arith.SubIOp(exponent, number(EMAX[kind])).result, number(least)).result
        byte = arith.TruncIOp(ir.IntegerType.get_signless(8), arith.MinSIOp(code, number(254)).result).result
        return arith.BitcastOp(result.element_type, byte).result

    maps = [ir.AffineMap.get_identity(rank)] * 2
    init = build.empty(result, build.dynamic_sizes(amax))
    return build.generic(result, [amax], init, maps, ["parallel"] * rank, body).results[0]


def _elements(blocks: ir.Value, scales: ir.Value, kind: str, divide: bool) -> ir.Value:
    result, f32 = build.tensor_type(build.static_sizes(blocks), kind), ir.F32Type.get()

    def body(x: ir.Value, scale: ir.Value, _: ir.Value) -> ir.Value:
        if not divide:
            return arith.ScalingTruncFOp(result.element_type, _f32(x), scale).result
        quotient = arith.DivFOp(_f32(x), arith.ExtFOp(f32, scale).result).result
        return arith.TruncFOp(result.element_type, quotient).result

    whole, per_block = _maps(blocks)
    init = build.empty(result, build.dynamic_sizes(blocks))
    return build.generic(
        result, [blocks, scales], init, [whole, per_block, whole], ["parallel"] * result.rank, body
    ).results[0]


def _f32(value: ir.Value) -> ir.Value:
    f32 = ir.F32Type.get()
    return value if value.type == f32 else arith.ExtFOp(f32, value).result


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
        return arith.ScalingTruncFOp(result.element_type, _f32(x), one).result

    maps = [ir.AffineMap.get_identity(rank)] * 2
    init = build.empty(result, build.dynamic_sizes(node.ir))
    value = build.generic(result, [node.ir], init, maps, ["parallel"] * rank, body).results[0]
    codes = np.clip(node.data, -largest, largest).astype(np.float32).astype(ELEMENTS[kind]).view(np.uint8)
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
