"""Decodes elements, where IREE cannot load or convert an element type, or not from where it is stored."""

from __future__ import annotations

from collections.abc import Callable

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes.stored import codes
from mxcomp.formats import ElementFormat, element_format
from mxcomp.matching.exponents import code_of
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.build import static_sizes


def value_of(code: ir.Value, element: str) -> ir.Value:
    """Returns the f32 value of a code in i32, of an MX element or of an E8M0 scale."""
    f32, bits = ir.F32Type.get(), ir.FloatType(ir.Type.parse(element)).width
    if element == SCALE_TYPE:
        return _scale(code)
    if bits == 8:
        byte = arith.TruncIOp(ir.IntegerType.get_signless(8), code).result
        return arith.ExtFOp(f32, arith.BitcastOp(ir.Type.parse(element), byte).result).result
    return _small(code, element_format(element))


def _scale(code: ir.Value) -> ir.Value:
    """Returns 2^(code - 127) as f32: NaN for 255, and a denormal for 0, which arith.extf flushes to 0."""
    bits = arith.MaxUIOp(arith.ShLIOp(code, s.i32(23)).result, s.i32(1 << 22)).result
    return s.number(s.select(s.equal(code, 0xFF), 0x7FC00000, bits))


def _small(code: ir.Value, element: ElementFormat) -> ir.Value:
    """Returns the f32 value of a code of at most 6 bits: such formats have neither infinity nor NaN.

    The magnitude is a count of `step`, computed in integers because f32 denormals may be flushed.
    """
    i32, f32 = ir.IntegerType.get_signless(32), ir.F32Type.get()
    mantissa, step = element.mantissa_bits, 2.0 ** (1 - element.bias - element.mantissa_bits)
    sign_bit = element.bits - 1
    mask = s.i32((1 << (sign_bit - mantissa)) - 1)
    exponent = arith.AndIOp(arith.ShRUIOp(code, s.i32(mantissa)).result, mask).result
    fraction = arith.AndIOp(code, s.i32((1 << mantissa) - 1)).result
    leading = arith.ShLIOp(arith.MinUIOp(exponent, s.i32(1)).result, s.i32(mantissa)).result
    steps = arith.SubIOp(arith.MaxUIOp(exponent, s.i32(1)).result, s.i32(1)).result
    magnitude = arith.ShLIOp(arith.OrIOp(fraction, leading).result, steps).result
    value = s.multiplied(arith.SIToFPOp(f32, magnitude).result, step)
    sign = arith.ShLIOp(arith.AndIOp(code, s.i32(1 << sign_bit)).result, s.i32(31 - sign_bit)).result
    return arith.BitcastOp(f32, arith.OrIOp(arith.BitcastOp(i32, value).result, sign).result).result


def scaled(element: ir.Value, scale: ir.Value) -> ir.Value:
    """Returns the result of arith.scaling_extf for an element that is extended to f32 already."""
    return arith.MulFOp(element, scale_value(scale)).result


def scale_value(scale: ir.Value) -> ir.Value:
    """Returns a scale as f32: a power of two, whatever its type."""
    return _scale(code_of(scale))


def dequantised(elements: ir.Value, scales: ir.Value) -> ir.Value:
    """Returns the f32 values [(batch,) rows, K] of an operand in canonical form, read from its stored bytes."""
    *lead, blocks, size = static_sizes(elements)
    assert size is not None
    result = build.tensor_type((*lead, None if blocks is None else blocks * size), "f32")
    kinds = [str(ir.RankedTensorType(value.type).element_type) for value in (elements, scales)]
    sources = codes(elements), codes(scales)
    block = ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0), size)

    def body(indices: list[ir.Value]) -> ir.Value:
        *row, k = indices
        subscripts = [*row, k], [*row, build.apply(block, [k])]
        values = [value_of(source.at(at), kind) for source, at, kind in zip(sources, subscripts, kinds, strict=True)]
        return arith.MulFOp(*values).result

    sizes = build.dynamic_sizes(elements)
    if blocks is None:
        sizes[-1] = build.apply(ir.AffineExpr.get_dim(0) * size, [sizes[-1]])
    return build.generate(result, body, sizes)


def stored_codes(elements: ir.Value) -> ir.Value:
    """Returns the codes of a tensor of any shape, one in an i8, read from its bytes."""
    return _each(elements, "i8", lambda code: arith.TruncIOp(ir.IntegerType.get_signless(8), code).result)


def stored_values(elements: ir.Value) -> ir.Value:
    """Returns the f32 values of elements of any shape, read from their bytes."""
    return _each(elements, "f32", lambda code: value_of(code, str(build.element(elements))))


def _each(elements: ir.Value, kind: str, of: Callable[[ir.Value], ir.Value]) -> ir.Value:
    result = build.tensor_type(static_sizes(elements), kind)
    source = codes(elements, ir.AffineMap.get_identity(result.rank))
    return build.generate(result, lambda indices: of(source.at(indices)), build.dynamic_sizes(elements))


def unpacked(operand: ir.Value, sizes: list[ir.Value]) -> ir.Value:
    """Returns the codes of an operand in canonical form, one a byte, [(batch,) rows, K] or [(batch,) rows, K/32]."""
    source = codes(operand)
    outer = static_sizes(operand)[: source.access_map.n_dims]
    if ir.RankedTensorType(operand.type).rank > len(outer):
        outer[-1] = None if outer[-1] is None else outer[-1] * (static_sizes(operand)[-1] or 0)
    result = build.tensor_type(outer, "i8")

    def body(indices: list[ir.Value]) -> ir.Value:
        return arith.TruncIOp(result.element_type, source.at(indices)).result

    return build.generate(result, body, sizes)
