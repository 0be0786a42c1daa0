"""Which instructions a trace executes: those that control flow and addresses depend on."""

from __future__ import annotations

from collections.abc import Iterator

import assembler
import pytest

from mxcomp.sim.decode import LONGEST, decode
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.timing.essential import essential

LOAD = "global_load_dword v9, v1, s[0:1]"

CASES = {
    "what an address was is overwritten": f"""
        v_lshlrev_b32_e32 v1, 2, v0        // kept
        {LOAD}
        v_add_f32_e32 v1, 1.0, v9
        v_mul_f32_e32 v1, v1, v1
        global_store_dword v0, v1, s[0:1]
    """,
    "the next round's address": f"""
        v_mov_b32_e32 v1, 0                // kept
        s_mov_b32 s2, 4                    // kept
        again:
        {LOAD}                             // kept
        v_mov_b32_e32 v2, v1
        v_lshlrev_b32_e32 v1, 2, v9        // kept
        s_sub_u32 s2, s2, 1                // kept
        s_cbranch_scc0 again               // kept
        v_mov_b32_e32 v1, 0
    """,
    "lanes that EXEC leaves out": f"""
        v_mov_b32_e32 v1, 0
        v_mov_b32_e32 v1, 8                // kept
        s_mov_b64 exec, 15                 // kept
        v_mov_b32_e32 v1, 4                // kept
        s_mov_b64 exec, -1                 // kept
        {LOAD}
    """,
    "halves": f"""
        v_mov_b32_e32 v1, 0
        v_mov_b32_e32 v1, 1                // kept
        global_load_short_d16 v1, v0, s[0:1]  // kept
        global_load_short_d16_hi v1, v0, s[0:1]  // kept
        {LOAD}
    """,
    "data by way of LDS": f"""
        v_mov_b32_e32 v1, 4
        ds_write_b32 v0, v1
        ds_read_b32 v1, v0
        v_mov_b32_e32 v1, 4                // kept
        {LOAD}
        v_lshlrev_b32_e32 v1, 2, v9
    """,
    "an address by way of LDS": f"""
        v_mov_b32_e32 v1, 4                // kept
        ds_write_b32 v0, v1                // kept
        ds_read_b32 v1, v0                 // kept
        s_waitcnt lgkmcnt(0)
        {LOAD}
    """,
    "a branch on lanes": """
        v_mov_b32_e32 v2, 3
        v_mov_b32_e32 v2, 5                // kept
        v_cmp_gt_u32_e32 vcc, v2, v0       // kept
        s_cbranch_vccz end                 // kept
        v_mov_b32_e32 v2, 5
        end:
        v_mov_b32_e32 v3, v2
    """,
    "matrices": f"""
        v_lshlrev_b32_e32 v1, 2, v0        // kept
        {LOAD}
        v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]
        v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]
    """,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_decides_is_kept(name: str) -> None:
    lines = [line.strip() for line in CASES[name].splitlines() if line.strip()]
    wanted = [line.endswith("kept") for line in lines if not line.endswith(":")] + [True]
    program = list(decoded(assembler.instructions("\n".join([*lines, "s_endpgm"]))))
    kept = essential(program)
    assert [i.offset in kept for i in program] == wanted


def decoded(code: bytes) -> Iterator[Instruction]:
    at = 0
    while at < len(code):
        yield (found := decode(code[at : at + LONGEST], at))
        at = found.end
