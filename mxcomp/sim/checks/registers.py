"""Register checks: in flight ("late"), never written ("uninit"), missing wait states ("hazard").

All findings depend on the path of a wave through the code alone, not on data.

Compilers read registers never written where the value cannot matter, such as the upper half of a 64-bit addend whose
sum is used in 32 bits. So a result computed from one counts as never written itself, and is reported when memory, an
address or control flow depends on it. A value that is only stored may still not depend on it: a select takes it in no
lane, or a mask clears it. That is a doubt, which `unwritten` resolves by running the workgroup with other contents.

Scalar registers are spilled to lanes of a vector register, also those that were never written, as the upper half of a
pair. What other lanes have is as it was; only what is read back from that lane counts as never written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mxcomp.sim.checks.hazards import HazardTracker, Issue
from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.checks.waits import Flight, Issuer, waitcnt_fields
from mxcomp.sim.findings import Severity
from mxcomp.sim.instruction import AGPR0, EXEC, M0, Instruction, RegisterSet, register_name

_UPWARD = frozenset(
    f"{unit}_{name}"
    for unit, names in {
        "v": ("mad_u64_u32", "mad_i64_i32", "lshl_add_u64", "lshlrev_b64", "mov_b64"),
        "s": ("mov_b64", "not_b64", "and_b64", "or_b64", "xor_b64", "andn2_b64", "orn2_b64", "lshl_b64"),
    }.items()
    for name in names
)
"""Instructions of 64 bits whose lower half depends on no upper half of a source."""

_SPILLS = {"v_writelane_b32": "dst", "v_readlane_b32": "src"}
"""Instructions that take one lane, and where its register is: the first one of these operands."""

_LANE0, _LANES = 2 * AGPR0, 64
"""The number of the first lane of vector register 0, behind those of registers, and the lanes that each has."""

_CONSTANT0 = 128
"""The code of the constant 0, which others follow."""

_DIRECTS = 3 << EXEC | 1 << M0
"""Registers that control what instructions do: EXEC selects the lanes, M0 addresses LDS."""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The properties of an instruction that the checks need.

    Attributes:
        touches: Registers read or written.
        flight: What it brings into flight, if it is a memory instruction.
        wait: vmcnt and lgkmcnt of an s_waitcnt.
        spill: The lane, as a register, that it writes or reads alone.
    """

    instruction: Instruction
    touches: RegisterSet
    issue: Issue
    flight: Flight | None
    wait: tuple[int, int] | None
    spill: int | None = None

    @classmethod
    def of(cls, i: Instruction) -> Facts:
        wait = waitcnt_fields(i.flag("simm16")) if i.mnemonic == "s_waitcnt" else None
        return cls(i, i.reads | i.writes, Issue.of(i), Flight.of(i), wait, _spill(i))

    def depending(self, undefined: RegisterSet) -> RegisterSet | None:
        """Returns the registers written that depend on some of those read; None: more than registers does."""
        i = self.instruction
        if i.memory is not None or not i.writes or i.writes & _DIRECTS:
            return None
        if i.mnemonic in _UPWARD:
            upper = sum(2 << operand.code for operand in i.src if operand.dwords == 2 and operand.registers)
            if not undefined & ~upper:
                return i.writes & ~(1 << i.dst[0].code)
        return i.writes

    def is_stored(self, undefined: RegisterSet) -> bool:
        """Returns whether all of these registers are read as data to be stored, not as addresses or masks."""
        memory = self.instruction.memory
        if memory is None or memory.data is None:
            return False
        stored = memory.data.registers | (0 if memory.data1 is None else memory.data1.registers)
        return not undefined & ~stored


def _spill(i: Instruction) -> int | None:
    """Returns the lane, as a register, that an instruction writes or reads alone, if that is a constant."""
    if i.mnemonic not in _SPILLS:
        return None
    (register, *_), lane = getattr(i, _SPILLS[i.mnemonic]), i.src[1].code - _CONSTANT0
    return _LANE0 + register.code * _LANES + lane if 0 <= lane < _LANES else None


@dataclass(frozen=True, slots=True)
class Origin:
    """The read of a register that was never written."""

    instruction: Instruction
    register: int


class Wave(Issuer, Protocol):
    """The checks' state of a wave."""

    defined: RegisterSet
    origins: dict[int, Origin]
    hazards: HazardTracker

    @property
    def report(self) -> Reporter: ...


def check_registers(wave: Wave, facts: Facts) -> None:
    """Checks an instruction before it is executed."""
    watch, i = wave.report, facts.instruction
    if watch.late and facts.touches & wave.busy:
        _in_flight(wave, facts)
    if watch.uninit:
        undefined = i.reads & ~wave.defined
        wave.defined |= i.writes
        if facts.spill is not None:
            _spilled(wave, facts, facts.spill, undefined)
        elif undefined := undefined | (_of_lanes(wave, facts) if wave.origins else 0):
            _undefined(wave, facts, undefined)
    if watch.hazard:
        wave.hazards.issue(wave, facts.issue)


def _in_flight(wave: Wave, facts: Facts) -> None:
    """Reports a register that is touched before its load has been waited for: a read is too early, a write may be lost.

    Not so the result of a load after loads from memory, which finish in order: compilers count on that where part of an
    earlier result is not wanted.
    """
    i = facts.instruction
    read, written = i.reads & wave.busy, i.writes & wave.busy
    if facts.flight is not None and not read and _in_order(wave, facts.flight, written):
        return
    verb, registers = ("reads", read) if read else ("overwrites", written)
    source = next((t for t in wave.outstanding.transfers() if t.flight.registers & registers), None)
    by = "" if source is None else f", result of {source.instruction.mnemonic} at {source.instruction.offset:#x}"
    wave.report("late", f"{verb} {_first(registers)} in flight{by}", wave, i)
    # one report per mistake: take it for arrived
    wave.busy &= ~(read | written)


def _in_order(wave: Wave, flight: Flight, written: RegisterSet) -> bool:
    """Returns whether `flight` completes after everything in flight that writes `written`."""
    before = [t.flight for t in wave.outstanding.transfers() if t.flight.registers & written]
    return all(earlier.vector and not earlier.lgkm for earlier in (flight, *before))


def _spilled(wave: Wave, facts: Facts, lane: int, undefined: RegisterSet) -> None:
    """Tracks a lane that is written or read alone."""
    if facts.instruction.dst[0].is_vgpr:
        wave.origins.pop(lane, None)
        if undefined:
            wave.origins[lane] = _origin(wave, facts, undefined)
    elif undefined:
        _undefined(wave, facts, undefined)
    elif lane in wave.origins:
        wave.defined &= ~facts.instruction.writes
        wave.origins[facts.instruction.dst[0].code] = wave.origins[lane]


def _of_lanes(wave: Wave, facts: Facts) -> RegisterSet:
    """Returns the registers read of which a lane was never written; forgets lanes of registers that are written."""
    found: RegisterSet = 0
    for lane in [each for each in wave.origins if each >= _LANE0]:
        register = (lane - _LANE0) // _LANES
        if facts.instruction.reads >> register & 1:
            found |= 1 << register
            wave.origins[register] = wave.origins[lane]
        elif facts.instruction.writes >> register & 1:
            del wave.origins[lane]
    return found


def _origin(wave: Wave, facts: Facts, undefined: RegisterSet) -> Origin:
    """Returns where the lowest of these registers comes from."""
    lowest = (undefined & -undefined).bit_length() - 1
    return wave.origins.get(lowest) or Origin(facts.instruction, lowest)


def _undefined(wave: Wave, facts: Facts, undefined: RegisterSet) -> None:
    """Tracks registers never written, and what is computed from them. Reports those that can affect memory or control
    flow."""
    origin = _origin(wave, facts, undefined)
    depending = facts.depending(undefined)
    if depending is not None:
        wave.defined &= ~depending
        wave.origins.update((k, origin) for k in range(depending.bit_length()) if depending >> k & 1)
        return
    message = f"reads {register_name(origin.register)}, never written"
    if origin.instruction is not facts.instruction:
        message += f" ({facts.instruction.mnemonic} at {facts.instruction.offset:#x} depends on it)"
    severity = Severity.DOUBT if facts.is_stored(undefined) else Severity.WARNING
    wave.report("uninit", message, wave, origin.instruction, severity=severity)
    # one report per mistake: take it for written
    wave.defined |= undefined
    for register in [each for each, of in wave.origins.items() if of == origin]:
        if register < _LANE0:
            wave.defined |= 1 << register
        else:
            del wave.origins[register]


def _first(registers: RegisterSet) -> str:
    return register_name((registers & -registers).bit_length() - 1)
