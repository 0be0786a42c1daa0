"""Computes the cycles of workgroups on one CU, by a replay of their traces."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.errors import SimulationError
from mxcomp.sim.timing.chip import Launches
from mxcomp.sim.timing.costs import Costs, Unit
from mxcomp.sim.timing.examination import SIMDS, Examination
from mxcomp.sim.timing.fetch import Code
from mxcomp.sim.timing.parameters import Machine, Parameters
from mxcomp.sim.timing.replay import replay, steps_of
from mxcomp.sim.timing.trace import Trace


class Replayed(NamedTuple):
    """The cycles of workgroups that share a CU, on average over the traces of a launch.

    Attributes:
        cycles: Until all have ended.
        matrix: Cycles that a SIMD's MFMA pipe is busy, on average over SIMDs.
    """

    cycles: float
    matrix: float


class Outcome(NamedTuple):
    """The results of the replay of one trace.

    Attributes:
        cycles: Until the last instruction's effect.
        busy: float64[units]: cycles that each unit was busy, summed over SIMDs.
        waited: float64[units]: cycles that waves waited, by the unit that they waited for.
        misses: Lines that the instruction cache did not hold, and fetched.
    """

    cycles: float
    busy: NDArray[np.float64]
    waited: NDArray[np.float64]
    misses: int


def replayed(
    work: Examination, machine: Machine, latency: float, rate: float, is_first: bool,
    free: frozenset[Unit] = frozenset(),
) -> Replayed:  # fmt: skip
    """Replays the workgroups that a CU runs at the same time.

    Args:
        latency: Cycles from a load's last address to its data.
        rate: Bytes per cycle at which data comes.
        is_first: Whether they are the launch's first batch, which starts together with a cold instruction cache.
            Later ones find a warm one, and each starts when another has ended.
        free: Units that cost nothing.
    """
    cycles = matrix = 0.0
    machine = machine._replace(return_bytes=rate)
    for trace, weight in work.parts:
        if is_first or work.resident == 1:
            one = _together(trace, work.resident, machine, latency, free, not is_first)
        else:
            one = _by_turns(trace, work.resident, machine, latency, free)
        cycles += weight * one.cycles
        matrix += weight * one.matrix
    return Replayed(cycles, matrix)


@lru_cache(maxsize=20_000)
def _together(
    trace: Trace, resident: int, machine: Machine, latency: float, free: frozenset[Unit], warm: bool
) -> Replayed:
    outcome = run(trace, resident, machine, latency, free, warm=warm)
    return Replayed(outcome.cycles, float(outcome.busy[Unit.MATRIX]) / SIMDS)


_ROUNDS = 3
"""The number of workgroups that follow each other in a resident slot; the last but one is measured."""


@lru_cache(maxsize=20_000)
def _by_turns(trace: Trace, resident: int, machine: Machine, latency: float, free: frozenset[Unit]) -> Replayed:
    """Returns the cycles between the starts of successive workgroups in a slot, with all other slots occupied."""
    alone = run(trace, 1, machine, latency, free, warm=True)
    waves = len(trace.codes)
    begin = np.repeat(np.arange(resident) * alone.cycles / resident, waves)
    ready = _prepared(trace, resident, _ROUNDS)
    issued = np.zeros(len(ready.codes))
    run(trace, resident, machine, latency, free, issued, begin, _ROUNDS, warm=True)
    steps = len(trace.codes[0])
    firsts = ready.starts[:-1:waves]
    periods = issued[firsts + 2 * steps] - issued[firsts + steps]
    return Replayed(float(periods.mean()), resident * float(alone.busy[Unit.MATRIX]) / SIMDS)


def run(
    trace: Trace, resident: int, machine: Machine, latency: float, free: frozenset[Unit] = frozenset(),
    issued: NDArray[np.float64] | None = None, begin: NDArray[np.float64] | None = None, rounds: int = 1,
    warm: bool = False,
) -> Outcome:  # fmt: skip
    """Replays so many workgroups with the same trace; fills `issued`, float64[steps], with the cycles of issue.

    Args:
        begin: float64[waves]: the cycles when waves start; None: 0.
        rounds: How often each workgroup is executed in a row.
        warm: Workgroups of the same kernel were there before: what of it fits into the instruction cache is there.

    Raises SimulationError for an empty trace.
    """
    if not trace.steps:
        raise SimulationError("empty trace: the workgroup executes nothing")
    ready = _prepared(trace, resident, rounds)
    machine = Machine(*map(float, machine))  # Numba would compile `replay`, for seconds, for each mixture with integers
    conflicts = ready.conflicts
    if Unit.LDS in free:
        machine = machine._replace(lds_row=0.0, lds_return=inf, lds_direct=inf, lds_latency=0.0)
        conflicts = 0.0 * conflicts
    if Unit.FETCH in free:
        machine = machine._replace(fetch_latency=0.0)

    def once(code: Code) -> Outcome:
        end, busy, waited, misses = replay(
            machine, _without(ready.costs, free).arrays(), code, ready.codes, ready.starts, ready.simds, ready.groups,
            np.zeros(len(ready.simds)) if begin is None else begin, ready.accesses,
            np.full(len(ready.nbytes), latency), ready.lines, ready.nbytes, conflicts,
            np.zeros(1) if issued is None else issued, issued is not None, rounds,
        )  # fmt: skip
        return Outcome(float(end), busy, waited, int(misses))

    code = Code.of(ready.ranges, machine)
    if warm and code.fits(machine):
        code = code.complete()
    elif warm:
        once(code)
        code = code.later()
    return once(code)


Issues = tuple[NDArray[np.int32], NDArray[np.float64]]
"""The numbers of the instructions that a wave executes, and the cycles when they issue."""


def first_issues(work: Examination, trace: Trace, p: Parameters) -> list[Issues]:
    """Returns what waves issue of the workgroups that share a CU in a launch's first batch."""
    latency, rate = (float(column[0]) for column in Launches.of([work]).rates(p, True))
    issued = np.zeros(work.resident * trace.steps)
    run(trace, work.resident, p.machine._replace(return_bytes=rate), latency, issued=issued)
    return of_waves(trace, issued)


def of_waves(trace: Trace, issued: NDArray[np.float64]) -> list[Issues]:
    """Returns by wave what `run` has filled of one or several workgroups with that trace."""
    codes = trace.codes * (len(issued) // trace.steps)
    return list(zip(codes, np.split(issued, steps_of(codes)[1:-1]), strict=True))


def _without(costs: Costs, free: frozenset[Unit]) -> Costs:
    """Returns costs in which units take no time; SCALAR stands for the issue of all instructions."""
    if not free:
        return costs
    changed = {"busy": np.where(np.isin(costs.unit, list(free)), 0, costs.busy)}
    if Unit.SCALAR in free:
        changed["issue"] = np.zeros_like(costs.unit)
    return costs.replaced(**changed)


class _Prepared(NamedTuple):
    costs: Costs
    ranges: NDArray[np.int64]
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    simds: NDArray[np.int64]
    groups: NDArray[np.int64]
    accesses: NDArray[np.int32]
    lines: NDArray[np.float64]
    nbytes: NDArray[np.float64]
    conflicts: NDArray[np.float64]


@lru_cache(maxsize=512)
def _prepared(trace: Trace, resident: int, rounds: int) -> _Prepared:
    """Arrays for `replay`. Waves go to the SIMDs by turns."""
    waves = len(trace.codes)
    codes = tuple(np.tile(wave, rounds) for wave in trace.codes) * resident
    accesses = tuple(np.tile(wave, rounds) for wave in trace.accesses) * resident
    return _Prepared(
        costs=Costs.of(trace.instructions),
        ranges=np.array([(i.offset, i.end) for i in trace.instructions], np.int64).T,
        codes=np.concatenate(codes),
        starts=steps_of(codes),
        simds=np.arange(waves * resident) % SIMDS,
        groups=np.arange(waves * resident) // waves,
        accesses=np.concatenate(accesses),
        lines=np.diff(trace.first).astype(float),
        nbytes=trace.nbytes.astype(float),
        conflicts=trace.conflicts.astype(float),
    )
