"""Integer vector and scalar instructions against Python integers, on corner and random bit patterns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from instructions import bits, run

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
A, B, C = bits(1), bits(2), bits(3)


def signed(x: int, width: int = 32) -> int:
    return (x & (1 << width) - 1 ^ 1 << width - 1) - (1 << width - 1)


def field(x: int, offset: int, width: int) -> int:
    return x >> offset & (1 << width) - 1


def field_signed(x: int, offset: int, width: int) -> int:
    value = signed(x) >> offset & (1 << width) - 1
    return signed(value, width) if width else 0


def permuted(a: int, b: int, selector: int) -> int:
    data = (a << 32 | b).to_bytes(8, "little")
    result = 0
    for k, s in enumerate(selector.to_bytes(4, "little")):
        byte = 255 if s > 12 else 0 if s == 12 else 255 * (data[2 * s - 15] >> 7) if s > 7 else data[s]
        result |= byte << 8 * k
    return result


def halves(f: Callable[[int, int], int], a: int, b: int) -> int:
    return f(a & 0xFFFF, b & 0xFFFF) & 0xFFFF | (f(a >> 16, b >> 16) & 0xFFFF) << 16


def truth(table: int, a: int, b: int, c: int) -> int:
    return sum(1 << i for i in range(32) if table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1)


U24 = 0xFFFFFF
ONE = {
    "v_not_b32": lambda a: ~a,
    "v_bfrev_b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "v_ffbh_u32": lambda a: 32 - a.bit_length() if a else -1,
    "v_ffbl_b32": lambda a: (a & -a).bit_length() - 1 if a else -1,
    "v_ffbh_i32": lambda a: -1 if a in (0, M32) else 32 - (a if a < 1 << 31 else ~a & M32).bit_length(),
    "v_prng_b32": lambda a: a << 1 ^ (197 if a >> 31 else 0),
}
TWO = {
    "v_add_u32": lambda a, b: a + b,
    "v_sub_u32": lambda a, b: a - b,
    "v_subrev_u32": lambda a, b: b - a,
    "v_mul_lo_u32": lambda a, b: a * b,
    "v_mul_hi_u32": lambda a, b: a * b >> 32,
    "v_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32,
    "v_mul_u32_u24": lambda a, b: (a & U24) * (b & U24),
    "v_mul_hi_u32_u24": lambda a, b: (a & U24) * (b & U24) >> 32,
    "v_mul_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24),
    "v_mul_hi_i32_i24": lambda a, b: signed(a, 24) * signed(b, 24) >> 32,
    "v_and_b32": lambda a, b: a & b,
    "v_or_b32": lambda a, b: a | b,
    "v_xor_b32": lambda a, b: a ^ b,
    "v_xnor_b32": lambda a, b: ~(a ^ b),
    "v_lshlrev_b32": lambda a, b: b << (a & 31),
    "v_lshrrev_b32": lambda a, b: b >> (a & 31),
    "v_ashrrev_i32": lambda a, b: signed(b) >> (a & 31),
    "v_min_u32": min,
    "v_max_u32": max,
    "v_min_i32": lambda a, b: min(signed(a), signed(b)),
    "v_max_i32": lambda a, b: max(signed(a), signed(b)),
    "v_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
    "v_bcnt_u32_b32": lambda a, b: a.bit_count() + b,
    "v_add_u16": lambda a, b: a + b & 0xFFFF,
    "v_sub_u16": lambda a, b: a - b & 0xFFFF,
    "v_mul_lo_u16": lambda a, b: a * b & 0xFFFF,
    "v_min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)) & 0xFFFF,
    "v_max_u16": lambda a, b: max(a & 0xFFFF, b & 0xFFFF),
    "v_lshlrev_b16": lambda a, b: b << (a & 15) & 0xFFFF,
    "v_lshrrev_b16": lambda a, b: (b & 0xFFFF) >> (a & 15),
    "v_ashrrev_i16": lambda a, b: signed(b, 16) >> (a & 15) & 0xFFFF,
    "v_cvt_pk_u16_u32": lambda a, b: min(a, 0xFFFF) | min(b, 0xFFFF) << 16,
    "v_pk_add_u16": lambda a, b: halves(lambda x, y: x + y, a, b),
    "v_pk_sub_i16": lambda a, b: halves(lambda x, y: x - y, a, b),
    "v_pk_mul_lo_u16": lambda a, b: halves(lambda x, y: x * y, a, b),
    "v_pk_max_i16": lambda a, b: halves(lambda x, y: max(signed(x, 16), signed(y, 16)), a, b),
    "v_pk_lshlrev_b16": lambda a, b: halves(lambda x, y: y << (x & 15), a, b),
}
THREE = {
    "v_add3_u32": lambda a, b, c: a + b + c,
    "v_lshl_add_u32": lambda a, b, c: (a << (b & 31)) + c,
    "v_add_lshl_u32": lambda a, b, c: (a + b) << (c & 31),
    "v_lshl_or_b32": lambda a, b, c: a << (b & 31) | c,
    "v_and_or_b32": lambda a, b, c: a & b | c,
    "v_or3_b32": lambda a, b, c: a | b | c,
    "v_xad_u32": lambda a, b, c: (a ^ b) + c,
    "v_bfe_u32": lambda a, b, c: field(a, b & 31, c & 31),
    "v_bfe_i32": lambda a, b, c: field_signed(a, b & 31, c & 31),
    "v_bfi_b32": lambda a, b, c: a & b | ~a & c,
    "v_alignbit_b32": lambda a, b, c: (a << 32 | b) >> (c & 31),
    "v_alignbyte_b32": lambda a, b, c: (a << 32 | b) >> 8 * (c & 3),
    "v_perm_b32": permuted,
    "v_med3_u32": lambda a, b, c: sorted((a, b, c))[1],
    "v_med3_i32": lambda a, b, c: sorted(map(signed, (a, b, c)))[1],
    "v_min3_i32": lambda a, b, c: min(map(signed, (a, b, c))),
    "v_max3_u32": lambda a, b, c: max(a, b, c),
    "v_mad_u32_u24": lambda a, b, c: (a & U24) * (b & U24) + c,
    "v_mad_i32_i24": lambda a, b, c: signed(a, 24) * signed(b, 24) + c,
    "v_mad_u32_u16": lambda a, b, c: (a & 0xFFFF) * (b & 0xFFFF) + c,
    "v_mad_i32_i16": lambda a, b, c: signed(a, 16) * signed(b, 16) + c,
    "v_sad_u8": lambda a, b, c: sum(abs((a >> k & 255) - (b >> k & 255)) for k in (0, 8, 16, 24)) + c,
    "v_sad_u32": lambda a, b, c: abs(a - b) + c,
    "v_dot4_i32_i8": lambda a, b, c: sum(signed(a >> k, 8) * signed(b >> k, 8) for k in (0, 8, 16, 24)) + c,
}
for table in (0xC8, 0x36, 0xDE, 0x96, 0x01):
    THREE[f"v_bitop3_b32 bitop3:{table:#x}"] = lambda a, b, c, t=table: truth(t, a, b, c)

CLAMPED = {
    "v_add_u32": lambda a, b: min(a + b, M32),
    "v_sub_u32": lambda a, b: max(a - b, 0),
    "v_add_i32": lambda a, b: max(min(signed(a) + signed(b), (1 << 31) - 1), -(1 << 31)),
    "v_add_u16": lambda a, b: min((a & 0xFFFF) + (b & 0xFFFF), 0xFFFF),
}


def expect(actual: np.ndarray, reference: Callable[..., int], *sources: np.ndarray) -> None:
    wanted = [reference(*map(int, lane)) & M32 for lane in zip(*sources, strict=True)]
    np.testing.assert_array_equal(actual, np.array(wanted, np.uint32))


@pytest.mark.parametrize("name", ONE)
def test_one_operand(name: str) -> None:
    expect(run(f"{name} v3, v0", {0: A}).v[3], ONE[name], A)


@pytest.mark.parametrize("name", TWO)
def test_two_operands(name: str) -> None:
    expect(run(f"{name} v3, v0, v1", {0: A, 1: B}).v[3], TWO[name], A, B)


@pytest.mark.parametrize("name", THREE)
def test_three_operands(name: str) -> None:
    mnemonic, _, modifier = name.partition(" ")
    third = bits(3) & np.uint32(0x0F0F0F0F) if mnemonic == "v_perm_b32" else C
    wave = run(f"{mnemonic} v3, v0, v1, v2 {modifier}".rstrip(), {0: A, 1: B, 2: third})
    expect(wave.v[3], THREE[name], A, B, third)


@pytest.mark.parametrize("name", CLAMPED)
def test_clamp_saturates(name: str) -> None:
    suffix = "_e64" if name.endswith("u32") or name.endswith("u16") else ""
    expect(run(f"{name}{suffix} v3, v0, v1 clamp", {0: A, 1: B}).v[3], CLAMPED[name], A, B)


def test_constants() -> None:
    expect(run("v_add_u32 v3, 0xdeadbeef, v1", {1: B}).v[3], lambda b: 0xDEADBEEF + b, B)
    expect(run("v_or_b32 v3, -7, v1", {1: B}).v[3], lambda b: -7 | b, B)
    expect(run("v_add_u32 v3, s5, v1", {1: B}, {5: 77}).v[3], lambda b: 77 + b, B)
    expect(
        run("v_pk_lshlrev_b16 v3, 4, v1 op_sel_hi:[0,1]", {1: B}).v[3], lambda b: halves(lambda x, y: y << 4, b, b), B
    )


def test_carry_chains() -> None:
    wave = run("v_add_co_u32 v3, vcc, v0, v1\nv_addc_co_u32 v4, vcc, v2, v0, vcc", {0: A, 1: B, 2: C})
    expect(wave.v[4], lambda a, b, c: c + a + (a + b >> 32), A, B, C)
    wave = run("v_sub_co_u32 v3, s[10:11], v0, v1\nv_subb_co_u32 v4, s[12:13], v2, v0, s[10:11]", {0: A, 1: B, 2: C})
    expect(wave.v[4], lambda a, b, c: c - a - (a < b), A, B, C)
    borrows = [int(c) - int(a) - (int(a) < int(b)) < 0 for a, b, c in zip(A, B, C, strict=True)]
    assert wave.s[12] | wave.s[13] << 32 == sum(1 << lane for lane, borrow in enumerate(borrows) if borrow)


WIDE = {
    "v_lshl_add_u64 v[4:5], v[0:1], 3, v[2:3]": lambda x, y, a: (x << 3) + y,
    "v_lshlrev_b64 v[4:5], v0, v[2:3]": lambda x, y, a: y << (a & 63),
    "v_ashrrev_i64 v[4:5], v0, v[2:3]": lambda x, y, a: signed(y, 64) >> (a & 63),
    "v_mad_u64_u32 v[4:5], s[4:5], v0, v1, v[2:3]": lambda x, y, a: a * (x >> 32) + y,
    "v_mad_i64_i32 v[4:5], s[4:5], v0, v1, v[2:3]": lambda x, y, a: signed(a) * signed(x >> 32) + y,
}


@pytest.mark.parametrize("text", WIDE)
def test_64_bits(text: str) -> None:
    wave = run(text, {0: A, 1: B, 2: C, 3: A})
    for shift in (0, 32):
        reference = lambda a, b, c, t=shift: WIDE[text](a | b << 32, c | a << 32, a) >> t  # noqa: E731
        expect(wave.v[4 + shift // 32], reference, A, B, C)


@pytest.mark.parametrize("condition", ["lt", "eq", "le", "gt", "ne", "ge"])
@pytest.mark.parametrize("kind", ["i32", "u32", "i16", "u16"])
def test_compares(condition: str, kind: str) -> None:
    width = int(kind[1:])
    value = (lambda x: signed(x, width)) if kind[0] == "i" else lambda x: x & (1 << width) - 1
    operators = {"lt": "__lt__", "eq": "__eq__", "le": "__le__", "gt": "__gt__", "ne": "__ne__", "ge": "__ge__"}
    wave = run(f"v_cmp_{condition}_{kind} s[4:5], v0, v1", {0: A, 1: B}, active=0xFFFF_0000_FFFF)
    wanted = [getattr(value(int(a)), operators[condition])(value(int(b))) for a, b in zip(A, B, strict=True)]
    mask = sum(1 << lane for lane, holds in enumerate(wanted) if holds)
    assert wave.s[4] | wave.s[5] << 32 == mask & 0xFFFF_0000_FFFF


S = {0: 0x80000001, 1: 7, 2: M32, 3: 5, 4: 0x12345678, 5: 0x9ABCDEF0}
SCALAR: dict[str, dict[Any, int]] = {
    "s_add_u32 s8, s2, s1\ns_addc_u32 s9, s3, 0": {8: 6, 9: 6, "scc": 0},
    "s_sub_u32 s8, s1, s2\ns_subb_u32 s9, s3, 0": {8: 8, 9: 4, "scc": 0},
    "s_add_i32 s8, s0, s0": {8: 2, "scc": 1},
    "s_bfe_u32 s8, s4, 0x80008": {8: 0x56, "scc": 1},
    "s_bfe_i32 s8, s5, 0x80018": {8: 0xFFFFFF9A},
    "s_lshl_b64 s[8:9], s[4:5], 8": {8: 0x34567800, 9: 0xBCDEF012},
    "s_ashr_i64 s[8:9], s[4:5], 4": {8: 0x01234567, 9: 0xF9ABCDEF},
    "s_mul_i32 s8, s2, s1": {8: M32 - 6},
    "s_mul_hi_i32 s8, s0, s1": {8: signed(0x80000001) * 7 >> 32 & M32},
    "s_mul_hi_u32 s8, s2, s2": {8: 0xFFFFFFFE},
    "s_movk_i32 s8, -5": {8: M32 - 4},
    "s_addk_i32 s1, -8": {1: M32, "scc": 0},
    "s_cmpk_gt_i32 s0, -5": {"scc": 0},
    "s_cmpk_gt_u32 s0, 0xfffb": {"scc": 1},
    "s_cmp_lt_i32 s0, s1": {"scc": 1},
    "s_cmp_lt_u32 s0, s1": {"scc": 0},
    "s_ff1_i32_b32 s8, s4": {8: 3},
    "s_flbit_i32_b32 s8, s4": {8: 3},
    "s_flbit_i32 s8, s5": {8: 1},
    "s_bcnt1_i32_b64 s8, s[4:5]": {8: 0x9ABCDEF012345678.bit_count()},
    "s_pack_ll_b32_b16 s8, s4, s5": {8: 0xDEF05678},
    "s_bitcmp1_b32 s4, 3": {"scc": 1},
    "s_cselect_b32 s8, s0, s1": {8: 7},
    "s_mov_b64 s[8:9], -1": {8: M32, 9: M32},
    "s_sext_i32_i8 s8, s5": {8: 0xFFFFFFF0},
    "s_lshl2_add_u32 s8, s2, s1": {8: 3, "scc": 1},
    "s_bfm_b32 s8, 8, 4": {8: 0xFF0},
    "s_absdiff_i32 s8, s1, s3": {8: 2, "scc": 1},
    "s_abs_i32 s8, s2": {8: 1, "scc": 1},
    "s_min_i32 s8, s0, s1": {8: 0x80000001, "scc": 1},
    "s_max_u32 s8, s0, s1": {8: 0x80000001, "scc": 1},
    "s_bitset1_b32 s4, 31": {4: 0x92345678},
    "s_bitset0_b32 s4, 3": {4: 0x12345670},
    "s_not_b64 s[8:9], s[4:5]": {8: ~0x12345678 & M32, 9: ~0x9ABCDEF0 & M32},
    "s_andn2_b64 s[8:9], s[4:5], s[2:3]": {8: 0, 9: 0x9ABCDEF0 & ~5},
    "s_brev_b32 s8, s3": {8: 0xA0000000},
    "s_bitreplicate_b64_b32 s[8:9], s1": {8: 0x3F, 9: 0},
    "s_wqm_b64 s[8:9], s[4:5]": {8: M32, 9: 0xFFFFFFF0, "scc": 1},
    "s_mov_b32 s8, 0\nloop:\ns_add_i32 s8, s8, 1\ns_cmp_lg_u32 s8, 10\ns_cbranch_scc1 loop": {8: 10},
}


@pytest.mark.parametrize("text", SCALAR)
def test_scalar(text: str) -> None:
    wave = run(text, s=S)
    assert {key: wave.scc if key == "scc" else wave.s[key] for key in SCALAR[text]} == SCALAR[text]


def test_saveexec() -> None:
    wave = run("s_and_saveexec_b64 s[4:5], vcc\nv_mov_b32 v3, 1\ns_or_b64 exec, exec, s[4:5]", {3: 0 * A}, vcc=0xF0)
    np.testing.assert_array_equal(wave.v[3], [lane in range(4, 8) for lane in range(64)])
    assert wave.exec == M64
