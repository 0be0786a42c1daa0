"""Integer vector instructions (CDNA4 ISA, chapter 12, VOP1–VOP3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics.table import MASK32, Lanes, VectorTable, f64, i8, i16, i32, i64, u8, u16, u32, u64, vector

Function = Callable[..., Any]

TABLE: VectorTable = {}


_add = partial(vector, TABLE)


def _clip(x: Lanes, low: int, high: int) -> Lanes:
    return np.minimum(np.maximum(x, low), high)


# -- moves and logic

_add("v_mov_b32 v_accvgpr_mov_b32 v_accvgpr_read v_accvgpr_write", "u<u", lambda a: a)
_add("v_mov_b64", "U<U", lambda a: a)
_add("v_not_b32", "u<u", lambda a: ~a)
_add("v_and_b32", "u<uu", lambda a, b: a & b)
_add("v_or_b32", "u<uu", lambda a, b: a | b)
_add("v_xor_b32", "u<uu", lambda a, b: a ^ b)
_add("v_xnor_b32", "u<uu", lambda a, b: ~(a ^ b))
_add("v_and_or_b32", "u<uuu", lambda a, b, c: a & b | c)
_add("v_or3_b32", "u<uuu", lambda a, b, c: a | b | c)
_add("v_bfi_b32", "u<uuu", lambda a, b, c: a & b | ~a & c)
_add("v_cndmask_b32", "u<uuM", lambda a, b, mask: np.where(mask, b, a))


def _bitop3(instruction: Instruction) -> Function:
    """Computes any function of three bits: the truth table is spread over the omod, abs and neg fields, index a·4 + b·2
    + c."""
    truth = instruction.flag("omod") << 6 | instruction.flag("abs") << 3 | instruction.flag("neg")

    def bitop3(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        result = a & ~a
        for k in range(8):
            if truth >> k & 1:
                result = result | (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
        return result

    return bitop3


_add("v_bitop3_b32", "u<uuu", _bitop3, specialise=True)
_add("v_bitop3_b16", "H<HHH", _bitop3, specialise=True)

# -- shifts and bit fields


def _bfe_i32(a: Lanes, offset: Lanes, width: Lanes) -> Lanes:
    """Returns bits offset … offset + width − 1, sign-extended; width 0 gives 0."""
    wide = a.astype(i64) >> (offset & 31).astype(i64)
    unused = 64 - (width & 31).astype(i64)
    field = (wide << (unused & 63)) >> (unused & 63)
    return np.where((width & 31) == 0, u32(0), field.astype(u64).astype(u32))


def _align(bits_per_step: int, mask: int) -> Function:
    def align(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        shift = ((c & mask) * bits_per_step).astype(u64)
        return ((a.astype(u64) << 32 | b) >> shift).astype(u32)

    return align


_add("v_lshlrev_b32", "u<uu", lambda a, b: b << (a & 31))
_add("v_lshrrev_b32", "u<uu", lambda a, b: b >> (a & 31))
_add("v_ashrrev_i32", "u<ui", lambda a, b: (b >> (a & 31).view(i32)).view(u32))
_add("v_lshlrev_b64", "U<uU", lambda a, b: b << (a & 63).astype(u64))
_add("v_lshrrev_b64", "U<uU", lambda a, b: b >> (a & 63).astype(u64))
_add("v_ashrrev_i64", "U<uI", lambda a, b: (b >> (a & 63).astype(i64)).view(u64))
_add("v_lshl_or_b32", "u<uuu", lambda a, b, c: a << (b & 31) | c)
_add("v_bfe_u32", "u<uuu", lambda a, b, c: (a >> (b & 31)) & ((u32(1) << (c & 31)) - 1))
_add("v_bfe_i32", "u<iuu", _bfe_i32)
_add("v_bfm_b32", "u<uu", lambda a, b: ((u32(1) << (a & 31)) - 1) << (b & 31))
_add("v_alignbit_b32", "u<uuu", _align(1, 31))
_add("v_alignbyte_b32", "u<uuu", _align(8, 3))


def _reverse(a: Lanes) -> Lanes:
    for step, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        a = (a >> step & mask) | (a & mask) << step
    return a >> 16 | a << 16


def _popcount(a: Lanes) -> Lanes:
    a = a - (a >> 1 & 0x55555555)
    a = (a & 0x33333333) + (a >> 2 & 0x33333333)
    return ((a + (a >> 4) & 0x0F0F0F0F) * u32(0x01010101)) >> 24


def _exponent(a: Lanes) -> Lanes:
    """Returns floor(log2(a)) of u32, exactly: the exponent field of the float64; a = 0 gives garbage."""
    return ((a.astype(f64).view(u64) >> 52) - 1023).astype(u32)


def _leading_zeros(a: Lanes) -> Lanes:
    return np.where(a == 0, u32(MASK32), 31 - _exponent(a))


def _leading_signs(a: Lanes) -> Lanes:
    """Returns the number of bits equal to the sign before the first that differs; −1 for 0 and −1."""
    return _leading_zeros(np.where(a < 0, ~a, a).view(u32))


_add("v_bfrev_b32", "u<u", _reverse)
_add("v_bcnt_u32_b32", "u<uu", lambda a, b: _popcount(a) + b)
_add("v_ffbh_u32", "u<u", _leading_zeros)
_add("v_ffbh_i32", "u<i", _leading_signs)
_add("v_ffbl_b32", "u<u", lambda a: np.where(a == 0, u32(MASK32), _exponent(a & (~a + 1))))

_BELOW_LOW = np.array([(1 << min(lane, 32)) - 1 for lane in range(64)], u32)
_BELOW_HIGH = np.array([(1 << max(lane - 32, 0)) - 1 for lane in range(64)], u32)
_add("v_mbcnt_lo_u32_b32", "u<uu", lambda a, b: _popcount(a & _BELOW_LOW) + b)
_add("v_mbcnt_hi_u32_b32", "u<uu", lambda a, b: _popcount(a & _BELOW_HIGH) + b)
_add("v_prng_b32", "u<u", lambda a: (a << 1) ^ np.where(a >> 31 == 1, u32(197), u32(0)))


def _permute_bytes(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
    """Returns bytes of {a, b}: result byte k is the one that selector byte k names.

    0–3: of b, 4–7: of a, 8–11: the sign of bytes 1, 3, 5, 7, repeated, 12: 0, more: 0xFF.
    """
    both = a.astype(u64) << 32 | b
    result = both.astype(u32) & 0
    for k in range(4):
        sel = selector >> 8 * k & 0xFF
        byte = (both >> ((sel & 7) * 8).astype(u64)).astype(u32) & 0xFF
        sign = (both >> ((sel & 3) * 16 + 15).astype(u64)).astype(u32) & 1
        byte = np.where(sel >= 8, np.where(sel >= 12, np.where(sel == 12, u32(0), u32(0xFF)), sign * 0xFF), byte)
        result = result | byte << 8 * k
    return result


_add("v_perm_b32", "u<uuu", _permute_bytes)

# -- addition; the clamp bit saturates


def _saturating(operation: Function, low: int, high: int, dtype: type, bits: type) -> Function:
    def saturating(a: Lanes, b: Lanes) -> Lanes:
        wide = operation(a.view(dtype).astype(i64), b.view(dtype).astype(i64))
        return _clip(wide, low, high).astype(dtype).view(bits)

    return saturating


_SUMS: dict[str, Function] = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "subrev": lambda a, b: b - a}
for _name, _function in _SUMS.items():
    _add(f"v_{_name}_u32", "u<uu", _function, clamped=_saturating(_function, 0, MASK32, u32, u32))
    _add(f"v_{_name}_u16", "H<HH", _function, clamped=_saturating(_function, 0, 0xFFFF, u16, u16))
    if _name != "subrev":
        _add(f"v_{_name}_i32", "u<uu", _function, clamped=_saturating(_function, -(1 << 31), (1 << 31) - 1, i32, u32))
        _add(f"v_{_name}_i16", "H<HH", _function, clamped=_saturating(_function, -(1 << 15), (1 << 15) - 1, i16, u16))


def _carry(operation: Function) -> Function:
    """Returns the sum or difference of up to 33 bits, and the carry or borrow."""

    def carry(a: Lanes, b: Lanes, *carry_in: Lanes) -> tuple[Lanes, Lanes]:
        wide = operation(a.astype(i64), b.astype(i64), *(mask.astype(i64) for mask in carry_in))
        return wide.astype(u64).astype(u32), (wide >> 32) != 0

    return carry


_add("v_add_co_u32", "uM<uu", _carry(lambda a, b: a + b))
_add("v_sub_co_u32", "uM<uu", _carry(lambda a, b: a - b))
_add("v_subrev_co_u32", "uM<uu", _carry(lambda a, b: b - a))
_add("v_addc_co_u32", "uM<uuM", _carry(lambda a, b, c: a + b + c))
_add("v_subb_co_u32", "uM<uuM", _carry(lambda a, b, c: a - b - c))
_add("v_subbrev_co_u32", "uM<uuM", _carry(lambda a, b, c: b - a - c))
_add("v_add3_u32", "u<uuu", lambda a, b, c: a + b + c)
_add("v_lshl_add_u32", "u<uuu", lambda a, b, c: (a << (b & 31)) + c)
_add("v_add_lshl_u32", "u<uuu", lambda a, b, c: (a + b) << (c & 31))
_add("v_xad_u32", "u<uuu", lambda a, b, c: (a ^ b) + c)
_add("v_lshl_add_u64", "U<UuU", lambda a, b, c: (a << (b & 7).astype(u64)) + c)

# -- multiplication


def _u24(a: Lanes) -> Lanes:
    return (a & 0xFFFFFF).astype(u64)


def _i24(a: Lanes) -> Lanes:
    return ((a << 8).view(i32) >> 8).astype(i64)


def _mad_u64_u32(a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, Lanes]:
    product = a.astype(u64) * b.astype(u64)
    return product + c, product + c < product


def _mad_i64_i32(a: Lanes, b: Lanes, c: Lanes) -> tuple[Lanes, Lanes]:
    """Returns the second result is bit 64 of the sum, c sign-extended."""
    product = a.astype(i64) * b.astype(i64)
    total = product.view(u64) + c
    return total, ((product < 0) ^ (c.view(i64) < 0)) ^ (total < c)


_add("v_mul_lo_u32", "u<uu", lambda a, b: a * b)
_add("v_mul_hi_u32", "u<uu", lambda a, b: (a.astype(u64) * b.astype(u64) >> 32).astype(u32))
_add("v_mul_hi_i32", "u<ii", lambda a, b: (a.astype(i64) * b.astype(i64) >> 32).astype(i32).view(u32))
_add("v_mul_u32_u24", "u<uu", lambda a, b: (_u24(a) * _u24(b)).astype(u32))
_add("v_mul_hi_u32_u24", "u<uu", lambda a, b: (_u24(a) * _u24(b) >> 32).astype(u32))
_add("v_mul_i32_i24", "u<uu", lambda a, b: (_i24(a) * _i24(b)).view(u64).astype(u32))
_add("v_mul_hi_i32_i24", "u<uu", lambda a, b: (_i24(a) * _i24(b) >> 32).view(u64).astype(u32))
_add("v_mad_u32_u24", "u<uuu", lambda a, b, c: (_u24(a) * _u24(b)).astype(u32) + c)
_add("v_mad_i32_i24", "u<uuu", lambda a, b, c: (_i24(a) * _i24(b)).view(u64).astype(u32) + c)
_add("v_mad_u32_u16", "u<HHu", lambda a, b, c: a.astype(u32) * b.astype(u32) + c)
_add("v_mad_i32_i16", "u<SSu", lambda a, b, c: (a.astype(i32) * b.astype(i32)).view(u32) + c)
_add("v_mad_u64_u32", "UM<uuU", _mad_u64_u32)
_add("v_mad_i64_i32", "UM<iiU", _mad_i64_i32)
_add("v_mul_lo_u16", "H<HH", lambda a, b: a * b)
_add("v_mad_u16 v_mad_i16 v_mad_legacy_u16 v_mad_legacy_i16", "H<HHH", lambda a, b, c: a * b + c)

# -- minimum, maximum, median; sums of differences

_EXTREMES: dict[str, tuple[int, Function]] = {
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "min3": (3, lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "max3": (3, lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "med3": (3, lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))),
}
_ORDERED = (("u32", "u", "u", u32), ("i32", "i", "u", u32), ("u16", "H", "H", u16), ("i16", "S", "H", u16))
for _suffix, _type, _result, _bits in _ORDERED:
    for _name, (_count, _function) in _EXTREMES.items():
        _signature = f"{_result}<{_type * _count}"
        _add(f"v_{_name}_{_suffix}", _signature, lambda *given, f=_function, t=_bits: f(*given).view(t))


def _sad_u8(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    for k in (0, 8, 16, 24):
        x, y = a >> k & 0xFF, b >> k & 0xFF
        c = c + (np.maximum(x, y) - np.minimum(x, y))
    return c


_add("v_sad_u8", "u<uuu", _sad_u8)
_add("v_sad_u32", "u<uuu", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)

# -- 16-bit shifts, narrowing

_add("v_lshlrev_b16", "H<HH", lambda a, b: b << (a & 15))
_add("v_lshrrev_b16", "H<HH", lambda a, b: b >> (a & 15))
_add("v_ashrrev_i16", "H<HS", lambda a, b: (b >> (a & 15).view(i16)).view(u16))
_add("v_pack_b32_f16", "u<HH", lambda a, b: a.astype(u32) | b.astype(u32) << 16)
_add("v_cvt_pk_u16_u32", "u<uu", lambda a, b: np.minimum(a, 0xFFFF) | np.minimum(b, 0xFFFF) << 16)


def _cvt_pk_i16_i32(a: Lanes, b: Lanes) -> Lanes:
    low, high = (_clip(x, -0x8000, 0x7FFF).view(u32) & 0xFFFF for x in (a, b))
    return low | high << 16


def _ashr_pk(low: int, high: int, dtype: type) -> Function:
    def ashr_pk(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
        first, second = (_clip(x >> (c & 31).view(i32), low, high).astype(dtype).view(u8).astype(u16) for x in (a, b))
        return first | second << 8

    return ashr_pk


_add("v_cvt_pk_i16_i32", "u<ii", _cvt_pk_i16_i32)
_add("v_ashr_pk_i8_i32", "H<iiu", _ashr_pk(-128, 127, i8))
_add("v_ashr_pk_u8_i32", "H<iiu", _ashr_pk(0, 255, u8))
