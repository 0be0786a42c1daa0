"""Floating-point vector instructions (CDNA4 ISA, chapter 12, VOP1–VOP3).

Subnormals are kept, whatever the MODE register says. Sums, products and fused multiply-adds are correctly rounded, to
nearest even. Transcendental functions are computed in float64 and rounded once; hardware is within 1 ulp of that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mxcomp.sim.semantics.table import Lanes, VectorTable, f16, f32, f64, i32, i64, u32, u64, vector

TABLE: VectorTable = {}
_add = partial(vector, TABLE)


def fma32(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Returns a·b + c of float32, rounded once.

    The product is exact in float64; the sum is rounded to odd there (Boldo and Melquiond 2008), so that the second
    rounding, to float32, is right.
    """
    return sum_to_odd(a.astype(f64) * b.astype(f64), c.astype(f64)).astype(f32)


def sum_to_odd(product: Lanes, addend: Lanes) -> Lanes:
    """Returns the sum of float64 rounded to odd. Rounding it again, to float32, equals rounding the exact sum."""
    total, error = _two_sum(product, addend)
    bits = total.view(u64)
    outwards = (error > 0) == (total > 0)
    odd = np.where(outwards, bits | 1, (bits - 1) | 1)
    inexact = (error != 0) & (bits & 1 == 0) & (np.abs(total) < np.inf)
    return np.where(inexact, odd, bits).view(f64)


def fma64(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Returns a·b + c of float64, rounded once, by Dekker's product and a sum of its parts with c rounded to odd.

    Right where neither the product's parts overflow nor underflow; beyond, as close as a plain multiply and add.
    """
    product = a * b
    ah, bh = _split(a), _split(b)
    al, bl = a - ah, b - bh
    low = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    # product + low + c, the two smaller parts first rounded to odd (Boldo and Melquiond's algorithm for three terms)
    uh, ul = _two_sum(c, low)
    th, tl = _two_sum(product, uh)
    exact = th + sum_to_odd(tl, ul)
    return np.where((np.abs(exact) < np.inf) & (exact != 0), exact, product + c)  # which has the right sign of zero


def _split(a: Lanes) -> Lanes:
    """Returns the upper 26 bits of the mantissa (Veltkamp)."""
    return ((a.view(u64) + (u64(1) << u64(26))) & ~u64((1 << 27) - 1)).view(f64)


def _two_sum(a: Lanes, b: Lanes) -> tuple[Lanes, Lanes]:
    """Returns a sum and its exact error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def fma16(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Returns a·b + c of float16, exact in float64 and rounded once."""
    return (a.astype(f64) * b.astype(f64) + c.astype(f64)).astype(f16)


def _bits(x: Lanes) -> Lanes:
    return x.view(f"u{x.dtype.itemsize}")


def minimum(a: Lanes, b: Lanes, keeps_nan: bool = False) -> Lanes:
    """Returns the lesser, −0 below +0; of NaN and a number the number, or NaN."""
    either = (_bits(a) | _bits(b)).view(a.dtype)  # of equal numbers: −0 if one is
    return np.where(a == b, either, np.where((a < b) | (a != a if keeps_nan else b != b), a, b))


def maximum(a: Lanes, b: Lanes, keeps_nan: bool = False) -> Lanes:
    both = (_bits(a) & _bits(b)).view(a.dtype)
    return np.where(a == b, both, np.where((a > b) | (a != a if keeps_nan else b != b), a, b))


def _of_three(function: Callable[..., Lanes], keeps_nan: bool) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    return lambda a, b, c: function(function(a, b, keeps_nan), c, keeps_nan)


def med3(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """Returns the median: the greater of the two that remain without the greatest; the minimum when one is NaN."""
    nan = (a != a) | (b != b) | (c != c)
    greatest = maximum(maximum(a, b), c)
    rest = np.where(greatest == a, maximum(b, c), np.where(greatest == b, maximum(a, c), maximum(a, b)))
    return np.where(nan, minimum(minimum(a, b), c), rest)


def _multiply_legacy(a: Lanes, b: Lanes) -> Lanes:
    return np.where((a == 0) | (b == 0), f32(0), a * b)


# -- arithmetic of all three widths

for _suffix, _t in (("f32", "f"), ("f64", "d"), ("f16", "h")):
    _add(f"v_add_{_suffix}", f"{_t}<{_t * 2}", lambda a, b: a + b)
    _add(f"v_mul_{_suffix}", f"{_t}<{_t * 2}", lambda a, b: a * b)
    _add(f"v_min_{_suffix}", f"{_t}<{_t * 2}", minimum)
    _add(f"v_max_{_suffix}", f"{_t}<{_t * 2}", maximum)
    _add(f"v_trunc_{_suffix}", f"{_t}<{_t}", np.trunc)
    _add(f"v_ceil_{_suffix}", f"{_t}<{_t}", np.ceil)
    _add(f"v_floor_{_suffix}", f"{_t}<{_t}", np.floor)
    _add(f"v_rndne_{_suffix}", f"{_t}<{_t}", np.rint)
    _add(f"v_sqrt_{_suffix}", f"{_t}<{_t}", np.sqrt)

for _suffix, _t in (("f32", "f"), ("f16", "h")):
    _add(f"v_sub_{_suffix}", f"{_t}<{_t * 2}", lambda a, b: a - b)
    _add(f"v_subrev_{_suffix}", f"{_t}<{_t * 2}", lambda a, b: b - a)
    _add(f"v_min3_{_suffix}", f"{_t}<{_t * 3}", _of_three(minimum, False))
    _add(f"v_max3_{_suffix}", f"{_t}<{_t * 3}", _of_three(maximum, False))
    _add(f"v_med3_{_suffix}", f"{_t}<{_t * 3}", med3)
_add("v_minimum3_f32", "f<fff", _of_three(minimum, True))
_add("v_maximum3_f32", "f<fff", _of_three(maximum, True))

_add("v_mul_legacy_f32", "f<ff", _multiply_legacy)
_add("v_fma_f32", "f<fff", fma32)
_add("v_fma_f64", "d<ddd", fma64)
_add("v_fma_f16 v_fma_legacy_f16", "h<hhh", fma16)
_add("v_mad_f16 v_mad_legacy_f16", "h<hhh", lambda a, b, c: a * b + c)  # not fused: rounded twice
_add("v_fmac_f32", "f<ff", fma32, old="accumulate")
_add("v_fmac_f64", "d<dd", fma64, old="accumulate")
_add("v_mac_f16", "h<hh", lambda a, b, c: a * b + c, old="accumulate")
_add("v_fmamk_f32 v_fmaak_f32", "f<fff", fma32)

_BELOW_ONE = f32(1) - f32(2**-24)
_add("v_fract_f32", "f<f", lambda a: np.minimum(a - np.floor(a), _BELOW_ONE))
_add("v_fract_f64", "d<d", lambda a: np.minimum(a - np.floor(a), f64(1) - f64(2**-53)))
_add("v_fract_f16", "h<h", lambda a: np.minimum(a - np.floor(a), f16(1) - f16(2**-11)))

# -- transcendental


def _sine(turns: Lanes) -> Lanes:
    """Returns sin(2π·turns) of float64, reduced to a quarter turn first, so that multiples of a half give 0."""
    halves = np.rint(turns * 2)
    rest = np.sin((turns - halves * 0.5) * (2 * np.pi))
    return np.where(turns == 0, turns, np.where(np.floor(halves * 0.5) * 2 == halves, rest, -rest))


def _in_range(turns: Lanes, value: Lanes, otherwise: float) -> Lanes:
    """Limits the argument: beyond 256 turns hardware gives a constant (Vega ISA), for infinity NaN."""
    beyond = (np.abs(turns) > 256) & (np.abs(turns) < np.inf)
    return np.where(beyond, otherwise, value).astype(f32)


_add("v_exp_f32 v_exp_legacy_f32", "f<f", lambda a: np.exp2(a.astype(f64)).astype(f32))
_add("v_log_f32 v_log_legacy_f32", "f<f", lambda a: np.log2(a.astype(f64)).astype(f32))
_add("v_rcp_f32 v_rcp_iflag_f32", "f<f", lambda a: (1.0 / a.astype(f64)).astype(f32))
_add("v_rsq_f32", "f<f", lambda a: (1.0 / np.sqrt(a.astype(f64))).astype(f32))
_add("v_sin_f32", "f<f", lambda a: _in_range(a, _sine(a.astype(f64)), 0.0))
_add("v_cos_f32", "f<f", lambda a: _in_range(a, _sine(a.astype(f64) + 0.25), 1.0))
_add("v_rcp_f64", "d<d", lambda a: 1.0 / a)
_add("v_rsq_f64", "d<d", lambda a: 1.0 / np.sqrt(a))
_add("v_exp_f16", "h<h", lambda a: np.exp2(a.astype(f64)).astype(f16))
_add("v_log_f16", "h<h", lambda a: np.log2(a.astype(f64)).astype(f16))
_add("v_rcp_f16", "h<h", lambda a: (1.0 / a.astype(f64)).astype(f16))
_add("v_rsq_f16", "h<h", lambda a: (1.0 / np.sqrt(a.astype(f64))).astype(f16))

# -- exponents


def power_of_two(n: Lanes) -> Lanes:
    """Returns 2**n as float64, from its bits; n is int64 in −1022 … 1023."""
    return ((n + 1023) << 52).view(f64)


def ldexp64(x: Lanes, n: Lanes) -> Lanes:
    """Returns x·2**n of float64 for any int32 n, in three steps so that only the last one rounds."""
    n = np.minimum(np.maximum(n.astype(i64), -2200), 2200)
    step = np.where(n < 0, -((-n) // 3), n // 3)
    rest = n - 2 * step
    small = (n > -900) & (n < 900)
    one = power_of_two(np.where(small, n, 0))
    return np.where(small, x * one, ((x * power_of_two(step)) * power_of_two(step)) * power_of_two(rest))


def _frexp_exponent(x: Lanes) -> Lanes:
    """Returns e of x = m·2**e, ½ ≤ |m| < 1; 0 for 0, infinity and NaN. x: float64."""
    subnormal = np.abs(x) < 2.0**-1022
    bits = np.where(subnormal, x * 2.0**100, x).view(u64)
    exponent = (bits >> 52 & 0x7FF).astype(i64) - 1022 - np.where(subnormal, i64(100), i64(0))
    return np.where((x == 0) | ~(np.abs(x) < np.inf), i64(0), exponent)


def _frexp_mantissa(x: Lanes) -> Lanes:
    scaled = ldexp64(x, -_frexp_exponent(x))
    return np.where(np.abs(x) < np.inf, scaled, x)


_add("v_ldexp_f32", "f<fi", lambda a, b: ldexp64(a.astype(f64), np.minimum(np.maximum(b, -400), 400)).astype(f32))
_add("v_ldexp_f64", "d<di", ldexp64)
_add("v_ldexp_f16", "h<hS", lambda a, b: ldexp64(a.astype(f64), np.minimum(np.maximum(b, -100), 100)).astype(f16))
_add("v_frexp_exp_i32_f32", "u<f", lambda a: _frexp_exponent(a.astype(f64)).astype(i32).view(u32))
_add("v_frexp_exp_i32_f64", "u<d", lambda a: _frexp_exponent(a).astype(i32).view(u32))
_add("v_frexp_mant_f32", "f<f", lambda a: _frexp_mantissa(a.astype(f64)).astype(f32))
_add("v_frexp_mant_f64", "d<d", _frexp_mantissa)

# -- the division sequence v_div_scale, v_div_fmas, v_div_fixup


def _exponent(x: Lanes, mantissa: int) -> Lanes:
    """Returns the exponent field, as int64."""
    return (_bits(x) >> mantissa).astype(i64) & np.finfo(x.dtype).maxexp * 2 - 1


def _div_scale(dtype: type, mantissa: int, far: int, tiny: int, step: int) -> Callable[..., tuple[Lanes, Lanes]]:
    """Scales `value` (one of the other two) so that the division does not lose bits; VCC: the quotient is scaled back.

    Conditions in the order of AMD's pseudo-code, the first that holds decides.
    """
    smallest = np.finfo(dtype).tiny

    def subnormal(x: Lanes) -> Lanes:
        return (np.abs(x) < smallest) & (x != 0)

    def scale(value: Lanes, denominator: Lanes, numerator: Lanes) -> tuple[Lanes, Lanes]:
        d64, n64 = denominator.astype(f64), numerator.astype(f64)
        reciprocal = 1.0 / d64
        no_reciprocal = (np.abs(reciprocal) < 2.0**-1022) & (reciprocal != 0)
        small_quotient = subnormal((n64 / d64).astype(dtype))
        up, down = value * dtype(2.0**step), value * dtype(2.0**-step)
        only_denominator = np.where(value == denominator, up, value)
        only_numerator = np.where(value == numerator, up, value)
        invalid = (numerator == 0) | (denominator == 0)
        apart = _exponent(numerator, mantissa) - _exponent(denominator, mantissa) >= far
        cases = (
            (invalid, dtype(np.nan) + value * 0, False),
            (apart, only_denominator, True),
            (subnormal(denominator), up, False),
            (no_reciprocal & small_quotient, only_denominator, True),
            (no_reciprocal, down, False),
            (small_quotient, only_numerator, True),
            (_exponent(numerator, mantissa) <= tiny, up, False),
        )
        result, flag = value, (value != value) & False
        for condition, scaled, marked in reversed(cases):
            result = np.where(condition, scaled, result)
            flag = np.where(condition, marked, flag)
        return result, flag

    return scale


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


def _div_fixup(dtype: type, mantissa: int, lowest: int | None) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    """Handles the special cases of numerator / denominator: zeros, infinities, NaN, underflow, and the sign.

    With `lowest`, the form that v_div_scale goes with: quotients whose exponent is below it are 0, and one that is NaN
    though the operands are ordinary has overflowed on the way: infinity. (AMD's pseudo-code would leave NaN, also for a
    large x over a subnormal y.)
    """

    def fixup(quotient: Lanes, denominator: Lanes, numerator: Lanes) -> Lanes:
        sign = np.where(np.signbit(denominator) != np.signbit(numerator), dtype(-1), dtype(1))
        inf_d, inf_n = np.abs(denominator) == np.inf, np.abs(numerator) == np.inf
        zero_d, zero_n = denominator == 0, numerator == 0
        nan = (zero_d & zero_n) | (inf_d & inf_n) | (denominator != denominator) | (numerator != numerator)
        result = sign * np.abs(quotient)
        if lowest is not None:
            result = np.where(quotient != quotient, sign * dtype(np.inf), result)
            apart = _exponent(numerator, mantissa) - _exponent(denominator, mantissa)
            result = np.where(apart < lowest, sign * dtype(0), result)
        result = np.where(inf_d | zero_n, sign * dtype(0), result)
        result = np.where(zero_d | inf_n, sign * dtype(np.inf), result)
        return np.where(nan, dtype(np.nan), result)

    return fixup


_add("v_div_scale_f32", "fM<fff", _div_scale(f32, 23, 96, 23, 64))
_add("v_div_scale_f64", "dM<ddd", _div_scale(f64, 52, 768, 53, 128))
_add("v_div_fmas_f32", "f<fffM", _div_fmas32)
_add("v_div_fmas_f64", "d<dddM", _div_fmas64)
_add("v_div_fixup_f32", "f<fff", _div_fixup(f32, 23, -150))
_add("v_div_fixup_f64", "d<ddd", _div_fixup(f64, 52, -1075))
_add("v_div_fixup_f16", "h<hhh", _div_fixup(f16, 10, None))
