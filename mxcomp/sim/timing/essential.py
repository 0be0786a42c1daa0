"""Finds the instructions of a kernel that decide its control flow and addresses; a trace need not execute the others.

All scalar instructions are kept. Vector instructions and loads are kept if branches, EXEC, scalar registers that are
read, or addresses may depend on their results: those that are still in their registers there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mxcomp.sim.instruction import EXEC, M0, VGPR0, Instruction, RegisterSet, registers
from mxcomp.sim.semantics import VECTOR, is_vector

_MODES = ("s_set_gpr_idx_on", "s_setvskip")
"""Instructions after which the effect of others is known only at run time."""
_WAITS = ("s_waitcnt", "s_nop", "s_sleep", "s_setprio")
_INDIRECT = ("s_setpc_b64", "s_swappc_b64")
_ALWAYS: RegisterSet = 3 << EXEC | 1 << M0
_ALL: RegisterSet = -1


def essential(instructions: Iterable[Instruction]) -> frozenset[int]:
    """Returns the offsets of the instructions that have to be executed."""
    program = {i.offset: i for i in instructions}
    if any(i.mnemonic in _MODES for i in program.values()):
        return frozenset(offset for offset, i in program.items() if i.mnemonic not in _WAITS)
    kept = {offset for offset, i in program.items() if not is_vector(i)}
    lost = _overwritten(program)
    needed: dict[int, RegisterSet] = {}
    """The registers that decide something from there on, by offset."""
    contents = False
    while True:
        before = len(kept), contents
        grown = True
        while grown:
            grown = False
            for offset, i in reversed(program.items()):
                after = _ALL if i.mnemonic in _INDIRECT else _ALWAYS
                for following in _successors(i):
                    after |= needed.get(following, 0)
                if offset in kept or _results(i) & after or (contents and _fills(i)):
                    kept.add(offset)
                    contents |= _reads(i)
                here = after & ~lost[offset] | _addresses(i) | (_sources(i) if offset in kept else 0)
                grown |= here != needed.get(offset)
                needed[offset] = here
        if (len(kept), contents) == before:
            return frozenset(offset for offset in kept if program[offset].mnemonic not in _WAITS)


def _successors(i: Instruction) -> tuple[int, ...]:
    """Returns where the program may go on behind an instruction that is no indirect jump."""
    if i.mnemonic == "s_endpgm":
        return ()
    behind = () if i.mnemonic == "s_branch" else (i.end,)
    return behind if i.target is None else (*behind, i.target)


def _overwritten(program: Mapping[int, Instruction]) -> dict[int, RegisterSet]:
    """Returns by offset the registers of which an instruction leaves nothing.

    Under EXEC lanes may keep what they have. They do not matter as long as EXEC is what it was when the wave started:
    nobody has written them.
    """
    pending = [end for i in program.values() if i.writes & 3 << EXEC for end in _successors(i)]
    narrowed: set[int] = set()
    while pending:
        offset = pending.pop()
        if offset in program and offset not in narrowed:
            narrowed.add(offset)
            pending += _successors(program[offset])
    if any(i.mnemonic in _INDIRECT for i in program.values()):
        narrowed = set(program)
    return {
        offset: 0 if _is_partial(i) else _results(i) & (_SCALARS if offset in narrowed and _is_masked(i) else _ALL)
        for offset, i in program.items()
    }


_SCALARS: RegisterSet = (1 << VGPR0) - 1


def _is_masked(i: Instruction) -> bool:
    """Returns whether only lanes in EXEC are written."""
    op = VECTOR.get(i.mnemonic)
    return is_vector(i) and i.encoding != "MFMA" and not (op is not None and op.every_lane)


def _is_partial(i: Instruction) -> bool:
    """Returns whether parts of results may keep what they have."""
    is_half = i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1
    return bool(i.sdwa or i.dpp is not None or is_half or (i.memory is not None and i.memory.op.half))


def _addresses(i: Instruction) -> RegisterSet:
    """Returns the registers from which a memory instruction takes its address."""
    memory = i.memory
    if memory is None:
        return 0
    operands = (memory.address, memory.index, memory.base, memory.scalar_offset)
    return registers(tuple(operand for operand in operands if operand is not None))


def _sources(i: Instruction) -> RegisterSet:
    return i.reads | registers(i.src)


def _results(i: Instruction) -> RegisterSet:
    return i.writes | registers(i.dst)


_LOCAL = ("lds", "flat", "scratch")


def _reads(i: Instruction) -> bool:
    """Returns whether it reads LDS or scratch."""
    return i.memory is not None and i.memory.op.space in _LOCAL and i.memory.op.kind != "store"


def _fills(i: Instruction) -> bool:
    """Returns whether it writes LDS or scratch."""
    if i.memory is None:
        return False
    op = i.memory.op
    return op.to_lds or (op.space in _LOCAL and op.kind in ("store", "atomic"))
