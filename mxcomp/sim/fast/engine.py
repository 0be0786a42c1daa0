"""The fast engine: runs waves of compiled kernels, and steps the oracle where compiled code stops."""

from __future__ import annotations

import ctypes
import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.hazards import HazardTracker
from mxcomp.sim.checks.waits import Outstanding
from mxcomp.sim.counters import Counters, events, memory_event
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.fast import jit
from mxcomp.sim.fast.frame import MODE_SLOT, SCC_SLOT, SGPR_SLOTS, Env, Status
from mxcomp.sim.fast.kernel import NAME, Segment, kernel_text, segments
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.numpy_engine import Line, _open_barrier, _run_wave
from mxcomp.sim.oracle.wave import BARRIER, END, Group, Wave
from mxcomp.sim.program import Program
from mxcomp.sim.semantics.memory import parse

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_SGPRS = 128


class Lines(dict[int, Line]):
    """The oracle's closures, made when they are needed."""

    def __init__(self, instructions: Mapping[int, Instruction]) -> None:
        self._instructions = instructions

    def get(self, address: int, default: Any = None) -> Any:
        if address not in self and address in self._instructions:
            self[address] = Line.of(self._instructions[address])
        return super().get(address, default)


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """A program ready to run."""

    parts: list[Segment]
    library: jit.Compiled
    call: Any
    lines: Lines
    starts: frozenset[int]
    names: tuple[str, ...]
    weights: NDArray[np.int64]

    @classmethod
    def of(cls, program: Program) -> CompiledKernel:
        kernel = program.kernel
        parts = segments(program)
        text = hashlib.sha256(kernel.module.text).hexdigest()
        key = f"{kernel.name} {kernel.entries} {kernel.module.text_address} {text}"
        library = jit.cached(key, lambda: kernel_text(parts), NAME)
        starts = frozenset(part.start for part in parts)
        return cls(parts, library, _FUNCTION(library.address), Lines(program.instructions), starts, *_weights(parts))

    def counters(self, counts: NDArray[np.int64]) -> Counters:
        """Events of executed segments, and bytes of their last instructions."""
        totals = counts.reshape(-1) @ self.weights
        return Counter({name: int(total) for name, total in zip(self.names, totals.tolist(), strict=True) if total})


def _weights(parts: list[Segment]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """What each of a segment's two counters, executions and lanes, adds to which event."""
    rows: list[Counters] = []
    for part in parts:
        rows.append(Counter(event for i in part.instructions for event in events(i)))
        last = part.instructions[-1]
        op = parse(last.mnemonic)
        rows.append(Counter() if op is None else Counter({f"{memory_event(last)}.bytes": op.size * op.accesses}))
    names = tuple(sorted(set().union(*rows)))
    return names, np.array([[row[name] for name in names] for row in rows], np.int64)


class FastEngine:
    """See the module. Checks other than these need the oracle: ask for engine "numpy"."""

    name = "fast"
    checks = frozenset({"bounds"})

    def __init__(self) -> None:
        self._kernels: dict[Program, CompiledKernel] = {}

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        if missing := dispatch.checks - self.checks:
            raise SimulationError(f"engine 'fast' cannot check {', '.join(sorted(missing))}: use engine 'numpy'")
        kernel = self._kernels.get(dispatch.program)
        if kernel is None:
            kernel = self._kernels[dispatch.program] = CompiledKernel.of(dispatch.program)
        with np.errstate(all="ignore"):
            return {number: FastGroup(dispatch, number, kernel).run() for number in dispatch.workgroups}


class FastGroup:
    """A workgroup in the state of the oracle, which compiled code works on."""

    def __init__(self, dispatch: Dispatch, number: Workgroup, kernel: CompiledKernel) -> None:
        self.dispatch, self.number, self.kernel = dispatch, number, kernel
        self.group = Group(dispatch, number)
        self.counts = np.zeros((len(kernel.parts), 2), np.int64)
        self.extra: Counters = Counter()
        self._starts, self._ends = dispatch.memory.ranges()
        waves = [Wave(self.group, k, dispatch.wave_start(number, k)) for k in range(dispatch.waves)]
        self.group.shadow.waves = waves
        self.waves = [FastWave(self, wave) for wave in waves]

    def run(self) -> Counters:
        turns, executed = self.dispatch.schedule.turns(self.number), 0
        limit = self.dispatch.max_instructions
        while True:
            states = [wave.state for wave in self.waves]
            running = [k for k, wave in enumerate(states) if wave.state == 0]
            if not running:
                if all(wave.state == END for wave in states):
                    break
                _open_barrier(self.group, states)
                continue
            for k, most in turns.round(running):
                executed += self.waves[k].run(min(most, limit - executed + 1))
                if executed > limit:
                    raise SimulationError(
                        f"workgroup {self.number}: more than {limit} instructions, an endless loop? "
                        f"wave {k} at {states[k].pc:#x}"
                    )
        total = self.kernel.counters(self.counts) + self.extra
        for wave in self.waves:
            total.update(wave.state.counters)
            if cycles := int(wave.env[Env.CONFLICTS]):
                total["lds.conflict.cycles"] += cycles
        return total

    def environment(self, wave: Wave) -> NDArray[np.int64]:
        """Addresses in the simulator's own memory."""
        dispatch, memory = self.dispatch, self.dispatch.memory
        env = np.zeros(len(Env), np.int64)
        env[Env.PC] = dispatch.entry
        env[Env.DATA], env[Env.WRITTEN] = memory.data.ctypes.data, memory.written.ctypes.data
        env[Env.STARTS], env[Env.ENDS] = self._starts.ctypes.data, self._ends.ctypes.data
        env[Env.RANGES] = len(self._starts)
        env[Env.LDS], env[Env.LDS_BYTES] = self.group.lds.ctypes.data, dispatch.lds_bytes
        if dispatch.scratch_bytes:
            scratch = wave.private()
            env[Env.SCRATCH], env[Env.SCRATCH_BYTES] = scratch.ctypes.data, scratch.shape[1]
        env[Env.LOAD_BIAS], env[Env.COUNTS] = dispatch.load_bias, self.counts.ctypes.data
        env[Env.LOW] = 1  # an empty range
        return env


class FastWave:
    """A wave: the oracle's state, and its scalar registers as compiled code has them."""

    def __init__(self, group: FastGroup, state: Wave) -> None:
        self.group, self.state = group, state
        self.scalars = np.zeros(SGPR_SLOTS, np.uint32)
        self.env = group.environment(state)
        self._tracker = HazardTracker()
        self._pointers = (state.v.ctypes.data, self.scalars.ctypes.data, self.env.ctypes.data)
        self._from_oracle()

    def run(self, most: int) -> int:
        """Goes on for `most` instructions, more or less: a segment waits until the turns so far pay for all of it.

        Only the last instruction of a segment is visible to other waves, so the order of what they see is the oracle's.
        Returns how many instructions were paid for.
        """
        before = int(self.env[Env.BUDGET])
        self.env[Env.BUDGET] += most
        status = self._until_attention()
        executed = before + most - int(self.env[Env.BUDGET])
        if status is not Status.TURN:
            self.state.state = END if status is Status.END else BARRIER
            self.env[Env.BUDGET] = 0
        self.state.pc = int(self.env[Env.PC])
        return executed

    def _until_attention(self) -> Status:
        while True:
            status = Status(self.group.kernel.call(*self._pointers))
            if status is not Status.STEP:
                return status
            self._to_oracle()
            self._step()
            while self.state.state == 0 and not self._compiled_goes_on():
                if self.env[Env.BUDGET] < 1:
                    status = Status.TURN
                    break
                self.env[Env.BUDGET] -= 1
                line = self.group.kernel.lines.get(self.state.pc)
                self._step()
                self.group.extra.update(events(line.instruction))
            self._from_oracle()
            if self.state.state:
                return Status.END if self.state.state == END else Status.BARRIER
            if status is Status.TURN:
                return status

    def _compiled_goes_on(self) -> bool:
        return self.state.index_mode is None and self.state.pc in self.group.kernel.starts

    def _step(self) -> None:
        """One instruction, by the oracle."""
        _run_wave(self.state, self.group.kernel.lines, 1, self._tracker)
        self.state.outstanding = Outstanding()

    def _to_oracle(self) -> None:
        state = self.state
        state.s = self.scalars[:_SGPRS].tolist()
        state.scc, state.mode = int(self.scalars[SCC_SLOT]), int(self.scalars[MODE_SLOT])
        state.pc = int(self.env[Env.PC])
        state.update_exec()

    def _from_oracle(self) -> None:
        state = self.state
        self.scalars[:_SGPRS] = state.s
        self.scalars[SCC_SLOT], self.scalars[MODE_SLOT] = state.scc, state.mode
        self.env[Env.PC] = state.pc
