"""6-bit elements in integers: IREE's code generation has no such types.

An element's magnitude is counted in steps of its exponent: n = roundeven(|x| / 2^(e - mantissa bits)), with e the
exponent of x, but at least that of the smallest normal. Then its code is n + ((e - smallest) << mantissa bits): n
carries into the exponent where it rounds up to the next power of two, and denormals are the case e = smallest.
"""

from __future__ import annotations

import math

from iree.compiler import ir
from iree.compiler.dialects import arith, linalg
from iree.compiler.dialects import math as mlir_math

from mxcomp import build
from mxcomp.formats import E8M0_BIAS, FORMATS, ElementFormat

TYPES = {fmt.mlir_type: fmt for fmt in FORMATS.values() if fmt.bits == 6}
TRUNCATIONS = ("arith.truncf", "arith.scaling_truncf")
_WORDS, _WORD_BITS = 3, 64
_F32_BITS, _MANTISSA_BITS = 32, 23


def stored_type(elements: ir.RankedTensorType, inside: int) -> ir.RankedTensorType:
    """Three i64 for every block of 32, which so many of the last dimensions make up."""
    return ir.RankedTensorType.get([*elements.shape[:-inside], _WORDS], ir.IntegerType.get_signless(_WORD_BITS))


def code_type(element: ir.Type) -> ir.Type:
    """What an element is while it is computed: its code in an i8, or itself if it is not of 6 bits."""
    return ir.IntegerType.get_signless(8) if str(element) in TYPES else element


def rewrite(op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
    """The code that a truncation to 6 bits gives; None for other operations. See `inline`."""
    fmt = TYPES.get(str(op.results[0].type))
    if fmt is None or op.name not in TRUNCATIONS:
        return None
    x, *scale = operands
    f32 = ir.F32Type.get()
    x = x if x.type == f32 else arith.ExtFOp(f32, x).result
    return _code(_divided(x, scale[0]) if scale else x, fmt)


def packed(codes: ir.Value, inside: int, sizes: list[ir.Value]) -> ir.Value:
    """[…, 3] i64 from codes […, 32], the first in the lowest bits; `inside` dimensions make up the 32."""
    i64 = ir.IntegerType.get_signless(_WORD_BITS)
    source = ir.RankedTensorType(codes.type)
    result = stored_type(source, inside)
    rank, inner = result.rank, source.shape[-inside:]
    dims = [ir.AffineExpr.get_dim(i) for i in range(rank + inside)]
    maps = [ir.AffineMap.get(len(dims), 0, d) for d in ([*dims[: rank - 1], *dims[rank:]], dims[:rank])]
    first_bit = ir.AffineExpr.get_dim(0) * -_WORD_BITS
    for i in range(inside):
        first_bit = first_bit + ir.AffineExpr.get_dim(1 + i) * (6 * math.prod(inner[i + 1 :]))

    def body(code: ir.Value, word: ir.Value) -> ir.Value:
        loops = [linalg.IndexOp(i).result for i in range(rank - 1, len(dims))]
        bits = arith.ExtUIOp(i64, code).result
        return arith.OrIOp(word, _shifted(bits, arith.IndexCastOp(i64, build.apply(first_bit, loops)).result)).result

    zeros = build.filled(arith.ConstantOp(i64, 0).result, result, sizes)
    iterators = ["parallel"] * rank + ["reduction"] * inside
    return build.generic(result, [codes], zeros, maps, iterators, body).results[0]


def _shifted(bits: ir.Value, left: ir.Value) -> ir.Value:
    """`bits` shifted to the left, or to the right if negative; what leaves the word is gone."""
    i64 = left.type
    zero, last = (arith.ConstantOp(i64, value).result for value in (0, _WORD_BITS - 1))
    right = arith.MinSIOp(arith.SubIOp(zero, left).result, last).result
    up = arith.ShLIOp(bits, arith.MinSIOp(arith.MaxSIOp(left, zero).result, last).result).result
    down = arith.ShRUIOp(bits, arith.MaxSIOp(right, zero).result).result
    within = arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.sgt, left, last).result, zero, up).result
    return arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.slt, left, zero).result, down, within).result


def _divided(x: ir.Value, scale: ir.Value) -> ir.Value:
    """x / scale, by two powers of two: 2^-127 … 2^127 have no inverses among normal f32."""
    i32 = ir.IntegerType.get_signless(32)
    code = arith.ExtUIOp(i32, arith.BitcastOp(ir.IntegerType.get_signless(8), scale).result).result
    exponent = arith.SubIOp(_int(E8M0_BIAS), code).result
    half = arith.ShRSIOp(exponent, _int(1)).result
    for part in (half, arith.SubIOp(exponent, half).result):
        x = arith.MulFOp(x, _power_of_two(part)).result
    return x


def _code(x: ir.Value, fmt: ElementFormat) -> ir.Value:
    i8, i32, f32 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(32), ir.F32Type.get()
    largest = arith.ConstantOp(f32, fmt.max_finite).result
    magnitude = arith.MinNumFOp(mlir_math.AbsFOp(x).result, largest).result  # a NaN becomes the largest, too
    smallest = 1 - fmt.bias
    field = arith.ShRUIOp(arith.BitcastOp(i32, magnitude).result, _int(_MANTISSA_BITS)).result
    exponent = arith.MaxSIOp(arith.SubIOp(field, _int(E8M0_BIAS)).result, _int(smallest)).result
    steps = _power_of_two(arith.SubIOp(_int(fmt.mantissa_bits), exponent).result)
    count = arith.FPToSIOp(i32, mlir_math.RoundEvenOp(arith.MulFOp(magnitude, steps).result).result).result
    above = arith.ShLIOp(arith.SubIOp(exponent, _int(smallest)).result, _int(fmt.mantissa_bits)).result
    code = arith.MinSIOp(arith.AddIOp(count, above).result, _int(fmt.max_code)).result
    sign = arith.ShRUIOp(arith.BitcastOp(i32, x).result, _int(_F32_BITS - fmt.bits)).result
    negative = arith.AndIOp(sign, _int(1 << fmt.bits - 1)).result
    return arith.TruncIOp(i8, arith.OrIOp(code, negative).result).result


def _power_of_two(exponent: ir.Value) -> ir.Value:
    """2^exponent as f32, for exponents of normal numbers."""
    field = arith.AddIOp(exponent, _int(E8M0_BIAS)).result
    return arith.BitcastOp(ir.F32Type.get(), arith.ShLIOp(field, _int(_MANTISSA_BITS)).result).result


def _int(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IntegerType.get_signless(32), value).result
