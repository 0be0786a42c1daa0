"""A compute unit, event by event: when each instruction of a few waves issues, and what it waits for.

Waves issue in the order of time. Of those that could at the same time the one with the highest priority does
(s_setprio), of these the oldest: a wave's priority is {SPIPrio + UserPrio, WaveAge} (CDNA3 ISA, S_SETPRIO). An
instruction issues when its wave is free, what it waits for has arrived, registers that matrix instructions write are
ready, and its unit is free:

- VECTOR and MATRIX: one of each for a SIMD, busy for the instruction's passes.
- LDS: one for the CU; reads and writes move some bytes a cycle, bank conflicts come on top. What direct loads write is
  counted, and takes no time from others.
- GLOBAL: one for the CU. Addresses take cycles by cache line; data comes back in order, some bytes a cycle, after a
  latency that each access has, however much is in flight.
- Barriers open when all waves of a workgroup have arrived.
- FETCH: what the instruction cache does not hold is waited for (`fetch`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mxcomp.sim.timing.costs import UNITS, Unit
from mxcomp.sim.timing.fetch import fetched

_NONE, _SCALAR, _VECTOR, _MATRIX = int(Unit.NONE), int(Unit.SCALAR), int(Unit.VECTOR), int(Unit.MATRIX)
_LDS, _GLOBAL, _SCALAR_MEMORY, _BARRIER = int(Unit.LDS), int(Unit.GLOBAL), int(Unit.SCALAR_MEMORY), int(Unit.BARRIER)
_FETCH = int(Unit.FETCH)
_SIMDS = 4
_RING = 128


@njit(cache=True, boundscheck=False)
def replay(
    machine: Any, costs: Any, program: Any, codes: Any, starts: Any, simds: Any, groups: Any, begin: Any,
    accesses: Any, latency: Any, lines: Any, nbytes: Any, conflicts: Any, issued: Any, kept: bool, rounds: int,
) -> Any:  # fmt: skip
    """Cycles until the last wave ends; fills `issued` if it is to be kept.

    Args:
        costs: `Costs.arrays()`.
        program: `Code`, the instruction cache, which is left as the waves leave it.
        codes, accesses: Of all waves, one after another; wave w from starts[w] to starts[w + 1].
        simds, groups, begin: SIMD and workgroup of each wave, and the cycle when it starts.
        latency, lines, nbytes, conflicts: Of each access.
        issued: float64[steps].
        rounds: Workgroups that each wave's instructions are of, one after the other: the next begins when all waves of
            the one before have ended.
    Returns:
        (cycles, cycles that each unit was busy, cycles that waves waited by the unit of what they waited for, lines
        that the instruction cache had to fetch).
    """
    (unit, issue, busy, vector, lgkm, counts_vector, counts_lgkm, direct, store,
     first, reads, written, written_end, given) = costs  # fmt: skip
    waves = len(starts) - 1
    position = starts[:-1].copy()
    length = np.diff(starts) // rounds
    priority = np.zeros(waves, np.int64)
    age = np.arange(waves)  # by order of birth
    born = waves
    free = begin.copy()  # when a wave may issue
    own = begin.copy()  # when its next instruction may, but for its unit
    why = np.zeros(waves, np.int64)
    ready = np.zeros((waves, 512))
    vector_ring, vector_count = np.zeros((waves, _RING)), np.zeros(waves, np.int64)
    lgkm_ring, lgkm_count = np.zeros((waves, _RING)), np.zeros(waves, np.int64)
    lgkm_latest = np.zeros(waves)
    at_barrier = np.zeros(waves, np.bool_)
    vector_free, matrix_free = np.zeros(_SIMDS), np.zeros(_SIMDS)
    lds_free = 0.0
    global_free = 0.0
    returned = 0.0
    scalar_free = 0.0
    used = np.zeros(UNITS)
    waited = np.zeros(UNITS)
    end = 0.0
    last_line = program.last
    complete = np.isfinite(program.there).all()  # then nothing is ever fetched
    misses = 0
    for w in range(waves):
        if position[w] == starts[w + 1]:
            own[w] = np.inf
        elif complete:
            continue
        else:
            own[w], brought = fetched(machine, program, codes[position[w]], begin[w])
            why[w] = _FETCH
            misses += brought
    while True:
        # the next wave: the earliest issue
        best, when = -1, np.inf
        for w in range(waves):
            if at_barrier[w] or position[w] == starts[w + 1]:
                continue
            kind = unit[codes[position[w]]]
            t = own[w]
            if kind == _VECTOR:
                t = max(t, vector_free[simds[w]])
            elif kind == _MATRIX:
                t = max(t, matrix_free[simds[w]])
            elif kind == _LDS:
                t = max(t, lds_free)
            elif kind == _GLOBAL:
                t = max(t, global_free)
            elif kind == _SCALAR_MEMORY:
                t = max(t, scalar_free)
            if t < when or (t == when and (priority[w], -age[w]) > (priority[best], -age[best])):
                best, when = w, t
        if best < 0:
            break
        w = best
        step = position[w]
        code = codes[step]
        kind = unit[code]
        if own[w] > free[w]:
            waited[why[w]] += own[w] - free[w]
        if when > own[w]:
            waited[kind] += when - max(own[w], free[w])
        done = when
        if kind == _VECTOR:
            vector_free[simds[w]] = when + busy[code]
            used[_VECTOR] += busy[code]
        elif kind == _MATRIX:
            matrix_free[simds[w]] = when + busy[code]
            used[_MATRIX] += busy[code]
            for row in range(written[code], written_end[code]):
                ready[w, row] = when + busy[code] + machine.matrix_latency
        elif kind == _LDS:
            access = accesses[step]
            rate = machine.lds_write if store[code] else machine.lds_read
            cycles = nbytes[access] / rate + conflicts[access]
            lds_free = when + cycles
            used[_LDS] += cycles
            done = when + cycles + machine.lds_latency
        elif kind == _GLOBAL:
            access = accesses[step]
            cycles = max(lines[access] * machine.line_cycles, 4.0)
            if store[code]:
                cycles = max(cycles, nbytes[access] / machine.store_bytes)
                done = when + cycles + machine.store_latency
            else:
                moved = nbytes[access] / machine.return_bytes
                returned = max(returned, when + cycles + latency[access]) + moved
                done = returned
                if direct[code]:
                    used[_LDS] += nbytes[access] / machine.lds_write
            global_free = when + cycles
            used[_GLOBAL] += cycles
        elif kind == _SCALAR_MEMORY:
            scalar_free = when + 4.0
            done = when + machine.scalar_latency
        if counts_vector[code]:
            slot = vector_count[w] % _RING
            before = vector_ring[w, (vector_count[w] - 1) % _RING] if vector_count[w] else 0.0
            vector_ring[w, slot] = max(done, before)
            vector_count[w] += 1
        if counts_lgkm[code]:
            slot = lgkm_count[w] % _RING
            lgkm_latest[w] = max(lgkm_latest[w], done)
            lgkm_ring[w, slot] = lgkm_latest[w]
            lgkm_count[w] += 1
        if given[code] >= 0:
            priority[w] = given[code]
        if kept:
            issued[step] = when
        free[w] = when + issue[code]
        own[w] = free[w]
        position[w] = step + 1
        end = max(end, done)
        if kind == _BARRIER:
            at_barrier[w] = True
        elif rounds > 1 and position[w] < starts[w + 1] and (position[w] - starts[w]) % length[w] == 0:
            at_barrier[w], priority[w], age[w] = True, 0, born
            born += 1
        # what the next instruction of this wave waits for
        if position[w] < starts[w + 1]:
            code = codes[position[w]]
            why[w] = _NONE
            if not complete and last_line[code] != last_line[codes[step]]:
                own[w], brought = fetched(machine, program, code, free[w])
                why[w] = _FETCH
                misses += brought
            for k in range(first[code], first[code + 1]):
                if ready[w, reads[k]] > own[w]:
                    own[w] = ready[w, reads[k]]
                    why[w] = _MATRIX
            if vector[code] < 63 and vector_count[w] > vector[code]:
                t = vector_ring[w, (vector_count[w] - vector[code] - 1) % _RING]
                if t > own[w]:
                    own[w] = t
                    why[w] = _GLOBAL
            if lgkm[code] < 15 and lgkm_count[w] > lgkm[code]:
                t = lgkm_ring[w, (lgkm_count[w] - lgkm[code] - 1) % _RING]
                if t > own[w]:
                    own[w] = t
                    why[w] = _LDS
        if at_barrier[w]:
            opened = True
            latest = 0.0
            for v in range(waves):
                if groups[v] == groups[w]:
                    if not at_barrier[v] and position[v] < starts[v + 1]:
                        opened = False
                    latest = max(latest, free[v] if at_barrier[v] else 0.0)
            if opened:
                for v in range(waves):
                    if groups[v] == groups[w] and at_barrier[v]:
                        at_barrier[v] = False
                        if latest + machine.barrier_latency > own[v]:
                            waited[_BARRIER] += latest + machine.barrier_latency - own[v]
                            own[v] = latest + machine.barrier_latency
                            free[v] = own[v]
    return end, used, waited, misses


def steps_of(codes: tuple[NDArray[np.int32], ...]) -> NDArray[np.int64]:
    """Where each wave begins in arrays of all waves."""
    return np.concatenate([[0], np.cumsum([len(wave) for wave in codes])]).astype(np.int64)
