"""The semantics of the instructions: tables by family, one place each, to be read side by side with AMD's CDNA4 ISA
document.

`VECTOR` and `SCALAR` map mnemonics to rows, see `table`; `memory.parse` and `mfma.of` read regular families off the
mnemonic; `salu` names the instructions that only an engine can do (program counter, waits, modes).
"""

from __future__ import annotations

from mxcomp.sim.instruction import SCC, VGPR0, Instruction
from mxcomp.sim.semantics import convert, lane, mfma, packed, salu, valu_float, valu_int, vcmp
from mxcomp.sim.semantics.table import ScalarTable, VectorTable

VECTOR: VectorTable = {
    **valu_int.TABLE,
    **valu_float.TABLE,
    **vcmp.TABLE,
    **convert.TABLE,
    **lane.TABLE,
    **packed.TABLE,
}

SCALAR: ScalarTable = salu.TABLE


def is_vector(instruction: Instruction) -> bool:
    """Returns whether it acts on lanes: VALU, MFMA, vector memory and LDS instructions, all that s_setvskip skips."""
    is_memory = instruction.memory is not None and not instruction.memory.op.is_scalar
    return is_memory or instruction.encoding == "MFMA" or instruction.mnemonic in VECTOR


_REGISTERS = ((1 << 128) - 1) | 1 << SCC | ((1 << 512) - 1) << VGPR0


def unsupported(instruction: Instruction) -> str | None:
    """Returns why an instruction cannot be executed, or None."""
    name = instruction.mnemonic
    if (instruction.reads | instruction.writes) & ~_REGISTERS:
        return "register range"
    if instruction.encoding == "MFMA":
        shape = mfma.of(instruction)
        if shape is None or instruction.flag("neg") or instruction.flag("neg_hi"):
            return "matrix shape, type or modifier"
        return None if all(operand.is_vgpr for operand in instruction.src[:2]) else "constant matrix operand"
    if name in VECTOR:
        return _modifiers(instruction)
    if name in SCALAR or name in salu.BRANCHES or name in salu.NO_EFFECT or name in salu.CONTROL:
        return None
    return _memory(instruction)


def _modifiers(instruction: Instruction) -> str | None:
    op = VECTOR[instruction.mnemonic]
    if instruction.dpp is not None:
        if lane.dpp_lanes(instruction.dpp.control) is None:
            return f"dpp control {instruction.dpp.control:#x}"
        if any(letter in "UId" for letter in op.src[:1]) and instruction.mnemonic != "v_mov_b64":
            return "dpp on 64 bits"
    if instruction.flag("clmp") and op.dtype not in "fdhM" and op.clamped is None and not op.clamps:
        return "integer clamp"
    if instruction.sdwa and (any(letter in "UId" for letter in op.src) or instruction.flag("omod")):
        return "sdwa modifier"
    return None


def _memory(instruction: Instruction) -> str | None:
    if instruction.memory is None:
        return "mnemonic"
    if instruction.flag("gds"):
        return "global data share"
    if instruction.mnemonic == "ds_swizzle_b32" and lane.swizzle_lanes(instruction.flag("offset")) is None:
        return "swizzle mode"
    return None
