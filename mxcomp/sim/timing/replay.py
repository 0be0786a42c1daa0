"""Models a compute unit event by event: when each instruction of a few waves issues, and what it waits for.

Waves issue in order of time. Among those that could issue at the same time the one of the highest priority does
(s_setprio), then the oldest: a wave's priority is {SPIPrio + UserPrio, WaveAge} (CDNA3 ISA, S_SETPRIO). An instruction
issues when its wave is free, the data that it waits for has arrived, registers that matrix instructions write are
ready, and its unit is free:

- VECTOR and MATRIX: one of each for a SIMD, busy for the instruction's passes. With a matrix instruction its SIMD may
  issue no other one, of memory neither, and none for some cycles behind it; scalars and waits are no matter of a SIMD.
- LDS: a queue for each pair of SIMDs, which the CU serves in order, a row of banks at a time; bank conflicts come on
  top, and what direct loads write. Data goes back on a bus of the pair. SIMDs that want it at the same time take turns.
- GLOBAL: one for the CU, with a queue. Addresses take cycles by cache line; data comes back in order, some bytes a
  cycle, after a latency that each access has; so many bytes are in flight at most.
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
_PACKED, _AWAY = UNITS, UNITS + 1
"""Further values of what a wave wants: packed float32; and nothing, at a barrier or after its end."""
_SIMDS = 4
_PAIRS = 2
"""The number of pairs of SIMDs (0 and 2, 1 and 3), each of which has a queue and a bus of LDS (gfx950-gluon-tutorials,
docs/lds_throughput.md)."""
_RING = 128
_FLIGHT = 1024
"""The number of loads in flight that are tracked."""


@njit(cache=True, boundscheck=False)
def replay(
    machine: Any, costs: Any, program: Any, codes: Any, starts: Any, simds: Any, groups: Any, begin: Any,
    accesses: Any, latency: Any, lines: Any, nbytes: Any, conflicts: Any, issued: Any, kept: bool, rounds: int,
) -> Any:  # fmt: skip
    """Returns the cycles until the last wave ends; fills `issued` if it is to be kept.

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
    (unit, issue, busy, vector, lgkm, counts_vector, counts_lgkm, direct, store, written, written_end, accumulator,
     is_scaled, is_packed, is_slow, is_narrow, rows, given, first, reads) = costs  # fmt: skip
    # What NumPy has for this, where and diff, would take Numba longer to compile than all else here.
    wanted = unit.astype(np.int64)  # by instruction
    wanted[is_packed] = _PACKED
    waves = len(starts) - 1
    position = starts[:-1].copy()
    length = (starts[1:] - position) // rounds
    until = position + length  # where a wave's present workgroup ends
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
    opens = np.zeros((_SIMDS, _AWAY + 1))  # when what a wave wants may begin
    opens[:, _AWAY] = np.inf
    wants = np.full(waves, _AWAY)
    memory_free = np.zeros(_SIMDS)  # the port of LDS and vector memory instructions
    held = np.zeros(_SIMDS)  # no vector, matrix or memory instruction issues before
    added = np.zeros((waves, 512))  # when a matrix instruction has added to a row
    is_limited = machine.in_flight < np.inf
    depth = int(machine.lds_queue)
    queue, queued = np.zeros((_PAIRS, depth)), np.zeros(_PAIRS, np.int64)  # when the last ones of a queue leave it
    bus_free = np.zeros(_PAIRS)
    arriving, arrived, bringing = np.zeros((2, _FLIGHT)), 0, 0  # direct loads: when, and how long LDS writes them
    flight, oldest, newest, moving = np.zeros((2, _FLIGHT)), 0, 0, 0.0  # loads: when they are there, and their bytes
    requests, requested = np.zeros(int(machine.requests)), 0  # when the last ones' addresses are through
    lds_free, global_free = 0.0, 0.0
    returned = 0.0
    used = np.zeros(UNITS)
    waited = np.zeros(UNITS)
    end = 0.0
    last_line = program.last
    complete = np.isfinite(program.there).all()  # then nothing is ever fetched
    misses = 0
    for w in range(waves):
        if position[w] < starts[w + 1]:
            wants[w] = wanted[codes[position[w]]]
            if not complete:
                own[w], brought = fetched(machine, program, codes[position[w]], begin[w])
                why[w] = _FETCH
                misses += brought
    while True:
        # the next wave: the earliest issue
        best, when = -1, np.inf
        for w in range(waves):
            s = simds[w]
            t = max(own[w], opens[s, wants[w]])
            if is_limited and wants[w] == _GLOBAL and t <= when and not store[codes[position[w]]]:
                left, k = moving + nbytes[accesses[position[w]]], oldest
                while left > machine.in_flight and k < newest:
                    t = max(t, flight[0, k % _FLIGHT])
                    left -= flight[1, k % _FLIGHT]
                    k += 1
            if t < when:
                best, when = w, t
            elif t == when < np.inf:
                other = simds[best]
                if s != other:  # each issues by itself; for what they share, the one that waited longest
                    if memory_free[s] < memory_free[other]:
                        best = w
                elif (wants[w] == _MATRIX) != (wants[best] == _MATRIX):  # nothing else begins with it
                    if wants[w] == _MATRIX:
                        best = w
                elif (priority[w], -age[w]) > (priority[best], -age[best]):
                    best = w
        if best < 0:
            break
        w, s = best, simds[best]
        step = position[w]
        code = codes[step]
        kind = unit[code]
        if own[w] > free[w]:
            waited[why[w]] += own[w] - free[w]
        if when > own[w]:
            waited[kind] += when - max(own[w], free[w])
        done = when
        next_issue = float(issue[code])
        if kind == _VECTOR:
            taken = float(busy[code])
            if is_slow[code] and taken > 0.0:
                taken = machine.transcendental
                next_issue = taken
            opens[s, _VECTOR] = when + taken
            opens[s, _PACKED] = max(opens[s, _PACKED], when + taken)
            used[_VECTOR] += taken
            for row in range(written[code], written_end[code]):
                ready[w, row] = max(ready[w, row], when + machine.vector_latency)
        elif kind == _MATRIX:
            opens[s, _MATRIX] = when + busy[code]
            opens[s, _PACKED] = max(opens[s, _PACKED], when + busy[code] + machine.packed_wait)
            used[_MATRIX] += busy[code]
            held[s] = when + machine.matrix_hold + (machine.scale_hold if is_scaled[code] else 0.0)
            for k in (_VECTOR, _MATRIX, _LDS, _GLOBAL, _PACKED):
                opens[s, k] = max(opens[s, k], held[s])
            for row in range(written[code], written_end[code]):
                ready[w, row] = when + busy[code] + machine.matrix_latency
                added[w, row] = when + busy[code] + machine.accumulate_latency
        elif kind == _LDS:
            access, pair = accesses[step], s % _PAIRS
            cycles = rows[code] * machine.lds_row + conflicts[access]
            while arrived < bringing and arriving[0, arrived % _FLIGHT] <= max(when, lds_free):
                lds_free = max(lds_free, arriving[0, arrived % _FLIGHT]) + arriving[1, arrived % _FLIGHT]
                arrived += 1
            lds_free = max(lds_free, when) + cycles
            leaves = lds_free
            if not store[code]:
                bus_free[pair] = max(bus_free[pair], lds_free - cycles) + nbytes[access] / machine.lds_return
                leaves = max(leaves, bus_free[pair])
            queue[pair, queued[pair] % depth] = leaves
            queued[pair] += 1
            memory_free[s] = when + machine.memory_issue
            opens[s, _GLOBAL] = max(opens[s, _GLOBAL], memory_free[s])
            for other in range(pair, _SIMDS, _PAIRS):
                opens[other, _LDS] = max(
                    memory_free[other], held[other], queue[pair, queued[pair] % depth], when + machine.lds_start
                )
            used[_LDS] += cycles
            done = leaves + machine.lds_latency
        elif kind == _GLOBAL:
            access = accesses[step]
            memory_free[s] = when + machine.memory_issue
            opens[s, _LDS] = max(opens[s, _LDS], memory_free[s])
            begun = max(when, global_free)
            cycles = max(lines[access] * machine.line_cycles * (machine.narrow_lines if is_narrow[code] else 1.0), 4.0)
            if store[code]:
                cycles = max(cycles, nbytes[access] / machine.store_bytes)
                done = begun + cycles + machine.store_latency
            else:
                moved = nbytes[access] / machine.return_bytes
                returned = max(returned, begun + cycles + latency[access]) + moved
                done = returned
                if direct[code]:
                    used[_LDS] += nbytes[access] / machine.lds_direct
                    arriving[0, bringing % _FLIGHT] = returned
                    arriving[1, bringing % _FLIGHT] = nbytes[access] / machine.lds_direct
                    bringing += 1
                    arrived = max(arrived, bringing - _FLIGHT)
                while oldest < newest and (flight[0, oldest % _FLIGHT] <= when or newest - oldest >= _FLIGHT):
                    moving -= flight[1, oldest % _FLIGHT]
                    oldest += 1
                flight[0, newest % _FLIGHT], flight[1, newest % _FLIGHT] = returned, nbytes[access]
                newest += 1
                moving += nbytes[access]
            global_free = begun + cycles
            requests[requested % len(requests)] = global_free
            requested += 1
            for other in range(_SIMDS):
                opens[other, _GLOBAL] = max(memory_free[other], held[other], requests[requested % len(requests)])
            used[_GLOBAL] += cycles
        elif kind == _SCALAR_MEMORY:
            opens[:, _SCALAR_MEMORY] = when + 4.0
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
        free[w] = when + next_issue
        own[w] = free[w]
        position[w] = step + 1
        end = max(end, done)
        if kind == _BARRIER:
            at_barrier[w] = True
        elif position[w] == until[w] and position[w] < starts[w + 1]:
            until[w] += length[w]
            at_barrier[w], priority[w], age[w] = True, 0, born
            born += 1
        # what the next instruction of this wave waits for
        wants[w] = _AWAY
        if position[w] < starts[w + 1]:
            code = codes[position[w]]
            if not at_barrier[w]:
                wants[w] = wanted[code]
            why[w] = _NONE
            if not complete and last_line[code] != last_line[codes[step]]:
                own[w], brought = fetched(machine, program, code, free[w])
                why[w] = _FETCH
                misses += brought
            for k in range(first[code], first[code + 1]):
                if ready[w, reads[k]] > own[w]:
                    own[w] = ready[w, reads[k]]
                    why[w] = _MATRIX
            if accumulator[code] >= 0 and added[w, accumulator[code]] > own[w]:
                own[w] = added[w, accumulator[code]]
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
                        if position[v] < starts[v + 1]:
                            wants[v] = wanted[codes[position[v]]]
                        if latest + machine.barrier_latency > own[v]:
                            waited[_BARRIER] += latest + machine.barrier_latency - own[v]
                            own[v] = latest + machine.barrier_latency
                            free[v] = own[v]
    return end, used, waited, misses


def steps_of(codes: tuple[NDArray[np.int32], ...]) -> NDArray[np.int64]:
    """Returns the index at which each wave begins in arrays of all waves."""
    return np.concatenate([[0], np.cumsum([len(wave) for wave in codes])]).astype(np.int64)
