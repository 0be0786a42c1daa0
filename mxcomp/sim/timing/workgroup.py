"""The cycles of workgroups on one CU: a replay of their traces."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.errors import SimulationError
from mxcomp.sim.timing.costs import Costs, Unit, costs_of
from mxcomp.sim.timing.examine import SIMDS, Examination
from mxcomp.sim.timing.replay import Machine, replay, steps_of
from mxcomp.sim.timing.trace import Trace


class Replayed(NamedTuple):
    """Workgroups that share a CU.

    Attributes:
        cycles: Until all have ended.
        matrix: Cycles that a SIMD's MFMA pipe is busy, on average over SIMDs.
    """

    cycles: float
    matrix: float


class Outcome(NamedTuple):
    """What a replay gives.

    Attributes:
        cycles: Until the last instruction's effect.
        busy: float64[units]: cycles that each unit was busy, summed over SIMDs.
        waited: float64[units]: cycles that waves waited, by the unit that they waited for.
    """

    cycles: float
    busy: NDArray[np.float64]
    waited: NDArray[np.float64]


def replayed(
    work: Examination, machine: Machine, latency: float, rate: float, free: frozenset[Unit] = frozenset()
) -> Replayed:
    """Replays the workgroups that a CU runs at the same time.

    Args:
        latency: Cycles from a load's last address to its data.
        rate: Bytes per cycle at which data comes.
        free: Units that cost nothing.
    """
    cycles = matrix = 0.0
    for trace, weight in work.parts:
        one = _replayed(trace, work.resident, machine._replace(return_bytes=rate), latency, free)
        cycles += weight * one.cycles
        matrix += weight * one.matrix
    return Replayed(cycles, matrix)


@lru_cache(maxsize=20_000)
def _replayed(trace: Trace, resident: int, machine: Machine, latency: float, free: frozenset[Unit]) -> Replayed:
    outcome = run(trace, resident, machine, latency, free)
    return Replayed(outcome.cycles, float(outcome.busy[Unit.MATRIX]) / SIMDS)


def run(
    trace: Trace, resident: int, machine: Machine, latency: float, free: frozenset[Unit] = frozenset(),
    issued: NDArray[np.float64] | None = None,
) -> Outcome:  # fmt: skip
    """Replays so many workgroups with the same trace; fills `issued`, float64[steps], with the cycles of issue.

    Raises SimulationError for an empty trace.
    """
    if not trace.steps:
        raise SimulationError("empty trace: the workgroup executes nothing")
    ready = _prepared(trace, resident)
    conflicts = ready.conflicts
    if Unit.LDS in free:
        machine = machine._replace(lds_read=1e12, lds_write=1e12, lds_latency=0.0)
        conflicts = 0.0 * conflicts
    end, busy, waited = replay(
        machine, _without(ready.costs, free).arrays(), ready.codes, ready.starts, ready.simds, ready.groups,
        ready.accesses, np.full(len(ready.nbytes), latency), ready.lines, ready.nbytes, conflicts,
        np.zeros(1) if issued is None else issued, issued is not None,
    )  # fmt: skip
    return Outcome(float(end), busy, waited)


def _without(costs: Costs, free: frozenset[Unit]) -> Costs:
    """Costs with units that take no time; SCALAR stands for the issue of all instructions."""
    if not free:
        return costs
    changed: dict[str, Any] = {name: getattr(costs, name) for name in costs.__dataclass_fields__}
    for unit in free:
        changed["busy"] = np.where(costs.unit == unit, 0, changed["busy"])
    if Unit.SCALAR in free:
        changed["issue"] = np.zeros_like(costs.issue)
    return Costs(**changed)


class _Prepared(NamedTuple):
    costs: Costs
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    simds: NDArray[np.int64]
    groups: NDArray[np.int64]
    accesses: NDArray[np.int32]
    lines: NDArray[np.float64]
    nbytes: NDArray[np.float64]
    conflicts: NDArray[np.float64]


@lru_cache(maxsize=512)
def _prepared(trace: Trace, resident: int) -> _Prepared:
    """Arrays for `replay`. Waves go to the SIMDs by turns."""
    waves = len(trace.codes)
    return _Prepared(
        costs=costs_of(trace.instructions),
        codes=np.concatenate(trace.codes * resident),
        starts=steps_of(trace.codes * resident),
        simds=np.arange(waves * resident) % SIMDS,
        groups=np.arange(waves * resident) // waves,
        accesses=np.concatenate(trace.accesses * resident),
        lines=np.diff(trace.first).astype(float),
        nbytes=trace.nbytes.astype(float),
        conflicts=trace.conflicts.astype(float),
    )
