"""Scalar instructions (CDNA4 ISA, chapter 12: SOP1, SOP2, SOPC, SOPK) and branch conditions (SOPP)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mxcomp.sim.semantics.table import MASK32, MASK64, ScalarTable, scalar, select

Function = Callable[..., Any]

TABLE: ScalarTable = {}
_add = partial(scalar, TABLE)

BRANCHES: dict[str, tuple[str, bool]] = {
    "s_branch": ("always", True),
    "s_cbranch_scc0": ("scc", False),
    "s_cbranch_scc1": ("scc", True),
    "s_cbranch_vccz": ("vcc", False),
    "s_cbranch_vccnz": ("vcc", True),
    "s_cbranch_execz": ("exec", False),
    "s_cbranch_execnz": ("exec", True),
}
"""The branches, with what each tests and whether it must be non-zero."""

NO_EFFECT = frozenset(
    """
    s_nop s_setprio s_sleep s_icache_inv s_sethalt s_ttracedata s_incperflevel s_decperflevel s_sendmsg s_wakeup
    s_setkill s_dcache_inv s_dcache_wb s_dcache_inv_vol s_dcache_wb_vol buffer_wbl2 buffer_inv v_nop v_clrexcp
    ds_nop
    """.split()  # noqa: SIM905
)
"""Instructions that change no state the simulator has."""

CONTROL = frozenset(
    """
    s_endpgm s_barrier s_waitcnt s_trap s_getpc_b64 s_setpc_b64 s_swappc_b64 s_call_b64 s_getreg_b32 s_setreg_b32
    s_setreg_imm32_b32 s_set_gpr_idx_on s_set_gpr_idx_off s_set_gpr_idx_mode s_set_gpr_idx_idx s_setvskip s_memtime
    s_memrealtime
    """.split()  # noqa: SIM905
)
"""Instructions an engine handles itself: program counter, waits, modes."""

# -- moves

_add("s_mov_b32", "u<u", lambda a: a)
_add("s_mov_b64", "U<U", lambda a: a)
_add("s_movk_i32", "u<i", lambda k: k)
_add("s_cmov_b32", "u<uc", lambda a, scc, old: select(scc, a, old), old=True)
_add("s_cmov_b64", "U<Uc", lambda a, scc, old: select(scc, a, old), old=True)
_add("s_cmovk_i32", "u<ic", lambda k, scc, old: select(scc, k, old), old=True)
_add("s_cselect_b32", "u<uuc", lambda a, b, scc: select(scc, a, b))
_add("s_cselect_b64", "U<UUc", lambda a, b, scc: select(scc, a, b))

# -- arithmetic; SCC is the carry, the overflow, or which operand was taken


def _signed32(x: Any) -> Any:
    return (x & MASK32 ^ 1 << 31) - (1 << 31)


def _absolute(x: Any) -> Any:
    return select(x < 0, -x, x)


def _overflows(x: Any) -> Any:
    return (x < -(1 << 31)) | (x > MASK32 >> 1)


_add("s_add_u32", "uc<uu", lambda a, b: (a + b, a + b > MASK32))
_add("s_sub_u32", "uc<uu", lambda a, b: (a - b, a < b))
_add("s_addc_u32", "uc<uuc", lambda a, b, scc: (a + b + scc, a + b + scc > MASK32))
_add("s_subb_u32", "uc<uuc", lambda a, b, scc: (a - b - scc, a < b + scc))
_add("s_add_i32", "uc<ii", lambda a, b: (a + b, _overflows(a + b)))
_add("s_sub_i32", "uc<ii", lambda a, b: (a - b, _overflows(a - b)))
_add("s_addk_i32", "uc<ii", lambda a, k: (a + k, _overflows(a + k)))
_add("s_mul_i32", "u<uu", lambda a, b: a * b)
_add("s_mulk_i32", "u<ii", lambda a, k: a * k)
_add("s_mul_hi_u32", "u<uu", lambda a, b: a * b >> 32)
_add("s_mul_hi_i32", "u<ii", lambda a, b: a * b >> 32)
for _letter, _type in (("i", "i32"), ("u", "u32")):
    _add(f"s_min_{_type}", f"uc<{_letter * 2}", lambda a, b: (select(a < b, a, b), a < b))
    _add(f"s_max_{_type}", f"uc<{_letter * 2}", lambda a, b: (select(a >= b, a, b), a >= b))
_add("s_absdiff_i32", "u!<ii", lambda a, b: _absolute(_signed32(a - b)))
_add("s_abs_i32", "u!<i", _absolute)
for _k in (1, 2, 3, 4):
    _add(f"s_lshl{_k}_add_u32", "uc<uu", lambda a, b, k=_k: ((a << k) + b, (a << k) + b > MASK32))

# -- logic; SCC: the result is not zero

_LOGIC: dict[str, Function] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn1": lambda a, b: ~a & b,
    "andn2": lambda a, b: a & ~b,
    "orn1": lambda a, b: ~a | b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}


def _nonzero(x: Any) -> Any:
    return x & MASK64 != 0


for _name, _function in _LOGIC.items():
    if _name not in ("andn1", "orn1"):
        _add(f"s_{_name}_b32", "u!<uu", _function)
        _add(f"s_{_name}_b64", "U!<UU", _function)
    _add(f"s_{_name}_saveexec_b64", "UEc<UE", lambda a, e, f=_function: (e, f(a, e), _nonzero(f(a, e))))
for _name in ("andn1", "andn2"):
    _function = _LOGIC[_name]
    _add(f"s_{_name}_wrexec_b64", "UEc<UE", lambda a, e, f=_function: (f(a, e), f(a, e), _nonzero(f(a, e))))
_add("s_not_b32", "u!<u", lambda a: ~a)
_add("s_not_b64", "U!<U", lambda a: ~a)

# -- shifts and bit fields; a field operand holds the offset in bits 0–5 and the width in bits 16–22


def _field(a: Any, b: Any, offset_mask: int) -> Any:
    return (a >> (b & offset_mask)) & ((1 << (b >> 16 & 127)) - 1)


def _signed_field(a: Any, b: Any, offset_mask: int) -> Any:
    field = _field(a, b, offset_mask)
    sign = (1 << (b >> 16 & 127)) >> 1
    return (field ^ sign) - sign


_add("s_lshl_b32", "u!<uu", lambda a, b: a << (b & 31))
_add("s_lshr_b32", "u!<uu", lambda a, b: a >> (b & 31))
_add("s_ashr_i32", "u!<iu", lambda a, b: a >> (b & 31))
_add("s_lshl_b64", "U!<Uu", lambda a, b: a << (b & 63))
_add("s_lshr_b64", "U!<Uu", lambda a, b: a >> (b & 63))
_add("s_ashr_i64", "U!<Iu", lambda a, b: a >> (b & 63))
_add("s_bfe_u32", "u!<uu", lambda a, b: _field(a, b, 31))
_add("s_bfe_i32", "u!<iu", lambda a, b: _signed_field(a, b, 31))
_add("s_bfe_u64", "U!<Uu", lambda a, b: _field(a, b, 63))
_add("s_bfe_i64", "U!<Iu", lambda a, b: _signed_field(a, b, 63))
_add("s_bfm_b32", "u<uu", lambda a, b: ((1 << (a & 31)) - 1) << (b & 31))
_add("s_bfm_b64", "U<uu", lambda a, b: ((1 << (a & 63)) - 1) << (b & 63))
_add("s_pack_ll_b32_b16", "u<uu", lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16)
_add("s_pack_lh_b32_b16", "u<uu", lambda a, b: a & 0xFFFF | b & 0xFFFF0000)
_add("s_pack_hh_b32_b16", "u<uu", lambda a, b: a >> 16 | b & 0xFFFF0000)
_add("s_sext_i32_i8", "u<u", lambda a: (a & 0xFF ^ 0x80) - 0x80)
_add("s_sext_i32_i16", "u<u", lambda a: (a & 0xFFFF ^ 0x8000) - 0x8000)
_add("s_bitset0_b32", "u<u", lambda a, old: old & ~(1 << (a & 31)), old=True)
_add("s_bitset1_b32", "u<u", lambda a, old: old | 1 << (a & 31), old=True)
_add("s_bitset0_b64", "U<u", lambda a, old: old & ~(1 << (a & 63)), old=True)
_add("s_bitset1_b64", "U<u", lambda a, old: old | 1 << (a & 63), old=True)

# -- counting and rearranging bits


def popcount(x: Any) -> Any:
    """Returns the number of ones of a 64-bit value, in a form that a tracing engine can follow."""
    x = x - (x >> 1 & 0x5555555555555555)
    x = (x & 0x3333333333333333) + (x >> 2 & 0x3333333333333333)
    x = x + (x >> 4) & 0x0F0F0F0F0F0F0F0F
    return (x * 0x0101010101010101 & MASK64) >> 56


def _lowest(x: Any, mask: int) -> Any:
    """Returns the index of the lowest one, or −1 if there is none."""
    return select(x == 0, -1, popcount((x - 1) & ~x & mask))


def _highest(x: Any, bits: int) -> Any:
    """Returns the number of zeros above the highest one, or −1 if there is none."""
    filled = x
    for step in (1, 2, 4, 8, 16, 32):
        filled = filled | filled >> step
    return select(x == 0, -1, bits - popcount(filled))


def _reverse(x: Any, bits: int) -> Any:
    result = x & 0
    for k in range(bits):
        result = result | (x >> k & 1) << (bits - 1 - k)
    return result


def _groups(x: Any, spread: bool) -> Any:
    """Returns, for each 4 bits, whether any is set: as 4 ones (wqm) or as 1 bit (quadmask)."""
    result = x & 0
    for k in range(16):
        any_set = select((x >> 4 * k & 15) != 0, 1, 0)
        result = result | (any_set * 15 << 4 * k if spread else any_set << k)
    return result


def _replicate(x: Any) -> Any:
    result = x & 0
    for k in range(32):
        result = result | (x >> k & 1) * 3 << 2 * k
    return result


for _bits, _letter, _mask in ((32, "u", MASK32), (64, "U", MASK64)):
    _add(f"s_bcnt0_i32_b{_bits}", f"u!<{_letter}", lambda a, m=_mask: popcount(~a & m))
    _add(f"s_bcnt1_i32_b{_bits}", f"u!<{_letter}", popcount)
    _add(f"s_ff0_i32_b{_bits}", f"u<{_letter}", lambda a, m=_mask: _lowest(~a & m, m))
    _add(f"s_ff1_i32_b{_bits}", f"u<{_letter}", lambda a, m=_mask: _lowest(a, m))
    _add(f"s_flbit_i32_b{_bits}", f"u<{_letter}", lambda a, n=_bits: _highest(a, n))
    _add(f"s_brev_b{_bits}", f"{_letter}<{_letter}", lambda a, n=_bits: _reverse(a, n))
    _add(f"s_wqm_b{_bits}", f"{_letter}!<{_letter}", lambda a: _groups(a, True))
    _add(f"s_quadmask_b{_bits}", f"{_letter}!<{_letter}", lambda a: _groups(a, False))
_add("s_flbit_i32", "u<i", lambda a: _highest(select(a < 0, ~a, a), 32))
_add("s_flbit_i32_i64", "u<I", lambda a: _highest(select(a < 0, ~a, a), 64))
_add("s_bitreplicate_b64_b32", "U<u", _replicate)

# -- compares

_COMPARES: dict[str, Function] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}
for _name, _function in _COMPARES.items():
    for _letter, _type in (("i", "i32"), ("u", "u32")):
        _add(f"s_cmp_{_name}_{_type} s_cmpk_{_name}_{_type}", f"c<{_letter * 2}", _function)
    if _name in ("eq", "lg"):
        _add(f"s_cmp_{_name}_u64", "c<UU", _function)
for _bit in (0, 1):
    _add(f"s_bitcmp{_bit}_b32", "c<uu", lambda a, b, bit=_bit: (a >> (b & 31) & 1) == bit)
    _add(f"s_bitcmp{_bit}_b64", "c<Uu", lambda a, b, bit=_bit: (a >> (b & 63) & 1) == bit)
