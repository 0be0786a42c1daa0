"""Vector compares: one bit per lane into an SGPR pair; v_cmpx writes EXEC too (CDNA4 ISA, chapter 12, VOPC)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mxcomp.sim.semantics.table import Lanes, VectorTable, u16, u32, u64, vector

TABLE: VectorTable = {}

_TYPES = {"f32": "f", "f64": "d", "f16": "h", "i32": "i", "u32": "u", "i64": "I", "u64": "U", "i16": "S", "u16": "H"}

_Predicate = Callable[[Lanes, Lanes], Lanes]

_ORDERED: dict[str, _Predicate] = {
    "lt": np.less,
    "eq": np.equal,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_INTEGER: dict[str, _Predicate] = {
    **_ORDERED,
    "ne": np.not_equal,
    "f": lambda a, b: (a == b) & False,
    "t": lambda a, b: (a == b) | True,
}

_FLOAT: dict[str, _Predicate] = {
    **_ORDERED,
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: (a == a) & (b == b),
    "u": lambda a, b: (a != a) | (b != b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "f": lambda a, b: (a == b) & False,
    "tru": lambda a, b: (a == b) | True,
}


def _classify(bits: type, exponent_bits: int, mantissa_bits: int) -> Callable[[Lanes, Lanes], Lanes]:
    """Tests classes of floats. Bit k of the mask asks for class k: signalling NaN, quiet NaN, −inf, −normal,
    −subnormal, −0, +0, … +inf."""
    top, sign_at = (1 << exponent_bits) - 1, exponent_bits + mantissa_bits

    def classify(a: Lanes, mask: Lanes) -> Lanes:
        word: Lanes = a.view(bits)
        negative = (word >> sign_at) == 1
        exponent, mantissa = word >> mantissa_bits & top, word & ((1 << mantissa_bits) - 1)
        magnitude = np.where(exponent == 0, np.where(mantissa == 0, u32(6), u32(7)), u32(8))
        magnitude = np.where((exponent == top) & (mantissa == 0), u32(9), magnitude)
        quiet = (mantissa >> (mantissa_bits - 1)) == 1
        number = np.where(negative, 11 - magnitude, magnitude)
        which = np.where((exponent == top) & (mantissa != 0), np.where(quiet, u32(1), u32(0)), number)
        return (mask >> which & 1) == 1

    return classify


def _add(condition: str, suffix: str, signature: str, function: _Predicate) -> None:
    vector(TABLE, f"v_cmp_{condition}_{suffix} v_cmpx_{condition}_{suffix}", signature, function)


for _suffix, _letter in _TYPES.items():
    for _condition, _predicate in (_FLOAT if _suffix[0] == "f" else _INTEGER).items():
        _add(_condition, _suffix, f"M<{_letter * 2}", _predicate)
for _suffix, _bits, _exponent, _mantissa in (("f32", u32, 8, 23), ("f64", u64, 11, 52), ("f16", u16, 5, 10)):
    _add("class", _suffix, f"M<{_TYPES[_suffix]}u", _classify(_bits, _exponent, _mantissa))
