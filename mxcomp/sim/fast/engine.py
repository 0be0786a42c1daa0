"""The fast engine: runs waves of compiled kernels, and steps the NumPy engine where compiled code stops."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.journal import ROW_BYTES
from mxcomp.sim.checks.lds import NO_SHADOW
from mxcomp.sim.checks.registers import Facts
from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.checks.trial import Trial
from mxcomp.sim.checks.unwritten import UnwrittenCheck
from mxcomp.sim.checks.waits import Outstanding
from mxcomp.sim.counters import Counters, events, memory_event
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.fast import jit, objects
from mxcomp.sim.fast.frame import MODE_SLOT, SCC_SLOT, SGPR_SLOTS, Env, Log, Status
from mxcomp.sim.fast.kernel import Segment, segments
from mxcomp.sim.fast.local import Chunk, Code, LocalMemory, Recorder
from mxcomp.sim.fast.paths import Note, Paths
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.numpy.engine import Line, run_wave, take_turns
from mxcomp.sim.numpy.wave import BARRIER, END, Group, Wave
from mxcomp.sim.program import Program

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_SGPRS = 128


class Lines(dict[int, Line]):
    """The NumPy engine's closures, made when they are needed."""

    def __init__(self, instructions: Mapping[int, Instruction]) -> None:
        self._instructions = instructions

    def get(self, address: int, default: Any = None) -> Any:
        if address not in self and address in self._instructions:
            self[address] = Line.of(self._instructions[address])
        return super().get(address, default)


_MOST_DWORDS = 64 * 4
"""The largest number of dwords that an instruction stores."""

_GRANT = 1 << 13
"""The number of instructions that compiled code may execute before it returns to have its traces read."""


@dataclass(frozen=True, eq=False)
class CompiledKernel:
    """A program that is compiled and ready to run.

    Attributes:
        call: (vectors, scalars, env) → `Status`.
        watched: The program as the checks see it; None: none but "bounds" is made.
    """

    parts: list[Segment]
    library: jit.Compiled
    call: Any
    lines: Lines
    starts: frozenset[int]
    names: tuple[str, ...]
    weights: NDArray[np.int64]
    watched: Watched | None

    @classmethod
    def of(cls, program: Program, watch: Reporter) -> CompiledKernel:
        parts = segments(program)
        watched = watch.late or watch.race or watch.hazard or watch.uninit
        library = objects.compiled(program.kernel, parts, watched)
        starts = frozenset(part.start for part in parts)
        call, lines = _FUNCTION(library.address), Lines(program.instructions)
        return cls(parts, library, call, lines, starts, *_weights(parts), Watched(parts, watch) if watched else None)

    def counters(self, counts: NDArray[np.int64]) -> Counters:
        """Returns the events of executed segments, and bytes of their last instructions."""
        totals = counts.reshape(-1) @ self.weights
        return Counter({name: int(total) for name, total in zip(self.names, totals.tolist(), strict=True) if total})


def _weights(parts: list[Segment]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Returns what each of a segment's two counters, executions and lanes, adds to which event."""
    rows: list[Counters] = []
    for part in parts:
        rows.append(Counter(event for i in part.instructions for event in events(i)))
        last = part.instructions[-1]
        moved = {} if last.memory is None else {f"{memory_event(last)}.bytes": last.memory.op.bytes}
        rows.append(Counter(moved))
    names = tuple(sorted(set().union(*rows)))
    return names, np.array([[row[name] for name in names] for row in rows], np.int64)


class Watched:
    """A program as the checks see it, and buffers in which compiled code logs what it did."""

    def __init__(self, parts: list[Segment], watch: Reporter) -> None:
        facts = [[Facts.of(i) for i in part.instructions] for part in parts]
        self.paths, self.code = Paths(facts, watch), Code(facts)
        self.granted = _GRANT + max(map(len, facts), default=0)
        self.trace = np.zeros(self.granted + 1, np.int32)
        self.log = np.zeros((self.granted + 1, Log.SIZE), np.int64)
        self.journal = np.empty((self.granted * _MOST_DWORDS, ROW_BYTES), np.uint8)
        self.addresses = tuple(array.ctypes.data for array in (self.trace, self.log, self.journal))


class FastEngine:
    """Executes dispatches with compiled kernels."""

    name = "fast"

    def __init__(self) -> None:
        self._kernels: dict[tuple[Program, frozenset[str]], CompiledKernel] = {}

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        key = (dispatch.program, dispatch.checks)
        kernel = self._kernels.get(key)
        if kernel is None:
            watch = Reporter(dispatch, (0, 0, 0))
            kernel = self._kernels[key] = CompiledKernel.of(dispatch.program, watch)
        return UnwrittenCheck(dispatch, partial(_run_workgroup, kernel)).run_all()


def _run_workgroup(kernel: CompiledKernel, dispatch: Dispatch, number: Workgroup, trial: Trial | None) -> Counters:
    group = FastGroup(dispatch, number, kernel, trial)
    try:
        return group.run()
    finally:
        group.dissolve()


class FastGroup:
    """A workgroup in the state of the NumPy engine, which compiled code works on."""

    def __init__(
        self, dispatch: Dispatch, number: Workgroup, kernel: CompiledKernel, trial: Trial | None = None
    ) -> None:
        self.dispatch, self.number, self.kernel, self.trial = dispatch, number, kernel, trial
        self.group = Group(dispatch, number, trial)
        self.counts = np.zeros((len(kernel.parts), 2), np.int64)
        self.extra: Counters = Counter()
        self._starts, self._ends = dispatch.memory.ranges()
        self.local: LocalMemory | None = None
        if kernel.watched is not None and dispatch.lds_bytes:
            self.local = LocalMemory(
                len(self.group.lds), self.group.report, dispatch.waves, kernel.watched.code,
                lambda k: self.waves[k].node.track.outstanding, trial,
            )  # fmt: skip
        self.recorder = self.group.shadow = Recorder(lambda: None if self.local is None else self.local.barrier())
        starts = [dispatch.wave_start(number, k) for k in range(dispatch.waves)]
        self.waves = [FastWave(self, Wave(self.group, k, start)) for k, start in enumerate(starts)]

    def run(self) -> Counters:
        try:
            take_turns(self.group, [wave.state for wave in self.waves], lambda k, most: self.waves[k].run(most))
        except SimulationError:  # checks still want to know what has happened
            for wave in self.waves:
                wave.read_traces()
            raise
        finally:
            if self.local is not None:
                self.local.finish()
        return self._counters()

    def _counters(self) -> Counters:
        total = self.kernel.counters(self.counts) + self.extra
        for wave in self.waves:
            total.update(wave.state.counters)
            if cycles := int(wave.env[Env.CONFLICTS]):
                total["lds.conflict.cycles"] += cycles
            if self.trial is not None and wave.env[Env.MISSING]:
                self.trial.suspect = True
        return total

    def dissolve(self) -> None:
        """Breaks reference cycles, which would keep registers and LDS alive until the garbage collector runs."""
        self.waves.clear()
        self.local, self.group.shadow = None, NO_SHADOW

    def environment(self, wave: Wave) -> NDArray[np.int64]:
        """Returns the environment of compiled code: addresses in the simulator's own memory."""
        dispatch, memory = self.dispatch, self.dispatch.memory
        env = np.zeros(len(Env), np.int64)
        env[Env.PC] = dispatch.entry
        env[Env.DATA], env[Env.WRITTEN] = memory.data.ctypes.data, memory.written.ctypes.data
        env[Env.STARTS], env[Env.ENDS] = self._starts.ctypes.data, self._ends.ctypes.data
        env[Env.RANGES] = len(self._starts)
        env[Env.LDS], env[Env.LDS_BYTES] = self.group.lds.ctypes.data, dispatch.lds_bytes
        if dispatch.scratch_bytes:
            scratch, written = wave.private()
            env[Env.SCRATCH], env[Env.SCRATCH_BYTES] = scratch.ctypes.data, scratch.shape[1]
            env[Env.SCRATCH_WRITTEN] = written.ctypes.data
        env[Env.COUNTS] = self.counts.ctypes.data
        env[Env.LOW] = 1  # an empty range
        if (watched := self.kernel.watched) is not None:
            env[Env.TRACE], env[Env.LOG], journal = watched.addresses
            if self.trial is not None:
                env[Env.JOURNAL], env[Env.STRICT] = journal, not self.trial.is_first
        return env


class FastWave:
    """A wave: the NumPy engine's state, and its scalar registers as compiled code has them."""

    def __init__(self, group: FastGroup, state: Wave) -> None:
        self.group, self.state = group, state
        self.scalars = np.zeros(SGPR_SLOTS, np.uint32)
        self.env = group.environment(state)
        self._pointers = (state.v.ctypes.data, self.scalars.ctypes.data, self.env.ctypes.data)
        self._from_numpy()
        self._watched = group.kernel.watched
        if self._watched is not None:
            self.node = self._watched.paths.start(state.defined)

    def run(self, most: int) -> int:
        """Executes about `most` instructions: a segment waits until the turns so far pay for all of it.

        Only the last instruction of a segment concerns other waves, so the order of what they see is the NumPy
        engine's. Returns how many instructions were paid for."""
        before, left = int(self.env[Env.BUDGET]), most
        while True:
            room = left if self._watched is None else self._watched.granted - int(self.env[Env.BUDGET])
            granted = min(left, room)
            self.env[Env.BUDGET] += granted
            left -= granted
            status = self._until_attention()
            if status is not Status.TURN or not left:
                break
        executed = before + most - left - int(self.env[Env.BUDGET])
        if status is not Status.TURN:
            self.state.state = END if status is Status.END else BARRIER
            self.env[Env.BUDGET] = 0
        self.state.pc = int(self.env[Env.PC])
        return executed

    def _until_attention(self) -> Status:
        while True:
            status = Status.STEP
            if self.state.is_plain:  # a turn may have ended while the NumPy engine was at work
                status = Status(self.group.kernel.call(*self._pointers))
                self._read_journal()
                if status is Status.STEP:
                    self._to_numpy()
                    self._step()
                self.read_traces()
            if status is not Status.STEP:
                return status
            while self.state.state == 0 and not self._compiled_goes_on():
                if self.env[Env.BUDGET] < 1:
                    status = Status.TURN
                    break
                self.env[Env.BUDGET] -= 1
                line = self.group.kernel.lines.get(self.state.pc)
                if self.state.skips and line is not None and line.is_vector:
                    self.state.pc = line.end
                    continue
                mode = self.state.index_mode
                self._step()
                self.group.extra.update(events(line.instruction))
                self._read_step(line if mode is None else line.under(mode), mode)
            self._from_numpy()
            if self.state.state:
                return Status.END if self.state.state == END else Status.BARRIER
            if status is Status.TURN:
                return status

    def _read_journal(self) -> None:
        """Takes over the journal of compiled code before the NumPy engine stores anything."""
        if count := int(self.env[Env.JOURNALED]):
            assert self._watched is not None and self.group.trial is not None
            self.group.trial.journal.note_rows(self._watched.journal[:count])
            self.env[Env.JOURNALED] = 0

    def read_traces(self) -> None:
        """Follows the traces of compiled code, and of the NumPy engine's last instruction."""
        if self._watched is None:
            return
        watched, env = self._watched, self.env
        traced, logged = int(env[Env.TRACED]), int(env[Env.LOGGED])
        segments = watched.trace[:traced].tolist()
        self.node = watched.paths.follow(self.node, segments, self._found)
        self._record(segments, watched.log[:logged].copy())
        env[Env.TRACED] = env[Env.LOGGED] = 0

    def _read_step(self, line: Line, mode: tuple[int, int] | None) -> None:
        """Follows an instruction that the NumPy engine executed and that is not the last one of a segment."""
        if self._watched is None:
            return
        facts = line.facts
        self.node = self._watched.paths.step(self.node, (facts.instruction.offset, mode), facts, self._found)
        self._record((), np.empty((0, Log.SIZE), np.int64), facts)

    def _record(self, segments: Sequence[int], rows: NDArray[np.int64], facts: Facts | None = None) -> None:
        """Hands on what was executed, with what the NumPy engine did of it."""
        events = self.group.recorder.events
        if self.group.local is not None:
            self.group.local.record(Chunk(self.state.number, segments, rows, tuple(events), facts))
        events.clear()

    def _found(self, note: Note) -> None:
        check, message, instruction, severity = note
        self.state.report(check, message, self.state, instruction, severity=severity)

    def _compiled_goes_on(self) -> bool:
        return self.state.is_plain and self.state.pc in self.group.kernel.starts

    def _step(self) -> None:
        """Executes one instruction with the NumPy engine."""
        run_wave(self.state, self.group.kernel.lines, 1, checked=False)
        self.state.outstanding = Outstanding()

    def _to_numpy(self) -> None:
        state = self.state
        state.s = self.scalars[:_SGPRS].tolist()
        state.scc, state.mode = int(self.scalars[SCC_SLOT]), int(self.scalars[MODE_SLOT])
        state.pc = int(self.env[Env.PC])
        state.update_exec()

    def _from_numpy(self) -> None:
        state = self.state
        self.scalars[:_SGPRS] = state.s
        self.scalars[SCC_SLOT], self.scalars[MODE_SLOT] = state.scc, state.mode
        self.env[Env.PC] = state.pc
