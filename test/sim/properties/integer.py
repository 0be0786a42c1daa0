"""What the integer vector instructions do, on Python ints (results are cut to the width of their type)."""

from __future__ import annotations

from functools import partial

from properties.bench import Function, Table, rows

TABLE: Table = {}
_add = partial(rows, TABLE)


def signed(x: int, bits: int) -> int:
    """The lower `bits` bits, as a signed number."""
    return x % 2**bits - 2**bits * (x >> bits - 1 & 1)


def saturate(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


def bits(x: int) -> list[int]:
    """The 32 bits, lowest first."""
    return [x >> k & 1 for k in range(32)]


def first(found: list[int]) -> int:
    """Index of the first one, −1 if there is none."""
    return found.index(1) if 1 in found else -1


def by_bits(function: Function) -> Function:
    """A function of single bits, on all bits of the words."""
    return lambda *words: sum(function(*(w >> k & 1 for w in words)) << k for k in range(32))


def by_bytes(function: Function) -> Function:
    """The sum of a function of the four bytes of a and b, and c."""
    return lambda a, b, c: c + sum(function(a >> k & 0xFF, b >> k & 0xFF) for k in (0, 8, 16, 24))


_add("v_mov_b32 v_accvgpr_mov_b32 v_accvgpr_read v_accvgpr_write", "u32<u32", lambda a: a)
_add("v_mov_b64", "u64<u64", lambda a: a)
_add("v_swap_b32", "u32 u32<u32 u32", lambda a, old: (a, old))
_add("v_not_b32", "u32<u32", lambda a: -1 - a)
_add("v_cndmask_b32", "u32<u32 u32 mask", lambda a, b, taken: b if taken else a)

_BITWISE: dict[str, tuple[int, Function]] = {
    "v_and_b32": (2, lambda a, b: int(a + b == 2)),
    "v_or_b32": (2, lambda a, b: int(a + b > 0)),
    "v_xor_b32": (2, lambda a, b: int(a + b == 1)),
    "v_xnor_b32": (2, lambda a, b: int(a == b)),
    "v_and_or_b32": (3, lambda a, b, c: max(min(a, b), c)),
    "v_or3_b32": (3, max),
    "v_bfi_b32": (3, lambda a, b, c: b if a else c),
}
for _name, (_count, _function) in _BITWISE.items():
    _add(_name, f"u32<{'u32 ' * _count}", by_bits(_function))

_TRUTH_TABLES = [{"omod": t >> 6, "abs": t >> 3 & 7, "neg": t & 7} for t in (0x00, 0x01, 0x80, 0x2D, 0x96, 0xCA, 0xFE)]


def _bitop3(fields: dict[str, int]) -> Function:
    truth = fields["omod"] << 6 | fields["abs"] << 3 | fields["neg"]
    return by_bits(lambda a, b, c: truth >> (4 * a + 2 * b + c) & 1)


for _width in (32, 16):
    _type = f"u{_width}"
    _add(f"v_bitop3_b{_width}", f"{_type}<{_type} {_type} {_type}", _bitop3, fields=tuple(_TRUTH_TABLES))

# -- shifts and bit fields; amounts count modulo the width

for _width in (16, 32, 64):
    _u, _i, _amount = f"u{_width}", f"i{_width}", "u16" if _width == 16 else "u32"
    _add(f"v_lshlrev_b{_width}", f"{_u}<{_amount} {_u}", lambda a, b, w=_width: b * 2 ** (a % w))
    _add(f"v_lshrrev_b{_width}", f"{_u}<{_amount} {_u}", lambda a, b, w=_width: b // 2 ** (a % w))
    _add(f"v_ashrrev_i{_width}", f"{_u}<{_amount} {_i}", lambda a, b, w=_width: b // 2 ** (a % w))
_add("v_lshl_or_b32", "u32<u32 u32 u32", lambda a, b, c: a << b % 32 | c)
_add("v_lshl_add_u32", "u32<u32 u32 u32", lambda a, b, c: (a << b % 32) + c)
_add("v_lshl_add_u64", "u64<u64 u32 u64", lambda a, b, c: (a << b % 8) + c)
_add("v_add_lshl_u32", "u32<u32 u32 u32", lambda a, b, c: a + b << c % 32)
_add("v_bfe_u32", "u32<u32 u32 u32", lambda a, b, c: (a >> b % 32) % 2 ** (c % 32))
_add("v_bfe_i32", "i32<i32 u32 u32", lambda a, b, c: signed(a >> b % 32, c % 32) if c % 32 else 0)
_add("v_bfm_b32", "u32<u32 u32", lambda a, b: (2 ** (a % 32) - 1) << b % 32)
_add("v_alignbit_b32", "u32<u32 u32 u32", lambda a, b, c: (a << 32 | b) >> c % 32)
_add("v_alignbyte_b32", "u32<u32 u32 u32", lambda a, b, c: (a << 32 | b) >> c % 4 * 8)
_add("v_bfrev_b32", "u32<u32", lambda a: int(f"{a:032b}"[::-1], 2))
_add("v_bcnt_u32_b32", "u32<u32 u32", lambda a, b: a.bit_count() + b)
_add("v_ffbh_u32", "i32<u32", lambda a: first(bits(a)[::-1]))
_add("v_ffbh_i32", "i32<u32", lambda a: first([bit ^ a >> 31 for bit in bits(a)[::-1]]))
_add("v_ffbl_b32", "i32<u32", lambda a: first(bits(a)))
_add("v_mbcnt_lo_u32_b32", "u32<u32 u32 lane", lambda a, b, lane: b + sum(bits(a)[:lane]))
_add("v_mbcnt_hi_u32_b32", "u32<u32 u32 lane", lambda a, b, lane: b + sum(bits(a)[: max(lane - 32, 0)]))
_add("v_prng_b32", "u32<u32", lambda a: 2 * a ^ (197 if a >> 31 else 0))


def _permuted(a: int, b: int, selector: int) -> int:
    source = (a << 32 | b).to_bytes(8, "little")
    chosen = [*source, *(0xFF * (source[k] >> 7) for k in (1, 3, 5, 7)), 0, *[0xFF] * 243]
    return int.from_bytes(bytes(chosen[k] for k in selector.to_bytes(4, "little")), "little")


_add("v_perm_b32", "u32<u32 u32 u32", _permuted)

# -- sums, products; masks are carries and borrows

_LIMITS = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1), "u16": (0, 2**16 - 1), "i16": (-(2**15), 2**15 - 1)}
_SUMS: dict[str, Function] = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "subrev": lambda a, b: b - a}


def _clamped(function: Function, low: int, high: int) -> Function:
    """The clamp bit saturates."""
    return lambda fields: lambda a, b: saturate(function(a, b), low, high) if fields["clmp"] else function(a, b)


for _name, _function in _SUMS.items():
    for _type, _limits in _LIMITS.items():
        if _name != "subrev" or _type[0] == "u":
            _row = _clamped(_function, *_limits)
            _add(f"v_{_name}_{_type}", f"{_type}<{_type} {_type}", _row, fields=({"clmp": 0}, {"clmp": 1}))


def _carry(function: Function) -> Function:
    def carry(*sources: int) -> tuple[int, bool]:
        exact = function(*sources)
        return exact, not 0 <= exact < 2**32

    return carry


for _name, _function in _SUMS.items():
    _add(f"v_{_name}_co_u32", "u32 mask<u32 u32", _carry(_function))
_add("v_addc_co_u32", "u32 mask<u32 u32 mask", _carry(lambda a, b, c: a + b + c))
_add("v_subb_co_u32", "u32 mask<u32 u32 mask", _carry(lambda a, b, c: a - b - c))
_add("v_subbrev_co_u32", "u32 mask<u32 u32 mask", _carry(lambda a, b, c: b - a - c))
_add("v_add3_u32", "u32<u32 u32 u32", lambda a, b, c: a + b + c)
_add("v_xad_u32", "u32<u32 u32 u32", lambda a, b, c: (a ^ b) + c)

_mad: Function = lambda a, b, c: a * b + c  # noqa: E731
_add("v_mul_lo_u32", "u32<u32 u32", lambda a, b: a * b)
_add("v_mul_lo_u16", "u16<u16 u16", lambda a, b: a * b)
_add("v_mul_hi_u32", "u32<u32 u32", lambda a, b: a * b >> 32)
_add("v_mul_hi_i32", "i32<i32 i32", lambda a, b: a * b >> 32)
_add("v_mad_u32_u16", "u32<u16 u16 u32", _mad)
_add("v_mad_i32_i16", "i32<i16 i16 i32", _mad)
_add("v_mad_u16 v_mad_legacy_u16", "u16<u16 u16 u16", _mad)
_add("v_mad_i16 v_mad_legacy_i16", "i16<i16 i16 i16", _mad)
_add("v_mad_u64_u32", "u64 mask<u32 u32 u64", lambda a, b, c: (a * b + c, a * b + c >> 64 & 1))
_add("v_mad_i64_i32", "i64 mask<i32 i32 i64", lambda a, b, c: (a * b + c, a * b + c >> 64 & 1))
for _type, _number in (("u", lambda x: x % 2**24), ("i", lambda x: signed(x, 24))):
    _lower, _upper = f"v_mul_{_type}32_{_type}24", f"v_mul_hi_{_type}32_{_type}24"
    _add(_lower, "u32<u32 u32", lambda a, b, n=_number: n(a) * n(b))
    _add(_upper, "u32<u32 u32", lambda a, b, n=_number: n(a) * n(b) >> 32)
    _add(f"v_mad_{_type}32_{_type}24", "u32<u32 u32 u32", lambda a, b, c, n=_number: n(a) * n(b) + c)

for _type in _LIMITS:
    _add(f"v_min_{_type}", f"{_type}<{_type} {_type}", min)
    _add(f"v_max_{_type}", f"{_type}<{_type} {_type}", max)
    _add(f"v_min3_{_type}", f"{_type}<{_type} {_type} {_type}", min)
    _add(f"v_max3_{_type}", f"{_type}<{_type} {_type} {_type}", max)
    _add(f"v_med3_{_type}", f"{_type}<{_type} {_type} {_type}", lambda *values: sorted(values)[1])

_add("v_sad_u32", "u32<u32 u32 u32", lambda a, b, c: abs(a - b) + c)
_add("v_sad_u8", "u32<u32 u32 u32", by_bytes(lambda x, y: abs(x - y)))
_add("v_dot4_u32_u8", "u32<u32 u32 u32", by_bytes(lambda x, y: x * y))
_add("v_dot4_i32_i8 v_dot4c_i32_i8", "u32<u32 u32 u32", by_bytes(lambda x, y: signed(x, 8) * signed(y, 8)))

# -- narrowing


def _pair(function: Function, width: int) -> Function:
    """Both sources, narrowed, side by side."""
    mask = (1 << width) - 1
    return lambda a, b, *rest: function(a, *rest) & mask | (function(b, *rest) & mask) << width


_add("v_pack_b32_f16", "u32<u16 u16", lambda a, b: a | b << 16)
_add("v_cvt_pk_u16_u32", "u32<u32 u32", _pair(lambda x: saturate(x, 0, 2**16 - 1), 16))
_add("v_cvt_pk_i16_i32", "u32<i32 i32", _pair(lambda x: saturate(x, -(2**15), 2**15 - 1), 16))
_add("v_ashr_pk_i8_i32", "u16<i32 i32 u32", _pair(lambda x, shift: saturate(x >> shift % 32, -128, 127), 8))
_add("v_ashr_pk_u8_i32", "u16<i32 i32 u32", _pair(lambda x, shift: saturate(x >> shift % 32, 0, 255), 8))

# -- compares

_CONDITIONS: dict[str, Function] = {
    "f": lambda a, b: False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "t": lambda a, b: True,
}
for _type in ("i16", "u16", "i32", "u32", "i64", "u64"):
    for _name, _function in _CONDITIONS.items():
        _add(f"v_cmp_{_name}_{_type} v_cmpx_{_name}_{_type}", f"mask<{_type} {_type}", _function)
