"""Packed instructions, mixed precision and dot products: VOP3P, with op_sel and negation fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial

from properties import exact
from properties.bench import Function, Table, rows
from properties.exact import Number, rounded, to_bits, to_float
from properties.integer import saturate, signed

TABLE: Table = {}
_add = partial(rows, TABLE, encoding="VOP3P")

USUAL = {"opsel": 0, "opsel_hi": 3, "opsel_hi2": 1}
_SELECTIONS = (
    USUAL,
    {"opsel": 5, "opsel_hi": 2},
    {"opsel": 2, "opsel_hi": 1, "opsel_hi2": 1},
    {"opsel": 7, "opsel_hi": 0},
)
INTEGER_FIELDS = tuple(dict(fields) for fields in _SELECTIONS)
FLOAT_FIELDS = tuple(
    {**fields, "neg": neg, "neg_hi": high}
    for fields, neg, high in zip(_SELECTIONS, (0, 6, 5, 3), (0, 1, 6, 7), strict=True)
)


def clamp(x: Number) -> Number:
    """Within 0 … 1; NaN and −0 become 0."""
    return x if 0 < x < 1 else 1.0 if x >= 1 else 0.0


def parts(fields: Mapping[str, int]) -> list[tuple[list[int], list[int]]]:
    """For the low and the high result: which half each source gives, and whether it is negated."""
    high = fields.get("opsel_hi", 0) | fields.get("opsel_hi2", 0) << 2
    pairs = ((fields.get("opsel", 0), fields.get("neg", 0)), (high, fields.get("neg_hi", 0)))
    return [([select >> k & 1 for k in range(3)], [negate >> k & 1 for k in range(3)]) for select, negate in pairs]


def chosen(words: tuple[int, ...], select: list[int], negate: list[int], kind: str) -> list[float]:
    """The halves that are picked of operands, negated or not."""
    bits = exact.FORMATS[kind].bits
    parts = [w >> bits * h & (1 << bits) - 1 for w, h in zip(words, select, strict=False)]
    return [to_float(part ^ n << bits - 1, kind) for part, n in zip(parts, negate, strict=False)]


def _halves(function: Function) -> Function:
    """float16 in both halves."""

    def of(fields: Mapping[str, int]) -> Function:
        def packed(*words: int) -> int:
            result = 0
            for at, (select, negate) in enumerate(parts(fields)):
                value = function(*chosen(words, select, negate, "f16"))
                if fields.get("clmp"):
                    value = clamp(rounded(value, "f16"))
                result |= to_bits(value, "f16") << 16 * at
            return result

        return packed

    return of


def _integers(function: Function, limits: tuple[int, int], is_signed: bool) -> Function:
    """Integers in both halves; the clamp bit saturates."""

    def of(fields: Mapping[str, int]) -> Function:
        def packed(*words: int) -> int:
            result = 0
            for at, (select, _) in enumerate(parts(fields)):
                values = [w >> 16 * h & 0xFFFF for w, h in zip(words, select, strict=False)]
                value = function(*(signed(x, 16) if is_signed else x for x in values))
                value = saturate(value, *limits) if fields.get("clmp") else value
                result |= (value & 0xFFFF) << 16 * at
            return result

        return packed

    return of


_CLAMPED = ({**USUAL, "clmp": 1},)
_TWO, _THREE = "u32<u32 u32", "u32<u32 u32 u32"
_add("v_pk_add_f16", _TWO, _halves(exact.add), fields=FLOAT_FIELDS + _CLAMPED)
_add("v_pk_mul_f16", _TWO, _halves(exact.multiply), fields=FLOAT_FIELDS + _CLAMPED)
_add("v_pk_fma_f16", _THREE, _halves(exact.fma), fields=FLOAT_FIELDS + _CLAMPED)
_add("v_pk_min_f16", _TWO, _halves(exact.lesser), fields=FLOAT_FIELDS + _CLAMPED)
_add("v_pk_max_f16", _TWO, _halves(exact.greater), fields=FLOAT_FIELDS + _CLAMPED)
_add("v_pk_minimum3_f16", _THREE, _halves(exact.or_nan(exact.lesser)), fields=FLOAT_FIELDS)
_add("v_pk_maximum3_f16", _THREE, _halves(exact.or_nan(exact.greater)), fields=FLOAT_FIELDS)
for _t, _limits in (("u16", (0, 2**16 - 1)), ("i16", (-(2**15), 2**15 - 1))):
    _of = partial(_integers, limits=_limits, is_signed=_t[0] == "i")
    _add(f"v_pk_add_{_t}", _TWO, _of(lambda a, b: a + b), fields=INTEGER_FIELDS + _CLAMPED)
    _add(f"v_pk_sub_{_t}", _TWO, _of(lambda a, b: a - b), fields=INTEGER_FIELDS + _CLAMPED)
    _add(f"v_pk_min_{_t}", _TWO, _of(min), fields=INTEGER_FIELDS)
    _add(f"v_pk_max_{_t}", _TWO, _of(max), fields=INTEGER_FIELDS)
    _add(f"v_pk_mad_{_t}", _THREE, _of(lambda a, b, c: a * b + c), fields=INTEGER_FIELDS)
    _shift: Function = lambda a, b: b >> a % 16  # noqa: E731
    _add("v_pk_ashrrev_i16" if _t == "i16" else "v_pk_lshrrev_b16", _TWO, _of(_shift), fields=INTEGER_FIELDS)
_unsigned = partial(_integers, limits=(0, 0), is_signed=False)
_add("v_pk_mul_lo_u16", _TWO, _unsigned(lambda a, b: a * b), fields=INTEGER_FIELDS)
_add("v_pk_lshlrev_b16", _TWO, _unsigned(lambda a, b: b << a % 16), fields=INTEGER_FIELDS)


def _pairs(function: Function) -> Function:
    """float32 in two registers."""

    def of(fields: Mapping[str, int]) -> Function:
        def packed(*words: int) -> tuple[Number, Number]:
            low, high = (function(*chosen(words, *of_part, "f32")) for of_part in parts(fields))
            return low, high

        return packed

    return of


_add("v_pk_add_f32", "f32 f32<u64 u64", _pairs(exact.add), fields=FLOAT_FIELDS)
_add("v_pk_mul_f32", "f32 f32<u64 u64", _pairs(exact.multiply), fields=FLOAT_FIELDS)
_add("v_pk_fma_f32", "f32 f32<u64 u64 u64", _pairs(exact.fma), fields=FLOAT_FIELDS)


def _pk_mov(fields: Mapping[str, int]) -> Function:
    return lambda a, b: (a >> 32 * (fields["opsel"] & 1), b >> 32 * (fields["opsel"] >> 1 & 1))


_add("v_pk_mov_b32", "u32 u32<u64 u64", _pk_mov, fields=tuple({"opsel": k} for k in range(4)))

# -- mixed precision: op_sel_hi says which sources are float16, neg_hi takes absolute values


def _mixed(fields: Mapping[str, int]) -> Function:
    narrow = fields.get("opsel_hi", 0) | fields.get("opsel_hi2", 0) << 2

    def source(word: int, k: int) -> float:
        half = word >> 16 * (fields["opsel"] >> k & 1) & 0xFFFF
        value = to_float(half, "f16") if narrow >> k & 1 else to_float(word, "f32")
        value = abs(value) if fields.get("neg_hi", 0) >> k & 1 else value
        return -value if fields.get("neg", 0) >> k & 1 else value

    def mixed(*words: int) -> float:
        total = rounded(exact.fma(*(source(w, k) for k, w in enumerate(words))), "f32")
        return float(clamp(total)) if fields.get("clmp") else total

    return mixed


def _into(shift: int) -> Function:
    def of(fields: Mapping[str, int]) -> Function:
        mixed = _mixed(fields)
        return lambda a, b, c, old: old & ~(0xFFFF << shift) | to_bits(mixed(a, b, c), "f16") << shift

    return of


_MIXED_FIELDS = (*FLOAT_FIELDS, {"opsel": 4, "opsel_hi": 3, "opsel_hi2": 1, "clmp": 1})
_add("v_mad_mix_f32", "f32<u32 u32 u32", _mixed, fields=_MIXED_FIELDS)
_add("v_mad_mixlo_f16", "u32<u32 u32 u32 u32", _into(0), fields=_MIXED_FIELDS)
_add("v_mad_mixhi_f16", "u32<u32 u32 u32 u32", _into(16), fields=_MIXED_FIELDS)

# -- dot products: hardware's intermediate rounding is not published; where terms cancel nothing is claimed


def _dot(kind: str) -> Function:
    def of(fields: Mapping[str, int]) -> Function:
        def dot(a: int, b: int, c: float) -> Number | None:
            terms: list[Number] = [c]
            for select, negate in parts(fields):
                terms.append(exact.multiply(*chosen((a, b), select, negate, kind)))
            if not all(isinstance(x, Fraction) or math.isfinite(x) for x in terms):
                return float(terms[0]) + float(terms[1]) + float(terms[2])
            exactly = [Fraction(x) for x in terms]
            total = sum(exactly, Fraction(0))
            return total if abs(total) >= max(abs(x) for x in exactly) / 2**16 else None

        return dot

    return of


for _kind in ("f16", "bf16"):
    _add(f"v_dot2_f32_{_kind}", "f32<u32 u32 f32", _dot(_kind), fields=FLOAT_FIELDS, ulp=1)
    rows(TABLE, f"v_dot2c_f32_{_kind}", "f32<u32 u32 f32", _dot(_kind)(USUAL), encoding="VOP2", ulp=1)
