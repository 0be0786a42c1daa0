"""LLVM code of NumPy's ufuncs and conversions, with NumPy's results down to the sign of zero.

An emitter gets the builder, the type of the first operand (the loop's type) and the operands as vectors of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.fast import ir

DType = np.dtype[Any]
Emit = Callable[..., ir.Value]


def _by_kind(on_float: str, signed: str, unsigned: str = "") -> Emit:
    """Returns an operation that is one LLVM instruction for each kind of type."""

    def emit(b: llvm.IRBuilder, t: DType, *values: ir.Value) -> ir.Value:
        name = on_float if t.kind == "f" else signed if t.kind == "i" else unsigned or signed
        if t.kind == "f" and t.itemsize == 2:  # NumPy computes halves in float32
            wide = ir.vector(ir.single)
            result = getattr(b, name)(*(b.fpext(v, wide) for v in values))
            return b.fptrunc(result, values[0].type)
        return getattr(b, name)(*values)

    return emit


def _shift(signed: str, unsigned: str) -> Emit:
    """Returns a shift; amounts beyond the width give 0, or the sign."""

    def emit(b: llvm.IRBuilder, t: DType, a: ir.Value, n: ir.Value) -> ir.Value:
        bits = 8 * t.itemsize
        limit = ir.constant(n.type, bits - 1)
        fits = b.icmp_unsigned("<=", n, limit)
        name = signed if t.kind == "i" else unsigned
        shifted = getattr(b, name)(a, b.select(fits, n, limit))
        return shifted if name == "ashr" else b.select(fits, shifted, ir.constant(a.type, None))

    return emit


def _compare(operator: str) -> Emit:
    def emit(b: llvm.IRBuilder, t: DType, x: ir.Value, y: ir.Value) -> ir.Value:
        if t.kind == "f":
            return (b.fcmp_unordered if operator == "!=" else b.fcmp_ordered)(operator, x, y)
        return (b.icmp_signed if t.kind == "i" else b.icmp_unsigned)(operator, x, y)

    return emit


def _extremum(operator: str) -> Emit:
    """Returns np.minimum or np.maximum, which propagate NaN. Of equal operands, which are zeros, they give the second
    (as x86's minps does), but the first for halves, which NumPy compares one by one."""

    def emit(b: llvm.IRBuilder, t: DType, x: ir.Value, y: ir.Value) -> ir.Value:
        if t.kind != "f":
            return b.select(_compare(operator)(b, t, x, y), x, y)
        first = operator + "=" if t.itemsize == 2 else operator
        chosen = b.select(b.fcmp_ordered(first, x, y), x, y)
        return b.select(b.fcmp_unordered("uno", x, x), x, chosen)

    return emit


def _intrinsic(name: str) -> Emit:
    def emit(b: llvm.IRBuilder, t: DType, x: ir.Value) -> ir.Value:
        if t.kind != "f":  # floor of an integer
            return x
        if t.itemsize > 2:
            return ir.intrinsic(b, name, x)
        return b.fptrunc(ir.intrinsic(b, name, b.fpext(x, ir.vector(ir.single))), x.type)

    return emit


def _sign_bits(operation: str, clear: bool = False) -> Emit:
    """Returns negation or absolute value of floats, bit by bit."""

    def emit(b: llvm.IRBuilder, t: DType, x: ir.Value) -> ir.Value:
        top = 1 << (8 * t.itemsize - 1)
        words = ir.vector(llvm.IntType(8 * t.itemsize))
        mask = ir.constant(words, top - 1 if clear else top)
        return b.bitcast(getattr(b, operation)(b.bitcast(x, words), mask), x.type)

    return emit


def _negative(b: llvm.IRBuilder, t: DType, x: ir.Value) -> ir.Value:
    return _sign_bits("xor")(b, t, x) if t.kind == "f" else b.sub(ir.constant(x.type, None), x)


def _absolute(b: llvm.IRBuilder, t: DType, x: ir.Value) -> ir.Value:
    if t.kind == "f":
        return _sign_bits("and_", clear=True)(b, t, x)
    negative = b.icmp_signed("<", x, ir.constant(x.type, None))
    return b.select(negative, b.sub(ir.constant(x.type, None), x), x) if t.kind == "i" else x


def _signbit(b: llvm.IRBuilder, t: DType, x: ir.Value) -> ir.Value:
    words = ir.vector(llvm.IntType(8 * t.itemsize))
    return b.icmp_signed("<", b.bitcast(x, words), ir.constant(words, None))


def _floor_divide(b: llvm.IRBuilder, t: DType, x: ir.Value, y: ir.Value) -> ir.Value:
    if t.kind == "u":
        return b.udiv(x, y)
    quotient, rest, zero = b.sdiv(x, y), b.srem(x, y), ir.constant(x.type, None)
    differs = b.icmp_signed("<", b.xor(rest, y), zero)
    down = b.and_(b.icmp_signed("!=", rest, zero), differs)
    return b.sub(quotient, b.zext(down, x.type))


UFUNCS: dict[np.ufunc, Emit] = {
    np.add: _by_kind("fadd", "add"),
    np.subtract: _by_kind("fsub", "sub"),
    np.multiply: _by_kind("fmul", "mul"),
    np.divide: _by_kind("fdiv", "sdiv"),
    np.floor_divide: _floor_divide,
    np.bitwise_and: _by_kind("", "and_"),
    np.bitwise_or: _by_kind("", "or_"),
    np.bitwise_xor: _by_kind("", "xor"),
    np.invert: lambda b, t, x: b.not_(x),
    np.left_shift: _shift("shl", "shl"),
    np.right_shift: _shift("ashr", "lshr"),
    np.negative: _negative,
    np.absolute: _absolute,
    np.signbit: _signbit,
    np.less: _compare("<"),
    np.less_equal: _compare("<="),
    np.greater: _compare(">"),
    np.greater_equal: _compare(">="),
    np.equal: _compare("=="),
    np.not_equal: _compare("!="),
    np.minimum: _extremum("<"),
    np.maximum: _extremum(">"),
    np.sqrt: _intrinsic("sqrt"),
    np.floor: _intrinsic("floor"),
    np.ceil: _intrinsic("ceil"),
    np.trunc: _intrinsic("trunc"),
    np.rint: _intrinsic("rint"),
}
"""The ufuncs that the semantics use. exp2, log2, sin and cos are missing: the NumPy engine computes those, so that
results agree."""


# -- `astype`


def convert(builder: llvm.IRBuilder, value: ir.Value, source: DType, target: DType) -> ir.Value:
    """Returns the vector `value` of type `source` as `target`."""
    if source == target:
        return value
    if target.kind == "b":
        zero = ir.constant(value.type, None)
        return (
            builder.fcmp_unordered("!=", value, zero) if source.kind == "f" else builder.icmp_signed("!=", value, zero)
        )
    kind = ir.vector(ir.element_type(target))
    if source.kind == "f" and target.kind == "f":
        return _float_to_float(builder, value, source, target, kind)
    if source.kind == "f":
        return _float_to_int(builder, value, target, kind)
    if target.kind == "f":
        wide = kind if target.itemsize > 2 else ir.vector(ir.single if source.itemsize <= 2 else ir.double)
        result = builder.sitofp(value, wide) if source.kind == "i" else builder.uitofp(value, wide)
        return result if wide is kind else _narrow_to_half(builder, result)
    if target.itemsize < source.itemsize:
        return builder.trunc(value, kind)
    if target.itemsize == source.itemsize and source.kind != "b":
        return value
    return builder.sext(value, kind) if source.kind == "i" else builder.zext(value, kind)


def _float_to_float(
    builder: llvm.IRBuilder, value: ir.Value, source: DType, target: DType, kind: llvm.Type
) -> ir.Value:
    if target.itemsize > source.itemsize:
        return builder.fpext(value, kind)
    return _narrow_to_half(builder, value) if target.itemsize == 2 else builder.fptrunc(value, kind)


def _float_to_int(builder: llvm.IRBuilder, value: ir.Value, target: DType, kind: llvm.Type) -> ir.Value:
    """Converts through signed 64 bits, as x86 does."""
    wide = ir.vector(ir.i64)
    result = builder.fptosi(value, wide)
    return result if kind == wide else builder.trunc(result, kind)


def _narrow_to_half(builder: llvm.IRBuilder, value: ir.Value) -> ir.Value:
    """Returns float32 or float64 as float16, rounded once.

    float64 is first rounded to odd in float32 (Boldo and Melquiond 2008), so that the second rounding is right; there
    is no instruction for the direct conversion.
    """
    if value.type.element == ir.double:
        value = _round_to_odd(builder, value)
    return builder.fptrunc(value, ir.vector(ir.half))


def _round_to_odd(builder: llvm.IRBuilder, value: ir.Value) -> ir.Value:
    singles, words = ir.vector(ir.single), ir.vector(ir.i32)
    nearest = builder.fptrunc(value, singles)
    back = builder.fpext(nearest, value.type)
    inexact = builder.fcmp_ordered("!=", back, value)
    outwards = builder.fcmp_ordered(">", ir.intrinsic(builder, "fabs", back), ir.intrinsic(builder, "fabs", value))
    bits = builder.bitcast(nearest, words)
    towards_zero = builder.sub(bits, builder.zext(outwards, words))
    odd = builder.or_(towards_zero, ir.constant(words, 1))
    return builder.bitcast(builder.select(inexact, odd, bits), singles)
