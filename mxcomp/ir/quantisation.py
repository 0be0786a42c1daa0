"""Builds dynamic quantisation to MX as IR in linalg, as a model's author writes it in front of a scaled matmul.

    %bits  = linalg.generic … ins(%x : tensor<64x8x32xf32>) { |x| as i32, arith.maxui } -> tensor<64x8xi32>
    %scale = linalg.generic … ins(%bits) { exponent by mode; 0xFF if not finite } -> tensor<64x8xf8E8M0FNU>
    %q     = linalg.generic … ins(%x, %bits) { arith.scaling_truncf } -> tensor<64x8x32xf4E2M1FN>

Bit for bit what `mxcomp.formats.quantise` computes with profile "ocp": blocks with an infinity or a NaN get scale 0xFF
and zero codes, others saturate. Recognised in front of a scaled matmul, it becomes part of the packing
(`mxcomp.matching.quantiser`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, math

from mxcomp.errors import InputError
from mxcomp.formats import E8M0, E8M0_BIAS, E8M0_NAN, ElementFormat, element_format, mx_format
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import reduced, tabled

SOURCE_TYPES = ("f32", "f16", "bf16")
UNQUANTISED = "bf16"
"""The format name of activations that are not quantised: they are rounded to bf16 if needed."""
_EXPONENT_BITS, _MANTISSA = 23, 0x7FFFFF
_INFINITY, _MAGNITUDE = 0x7F800000, 0x7FFFFFFF


def _mantissa_of_max(fmt: ElementFormat) -> int:
    return int(np.float32(fmt.max_finite).view(np.int32)) & _MANTISSA


SCALE_CARRIES: dict[str, Callable[[ElementFormat], int]] = {
    "floor": lambda fmt: 0,
    "even": lambda fmt: 1 << 22 - fmt.mantissa_bits,
    "ceil": lambda fmt: _MANTISSA,
    "rceil": lambda fmt: _MANTISSA - _mantissa_of_max(fmt),
}
"""The number that is added to the bits of a block's largest magnitude in each scale mode, so that a carry increments
the exponent."""


def quantise(value: ir.Value, element: str, mode: str = "even") -> tuple[ir.Value, ir.Value]:
    """Quantises [M, K] (f32, f16 or bf16; M may be dynamic) along K, at the insertion point.

    Returns [M, K/32, 32] of MLIR type `element` and [M, K/32] of f8E8M0FNU. `mode` is floor, even, ceil or rceil, as
    in `mxcomp.formats.scales`. Raises InputError for another type, mode, rank or K.
    """
    source = ir.RankedTensorType(value.type)
    fmt = _checked(source, element, mode)
    rows, size = build.dynamic_sizes(value), mx_format(fmt).size
    blocks = build.split(value, 1, ((build.static_sizes(value)[1] or 0) // size, size), rows)
    amax = _amax(blocks, rows)
    return _elements(blocks, amax, fmt, mode, rows), _scales(amax, fmt, mode, rows)


def _checked(source: ir.RankedTensorType, element: str, mode: str) -> ElementFormat:
    if mode not in SCALE_CARRIES:
        raise InputError(f"unknown scale mode '{mode}': expected one of {', '.join(SCALE_CARRIES)}")
    try:
        fmt = element_format(element)
    except ValueError as error:
        raise InputError(str(error)) from None
    if str(source.element_type) not in SOURCE_TYPES:
        raise InputError(f"cannot quantise {source}: expected elements of {', '.join(SOURCE_TYPES)}")
    size = mx_format(fmt).size
    if source.rank != 2 or source.is_dynamic_dim(1) or source.get_dim_size(1) % size:
        raise InputError(f"cannot quantise {source}: expected [M, K] with K a multiple of {size}")
    return fmt


def _amax(blocks: ir.Value, rows: list[ir.Value]) -> ir.Value:
    """Returns the bits of the largest magnitude of each block, as f32. Compared as integers, infinities and NaN are the
    largest."""
    return reduced(
        "mkb", "mk", build.static_sizes(blocks)[:2], "i32", [("mkb", blocks)],
        lambda bits, largest: arith.MaxUIOp(bits, largest).result,
        lambda x: s.bits(math.AbsFOp(s.widened(x)).result), rows,
    )  # fmt: skip


def _scales(amax: ir.Value, fmt: ElementFormat, mode: str, rows: list[ir.Value]) -> ir.Value:
    result = build.tensor_type(build.static_sizes(amax), E8M0.mlir_type)

    def body(bits: ir.Value) -> ir.Value:
        code = arith.SelectOp(_is_finite(bits), _code(bits, fmt, mode), s.i32(E8M0_NAN)).result
        return _e8m0(code)

    return build.elementwise(result, [amax], body, rows)


def _elements(blocks: ir.Value, amax: ir.Value, fmt: ElementFormat, mode: str, rows: list[ir.Value]) -> ir.Value:
    kind = ir.Type.parse(fmt.mlir_type)

    def body(x: ir.Value, bits: ir.Value, _: ir.Value) -> ir.Value:
        finite = _is_finite(bits)
        x = s.select(finite, s.widened(x), 0.0)
        scale = _e8m0(arith.SelectOp(finite, _code(bits, fmt, mode), s.i32(E8M0_BIAS)).result)
        if fmt.has_nan:  # the others saturate of themselves
            x = _clamped(x, _largest(bits, fmt, mode))
        return arith.ScalingTruncFOp(kind, x, scale).result

    return tabled("mkb", build.static_sizes(blocks), kind, [("mkb", blocks), ("mk", amax)], body, rows)


def _code(bits: ir.Value, fmt: ElementFormat, mode: str) -> ir.Value:
    """Returns the E8M0 code of a finite block as i32; 2^-127 is the smallest, and overflow does not occur."""
    rounded = s.plus(bits, SCALE_CARRIES[mode](fmt))
    exponent = arith.ShRUIOp(rounded, s.i32(_EXPONENT_BITS)).result
    return arith.MaxSIOp(s.minus(exponent, fmt.emax), s.i32(0)).result


def _largest(bits: ir.Value, fmt: ElementFormat, mode: str) -> ir.Value:
    """Returns the largest finite element times the scale, as f32, limited to the largest f32."""
    exponent = s.plus(_code(bits, fmt, mode), fmt.emax)
    product = s.either(arith.ShLIOp(exponent, s.i32(_EXPONENT_BITS)).result, s.i32(_mantissa_of_max(fmt)))
    return s.number(arith.MinUIOp(product, s.i32(_INFINITY - 1)).result)


def _clamped(x: ir.Value, bound: ir.Value) -> ir.Value:
    return arith.MaximumFOp(arith.MinimumFOp(x, bound).result, arith.NegFOp(bound).result).result


def _is_finite(bits: ir.Value) -> ir.Value:
    return arith.CmpIOp(arith.CmpIPredicate.ult, bits, s.i32(_INFINITY)).result


def _e8m0(code: ir.Value) -> ir.Value:
    byte = arith.TruncIOp(ir.IntegerType.get_signless(8), code).result
    return arith.BitcastOp(ir.Float8E8M0FNUType.get(), byte).result
