"""Lanes that see each other: EXEC, DPP, SDWA, permutes, LDS and memory access patterns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from instructions import LANES, bits, run

from mxcomp.sim.memory import Memory

A, B, C = bits(1), bits(2), bits(3)
L = np.arange(64)
MASKS = "row_mask:0xf bank_mask:0xf"


def mask(value: int) -> np.ndarray:
    return value >> np.arange(64, dtype=object) & 1 == 1


DPP: dict[str, Callable[[int], int]] = {
    f"quad_perm:[3,2,1,0] {MASKS}": lambda i: i ^ 3,
    f"row_shr:1 {MASKS} bound_ctrl:1": lambda i: i - 1 if i % 16 else -1,
    f"row_shl:3 {MASKS} bound_ctrl:1": lambda i: i + 3 if i % 16 < 13 else -1,
    f"row_ror:4 {MASKS}": lambda i: i // 16 * 16 + (i - 4) % 16,
    f"row_mirror {MASKS}": lambda i: i ^ 15,
    f"row_half_mirror {MASKS}": lambda i: i ^ 7,
    f"wave_shr:1 {MASKS} bound_ctrl:1": lambda i: i - 1,
    f"row_newbcast:5 {MASKS}": lambda i: i // 16 * 16 + 5,
}


@pytest.mark.parametrize("control", DPP)
def test_dpp(control: str) -> None:
    source = [DPP[control](i) for i in range(64)]
    wanted = [A[k] if k >= 0 else 0 for k in source]
    np.testing.assert_array_equal(run(f"v_mov_b32_dpp v3, v0 {control}", {0: A, 3: B}).v[3], wanted)


def test_dpp_keeps_lanes_without_source() -> None:
    wave = run(f"v_mov_b32_dpp v3, v0 row_shr:1 {MASKS}", {0: A, 3: B})
    np.testing.assert_array_equal(wave.v[3], np.where(L % 16, np.roll(A, 1), B))
    wave = run("v_add_u32_dpp v3, v0, v1 row_bcast:15 row_mask:0xa bank_mask:0xf", {0: A, 1: B, 3: C})
    np.testing.assert_array_equal(wave.v[3], np.where(L // 16 % 2, A[np.maximum(L // 16 * 16 - 1, 0)] + B, C))
    wave = run("v_mov_b32_dpp v3, v0 row_bcast:31 row_mask:0xc bank_mask:0xf", {0: A, 3: C})
    np.testing.assert_array_equal(wave.v[3], np.where(L >= 32, A[31], C))


def test_sdwa() -> None:
    text = "v_add_u32_sdwa v3, v0, v1 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3 src1_sel:WORD_1"
    wanted = C & 0xFF00FFFF | ((A >> 24) + (B >> 16) & 0xFF) << 16
    np.testing.assert_array_equal(run(text, {0: A, 1: B, 3: C}).v[3], wanted)
    text = "v_lshlrev_b32_sdwa v3, v0, sext(v1) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:BYTE_1"
    byte = (B >> 8).astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32)
    np.testing.assert_array_equal(run(text, {0: A & 31, 1: B}).v[3], byte << (A & 31))
    text = "v_or_b32_sdwa v3, v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:DWORD"
    np.testing.assert_array_equal(run(text, {0: A, 1: B}).v[3], (A | B) << 16)


def test_exec_masks_writes() -> None:
    wave = run("v_mov_b32 v3, v0", {0: A, 3: B}, active=0xF0F0)
    np.testing.assert_array_equal(wave.v[3], np.where(mask(0xF0F0), A, B))
    assert run("v_readfirstlane_b32 s4, v0", {0: A}, active=0xF0F0).s[4] == A[4]
    wave = run("v_cmp_gt_i32 vcc, v0, v1\nv_cndmask_b32 v3, v0, v1, vcc", {0: A, 1: B})
    np.testing.assert_array_equal(wave.v[3], np.where(A.view(np.int32) > B.view(np.int32), B, A))


def test_lanes_through_scalars() -> None:
    wave = run("v_readlane_b32 s4, v0, 9\nv_writelane_b32 v1, s5, 3", {0: A, 1: B}, {5: 77}, active=1)
    assert wave.s[4] == A[9]
    np.testing.assert_array_equal(wave.v[1], np.where(L == 3, 77, B))
    wave = run("v_mbcnt_lo_u32_b32 v3, -1, 0\nv_mbcnt_hi_u32_b32 v3, -1, v3")
    np.testing.assert_array_equal(wave.v[3], L)


@pytest.mark.parametrize("rows", [16, 32])
def test_permlane_swap(rows: int) -> None:
    wave = run(f"v_permlane{rows}_swap_b32 v0, v1", {0: A, 1: B})
    a, b = A.reshape(-1, 2, rows), B.reshape(-1, 2, rows)
    np.testing.assert_array_equal(wave.v[0].reshape(-1, 2, rows), np.stack((a[:, 0], b[:, 0]), 1))
    np.testing.assert_array_equal(wave.v[1].reshape(-1, 2, rows), np.stack((a[:, 1], b[:, 1]), 1))


def test_permutes() -> None:
    wave = run(
        "ds_bpermute_b32 v3, v1, v0\nds_permute_b32 v4, v1, v0\ns_waitcnt lgkmcnt(0)", {0: A, 1: (63 - LANES) * 4}
    )
    np.testing.assert_array_equal(wave.v[3], A[::-1])
    np.testing.assert_array_equal(wave.v[4], A[::-1])
    wave = run("ds_swizzle_b32 v3, v0 offset:swizzle(SWAP,16)\ns_waitcnt lgkmcnt(0)", {0: A})
    np.testing.assert_array_equal(wave.v[3], A[L ^ 16])
    wave = run("ds_swizzle_b32 v3, v0 offset:swizzle(QUAD_PERM,1,0,3,2)", {0: A})
    np.testing.assert_array_equal(wave.v[3], A[L ^ 1])


def test_gpr_index_mode() -> None:
    text = (
        "s_set_gpr_idx_on s4, gpr_idx(SRC0)\nv_mov_b32 v3, v10\ns_set_gpr_idx_off\nv_mov_b32 v4, v10\n"
        "s_set_gpr_idx_on s4, gpr_idx(DST)\nv_mov_b32 v5, v0\ns_set_gpr_idx_off"
    )
    wave = run(text, {0: C, 10: A, 12: B, 7: 0 * A}, {4: 2})
    np.testing.assert_array_equal(wave.v[[3, 4, 7]], [B, A, C])


LDS = np.random.default_rng(0).integers(0, 256, 65536, dtype=np.uint8)
WORDS = LDS.view(np.uint32)


def test_lds_reads() -> None:
    text = (
        "ds_read2_b32 v[2:3], v0 offset0:3 offset1:7\nds_read2st64_b64 v[4:7], v0 offset0:1 offset1:2\n"
        "ds_read_b96 v[8:10], v0 offset:16\nds_read_u8_d16_hi v11, v0\nds_read_i8 v12, v0 offset:5\n"
        "ds_read_u16 v13, v0 offset:1\ns_waitcnt lgkmcnt(0)"
    )
    wave = run(text, {0: LANES * 16, 11: A}, lds=LDS)
    at = L * 4
    np.testing.assert_array_equal(wave.v[[2, 3]], [WORDS[at + 3], WORDS[at + 7]])
    np.testing.assert_array_equal(wave.v[[4, 7]], [WORDS[at + 128], WORDS[at + 257]])
    np.testing.assert_array_equal(wave.v[10], WORDS[at + 6])
    np.testing.assert_array_equal(wave.v[11], A & 0xFFFF | LDS[L * 16].astype(np.uint32) << 16)
    np.testing.assert_array_equal(wave.v[12].view(np.int32), LDS[L * 16 + 5].view(np.int8))
    np.testing.assert_array_equal(wave.v[13], LDS[L * 16 + 1].astype(int) | LDS[L * 16 + 2].astype(int) << 8)


def test_lds_addresses_wrap() -> None:
    """A negative VGPR and a positive immediate."""
    text = "ds_write_b32 v1, v0 offset:8\nds_read2_b32 v[2:3], v1 offset0:2 offset1:3\ns_waitcnt lgkmcnt(0)"
    wave = run(text, {0: LANES * 3, 1: LANES * 4 - 8}, lds=LDS)
    np.testing.assert_array_equal(wave.v[2], LANES * 3)
    np.testing.assert_array_equal(wave.v[3][:63], LANES[1:] * 3)


def test_lds_writes_and_atomics() -> None:
    text = (
        "ds_write_b8_d16_hi v0, v1 offset:3\nds_write2_b32 v0, v1, v2 offset0:1 offset1:2\ns_waitcnt lgkmcnt(0)\n"
        "ds_read_b128 v[4:7], v0\ns_waitcnt lgkmcnt(0)"
    )
    wave = run(text, {0: LANES * 16, 1: A, 2: B}, lds=LDS)
    np.testing.assert_array_equal(wave.v[4] >> 24, A >> 16 & 0xFF)
    np.testing.assert_array_equal(wave.v[5:8], [A, B, WORDS[L * 4 + 3]])
    wave = run("ds_add_rtn_u32 v3, v0, v1\ns_waitcnt lgkmcnt(0)", {0: 0 * LANES, 1: 0 * LANES + 1}, lds=0 * LDS)
    np.testing.assert_array_equal(wave.v[3], L)


def test_transposing_read() -> None:
    """Per 16 lanes, a 4×16 tile: lane i gets column i (its four rows are held by four lanes each)."""
    wave = run("ds_read_b64_tr_b16 v[2:3], v0\ns_waitcnt lgkmcnt(0)", {0: LANES * 8}, lds=LDS)
    halves = LDS.view(np.uint16)[:256].reshape(4, 4, 16)  # group, row, column
    got = np.stack((wave.v[2], wave.v[3]), 1).copy().view(np.uint16).reshape(4, 16, 4)
    np.testing.assert_array_equal(got, halves.transpose(0, 2, 1))


@pytest.fixture
def memory() -> tuple[Memory, int, np.ndarray]:
    """Memory with 1024 random bytes, and their address."""
    result = Memory(1 << 20)
    address = result.alloc(1024).address
    result.write(address, LDS[:1024])
    return result, address, WORDS[:256].copy()


def descriptor(address: int, records: int) -> dict[int, int]:
    return {8: address, 9: address >> 32, 10: records, 11: 0x27000}


def test_buffer_range_is_checked_per_dword(memory: tuple[Memory, int, np.ndarray]) -> None:
    device, address, words = memory
    text = "buffer_load_dwordx4 v[4:7], v0, s[8:11], s4 offen offset:8\ns_waitcnt vmcnt(0)"
    wave = run(text, {0: LANES * 8}, {**descriptor(address, 256), 4: 16}, memory=device)
    for k in range(4):
        word = L * 2 + 2 + k
        np.testing.assert_array_equal(wave.v[4 + k], np.where(word * 4 + 4 <= 256 - 16, words[word + 4], 0))


def test_buffer_offsets_wrap(memory: tuple[Memory, int, np.ndarray]) -> None:
    """A negative VGPR and a positive immediate: LLVM makes such of `base - 8 + 8`."""
    device, address, words = memory
    text = "buffer_load_dwordx4 v[4:7], v0, s[8:11], s4 offen offset:8\ns_waitcnt vmcnt(0)"
    wave = run(text, {0: LANES * 8 - 8}, {**descriptor(address, 256), 4: 16}, memory=device)
    for k in range(4):
        word = L * 2 + k
        np.testing.assert_array_equal(wave.v[4 + k], np.where(word * 4 + 4 <= 256 - 16, words[word + 4], 0))


def test_direct_load_to_lds(memory: tuple[Memory, int, np.ndarray]) -> None:
    device, address, words = memory
    text = (
        "buffer_load_dwordx4 v0, s[8:11], 0 offen offset:16 lds\ns_waitcnt vmcnt(0)\n"
        "ds_read_b128 v[4:7], v1\ns_waitcnt lgkmcnt(0)"
    )
    wave = run(text, {0: LANES * 8, 1: LANES * 16 + 272}, descriptor(address, 256), m0=256, memory=device)
    for k in range(4):
        word = L * 2 + 4 + k
        np.testing.assert_array_equal(wave.v[4 + k], np.where(word * 4 + 4 <= 256, words[word], 0))


def test_stores(memory: tuple[Memory, int, np.ndarray]) -> None:
    device, address, words = memory
    text = (
        "buffer_store_short v1, v0, s[8:11], 0 offen\n"
        "buffer_store_dwordx2 v[2:3], v0, s[8:11], s5 offen\ns_waitcnt vmcnt(0)"
    )
    run(text, {0: LANES * 16, 1: A, 2: B, 3: C}, {**descriptor(address, 256), 5: 8}, memory=device)
    stored = device.read(address, np.uint32, (256,))
    np.testing.assert_array_equal(stored[0:64:4] & 0xFFFF, A[:16] & 0xFFFF)
    np.testing.assert_array_equal(stored[0:64:4] >> 16, words[0:64:4] >> 16)
    np.testing.assert_array_equal(stored[2:64:4], B[:16])
    np.testing.assert_array_equal(stored[64:], words[64:])


def test_global_atomics(memory: tuple[Memory, int, np.ndarray]) -> None:
    device, address, _ = memory
    device.write(address, np.zeros(256, np.float32))
    text = (
        "global_atomic_add_f32 v0, v1, s[8:9]\nglobal_atomic_pk_add_bf16 v0, v2, s[8:9] offset:64\ns_waitcnt vmcnt(0)"
    )
    half = np.full(64, 0x40003F80, np.uint32)  # 1.0 and 2.0
    ones = np.ones(64, np.float32)
    run(text, {0: LANES % 4 * 4, 1: ones, 2: half}, descriptor(address, 0), memory=device)
    np.testing.assert_array_equal(device.read(address, np.float32, (4,)), 16)
    np.testing.assert_array_equal(device.read(address + 64, np.uint32, (4,)), 0x42004180)  # 16 and 32


def test_scratch_beyond_its_end_reads_unwritten_bytes() -> None:
    """Lanes beyond the end read these bytes, as in any space; the others get what they have stored."""
    addresses = np.where(LANES < 32, 16 * LANES, 1 << 20)
    text = "scratch_store_dword v0, v1, off\nscratch_load_dword v2, v0, off\ns_waitcnt vmcnt(0)"
    wave = run(text, {0: addresses, 1: LANES})
    np.testing.assert_array_equal(wave.v[2], np.where(LANES < 32, LANES, 0xFFFFFFFF))
