"""Operands of memory instructions by encoding (CDNA4 ISA, chapter 12: SMEM, MUBUF, FLAT, DS)."""

from __future__ import annotations

from dataclasses import replace

from mxcomp.sim.instruction import AGPR0, M0, VGPR0, Instruction, MemoryOp, MemoryOperands, Operand, shared
from mxcomp.sim.semantics.memory import signed_offset

_NO_BASE = (0x7F, 124, 125)
"""Values of saddr that mean "no base"."""


def memory_instruction(instruction: Instruction, op: MemoryOp) -> Instruction:
    """Adds the operands of a memory instruction."""
    if instruction.flag("lds"):
        op = replace(op, to_lds=True)
    of_encoding = {"SMEM": _scalar, "MUBUF": _buffer, "DS": _lds}
    operands = of_encoding.get(instruction.encoding, _flat)(instruction, op)
    result = () if operands.result is None else (operands.result,)
    implicit = 1 << M0 if op.to_lds else 0
    kept = ("sc0", "sc1", "nt", "lds", "gds", "offen", "idxen", "sve")
    fields = {name: value for name, value in instruction.fields.items() if name in kept}
    fields["offset"] = operands.offset
    sources = operands.sources()
    return instruction._replace(memory=operands, dst=result, src=sources, fields=fields, reads=implicit)


def _vgpr(instruction: Instruction, name: str, dwords: int) -> Operand:
    """Returns a data register, which is an accumulation register if the acc bit is set."""
    return shared(instruction.flag(name) + (AGPR0 if instruction.flag("acc") else VGPR0), dwords)


def _address(instruction: Instruction, name: str, dwords: int) -> Operand:
    return shared(instruction.flag(name) + VGPR0, dwords)


def _data_registers(op: MemoryOp) -> int:
    """Returns the registers of one access; compare-and-swap takes the compare value too."""
    return max(1, op.size // 4) * (2 if op.atomic == "cmpswap" else 1)


def _returns(instruction: Instruction, op: MemoryOp) -> bool:
    """Returns whether there is a result; a flag says so of atomics elsewhere than in LDS."""
    if op.kind == "atomic":
        return op.returns and bool(op.space == "lds" or instruction.flag("glc") or instruction.flag("sc0"))
    return op.kind != "store" and not op.to_lds


def _scalar(instruction: Instruction, op: MemoryOp) -> MemoryOperands:
    flag = instruction.flag
    offset = signed_offset(flag("offset"), 21)
    register = shared(flag("soffset")) if flag("soffset_en") else None
    if not flag("imm"):
        register = register or shared(flag("offset") & 127)
        offset = 0
    data = shared(flag("sdata"), _data_registers(op))
    return MemoryOperands(
        op=op,
        base=shared(2 * flag("sbase"), 4 if op.space == "scalar_buffer" else 2),
        scalar_offset=register,
        offset=offset,
        data=None if op.kind == "load" else data,
        result=data._replace(dwords=op.registers) if _returns(instruction, op) else None,
    )


def _buffer(instruction: Instruction, op: MemoryOp) -> MemoryOperands:
    flag = instruction.flag
    index = _address(instruction, "vaddr", 1) if flag("idxen") else None
    address = shared(flag("vaddr") + VGPR0 + flag("idxen")) if flag("offen") else None
    data = _vgpr(instruction, "vdata", _data_registers(op))
    return MemoryOperands(
        op=op,
        address=address,
        index=index,
        base=shared(4 * flag("srsrc"), 4),
        scalar_offset=shared(flag("soffset")),
        offset=flag("offset"),
        data=None if op.kind == "load" else data,
        result=data._replace(dwords=op.registers) if _returns(instruction, op) else None,
    )


def _flat(instruction: Instruction, op: MemoryOp) -> MemoryOperands:
    flag = instruction.flag
    flat, scratch = op.space == "flat", op.space == "scratch"
    has_base = not flat and flag("saddr") not in _NO_BASE
    base = shared(flag("saddr"), 1 if scratch else 2) if has_base else None
    address: Operand | None = _address(instruction, "addr", 1 if has_base or scratch else 2)
    if scratch and not flag("sve"):
        address = None
    return MemoryOperands(
        op=op,
        address=address,
        base=base,
        offset=flag("offset") & 0xFFF if flat else signed_offset(flag("offset"), 13),
        data=None if op.kind == "load" else _vgpr(instruction, "data", _data_registers(op)),
        result=_vgpr(instruction, "vdst", op.registers) if _returns(instruction, op) else None,
    )


def _lds(instruction: Instruction, op: MemoryOp) -> MemoryOperands:
    flag = instruction.flag
    two = op.accesses == 2
    stores = op.kind != "load"
    swizzles = instruction.mnemonic == "ds_swizzle_b32"
    registers = max(1, op.size // 4)
    return MemoryOperands(
        op=op,
        address=_address(instruction, "addr", 1),
        offset=flag("offset0") if two else flag("offset0") | flag("offset1") << 8,
        offset1=flag("offset1") if two else 0,
        data=_vgpr(instruction, "data0", registers) if stores and not swizzles else None,
        data1=_vgpr(instruction, "data1", registers) if stores and two else None,
        result=_vgpr(instruction, "vdst", op.registers) if _returns(instruction, op) else None,
    )
