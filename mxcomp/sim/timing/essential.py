"""Finds the instructions of a kernel that decide its control flow and addresses; a trace need not execute the others.

All scalar instructions are kept. Vector instructions and loads are kept if branches, EXEC, scalar registers that are
read, or addresses may depend on their results, anywhere in the program: the order of instructions is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from mxcomp.sim.instruction import EXEC, M0, Instruction, RegisterSet, registers
from mxcomp.sim.semantics import is_vector
from mxcomp.sim.semantics import memory as m

_MODES = ("s_set_gpr_idx_on", "s_setvskip")
"""Instructions after which the effect of others is known only at run time."""
_WAITS = ("s_waitcnt", "s_nop", "s_sleep", "s_setprio")


def essential(instructions: Iterable[Instruction]) -> frozenset[int]:
    """Returns the offsets of the instructions that have to be executed."""
    program = [i for i in instructions if i.mnemonic not in _WAITS]
    if any(i.mnemonic in _MODES for i in program):
        return frozenset(i.offset for i in program)
    kept = {i.offset for i in program if not is_vector(i)}
    needed: RegisterSet = 3 << EXEC | 1 << M0
    for i in program:
        needed |= _addresses(i) | (i.reads if i.offset in kept else 0)
    contents = False
    grown = True
    while grown:
        grown = False
        for i in program:
            if i.offset in kept or not (_results(i) & needed or (contents and _fills_lds(i))):
                continue
            kept.add(i.offset)
            needed |= i.reads | registers(i.src)
            contents |= _reads_lds(i)
            grown = True
    return frozenset(kept)


def _addresses(i: Instruction) -> RegisterSet:
    """Returns the registers from which a memory instruction takes its address."""
    memory = i.memory
    if memory is None:
        return 0
    operands = (memory.address, memory.index, memory.base, memory.scalar_offset)
    return registers(tuple(operand for operand in operands if operand is not None))


def _results(i: Instruction) -> RegisterSet:
    return i.writes | registers(i.dst)


def _reads_lds(i: Instruction) -> bool:
    op = m.parse(i.mnemonic)
    return op is not None and op.space in ("lds", "flat") and op.kind != "store"


def _fills_lds(i: Instruction) -> bool:
    op = m.parse(i.mnemonic)
    if op is None:
        return False
    return op.to_lds or bool(i.flag("lds")) or (op.space in ("lds", "flat") and op.kind in ("store", "atomic"))
