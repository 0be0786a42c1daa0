"""Truncates to elements of 4 and 6 bits in integers: IREE has no code generation for 6 bits, and rounds to 4 wrongly on
CPUs.

An element's magnitude is counted in steps of its exponent: n = roundeven(|x| / 2^(e - mantissa bits)), with e the
exponent of x, but at least that of the smallest normal. Then its code is n + ((e - smallest) << mantissa bits): n
carries into the exponent where it rounds up to the next power of two, and denormals are the case e = smallest.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith
from iree.compiler.dialects import math as mlir_math

from mxcomp.formats import E8M0_BIAS, FORMATS, UNLOADABLE, ElementFormat
from mxcomp.matching.exponents import code_of
from mxcomp.matching.quantiser import TRUNCATIONS
from mxcomp.mlir import scalars as s

_F32_BITS, _MANTISSA_BITS = 32, 23


def code_type(element: ir.Type) -> ir.Type:
    """Returns the type that an element is computed in: i8 for the code of 6 bits, else its own."""
    return ir.IntegerType.get_signless(8) if str(element) in UNLOADABLE else element


def rewrite(op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
    """Returns the code that replaces a truncation to 6 bits; None for other operations. See `inline`."""
    fmt = UNLOADABLE.get(str(op.results[0].type))
    if fmt is None or op.name not in TRUNCATIONS:
        return None
    return _truncated(operands, fmt)


def as_element(op: ir.Operation) -> ir.Value:
    """Returns the result of a truncation to f4E2M1FN, at the insertion point."""
    fmt = FORMATS["E2M1"]
    code = arith.TruncIOp(ir.IntegerType.get_signless(fmt.bits), _truncated(list(op.operands), fmt)).result
    return arith.BitcastOp(op.results[0].type, code).result


def _truncated(operands: list[ir.Value], fmt: ElementFormat) -> ir.Value:
    x, *scale = operands
    x = s.widened(x)
    return _code(_divided(x, scale[0]) if scale else x, fmt)


def _divided(x: ir.Value, scale: ir.Value) -> ir.Value:
    """Returns x / scale, as two multiplications: 2^-127 … 2^127 have no inverses among normal f32."""
    exponent = arith.SubIOp(s.i32(E8M0_BIAS), code_of(scale)).result
    half = arith.ShRSIOp(exponent, s.i32(1)).result
    for part in (half, arith.SubIOp(exponent, half).result):
        x = arith.MulFOp(x, _power_of_two(part)).result
    return x


def _code(x: ir.Value, fmt: ElementFormat) -> ir.Value:
    i8, i32, f32 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(32), ir.F32Type.get()
    largest = arith.ConstantOp(f32, fmt.max_finite).result
    magnitude = arith.MinNumFOp(mlir_math.AbsFOp(x).result, largest).result  # a NaN becomes the largest, too
    smallest = 1 - fmt.bias
    field = arith.ShRUIOp(arith.BitcastOp(i32, magnitude).result, s.i32(_MANTISSA_BITS)).result
    exponent = arith.MaxSIOp(arith.SubIOp(field, s.i32(E8M0_BIAS)).result, s.i32(smallest)).result
    steps = _power_of_two(arith.SubIOp(s.i32(fmt.mantissa_bits), exponent).result)
    count = arith.FPToSIOp(i32, mlir_math.RoundEvenOp(arith.MulFOp(magnitude, steps).result).result).result
    above = arith.ShLIOp(arith.SubIOp(exponent, s.i32(smallest)).result, s.i32(fmt.mantissa_bits)).result
    code = arith.MinSIOp(arith.AddIOp(count, above).result, s.i32(fmt.max_code)).result
    sign = arith.ShRUIOp(arith.BitcastOp(i32, x).result, s.i32(_F32_BITS - fmt.bits)).result
    negative = arith.AndIOp(sign, s.i32(1 << fmt.bits - 1)).result
    return arith.TruncIOp(i8, arith.OrIOp(code, negative).result).result


def _power_of_two(exponent: ir.Value) -> ir.Value:
    """Returns 2^exponent as f32, for exponents of normal numbers."""
    field = arith.AddIOp(exponent, s.i32(E8M0_BIAS)).result
    return arith.BitcastOp(ir.F32Type.get(), arith.ShLIOp(field, s.i32(_MANTISSA_BITS)).result).result
