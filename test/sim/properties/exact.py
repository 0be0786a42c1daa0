"""IEEE arithmetic by definition: exact fractions, rounded once.

A float result is a Python float (zeros, infinities, NaN, anything already exact) or a Fraction, which is never zero.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Number = float | Fraction


@dataclass(frozen=True)
class Format:
    """A binary float: bits in all, mantissa bits, exponent of the least significant bit of subnormals."""

    bits: int
    mantissa: int
    lowest: int

    @property
    def infinity(self) -> int:
        return (1 << self.bits - 1) - (1 << self.mantissa)

    @property
    def nan(self) -> int:
        """The quiet NaN without sign and payload, which every NaN result is made."""
        return self.infinity | 1 << self.mantissa - 1


FORMATS = {
    "f16": Format(16, 10, -24),
    "bf16": Format(16, 7, -133),
    "f32": Format(32, 23, -149),
    "f64": Format(64, 52, -1074),
}
_PACK = {"f16": ("<e", "<H"), "f32": ("<f", "<I"), "f64": ("<d", "<Q")}


def to_float(bits: int, kind: str) -> float:
    if kind == "bf16":
        return to_float(bits << 16, "f32")
    code, raw = _PACK[kind]
    return float(struct.unpack(code, struct.pack(raw, bits))[0])


def to_bits(value: Number, kind: str, towards_zero: bool = False) -> int:
    """Rounded to nearest even, or towards zero (finite values then stay finite)."""
    fmt = FORMATS[kind]
    if value != value:
        return fmt.nan
    sign = (1 << fmt.bits - 1) * (value < 0 or (isinstance(value, float) and math.copysign(1, value) < 0))
    if isinstance(value, float) and math.isinf(value):
        return sign | fmt.infinity
    if value == 0:
        return sign
    magnitude = abs(Fraction(value))
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    step = max(exponent - fmt.mantissa, fmt.lowest)
    steps = magnitude / Fraction(2) ** step
    count = math.floor(steps) if towards_zero else round(steps)  # round() of a Fraction is half to even
    return sign | min((step - fmt.lowest << fmt.mantissa) + count, fmt.infinity - towards_zero)


def rounded(value: Number, kind: str) -> float:
    return to_float(to_bits(value, kind), kind)


def add(a: Number, b: Number) -> Number:
    special = float(a) + float(b)
    if not (math.isfinite(a) and math.isfinite(b)) or special == 0 == a + b:
        return special
    return Fraction(a) + Fraction(b)


def multiply(a: Number, b: Number) -> Number:
    if not (math.isfinite(a) and math.isfinite(b)) or a == 0 or b == 0:
        return float(a) * float(b)
    return Fraction(a) * Fraction(b)


def fma(a: float, b: float, c: float) -> Number:
    if math.isfinite(a) and math.isfinite(b) and not math.isfinite(c):
        return c
    product = multiply(a, b)
    if isinstance(product, float):
        return add(product, c)
    return product + Fraction(c) or 0.0


def mad(kind: str) -> Callable[[float, float, float], Number]:
    """Multiply and add, rounded in between."""
    return lambda a, b, c: add(rounded(multiply(a, b), kind), c)


def divide(a: float, b: float) -> Number:
    if math.isfinite(a) and math.isfinite(b) and a and b:
        return Fraction(a) / Fraction(b)
    if a != a or b != b or (a == 0 == b) or (math.isinf(a) and math.isinf(b)):
        return math.nan
    sign = math.copysign(1, a) * math.copysign(1, b)
    return math.copysign(math.inf if b == 0 or math.isinf(a) else 0.0, sign)


def scale(x: float, exponent: int) -> Number:
    """x·2**exponent."""
    return Fraction(x) * Fraction(2) ** exponent if math.isfinite(x) and x else x


def key(x: float) -> tuple[float, float]:
    """Orders numbers with −0 below +0."""
    return x, math.copysign(1, x)


def lesser(*values: float) -> float:
    """The least number; NaN only if there is nothing else."""
    return min((x for x in values if x == x), key=key, default=math.nan)


def greater(*values: float) -> float:
    return max((x for x in values if x == x), key=key, default=math.nan)


def median(a: float, b: float, c: float) -> float:
    """v_med3: the greater of the two that the greatest leaves (−0 equals +0 for this); with NaN the least."""
    if a != a or b != b or c != c:
        return lesser(a, b, c)
    top = greater(a, b, c)
    return greater(b, c) if a == top else greater(a, c) if b == top else greater(a, b)


def or_nan(function: Callable[..., float]) -> Callable[..., float]:
    """NaN as soon as one argument is."""
    return lambda *values: math.nan if any(x != x for x in values) else function(*values)


def integral(function: Callable[[Any], int]) -> Callable[[float], float]:
    """A rounding to an integer (math.floor, …); infinity, NaN and the sign of zero stay."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x
