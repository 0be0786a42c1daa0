"""The instruction cache, on programs of which the cycles are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import checkout
import numpy as np
import pytest

from mxcomp.sim.instruction import Instruction
from mxcomp.sim.timing.aiter import SHORT, Gemm, Kernels
from mxcomp.sim.timing.costs import Unit
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.parameters import Machine, mi355x
from mxcomp.sim.timing.trace import Trace
from mxcomp.sim.timing.workgroup import Outcome, replayed, run

LINE, WAIT, ISSUE = 64, 200, 4
MACHINE = Machine(fetch_bytes=4.0 * LINE, fetch_ways=2.0, fetch_line=LINE, fetch_ahead=0.0, fetch_latency=WAIT)
"""A cache of four lines, two of a set, that reads nothing ahead."""
EACH = LINE // 4
"""Instructions of a line."""


def program(lines: int) -> tuple[Instruction, ...]:
    return tuple(Instruction(0x1000 + 4 * k, 4, "s_mov_b32", "SOP1") for k in range(EACH * lines))


def executed(instructions: tuple[Instruction, ...], *waves: Sequence[int]) -> Trace:
    """A trace of waves that execute these instructions, by number."""
    codes = tuple(np.array(wave, np.int32) for wave in waves)
    none, nothing = tuple(np.full(len(wave), -1, np.int32) for wave in waves), np.zeros(0, np.int64)
    return Trace((0, 0, 0), instructions, codes, none, np.zeros(1, np.int64), nothing, nothing, nothing, Counter())


def loop(lines: int, times: int, machine: Machine = MACHINE, waves: int = 1, warm: bool = False) -> Outcome:
    """Of a body of so many lines; what repeats it is not among them."""
    steps = list(range(EACH * lines)) * times
    return run(executed(program(lines), *[steps] * waves), 1, machine, 500.0, warm=warm)


def cycles(lines: int, waits: int) -> int:
    """When the last instruction of so many lines issues, after so many waits."""
    return waits * WAIT + (EACH * lines - 1) * ISSUE


def test_each_line_is_waited_for_once() -> None:
    cold, warm = (loop(3, times=1, warm=warm) for warm in (False, True))
    assert (cold.cycles, cold.misses, cold.waited[Unit.FETCH]) == (cycles(3, waits=3), 3, 3 * WAIT)
    assert (warm.cycles, warm.misses, warm.waited[Unit.FETCH]) == (cycles(3, waits=0), 0, 0)


def test_a_loop_that_fits_misses_in_its_first_round() -> None:
    outcome = loop(4, times=5)
    assert (outcome.cycles, outcome.misses) == (cycles(20, waits=4), 4)


def test_lines_ahead_come_together() -> None:
    """The second comes with the first. The third is asked for when the second's turn comes, and waited for; meanwhile
    comes the fourth."""
    outcome = loop(4, times=1, machine=MACHINE._replace(fetch_ahead=LINE))
    assert outcome.misses == 4
    assert outcome.cycles == cycles(4, waits=1) + WAIT - EACH * ISSUE
    all_ahead = loop(4, times=1, machine=MACHINE._replace(fetch_ahead=3.0 * LINE))
    assert (all_ahead.cycles, all_ahead.misses) == (cycles(4, waits=1), 4)


def test_waves_wait_for_the_same_line() -> None:
    one, four = loop(2, times=1), loop(2, times=1, waves=4)
    assert (four.cycles, four.misses) == (one.cycles, one.misses)


@pytest.mark.parametrize(("lines", "first", "later"), [(6, 6, 6), (5, 5, 3)])
def test_a_loop_longer_than_the_cache_misses_again(lines: int, first: int, later: int) -> None:
    """Of six lines, three want each set of two: all are gone when their turn comes. Of five, the set of two keeps its
    lines. A workgroup that comes later finds what the one before it has left."""
    cold, warm = (loop(lines, times=4, warm=warm) for warm in (False, True))
    assert cold.misses == first + 3 * later
    assert warm.misses == 4 * later
    assert cold.cycles == cycles(4 * lines, waits=cold.misses)
    assert warm.cycles == cycles(4 * lines, waits=warm.misses)


def test_an_instruction_of_two_lines_wants_both() -> None:
    instructions = (*program(1)[:-1], Instruction(0x1000 + LINE - 4, 8, "s_mov_b32", "SOP1"))
    outcome = run(executed(instructions, range(EACH)), 1, MACHINE, 500.0)
    assert (outcome.cycles, outcome.misses) == (cycles(1, waits=2), 2)


def test_what_is_jumped_over_is_not_fetched() -> None:
    outcome = run(executed(program(4), [0, 3 * EACH, 1]), 1, MACHINE, 500.0)
    assert (outcome.cycles, outcome.misses) == (2 * WAIT + 2 * ISSUE, 2)


def test_first_workgroups_bring_the_code(tmp_path: Path) -> None:
    """And wait for its beginning: the rest of a short kernel is read ahead. Those behind them have it all."""
    work = Kernels(checkout.make(tmp_path)).examine(Gemm(64, 256, 1024, checkout.TILE_M, checkout.TILE_N))
    machine = mi355x().machine
    first, later = (replayed(work, machine, 300.0, 30.0, is_first).cycles for is_first in (True, False))
    free = replayed(work, machine, 300.0, 30.0, True, frozenset({Unit.FETCH})).cycles
    assert later == free
    assert first - later == pytest.approx(machine.fetch_latency)


def test_code_costs_the_same_for_all_k(tmp_path: Path) -> None:
    """So cycles stay straight in K: a longer loop fetches no other lines."""
    kernels = Kernels(checkout.make(tmp_path))
    traces = [kernels._traced(checkout.TILE_M, checkout.TILE_N, checkout.TILE_M, k) for k in SHORT]
    outcomes = [[run(trace, 1, mi355x().machine, 300.0, warm=warm) for warm in (False, True)] for trace in traces]
    short, long = (cold.cycles - warm.cycles for cold, warm in outcomes)
    assert short == pytest.approx(long)
    assert outcomes[0][0].misses == outcomes[1][0].misses > 0


def test_estimates_say_what_fetching_costs(tmp_path: Path) -> None:
    p = mi355x()
    work = Kernels(checkout.make(tmp_path)).examine(Gemm(32, 128, 512, checkout.TILE_M, checkout.TILE_N))
    saved = estimate(work).saved["instruction fetch"]
    assert saved * p.clock_ghz * 1e3 == pytest.approx(p.machine.fetch_latency, rel=1.0)
