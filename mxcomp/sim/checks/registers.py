"""Registers in flight ("late") and registers never written ("uninit")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxcomp.sim.findings import Severity
from mxcomp.sim.instruction import Instruction, RegisterSet, register_name

if TYPE_CHECKING:
    from mxcomp.sim.oracle.wave import Wave


def first_register(registers: RegisterSet) -> str:
    return register_name((registers & -registers).bit_length() - 1)


def check_in_flight(wave: Wave, instruction: Instruction) -> None:
    """A register is touched whose load has not been waited for: a read is too early, a write may be lost."""
    read, written = instruction.reads & wave.busy, instruction.writes & wave.busy
    verb, registers = ("reads", read) if read else ("overwrites", written)
    source = next((t for t in wave.outstanding.transfers() if t.registers & registers), None)
    by = "" if source is None else f", result of {source.instruction.mnemonic} at {source.instruction.offset:#x}"
    wave.group.report("late", f"{verb} {first_register(registers)} in flight{by}", wave, instruction)
    # one report per mistake: take it for arrived
    wave.busy &= ~(read | written)


def check_defined(wave: Wave, instruction: Instruction) -> None:
    """An instruction reads a register never written. Compilers do that where the value cannot matter: a warning."""
    registers = instruction.reads & ~wave.defined
    message = f"reads {first_register(registers)}, never written"
    wave.group.report("uninit", message, wave, instruction, severity=Severity.WARNING)
    wave.defined |= registers
