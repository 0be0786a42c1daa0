"""What the float vector instructions do, exactly; functions that hardware approximates within one or two places."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from properties import exact
from properties.bench import Function, Table, rows
from properties.exact import FORMATS, Number, rounded, to_bits

TABLE: Table = {}
_add = partial(rows, TABLE)


def negated(x: float) -> float:
    return -x


def exponent(x: float, kind: str) -> int:
    """The exponent field."""
    fmt = FORMATS[kind]
    return (to_bits(x, kind) & (1 << fmt.bits - 1) - 1) >> fmt.mantissa


def subnormal(x: Number, kind: str) -> bool:
    value = rounded(x, kind)
    return value != 0 and exponent(value, kind) == 0


for _t in ("f16", "f32", "f64"):
    _add(f"v_add_{_t}", f"{_t}<{_t} {_t}", exact.add)
    _add(f"v_mul_{_t}", f"{_t}<{_t} {_t}", exact.multiply)
    _add(f"v_min_{_t}", f"{_t}<{_t} {_t}", exact.lesser)
    _add(f"v_max_{_t}", f"{_t}<{_t} {_t}", exact.greater)
    for _name, _function in (("trunc", math.trunc), ("ceil", math.ceil), ("floor", math.floor), ("rndne", round)):
        _add(f"v_{_name}_{_t}", f"{_t}<{_t}", exact.integral(_function))
for _t in ("f16", "f32"):
    _add(f"v_sub_{_t}", f"{_t}<{_t} {_t}", lambda a, b: exact.add(a, -b))
    _add(f"v_subrev_{_t}", f"{_t}<{_t} {_t}", lambda a, b: exact.add(b, -a))
    _add(f"v_min3_{_t}", f"{_t}<{_t} {_t} {_t}", exact.lesser)
    _add(f"v_max3_{_t}", f"{_t}<{_t} {_t} {_t}", exact.greater)
    _add(f"v_med3_{_t}", f"{_t}<{_t} {_t} {_t}", exact.median)
_add("v_minimum3_f32", "f32<f32 f32 f32", exact.or_nan(exact.lesser))
_add("v_maximum3_f32", "f32<f32 f32 f32", exact.or_nan(exact.greater))
_add("v_mul_legacy_f32", "f32<f32 f32", lambda a, b: 0.0 if a == 0 or b == 0 else exact.multiply(a, b))
_add("v_fma_f32 v_fmac_f32 v_fmamk_f32 v_fmaak_f32", "f32<f32 f32 f32", exact.fma)
_add("v_fma_f16 v_fma_legacy_f16", "f16<f16 f16 f16", exact.fma)
_add("v_mad_f16 v_mad_legacy_f16 v_mac_f16", "f16<f16 f16 f16", exact.mad("f16"))


def _safe(*terms: float) -> bool:
    """Where the table claims correct rounding of float64: no product or part of one overflows or underflows."""
    a, b, _ = terms
    moderate = all(x == 0 or 2.0**-400 < abs(x) < 2.0**400 for x in terms)
    return moderate or not all(map(math.isfinite, terms)) or a == 0 or b == 0


def _fma64(a: float, b: float, c: float) -> Number | None:
    return exact.fma(a, b, c) if _safe(a, b, c) else None


_add("v_fma_f64 v_fmac_f64", "f64<f64 f64 f64", _fma64)


def _fract(kind: str) -> Function:
    """x − floor(x), below 1 (the OpenCL definition, which LLVM assumes)."""
    below = 1 - 2.0 ** -(FORMATS[kind].mantissa + 1)

    def fract(x: float) -> float:
        return min(rounded(Fraction(x) - math.floor(x) or 0.0, kind), below) if math.isfinite(x) else math.nan

    return fract


def _frexp(x: float) -> tuple[float, int]:
    return math.frexp(x) if math.isfinite(x) else (x, 0)


for _t in ("f16", "f32", "f64"):
    _add(f"v_fract_{_t}", f"{_t}<{_t}", _fract(_t))
    _amount = "i16" if _t == "f16" else "i32"
    _add(f"v_ldexp_{_t}", f"{_t}<{_t} {_amount}", lambda x, n: exact.scale(x, min(max(n, -5000), 5000)))
for _t in ("f32", "f64"):
    _add(f"v_frexp_exp_i32_{_t}", f"i32<{_t}", lambda x: _frexp(x)[1])
    _add(f"v_frexp_mant_{_t}", f"{_t}<{_t}", lambda x: _frexp(x)[0])

# -- approximated by hardware


def _where(condition: Function, function: Function, otherwise: float) -> Function:
    """NaN stays."""
    return lambda x: x if x != x else function(x) if condition(x) else otherwise


def _quarter(x: float, start: int) -> float:
    """sin of x turns and `start` quarters."""
    quarters = round(4 * Fraction(x))
    rest = 2 * math.pi * float(Fraction(x) - Fraction(quarters, 4))
    which = (quarters + start) % 4
    value = math.cos(rest) if which % 2 else math.sin(rest)
    return -value if which >= 2 else value


def _turns(start: int, beyond: float) -> Function:
    in_range = _where(lambda x: abs(x) <= 256, lambda x: _quarter(x, start), beyond)
    return lambda x: math.nan if math.isinf(x) else in_range(x)


def _rsq(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x) if x > 0 else math.nan


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.log2(x) if x > 0 else math.nan


_exp2 = _where(lambda x: x < 1000, math.exp2, math.inf)
_sqrt = _where(lambda x: x >= 0, math.sqrt, math.nan)
for _t, _names in (("f32", ("{}_f32", "{}_legacy_f32")), ("f16", ("{}_f16",))):
    _add(" ".join(_names).format("v_exp", "v_exp"), f"{_t}<{_t}", _exp2, ulp=2)
    _add(" ".join(_names).format("v_log", "v_log"), f"{_t}<{_t}", _log2, ulp=2)
for _t in ("f16", "f32", "f64"):
    _add(f"v_sqrt_{_t}", f"{_t}<{_t}", _sqrt, ulp=1)
    _add(f"v_rsq_{_t}", f"{_t}<{_t}", _rsq, ulp=1)
    _add(f"v_rcp_{_t}", f"{_t}<{_t}", lambda x: exact.divide(1.0, x), ulp=1)
_add("v_rcp_iflag_f32", "f32<f32", lambda x: exact.divide(1.0, x), ulp=1)
_add("v_sin_f32", "f32<f32", _turns(0, 0.0), ulp=2)
_add("v_cos_f32", "f32<f32", _turns(1, 1.0), ulp=2)

INF = math.inf
CORNERS: dict[str, tuple[tuple[float, float], ...]] = {
    "v_exp_f32": ((0.0, 1.0), (-0.0, 1.0), (3.0, 8.0), (-1.0, 0.5), (INF, INF), (-INF, 0.0), (128.0, INF)),
    "v_log_f32": ((1.0, 0.0), (8.0, 3.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (2.0**-149, -149.0)),
    "v_rcp_f32": ((0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (4.0, 0.25), (-0.5, -2.0)),
    "v_rsq_f32": ((0.0, INF), (-0.0, -INF), (INF, 0.0), (16.0, 0.25)),
    "v_sqrt_f32": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (9.0, 3.0)),
    "v_sin_f32": ((0.0, 0.0), (-0.0, -0.0), (0.25, 1.0), (-0.25, -1.0), (1.0, 0.0), (256.25, 0.0)),
    "v_cos_f32": ((0.0, 1.0), (-0.0, 1.0), (0.5, -1.0), (1.0, 1.0), (256.25, 1.0)),
}
"""Arguments, and values that are exact."""

# -- division


def _div_scale(kind: str, far: int, tiny: int, step: int) -> Function:
    """AMD's pseudo-code, condition after condition. The mask: v_div_fmas scales back."""

    def scale(value: float, denominator: float, numerator: float) -> tuple[Number, bool]:
        up, down = exact.scale(value, step), exact.scale(value, -step)
        if numerator == 0 or denominator == 0:
            return math.nan, False
        apart = exponent(numerator, kind) - exponent(denominator, kind)
        no_reciprocal = subnormal(exact.divide(1.0, denominator), "f64")
        small = subnormal(exact.divide(numerator, denominator), kind)
        if apart >= far:
            return up if value == denominator else value, True
        if subnormal(denominator, kind):
            return up, False
        if no_reciprocal:
            return (up if value == denominator else value, True) if small else (down, False)
        if small:
            return up if value == numerator else value, True
        return up if exponent(numerator, kind) <= tiny else value, False

    return scale


def _div_fmas(step: int, safe: Function) -> Function:
    """A quotient of 2 or more has been scaled down."""

    def fmas(a: float, b: float, c: float, scaled: int) -> Number | None:
        total = exact.fma(a, b, c)
        back = Fraction(2) ** (step if abs(c) >= 2 else -step)
        if not safe(a, b, c):
            return None
        return total * back if scaled and isinstance(total, Fraction) else total

    return fmas


def _div_fixup(kind: str, lowest: int | None) -> Function:
    def fixup(quotient: float, denominator: float, numerator: float) -> float:
        special = exact.divide(numerator, denominator)
        if isinstance(special, float):
            return special
        apart = exponent(numerator, kind) - exponent(denominator, kind)
        magnitude = abs(quotient)
        if lowest is not None:  # the pseudo-code's NaN is what v_div_fmas gives for overflow
            magnitude = 0.0 if apart < lowest else math.inf if quotient != quotient else magnitude
        return magnitude if special > 0 else -magnitude

    return fixup


_add("v_div_scale_f32", "f32 mask<f32 f32 f32", _div_scale("f32", 96, 23, 64))
_add("v_div_scale_f64", "f64 mask<f64 f64 f64", _div_scale("f64", 768, 53, 128))
_add("v_div_fmas_f32", "f32<f32 f32 f32 mask", _div_fmas(64, lambda *_: True))
_add("v_div_fmas_f64", "f64<f64 f64 f64 mask", _div_fmas(128, _safe))
_add("v_div_fixup_f32", "f32<f32 f32 f32", _div_fixup("f32", -150))
_add("v_div_fixup_f64", "f64<f64 f64 f64", _div_fixup("f64", -1075))
_add("v_div_fixup_f16", "f16<f16 f16 f16", _div_fixup("f16", None))

# -- compares

_ORDERED: dict[str, Function] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b,
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: not (math.isnan(a) or math.isnan(b)),
    "tru": lambda a, b: True,
}
_OPPOSITES = {"lt": "nlt", "eq": "neq", "le": "nle", "gt": "ngt", "lg": "nlg", "ge": "nge", "o": "u", "tru": "f"}


def _class(kind: str) -> Function:
    """Bits of the mask: signalling NaN, quiet NaN, −∞, −normal, −subnormal, −0, +0, +subnormal, +normal, +∞."""
    fmt = FORMATS[kind]

    def classified(word: int, mask: int) -> int:
        magnitude, negative = word & (1 << fmt.bits - 1) - 1, word >> fmt.bits - 1
        if magnitude > fmt.infinity:
            return mask >> (magnitude >> fmt.mantissa - 1 & 1) & 1
        steps = (magnitude > 0) + (magnitude >= 1 << fmt.mantissa) + (magnitude == fmt.infinity)
        return mask >> (5 - steps if negative else 6 + steps) & 1

    return classified


for _t in ("f16", "f32", "f64"):
    for _name, _function in _ORDERED.items():
        _add(f"v_cmp_{_name}_{_t} v_cmpx_{_name}_{_t}", f"mask<{_t} {_t}", _function)
        _opposite: Function = lambda a, b, f=_function: not f(a, b)  # noqa: E731
        _add(f"v_cmp_{_OPPOSITES[_name]}_{_t} v_cmpx_{_OPPOSITES[_name]}_{_t}", f"mask<{_t} {_t}", _opposite)
    _add(f"v_cmp_class_{_t} v_cmpx_class_{_t}", f"mask<u{_t[1:]} u32", _class(_t))
