"""The normalised form of an instruction, which both engines execute.

Operands use AMD's source encoding, continued for the accumulation registers:

===========  ==========================================================================
code         meaning
===========  ==========================================================================
0–101        SGPRs; 102–127: flat_scratch, xnack_mask, vcc (106), ttmp, m0 (124), exec (126)
128–208      integers 0–64, −1 … −16
235, 237     shared and private aperture
240–248      0.5, −0.5, 1, −1, 2, −2, 4, −4, 1/(2π)
251–253      vccz, execz, scc
255          literal
256–511      v0–v255
512–767      a0–a255
===========  ==========================================================================

A set of registers is an int: bit n stands for the register of code n (so testing for overlap is one `&`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

VCC, M0, EXEC, SCC, LITERAL, VGPR0, AGPR0 = 106, 124, 126, 253, 255, 256, 512
VCCZ, EXECZ = 251, 252

RegisterSet = int

_NO_FIELDS: Mapping[str, int] = MappingProxyType({})


class Operand(NamedTuple):
    """A register range or a constant.

    Attributes:
        code: First register or constant, see the module's table.
        dwords: Registers used.
        literal: The 32-bit literal when `code` is 255.
        negate, absolute: Float modifiers, |x| first.
        high: op_sel: the upper half of a 16-bit operand.
        sel: SDWA selector: 0–3 byte, 4–5 word, 6 the whole register.
        signed: SDWA: sign-extend the selected part.
    """

    code: int
    dwords: int = 1
    literal: int = 0
    negate: bool = False
    absolute: bool = False
    high: bool = False
    sel: int = 6
    signed: bool = False

    @property
    def is_vgpr(self) -> bool:
        return self.code >= VGPR0

    @property
    def is_sgpr(self) -> bool:
        return self.code < 128

    @property
    def vgpr(self) -> int:
        """The row of the wave's vector register file: 0–255 v, 256–511 a."""
        return self.code - VGPR0

    @property
    def registers(self) -> RegisterSet:
        if self.is_sgpr or self.is_vgpr:
            return ((1 << self.dwords) - 1) << self.code
        return {SCC: 1 << SCC, VCCZ: 3 << VCC, EXECZ: 3 << EXEC}.get(self.code, 0)

    def __str__(self) -> str:
        code = self.code
        if 128 <= code <= 192:
            text = str(code - 128)
        elif 193 <= code <= 208:
            text = str(192 - code)
        elif 240 <= code <= 248:
            text = str(_FLOATS[code - 240])
        elif code == LITERAL:
            text = f"{self.literal:#x}"
        else:
            text = register_name(code, self.dwords)
        text = f"|{text}|" if self.absolute else text
        return f"-{text}" if self.negate else text


shared = lru_cache(maxsize=1 << 14)(Operand)
"""Returns an operand; equal arguments give the same object, as a program has few different ones."""


@dataclass(frozen=True, slots=True)
class Dpp:
    """Data-parallel primitives: how lanes of the first source are exchanged, and which rows and banks are written."""

    control: int
    row_mask: int
    bank_mask: int
    bound_control: bool


Kind = Literal["load", "store", "atomic", "permute"]


class Space(IntEnum):
    """Memory with addresses of its own. Flat accesses are in any."""

    DEVICE = 0
    LDS = 1
    SCRATCH = 2

    def __str__(self) -> str:
        return ("memory", "LDS", "scratch")[self]


@dataclass(frozen=True, slots=True)
class MemoryOp:
    """The data that a memory instruction moves.

    Attributes:
        space: "buffer", "global", "flat", "scratch", "lds" or "scalar" (s_load, s_store, s_atomic), "scalar_buffer".
        size: Bytes per lane of one access.
        signed: Loads of less than 4 bytes extend the sign.
        half: "lo" or "hi": only this half of the result register is written (d16); for stores, what is stored.
        to_lds: The data goes to LDS instead of registers (direct load).
        accesses: 2 for ds_read2 and ds_write2.
        stride: Bytes per step of the two offsets of those.
        transpose: Bits per element of a transposing LDS read, 0 for others.
        atomic: Operation, e.g. "add_f32".
        returns: An atomic that may return the old value (LDS: does; elsewhere the sc0 bit says so).
    """

    space: str
    kind: Kind
    size: int
    signed: bool = False
    half: str = ""
    to_lds: bool = False
    accesses: int = 1
    stride: int = 0
    transpose: int = 0
    atomic: str = ""
    returns: bool = False

    @property
    def registers(self) -> int:
        """The number of registers per lane that contain the data of all accesses."""
        return max(1, self.size // 4) * self.accesses

    @property
    def bytes(self) -> int:
        """The bytes of a lane's data, of all accesses."""
        return self.size * self.accesses

    @property
    def where(self) -> Space:
        """The space of the data; flat accesses may also be in others."""
        return {"lds": Space.LDS, "scratch": Space.SCRATCH}.get(self.space, Space.DEVICE)

    @property
    def is_scalar(self) -> bool:
        return self.space in ("scalar", "scalar_buffer")

    @property
    def is_vector(self) -> bool:
        """Whether it is counted by vmcnt."""
        return not self.is_scalar and self.space != "lds"


@dataclass(frozen=True, slots=True)
class MemoryOperands:
    """The operands of a memory instruction, by role.

    Attributes:
        op: What is moved; `to_lds` also where a flag of the instruction says so.
        address: Per-lane address or offset: two registers for 64-bit addresses, one for offsets (buffer with offen,
            global with base, LDS, scratch), or None.
        index: Per-lane record index of a buffer (idxen).
        base: SGPRs: 64-bit base address, 32-bit scratch offset, or the buffer resource.
        scalar_offset: SGPR or constant added to the address.
        offset: Immediate byte offset; for ds_read2 and ds_write2 the first of two, in `stride` units of the operation.
        offset1: The second.
        data: What is stored, or the operand of an atomic (a compare value follows in the same range).
        data1: The second value of ds_write2.
        result: Registers loaded, or None.
    """

    op: MemoryOp
    address: Operand | None = None
    index: Operand | None = None
    base: Operand | None = None
    scalar_offset: Operand | None = None
    offset: int = 0
    offset1: int = 0
    data: Operand | None = None
    data1: Operand | None = None
    result: Operand | None = None

    def sources(self) -> tuple[Operand, ...]:
        used = (self.address, self.index, self.base, self.scalar_offset, self.data, self.data1)
        return tuple(operand for operand in used if operand is not None)


class Instruction(NamedTuple):
    """One instruction, with implicit operands made explicit.

    Attributes:
        offset: Virtual address in the code object, bytes.
        size: Bytes.
        mnemonic: Lower case, without encoding suffix: ``v_add_u32``.
        encoding: AMD's name: VOP1, VOP2, VOP3, VOP3SD, VOPC, VOP3P, MFMA, SOP1 … SOPP, SMEM, MUBUF, FLAT, GLOBAL,
            SCRATCH or DS.
        dst, src: Operands in the order of the table of `mxcomp.sim.semantics` that describes the mnemonic.
        fields: The encoding's remaining bit fields by AMD's names (offset, clmp, omod, opsel, sc0, …).
        memory: Operands of a memory instruction by role; `dst` and `src` then list the same ones.
        sdwa, dpp: The SDWA variant is used; the DPP controls.
        target: Virtual address a branch goes to.
        reads, writes: Registers, for scoreboards. Operands kept in part (op_sel, d16) are not reads.
    """

    offset: int
    size: int
    mnemonic: str
    encoding: str
    dst: tuple[Operand, ...] = ()
    src: tuple[Operand, ...] = ()
    fields: Mapping[str, int] = _NO_FIELDS
    memory: MemoryOperands | None = None
    sdwa: bool = False
    dpp: Dpp | None = None
    target: int | None = None
    reads: RegisterSet = 0
    writes: RegisterSet = 0

    @property
    def end(self) -> int:
        return self.offset + self.size

    def flag(self, name: str) -> int:
        """Returns a bit field, or 0 where the encoding has none of that name."""
        return self.fields.get(name, 0)

    def at(self, offset: int) -> Instruction:
        """Returns the same instruction at another address; branches are relative."""
        moved = Instruction(offset, *self[1:])
        return moved if self.target is None else moved._replace(target=self.target + offset - self.offset)

    def indexed(self, mode: int, index: int) -> Instruction:
        """Returns the instruction as it acts in GPR-index mode (s_set_gpr_idx_on): bits 0–2 move sources, bit 3 the
        result."""

        def move(operand: Operand, on: int) -> Operand:
            return operand._replace(code=operand.code + index) if on and operand.is_vgpr else operand

        src = tuple(move(operand, mode >> k & 1) for k, operand in enumerate(self.src))
        dst = tuple(move(operand, mode >> 3 & 1) for operand in self.dst)
        return self._replace(
            dst=dst,
            src=src,
            reads=self.reads | registers(src),
            writes=self.writes & ~registers(self.dst) | registers(dst),
        )

    def __str__(self) -> str:
        operands = ", ".join(map(str, (*self.dst, *self.src)))
        extra = " ".join(f"{name}:{value:#x}" for name, value in self.fields.items() if value)
        target = "" if self.target is None else f"{self.target:#x}"
        return " ".join(part for part in (self.mnemonic, operands, target, extra) if part)


def registers(operands: tuple[Operand, ...]) -> RegisterSet:
    result = 0
    for operand in operands:
        result |= operand.registers
    return result


_NAMES = {VCC: "vcc", M0: "m0", EXEC: "exec", VCCZ: "vccz", EXECZ: "execz", SCC: "scc", 235: "src_shared_base",
          237: "src_private_base", 107: "vcc_hi", 127: "exec_hi", 102: "flat_scratch", 104: "xnack_mask"}  # fmt: skip
_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494)


def register_name(code: int, dwords: int = 1) -> str:
    """Returns LLVM's name of a register range."""
    if code in _NAMES and not (code in (VCC, EXEC) and dwords == 1):
        return _NAMES[code]
    if code in (VCC, EXEC):
        return f"{_NAMES[code]}_lo"
    kind, first = ("a", code - AGPR0) if code >= AGPR0 else ("v", code - VGPR0) if code >= VGPR0 else ("s", code)
    if 108 <= code < 124:
        kind, first = "ttmp", code - 108
    return f"{kind}{first}" if dwords == 1 else f"{kind}[{first}:{first + dwords - 1}]"
