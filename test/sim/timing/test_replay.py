"""A compute unit on a few instructions of which the cycles are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import VGPR0, Instruction, MemoryOp, MemoryOperands, Operand
from mxcomp.sim.timing.parameters import Machine
from mxcomp.sim.timing.trace import Trace
from mxcomp.sim.timing.workgroup import run

MACHINE = Machine(
    return_bytes=32.0, line_cycles=1.0, matrix_hold=0.0, scale_hold=0.0, accumulate_latency=0.0, fetch_latency=0.0
)
"""Without what test_rules.py has tests of."""
LATENCY, ISSUE, PASSES = 500.0, 4, 16
"""Cycles: of a load, between instructions of a wave, of an fp4 MFMA of 16×16×128."""
LINES, BYTES = 8, 1024
"""Of a dwordx4 load by 64 lanes side by side."""


def vgpr(row: int, dwords: int = 1) -> Operand:
    return Operand(VGPR0 + row, dwords)


def mfma(result: int, a: int = 200) -> Instruction:
    sources = vgpr(a, 4), vgpr(204, 4), vgpr(result, 4), vgpr(208), vgpr(209)
    fields = {"cbsz": 4, "blgp": 4}
    return Instruction(0, 16, "v_mfma_scale_f32_16x16x128_f8f6f4", "MFMA", (vgpr(result, 4),), sources, fields)


def valu(source: int) -> Instruction:
    return Instruction(0, 4, "v_add_u32", "VOP2", (vgpr(100),), (vgpr(source), vgpr(101)))


def wait(vector: int = 63, lgkm: int = 15) -> Instruction:
    return Instruction(0, 4, "s_waitcnt", "SOPP", fields={"simm16": vector & 15 | vector >> 4 << 14 | lgkm << 8})


LOAD = Instruction(
    0, 8, "global_load_dwordx4", "GLOBAL", (vgpr(16, 4),), (vgpr(0, 2),),
    memory=MemoryOperands(MemoryOp("global", "load", 16), address=vgpr(0, 2), result=vgpr(16, 4)),
)  # fmt: skip
LDS_LOAD = Instruction(
    0, 8, "ds_read_b128", "DS", (vgpr(16, 4),), (vgpr(0),),
    memory=MemoryOperands(MemoryOp("lds", "load", 16), address=vgpr(0), result=vgpr(16, 4)),
)  # fmt: skip
BARRIER = Instruction(0, 4, "s_barrier", "SOPP")
SALU = Instruction(0, 4, "s_mov_b32", "SOP1")


def trace(*waves: Sequence[Instruction], conflicts: int = 0) -> Trace:
    """Of waves that execute these instructions."""
    program = tuple(instruction for wave in waves for instruction in wave)
    is_access = np.array([instruction.memory is not None for instruction in program])
    numbers = np.where(is_access, np.cumsum(is_access) - 1, -1).astype(np.int32)
    ends = np.cumsum([len(wave) for wave in waves])
    codes = np.split(np.arange(len(program), dtype=np.int32), ends[:-1])
    lines = np.array([LINES if i is LOAD else 0 for i in program if i.memory is not None], np.int64)
    count = int(is_access.sum())
    first = np.concatenate([[0], np.cumsum(lines)])
    return Trace(
        (0, 0, 0), program, tuple(codes), tuple(np.split(numbers, ends[:-1])), first, np.arange(first[-1]),
        np.full(count, BYTES), np.full(count, conflicts), Counter(),
    )  # fmt: skip


def cycles(*waves: Sequence[Instruction], conflicts: int = 0, resident: int = 1) -> float:
    return run(trace(*waves, conflicts=conflicts), resident, MACHINE, LATENCY).cycles


def test_matrix_instructions_fill_their_pipe() -> None:
    """The last one issues when the pipe is free: from then on it does not count."""
    program = [mfma(4 * k) for k in range(16)]
    outcome = run(trace(program), 1, MACHINE, LATENCY)
    assert outcome.cycles == 15 * PASSES
    assert outcome.busy.max() == 16 * PASSES


def test_waves_share_the_pipe_of_their_simd() -> None:
    """Waves 0 to 3 have a SIMD each, wave 4 is on that of wave 0."""
    program = [mfma(4 * k) for k in range(16)]
    assert cycles(*[program] * 4) == 15 * PASSES
    assert cycles(*[program] * 5) == 31 * PASSES


def test_results_of_matrix_instructions_are_waited_for() -> None:
    assert cycles([mfma(0), valu(0)]) == PASSES + MACHINE.matrix_latency
    assert cycles([mfma(0), valu(50)]) == ISSUE
    assert cycles([mfma(0), mfma(0)]) == PASSES  # its accumulator is forwarded


@pytest.mark.parametrize("loads", [1, 5])
def test_loads_arrive_in_order_at_a_rate(loads: int) -> None:
    """Addresses of a load take a cycle a line; from the first one's latency on data comes 32 bytes a cycle."""
    expected = LINES + LATENCY + loads * BYTES / MACHINE.return_bytes
    assert cycles([*[LOAD] * loads, wait(vector=0), SALU]) == expected + ISSUE


def test_waits_leave_later_loads_in_flight() -> None:
    """A wait for the first of two ends when that one is there."""
    one = LINES + LATENCY + BYTES / MACHINE.return_bytes
    issued = np.zeros(4)
    run(trace([LOAD, LOAD, wait(vector=1), SALU]), 1, MACHINE, LATENCY, issued=issued)
    assert issued.tolist() == [0, ISSUE, one, one + ISSUE]  # the second one's addresses wait in a queue


def test_each_load_waited_for_takes_all_its_latency() -> None:
    one = LINES + LATENCY + BYTES / MACHINE.return_bytes
    assert cycles([LOAD, wait(vector=0)] * 3) == pytest.approx(3 * one + 2 * ISSUE)


def test_bank_conflicts_take_cycles() -> None:
    free, conflicting = (cycles([LDS_LOAD] * 8, conflicts=n) for n in (0, 5))
    one_bus = BYTES / MACHINE.lds_return
    assert free == 8 * one_bus + MACHINE.lds_latency
    assert conflicting == 8 * (4 + 5) + MACHINE.lds_latency  # four rows and five conflicts: longer than the bus


def test_barriers_open_for_the_last_wave() -> None:
    slow, quick = [SALU] * 50, [SALU]
    issued = np.zeros(len(slow) + len(quick) + 4)
    run(trace([*slow, BARRIER, SALU], [*quick, BARRIER, SALU]), 1, MACHINE, LATENCY, issued=issued)
    opened = 50 * ISSUE + ISSUE + MACHINE.barrier_latency
    assert issued[len(slow) + 1] == issued[-1] == opened


def test_barriers_are_those_of_a_workgroup() -> None:
    """Two workgroups on a CU do not wait for each other."""
    assert cycles([SALU, BARRIER, SALU], resident=2) == cycles([SALU, BARRIER, SALU])


def setprio(priority: int) -> Instruction:
    return Instruction(0, 4, "s_setprio", "SOPP", fields={"simm16": priority})


def program_starts(waves: Sequence[Sequence[Instruction]]) -> tuple[float, float]:
    """When the first and the last wave issue their first MFMA."""
    issued = np.zeros(sum(map(len, waves)))
    run(trace(*waves), 1, MACHINE, LATENCY, issued=issued)
    cycles_of = np.split(issued, np.cumsum([*map(len, waves)])[:-1])
    first, last = (
        next(cycle for cycle, instruction in zip(cycles_of[w], waves[w], strict=True) if instruction.encoding == "MFMA")
        for w in (0, -1)
    )
    return first, last


def test_the_oldest_wave_of_a_simd_goes_first() -> None:
    """Both are ready for the pipe from the same cycle on; the second gets it behind the first."""
    program = [mfma(4 * k) for k in range(4)]
    first, second = program_starts([program, *[[SALU]] * 3, program])
    assert (first, second) == (0, 4 * PASSES)


def test_waves_with_a_priority_go_before_older_ones() -> None:
    program = [mfma(4 * k) for k in range(4)]
    first, second = program_starts([[setprio(0), *program], *[[SALU]] * 3, [setprio(3), *program]])
    assert (first, second) == (ISSUE + 4 * PASSES, ISSUE)


def test_a_workgroup_behind_another_one_is_the_youngest() -> None:
    """Two places whose first waves share a SIMD take turns; by number all of the first place's would come first."""
    program, rounds = [mfma(4 * k) for k in range(4)], 3
    waves = [program, *[[SALU]] * 3]
    per_place = rounds * sum(map(len, waves))
    issued = np.zeros(2 * per_place)
    run(trace(*waves), 2, MACHINE, LATENCY, issued=issued, rounds=rounds)
    starts = [[issued[place * per_place + k * len(program)] for k in range(rounds)] for place in (0, 1)]
    assert starts == [[0, 8 * PASSES, 16 * PASSES], [4 * PASSES, 12 * PASSES, 20 * PASSES]]


def test_a_workgroup_begins_when_the_one_before_has_ended() -> None:
    """All of it: its quick wave's next round waits for the slow one."""
    quick, slow, rounds = [SALU], [SALU] * 50, 2
    issued = np.zeros(rounds * (len(quick) + len(slow)))
    run(trace(quick, slow), 1, MACHINE, LATENCY, issued=issued, rounds=rounds)
    assert issued[1] == issued[rounds * len(quick) + len(slow)] == 50 * ISSUE + MACHINE.barrier_latency


def test_empty_trace() -> None:
    with pytest.raises(SimulationError, match="empty trace"):
        cycles([])
