"""`astype` between NumPy's types on LLVM vectors, with NumPy's results on values that have a defined one."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.fast import ir

DType = np.dtype[Any]


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
        return result if wide is kind else narrow_to_half(builder, result)
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
    return narrow_to_half(builder, value) if target.itemsize == 2 else builder.fptrunc(value, kind)


def _float_to_int(builder: llvm.IRBuilder, value: ir.Value, target: DType, kind: llvm.Type) -> ir.Value:
    """Converts through signed 64 bits, as x86 does."""
    wide = ir.vector(ir.i64)
    result = builder.fptosi(value, wide)
    return result if kind == wide else builder.trunc(result, kind)


def narrow_to_half(builder: llvm.IRBuilder, value: ir.Value) -> ir.Value:
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
    odd = builder.or_(towards_zero, ir.constant(words, [1] * ir.LANES))
    return builder.bitcast(builder.select(inexact, odd, bits), singles)
