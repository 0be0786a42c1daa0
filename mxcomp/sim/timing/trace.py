"""Traces what a workgroup executes, instruction by instruction, and the memory that it touches."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.lds import NO_SHADOW
from mxcomp.sim.checks.trial import Read, Trial
from mxcomp.sim.counters import Counters, events, memory_event
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import Instruction, Space
from mxcomp.sim.numpy.engine import Line, open_barrier
from mxcomp.sim.numpy.wave import END, Group, Wave
from mxcomp.sim.program import Program
from mxcomp.sim.semantics import is_vector
from mxcomp.sim.timing.essential import essential
from mxcomp.sim.timing.probes import Probe, Touched, probe_of


@dataclass(frozen=True, eq=False)
class Trace:
    """The trace of one workgroup.

    Attributes:
        instructions: Those of the program, by number.
        codes: int32[steps] of each wave: numbers of the instructions that it executed, in order.
        accesses: int32[steps] of each wave: the number of a memory access, or −1.
        first: int64[accesses + 1]: where an access's lines begin in `lines`.
        lines: int64[…]: cache lines touched by vector memory accesses, as device address / 128; each once an access.
        nbytes: int64[accesses]: bytes that lanes move, none beyond a buffer's end.
        conflicts: int64[accesses]: cycles lost to LDS bank conflicts.
        counters: As the engines count.
        unwritten: What it reads to know where to go and what to touch, though nobody has written it.
    """

    workgroup: Workgroup
    instructions: tuple[Instruction, ...]
    codes: tuple[NDArray[np.int32], ...]
    accesses: tuple[NDArray[np.int32], ...]
    first: NDArray[np.int64]
    lines: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    conflicts: NDArray[np.int64]
    counters: Counters
    unwritten: tuple[Read, ...] = ()

    def goes_like(self, other: Trace) -> bool:
        """Returns whether another workgroup executes the same, and touches the same."""
        mine: tuple[NDArray[Any], ...] = (*self.codes, *self.accesses, self.lines, self.nbytes, self.conflicts)
        others: tuple[NDArray[Any], ...] = (*other.codes, *other.accesses, other.lines, other.nbytes, other.conflicts)
        return all(np.array_equal(a, b) for a, b in zip(mine, others, strict=False))

    @property
    def steps(self) -> int:
        """The number of wave instructions."""
        return sum(map(len, self.codes))


@dataclass(frozen=True, eq=False)
class TracedProgram:
    """A program with what tracing needs.

    Attributes:
        runs: By address: the numbers of the instructions from there on that nothing has to be done for, and the
            address behind them.
        steps: By address: what is to be executed, or only probed.
        probes: By address, of memory instructions.
    """

    instructions: tuple[Instruction, ...]
    index: dict[int, int]
    runs: dict[int, tuple[array[int], array[int], int]]
    steps: dict[int, Line | None]
    probes: dict[int, Probe]

    @staticmethod
    @lru_cache(maxsize=64)
    def of(ready: Program) -> TracedProgram:
        program = dict(ready.instructions)
        kept = essential(program.values())
        probes = {address: probe for address, i in program.items() if (probe := probe_of(i))}
        steps = {at: Line.of(i) if at in kept and not _stores(i) else None for at, i in program.items()}
        index = {address: k for k, address in enumerate(program)}
        runs: dict[int, tuple[array[int], array[int], int]] = {}
        for address in reversed(tuple(program)):
            if steps[address] is None and address not in probes:
                end = program[address].end
                codes, _, stop = runs.get(end, (array("i"), array("i"), end))
                codes = array("i", [index[address]]) + codes
                runs[address] = codes, array("i", [-1]) * len(codes), stop
        return TracedProgram(tuple(program.values()), index, runs, steps, probes)


def _stores(i: Instruction) -> bool:
    if i.memory is None:
        return False
    op = i.memory.op
    return op.where is Space.DEVICE and op.space != "flat" and op.kind in ("store", "atomic")


class Recorder:
    """Follows one workgroup; a trial says what it reads in place of memory that nobody has written."""

    def __init__(
        self, dispatch: Dispatch, number: Workgroup, program: TracedProgram, trial: Trial | None = None
    ) -> None:
        self.dispatch, self.number, self.program = dispatch, number, program
        self.until = 1 << 62
        """Accesses after which following ends."""
        self.codes = [array("i") for _ in range(dispatch.waves)]
        self.accesses = [array("i") for _ in range(dispatch.waves)]
        self.touched: list[Touched] = []
        self.moved: Counters = Counter()
        self.trial = Trial(dispatch.memory) if trial is None else trial
        group = Group(dispatch, number, self.trial)
        group.shadow = NO_SHADOW
        self.group = group
        self.waves: dict[int, Wave] = {}

    def wave(self, number: int) -> Wave:
        """Returns a wave, whose registers are made when it is first followed: other waves may never be."""
        if number not in self.waves:
            self.waves[number] = Wave(self.group, number, self.dispatch.wave_start(self.number, number))
        return self.waves[number]

    def run(self) -> Trace:
        waves = [self.wave(number) for number in range(self.dispatch.waves)]
        while not all(wave.state == END for wave in waves):
            running = [wave for wave in waves if wave.state == 0]
            if not running:
                open_barrier(self.group, waves)
            for wave in running:
                self.run_wave(wave)
        return self._trace()

    def run_wave(self, wave: Wave) -> None:
        """Executes a wave up to the next barrier or its end."""
        program, codes, accesses = self.program, self.codes[wave.number], self.accesses[wave.number]
        runs, steps, probes, index = program.runs, program.steps, program.probes, program.index
        most = self.dispatch.max_instructions
        pc = wave.pc
        while wave.state == 0 and len(self.touched) < self.until:
            run = runs.get(pc)
            if run is not None:
                skipped, none, pc = run
                codes.extend(skipped)
                accesses.extend(none)
            if pc not in steps:
                raise SimulationError(f"workgroup {self.number}, wave {wave.number}: jump to {pc:#x}, no instruction")
            number = index[pc]
            if wave.skips and is_vector(program.instructions[number]):
                pc = program.instructions[number].end
                continue
            line, probe = steps[pc], probes.get(pc)
            codes.append(number)
            if probe is None:
                accesses.append(-1)
            else:
                accesses.append(len(self.touched))
                self._touch(wave, probe, program.instructions[number])
            if line is None:
                pc = program.instructions[number].end
            else:
                result = (line if wave.index_mode is None else line.under(wave.index_mode)).step(wave)
                pc = line.end if result is None or result < 0 else result
                if result is not None and result < 0:
                    wave.state = result
            if len(codes) > most:
                raise SimulationError(
                    f"workgroup {self.number}: more than {most} instructions, an endless loop? "
                    f"wave {wave.number} at {pc:#x}"
                )
        wave.pc = pc

    def follow(self, number: int, accesses: int) -> list[Touched]:
        """Returns the first accesses of one wave alone; barriers do not block it."""
        wave, before = self.wave(number), len(self.touched)
        self.until = before + accesses
        while wave.state != END and len(self.touched) < self.until:
            wave.state = 0
            self.run_wave(wave)
        return self.touched[before:]

    def _touch(self, wave: Wave, probe: Probe, instruction: Instruction) -> None:
        assert instruction.memory is not None
        touched, op = probe(wave), instruction.memory.op
        self.touched.append(touched)
        self.moved[f"{memory_event(instruction)}.bytes"] += op.bytes * (1 if op.is_scalar else wave.exec.bit_count())
        if op.space == "lds" and op.kind in ("load", "store"):
            self.moved["lds.conflict.cycles"] += touched.conflicts

    def _trace(self) -> Trace:
        total = Counter(self.moved)
        steps = np.concatenate([np.frombuffer(codes, np.int32) for codes in self.codes])
        instructions = self.program.instructions
        for instruction, hits in zip(instructions, np.bincount(steps, minlength=len(instructions)), strict=True):
            for event in events(instruction) if hits else ():
                total[event] += int(hits)
        lines = [touched.lines for touched in self.touched]
        return Trace(
            workgroup=self.number,
            instructions=instructions,
            codes=tuple(np.array(codes, np.int32) for codes in self.codes),
            accesses=tuple(np.array(accesses, np.int32) for accesses in self.accesses),
            first=np.concatenate([[0], np.cumsum([len(each) for each in lines], dtype=np.int64)]),
            lines=np.concatenate([*lines, np.empty(0, np.int64)]),
            nbytes=np.array([touched.nbytes for touched in self.touched], np.int64),
            conflicts=np.array([touched.conflicts for touched in self.touched], np.int64),
            counters=total,
            unwritten=tuple(self.trial.reads.values()),
        )
