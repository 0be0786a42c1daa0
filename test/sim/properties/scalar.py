"""What the scalar instructions do, on Python ints (results are cut to the width of their type)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from properties.bench import Function, Table, rows

TABLE: Table = {}
_add = partial(rows, TABLE)

M32, M64 = 2**32 - 1, 2**64 - 1


def _with_scc(function: Callable[..., int], width: int) -> Function:
    """SCC: the result is not zero."""

    def both(*sources: int) -> tuple[int, bool]:
        result = function(*sources)
        return result, result % 2**width != 0

    return both


def _logical(names: str, types: str, function: Function) -> None:
    result = types.split("<")[0]
    _add(names, types.replace("<", " scc<"), _with_scc(function, int(result[1:])))


# -- moves

for _n in (32, 64):
    _u = f"u{_n}"
    _add(f"s_mov_b{_n}", f"{_u}<{_u}", lambda a: a)
    _add(f"s_cmov_b{_n}", f"{_u}<{_u} scc {_u}", lambda a, scc, old: a if scc else old)
    _add(f"s_cselect_b{_n}", f"{_u}<{_u} {_u} scc", lambda a, b, scc: a if scc else b)
_add("s_movk_i32", "i32<i32", lambda k: k)
_add("s_cmovk_i32", "i32<i32 scc i32", lambda k, scc, old: k if scc else old)

# -- arithmetic


def _sum(function: Callable[..., int], low: int, high: int) -> Function:
    """SCC: the exact result is out of range."""

    def both(*sources: int) -> tuple[int, bool]:
        exact = function(*sources)
        return exact, not low <= exact <= high

    return both


_unsigned = {
    "s_add_u32": lambda a, b: a + b,
    "s_sub_u32": lambda a, b: a - b,
    "s_lshl1_add_u32": lambda a, b: 2 * a + b,
    "s_lshl2_add_u32": lambda a, b: 4 * a + b,
    "s_lshl3_add_u32": lambda a, b: 8 * a + b,
    "s_lshl4_add_u32": lambda a, b: 16 * a + b,
}
for _name, _function in _unsigned.items():
    _add(_name, "u32 scc<u32 u32", _sum(_function, 0, M32))
_add("s_addc_u32", "u32 scc<u32 u32 scc", _sum(lambda a, b, c: a + b + c, 0, M32))
_add("s_subb_u32", "u32 scc<u32 u32 scc", _sum(lambda a, b, c: a - b - c, 0, M32))
_add("s_add_i32 s_addk_i32", "i32 scc<i32 i32", _sum(lambda a, b: a + b, -(2**31), 2**31 - 1))
_add("s_sub_i32", "i32 scc<i32 i32", _sum(lambda a, b: a - b, -(2**31), 2**31 - 1))
_add("s_mul_i32 s_mulk_i32", "i32<i32 i32", lambda a, b: a * b)
for _t in ("u32", "i32"):
    _add(f"s_mul_hi_{_t}", f"{_t}<{_t} {_t}", lambda a, b: a * b // 2**32)
    _add(f"s_min_{_t}", f"{_t} scc<{_t} {_t}", lambda a, b: (min(a, b), a < b))
    _add(f"s_max_{_t}", f"{_t} scc<{_t} {_t}", lambda a, b: (max(a, b), a >= b))
# the difference is cut to 32 bits before its sign is looked at
_logical("s_absdiff_i32", "u32<i32 i32", lambda a, b: abs((a - b + 2**31) % 2**32 - 2**31))
_logical("s_abs_i32", "u32<i32", abs)

# -- logic

_LOGIC: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "andn1": lambda a, b: not a and b,
    "andn2": lambda a, b: a and not b,
    "orn1": lambda a, b: not a or b,
    "orn2": lambda a, b: a or not b,
    "nand": lambda a, b: not (a and b),
    "nor": lambda a, b: not (a or b),
    "xnor": lambda a, b: a == b,
}


def _bitwise(function: Callable[[bool, bool], bool]) -> Callable[[int, int], int]:
    return lambda a, b: sum(function(bool(a >> k & 1), bool(b >> k & 1)) << k for k in range(64))


def _saveexec(function: Callable[[int, int], int]) -> Function:
    return lambda a, old: (old, function(a, old), function(a, old) != 0)


def _wrexec(function: Callable[[int, int], int]) -> Function:
    return lambda a, old: (function(a, old), function(a, old), function(a, old) != 0)


for _name, _on_bits in _LOGIC.items():
    _add(f"s_{_name}_saveexec_b64", "u64 exec scc<u64 exec", _saveexec(_bitwise(_on_bits)))
    if _name not in ("andn1", "orn1"):
        _logical(f"s_{_name}_b32", "u32<u32 u32", _bitwise(_on_bits))
        _logical(f"s_{_name}_b64", "u64<u64 u64", _bitwise(_on_bits))
for _name in ("andn1", "andn2"):
    _add(f"s_{_name}_wrexec_b64", "u64 exec scc<u64 exec", _wrexec(_bitwise(_LOGIC[_name])))
_logical("s_not_b32", "u32<u32", lambda a: M32 - a)
_logical("s_not_b64", "u64<u64", lambda a: M64 - a)

# -- shifts and bit fields: offset in bits 0–4 or 0–5, width in bits 16–22


def _field(a: int, b: int, bits: int) -> int:
    return (a >> b % bits) % 2 ** (b >> 16 & 127)


def _signed_field(a: int, b: int, bits: int) -> int:
    width = b >> 16 & 127
    field = _field(a, b, bits)
    return field - 2**width if width and field >> width - 1 else field


for _n in (32, 64):
    _u, _i = f"u{_n}", f"i{_n}"
    _logical(f"s_lshl_b{_n}", f"{_u}<{_u} u32", lambda a, b, n=_n: a * 2 ** (b % n))
    _logical(f"s_lshr_b{_n}", f"{_u}<{_u} u32", lambda a, b, n=_n: a // 2 ** (b % n))
    _logical(f"s_ashr_i{_n}", f"{_i}<{_i} u32", lambda a, b, n=_n: a // 2 ** (b % n))
    _logical(f"s_bfe_u{_n}", f"{_u}<{_u} u32", lambda a, b, n=_n: _field(a, b, n))
    _logical(f"s_bfe_i{_n}", f"{_i}<{_i} u32", lambda a, b, n=_n: _signed_field(a, b, n))
    _add(f"s_bfm_b{_n}", f"{_u}<u32 u32", lambda a, b, n=_n: (2 ** (a % n) - 1) * 2 ** (b % n))
    _add(f"s_bitset0_b{_n}", f"{_u}<u32 {_u}", lambda a, old, n=_n: old - (old >> a % n & 1) * 2 ** (a % n))
    _add(f"s_bitset1_b{_n}", f"{_u}<u32 {_u}", lambda a, old, n=_n: old + (~old >> a % n & 1) * 2 ** (a % n))
    _add(f"s_bitcmp0_b{_n}", f"scc<{_u} u32", lambda a, b, n=_n: not a >> b % n & 1)
    _add(f"s_bitcmp1_b{_n}", f"scc<{_u} u32", lambda a, b, n=_n: a >> b % n & 1)
_add("s_pack_ll_b32_b16", "u32<u32 u32", lambda a, b: a % 2**16 + b % 2**16 * 2**16)
_add("s_pack_lh_b32_b16", "u32<u32 u32", lambda a, b: a % 2**16 + b // 2**16 * 2**16)
_add("s_pack_hh_b32_b16", "u32<u32 u32", lambda a, b: a // 2**16 + b // 2**16 * 2**16)
_add("s_sext_i32_i8", "i32<u32", lambda a: (a + 128) % 256 - 128)
_add("s_sext_i32_i16", "i32<u32", lambda a: (a + 2**15) % 2**16 - 2**15)

# -- counting and rearranging bits, as strings with the highest bit first


def _text(a: int, bits: int) -> str:
    return f"{a % 2**bits:0{bits}b}"


def _leading(a: int, bits: int, wanted: str) -> int:
    return _text(a, bits).find(wanted)


def _other(a: int, bits: int) -> str:
    """The bit that differs from the sign."""
    return "10"[int(_text(a, bits)[0])]


def _by_four(a: int, bits: int, spread: int) -> int:
    """For every 4 bits whether one is set, as `spread` bits."""
    text = _text(a, bits)
    return int("".join("01"["1" in text[k : k + 4]] * spread for k in range(0, bits, 4)), 2)


for _n in (32, 64):
    _u = f"u{_n}"
    _count: Any = lambda a, digit, n=_n: _text(a, n).count(digit)  # noqa: E731
    _logical(f"s_bcnt0_i32_b{_n}", f"u32<{_u}", lambda a, f=_count: f(a, "0"))
    _logical(f"s_bcnt1_i32_b{_n}", f"u32<{_u}", lambda a, f=_count: f(a, "1"))
    _add(f"s_ff0_i32_b{_n}", f"i32<{_u}", lambda a, n=_n: _text(a, n)[::-1].find("0"))
    _add(f"s_ff1_i32_b{_n}", f"i32<{_u}", lambda a, n=_n: _text(a, n)[::-1].find("1"))
    _add(f"s_flbit_i32_b{_n}", f"i32<{_u}", lambda a, n=_n: _leading(a, n, "1"))
    _add(f"s_brev_b{_n}", f"{_u}<{_u}", lambda a, n=_n: int(_text(a, n)[::-1], 2))
    _logical(f"s_wqm_b{_n}", f"{_u}<{_u}", lambda a, n=_n: _by_four(a, n, 4))
    _logical(f"s_quadmask_b{_n}", f"{_u}<{_u}", lambda a, n=_n: _by_four(a, n, 1))
_add("s_flbit_i32", "i32<i32", lambda a: _leading(a, 32, _other(a, 32)))
_add("s_flbit_i32_i64", "i32<i64", lambda a: _leading(a, 64, _other(a, 64)))
_add("s_bitreplicate_b64_b32", "u64<u32", lambda a: int("".join(2 * bit for bit in _text(a, 32)), 2))

# -- compares

_CONDITIONS: dict[str, Function] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
for _name, _function in _CONDITIONS.items():
    for _t in ("u32", "i32"):
        _add(f"s_cmp_{_name}_{_t} s_cmpk_{_name}_{_t}", f"scc<{_t} {_t}", _function)
for _name in ("eq", "lg"):
    _add(f"s_cmp_{_name}_u64", "scc<u64 u64", _CONDITIONS[_name])
