"""Missing wait states around matrix instructions (CDNA4 ISA, chapter 4.5; LLVM's GCNHazardRecognizer).

A wait state is one issued instruction, or n + 1 for s_nop n. With N passes, between a matrix instruction and

- an instruction that reads or overwrites its result as VALU, memory or A and B operand: N + 4;
- a matrix instruction whose C overlaps the result: N + 2, but 0 when C is exactly the result;

each two less for float32 operands; and between a VALU write and a matrix instruction that reads it: 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.instruction import Instruction, RegisterSet, registers
from mxcomp.sim.semantics import VECTOR, mfma


class Wave(Protocol):
    """The wave that a hazard is reported of."""

    number: int

    @property
    def report(self) -> Reporter: ...


_VALU_TO_MATRIX = 2


class Pipe(Enum):
    """The kind of an instruction, as far as hazards go."""

    MATRIX = 1
    VALU = 2
    MEMORY = 3
    OTHER = 4


@dataclass(frozen=True, slots=True)
class Issue:
    """Static facts of an instruction."""

    instruction: Instruction
    pipe: Pipe
    states: int
    passes: int = 0
    is_f32: bool = False
    operands: RegisterSet = 0
    accumulator: RegisterSet = 0

    @classmethod
    def of(cls, i: Instruction) -> Issue:
        shape = mfma.of(i) if i.encoding == "MFMA" else None
        if shape is not None:
            inputs = registers((*i.src[:2], *i.src[3:]))
            return cls(i, Pipe.MATRIX, 1, shape.passes, shape.a == "f32", inputs, registers(i.src[2:3]))
        if i.mnemonic == "s_nop":
            return cls(i, Pipe.OTHER, i.flag("simm16") + 1)
        if i.mnemonic in VECTOR:
            return cls(i, Pipe.VALU, 1)
        vector_memory = i.encoding in ("MUBUF", "FLAT", "GLOBAL", "SCRATCH", "DS")
        return cls(i, Pipe.MEMORY if vector_memory else Pipe.OTHER, 1)


class HazardTracker:
    """Follows the instructions of one wave; a copy follows others, as lists are replaced and not changed."""

    __slots__ = ("_clock", "_matrix", "_pending", "_valu")

    def __init__(self) -> None:
        self._clock = 0
        self._matrix: list[tuple[int, Issue]] = []
        self._valu: list[tuple[int, RegisterSet]] = []
        self._pending: RegisterSet = 0

    def key(self) -> tuple[object, ...]:
        """Returns what later reports depend on: how long ago which instruction was issued."""
        matrix = tuple(
            (self._clock - clock, issue.instruction.offset)
            for clock, issue in self._matrix
            if self._clock - clock <= issue.passes + 5
        )
        valu = tuple(
            (self._clock - clock, written) for clock, written in self._valu if self._clock - clock <= _VALU_TO_MATRIX
        )
        return matrix, valu

    def issue(self, wave: Wave, issue: Issue) -> None:
        """Checks an instruction against its predecessors and records it."""
        i, pipe = issue.instruction, issue.pipe
        if pipe is not Pipe.OTHER:
            if self._pending & (i.reads | i.writes):
                self._after_matrix(wave, issue)
            if pipe is Pipe.MATRIX:
                self._after_valu(wave, issue)
                self._matrix = [*self._matrix, (self._clock, issue)]
                self._pending |= i.writes
            elif pipe is Pipe.VALU:
                recent = ((clock, regs) for clock, regs in self._valu if self._clock - clock <= _VALU_TO_MATRIX)
                self._valu = [*recent, (self._clock, i.writes)]
        self._clock += issue.states
        if self._matrix and self._clock - self._matrix[0][0] > 32:
            self._forget()

    def _forget(self) -> None:
        self._matrix = [entry for entry in self._matrix if self._clock - entry[0] <= entry[1].passes + 5]
        self._pending = 0
        for _, issue in self._matrix:
            self._pending |= issue.instruction.writes

    def _after_matrix(self, wave: Wave, issue: Issue) -> None:
        self._forget()
        for clock, producer in reversed(self._matrix):
            needed = _needed(producer, issue)
            passed = self._clock - clock - 1
            if needed > passed:
                source = producer.instruction
                place = f"{source.mnemonic} at {source.offset:#x}"
                message = f"{passed} wait states after {place}, whose result it uses: {needed} needed"
                wave.report("hazard", message, wave, issue.instruction)

    def _after_valu(self, wave: Wave, issue: Issue) -> None:
        for clock, written in self._valu:
            passed = self._clock - clock - 1
            if passed < _VALU_TO_MATRIX and written & issue.instruction.reads:
                message = f"{passed} wait states after a VALU write of its operand: {_VALU_TO_MATRIX} needed"
                wave.report("hazard", message, wave, issue.instruction)


def _needed(producer: Issue, consumer: Issue) -> int:
    """Returns the wait states that are needed between a matrix instruction and a later one."""
    result, i = producer.instruction.writes, consumer.instruction
    base = producer.passes - (2 if producer.is_f32 else 0)
    if consumer.pipe is not Pipe.MATRIX:
        return base + 4 if result & (i.reads | i.writes) else 0
    if result & consumer.operands:
        return base + 4
    overlaps = result & consumer.accumulator
    return base + 2 if overlaps and result != consumer.accumulator else 0
