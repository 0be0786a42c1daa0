"""Registers in flight ("late"), registers never written ("uninit"), missing wait states ("hazard").

All that is found here depends on the way a wave takes through the code alone, not on data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mxcomp.sim.checks.hazards import HazardTracker, Issue
from mxcomp.sim.checks.report import Report
from mxcomp.sim.checks.waits import Flight, Outstanding, waitcnt_fields
from mxcomp.sim.findings import Severity
from mxcomp.sim.instruction import Instruction, RegisterSet, register_name


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What the checks have to know of an instruction.

    Attributes:
        touches: Registers read or written.
        flight: What it brings into flight, if it is a memory instruction.
        wait: vmcnt and lgkmcnt of an s_waitcnt.
    """

    instruction: Instruction
    touches: RegisterSet
    reads: RegisterSet
    writes: RegisterSet
    issue: Issue
    flight: Flight | None
    wait: tuple[int, int] | None

    @classmethod
    def of(cls, i: Instruction) -> Facts:
        wait = waitcnt_fields(i.flag("simm16")) if i.mnemonic == "s_waitcnt" else None
        return cls(i, i.reads | i.writes, i.reads, i.writes, Issue.of(i), Flight.of(i), wait)


class Watch(Protocol):
    """Which checks are on."""

    late: bool
    uninit: bool
    hazard: bool


class Wave(Protocol):
    """State of these checks."""

    number: int
    busy: RegisterSet
    defined: RegisterSet
    outstanding: Outstanding
    hazards: HazardTracker

    @property
    def report(self) -> Report: ...


def check_registers(wave: Wave, facts: Facts, watch: Watch) -> None:
    """Before an instruction is executed."""
    if watch.late and facts.touches & wave.busy:
        _in_flight(wave, facts)
    if watch.uninit:
        if facts.reads & ~wave.defined:
            _undefined(wave, facts)
        wave.defined |= facts.writes
    if watch.hazard:
        wave.hazards.issue(wave, facts.issue)


def _in_flight(wave: Wave, facts: Facts) -> None:
    """A register is touched whose load has not been waited for: a read is too early, a write may be lost.

    Not so the result of a load after loads from memory, which finish in order: compilers count on that where part of an
    earlier result is not wanted.
    """
    read, written = facts.reads & wave.busy, facts.writes & wave.busy
    if facts.flight is not None and not read and _in_order(wave, facts.flight, written):
        return
    verb, registers = ("reads", read) if read else ("overwrites", written)
    source = next((t for t in wave.outstanding.transfers() if t.flight.registers & registers), None)
    by = "" if source is None else f", result of {source.instruction.mnemonic} at {source.instruction.offset:#x}"
    wave.report("late", f"{verb} {_first(registers)} in flight{by}", wave, facts.instruction)
    # one report per mistake: take it for arrived
    wave.busy &= ~(read | written)


def _in_order(wave: Wave, flight: Flight, written: RegisterSet) -> bool:
    """Whether `flight` finishes after all that has `written` in flight."""
    before = [t.flight for t in wave.outstanding.transfers() if t.flight.registers & written]
    return all(earlier.vector and not earlier.lgkm for earlier in (flight, *before))


def _undefined(wave: Wave, facts: Facts) -> None:
    """An instruction reads a register never written. Compilers do that where the value cannot matter: a warning."""
    registers = facts.reads & ~wave.defined
    message = f"reads {_first(registers)}, never written"
    wave.report("uninit", message, wave, facts.instruction, severity=Severity.WARNING)
    wave.defined |= registers


def _first(registers: RegisterSet) -> str:
    return register_name((registers & -registers).bit_length() - 1)
