"""The division sequence v_div_scale, v_div_fmas, v_div_fixup (CDNA4 ISA, chapter 12, VOP3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mxcomp.sim.semantics.table import Lanes, VectorTable, f16, f32, f64, i64, u16, u32, u64, vector
from mxcomp.sim.semantics.valu_float import fma64, sum_to_odd

TABLE: VectorTable = {}
_add = partial(vector, TABLE)


def _div_scale32(value: Lanes, denominator: Lanes, numerator: Lanes) -> tuple[Lanes, Lanes]:
    exponent = lambda x: (x.view(u32) >> 23 & 0xFF).astype(i64)  # noqa: E731
    return _div_scale(value, denominator, numerator, exponent, f32, 96, 23, 64)


def _div_scale64(value: Lanes, denominator: Lanes, numerator: Lanes) -> tuple[Lanes, Lanes]:
    exponent = lambda x: (x.view(u64) >> 52 & 0x7FF).astype(i64)  # noqa: E731
    return _div_scale(value, denominator, numerator, exponent, f64, 768, 53, 128)


def _div_scale(
    value: Lanes,
    denominator: Lanes,
    numerator: Lanes,
    exponent: Callable[[Lanes], Lanes],
    dtype: type,
    far: int,
    tiny: int,
    step: int,
) -> tuple[Lanes, Lanes]:
    """Returns the scales `value` (one of the other two) so that the division does not lose bits; VCC: the quotient is
    scaled back.

    Conditions in the order of AMD's pseudo-code, the first that holds decides.
    """
    smallest = np.finfo(dtype).tiny
    subnormal: Callable[[Lanes], Lanes] = lambda x: (np.abs(x) < smallest) & (x != 0)  # noqa: E731
    d64, n64 = denominator.astype(f64), numerator.astype(f64)
    reciprocal = 1.0 / d64
    no_reciprocal = (np.abs(reciprocal) < 2.0**-1022) & (reciprocal != 0)
    small_quotient = subnormal((n64 / d64).astype(dtype))
    up, down = value * dtype(2.0**step), value * dtype(2.0**-step)
    only_denominator = np.where(value == denominator, up, value)
    only_numerator = np.where(value == numerator, up, value)
    invalid = (numerator == 0) | (denominator == 0)
    apart = exponent(numerator) - exponent(denominator) >= far
    cases = (
        (invalid, dtype(np.nan) + value * 0, False),
        (apart, only_denominator, True),
        (subnormal(denominator), up, False),
        (no_reciprocal & small_quotient, only_denominator, True),
        (no_reciprocal, down, False),
        (small_quotient, only_numerator, True),
        (exponent(numerator) <= tiny, up, False),
    )
    result, flag = value, value != value
    flag = flag & False
    for condition, scaled, marked in reversed(cases):
        result = np.where(condition, scaled, result)
        flag = np.where(condition, marked, flag)
    return result, flag


def _div_fmas32(a: Lanes, b: Lanes, c: Lanes, scaled: Lanes) -> Lanes:
    """Computes the fused multiply-add that undoes v_div_scale, with one rounding: a quotient (c) above 1 was scaled
    down.

    AMD's pseudo-code multiplies by 2**32 (float64: 2**64) in either case, which does not undo v_div_scale's 2**±64
    (2**±128); with the factors here the sequence that compilers emit divides correctly.
    """
    back = np.where(np.abs(c) >= 2, 2.0**64, 2.0**-64)
    total = sum_to_odd(a.astype(f64) * b.astype(f64), c.astype(f64))
    return np.where(scaled, total * back, total).astype(f32)


def _div_fmas64(a: Lanes, b: Lanes, c: Lanes, scaled: Lanes) -> Lanes:
    back = np.where(np.abs(c) >= 2, 2.0**128, 2.0**-128)
    return np.where(scaled, fma64(a, b, c) * back, fma64(a, b, c))


def _div_fixup(dtype: type, bits: type, mantissa: int, lowest: int | None) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    """Handles the special cases of numerator / denominator: zeros, infinities, NaN, underflow, and the sign.

    With `lowest`, the form that v_div_scale goes with: quotients whose exponent is below it are 0, and one that is NaN
    though the operands are ordinary has overflowed on the way: infinity. (AMD's pseudo-code would leave NaN, also for a
    large x over a subnormal y.)
    """
    top = np.finfo(dtype).maxexp * 2 - 1

    def exponent(x: Lanes) -> Lanes:
        return (x.view(bits) >> mantissa).astype(i64) & top

    def fixup(quotient: Lanes, denominator: Lanes, numerator: Lanes) -> Lanes:
        sign = np.where(np.signbit(denominator) != np.signbit(numerator), dtype(-1), dtype(1))
        inf_d, inf_n = np.abs(denominator) == np.inf, np.abs(numerator) == np.inf
        zero_d, zero_n = denominator == 0, numerator == 0
        nan = (zero_d & zero_n) | (inf_d & inf_n) | (denominator != denominator) | (numerator != numerator)
        result = sign * np.abs(quotient)
        if lowest is not None:
            result = np.where(quotient != quotient, sign * dtype(np.inf), result)
            result = np.where(exponent(numerator) - exponent(denominator) < lowest, sign * dtype(0), result)
        result = np.where(inf_d | zero_n, sign * dtype(0), result)
        result = np.where(zero_d | inf_n, sign * dtype(np.inf), result)
        return np.where(nan, dtype(np.nan), result)

    return fixup


_add("v_div_scale_f32", "fM<fff", _div_scale32)
_add("v_div_scale_f64", "dM<ddd", _div_scale64)
_add("v_div_fmas_f32", "f<fffM", _div_fmas32)
_add("v_div_fmas_f64", "d<dddM", _div_fmas64)
_add("v_div_fixup_f32", "f<fff", _div_fixup(f32, u32, 23, -150))
_add("v_div_fixup_f64", "d<ddd", _div_fixup(f64, u64, 52, -1075))
_add("v_div_fixup_f16", "h<hhh", _div_fixup(f16, u16, 10, None))
