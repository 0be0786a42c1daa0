"""The view of a wave in compiled code: three pointers, and the layout of the memory behind them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.instruction import EXEC, EXECZ, SCC, VCC, VCCZ, VGPR0, Operand
from mxcomp.sim.semantics.constants import constant_bits
from mxcomp.sim.semantics.table import MASK32, MASK64

SCC_SLOT, MODE_SLOT, SGPR_SLOTS = 128, 129, 192
"""Indices of dwords in the scalar file, after the 128 SGPR codes."""


class Status(IntEnum):
    """Why compiled code returns; the program counter is in `Env.PC`."""

    END = 0
    BARRIER = 1
    STEP = 2  # the NumPy engine has to execute the instruction at PC
    TURN = 3  # the budget does not reach to the end of the segment at PC


Env = IntEnum(
    "Env",
    """
    PC BUDGET DATA WRITTEN STARTS ENDS RANGES LDS LDS_BYTES SCRATCH SCRATCH_BYTES SCRATCH_WRITTEN COUNTS LOW HIGH
    CONFLICTS TRACE TRACED LOG LOGGED JOURNAL JOURNALED MISSING STRICT
    """,
    start=0,
)
"""The int64 slots of the environment: program counter, budget, and addresses in the simulator's own memory.

Watched code writes the number of every segment it enters to TRACE (int32[TRACED]), its accesses to LDS to LOG
(int64[LOGGED, Log.SIZE]), and, unless JOURNAL is 0, dwords of device memory before it overwrites them to JOURNAL
(JOURNALED rows, see `mxcomp.sim.checks.journal`). It sets MISSING when it reads device memory or scratch never
written; with STRICT it leaves that to the NumPy engine.
"""


class Log(IntEnum):
    """The int64 columns of a logged LDS access.

    SEGMENT: its number; MASK: EXEC; SAME: bit k, access k writes what was there; ADDRESSES: of 64 lanes, in bytes,
    before the offsets of ds_read2 and ds_write2 are added (direct loads: that of lane 0).
    """

    SEGMENT = 0
    MASK = 1
    SAME = 2
    ADDRESSES = 4
    SIZE = 68


@dataclass(frozen=True)
class Frame:
    """The arguments of a kernel's function, and a builder.

    Attributes:
        vectors: uint32[512, 64].
        scalars: uint32[SGPR_SLOTS].
        env: int64[…], see `Env`.
        watched: Whether the code keeps what checks have to know.
    """

    builder: llvm.IRBuilder
    vectors: ir.Value
    scalars: ir.Value
    env: ir.Value
    watched: bool = False

    @property
    def module(self) -> llvm.Module:
        return self.builder.module

    def rows(self, operand: Operand) -> ir.Value:
        """Returns the address of an operand's vector registers."""
        return self.vectors.at((operand.code - VGPR0) * ir.WAVE, ir.i32)

    def get(self, slot: Env) -> ir.Value:
        return self.env.item(int(slot), ir.i64)

    def set(self, slot: Env, value: ir.Value | int) -> None:
        self.env.put(int(slot), ir.index(value) if isinstance(value, int) else value)

    def pointer(self, slot: Env) -> ir.Value:
        return ir.Value(self.builder, self.builder.inttoptr(self.get(slot), ir.pointer))

    def log(self, column: Log) -> ir.Value:
        """Returns the address in the row that is logged next."""
        row = self.get(Env.LOGGED) * int(Log.SIZE)
        return self.pointer(Env.LOG).at(row + int(column), ir.i64)

    def call(self, function: llvm.Function, *arguments: Any) -> ir.Value:
        return ir.Value(self.builder, self.builder.call(function, arguments))

    def read32(self, code: int) -> ir.Value:
        return self.scalars.at(code, ir.i32).load(ir.i32, 4)

    def read64(self, code: int) -> ir.Value:
        return self.scalars.at(code, ir.i32).load(ir.i64, 4)

    def write(self, code: int, value: ir.Value) -> None:
        """Writes one or two SGPRs, by the value's type."""
        self.scalars.at(code, ir.i32).store(value, 4)

    def exec(self) -> ir.Value:
        return self.read64(EXEC)

    def scalar(self, operand: Operand, letter: str) -> ir.Value:
        """Returns an SGPR, a pair, or a constant as i32 or i64."""
        wide = letter in "UIdME"
        kind = ir.i64 if wide else ir.i32
        constant = constant_bits(operand.code, operand.literal, letter)
        if constant is not None:
            return ir.Value(self.builder, ir.constant(kind, constant & (MASK64 if wide else MASK32)))
        if operand.code == SCC:
            return self.read32(SCC_SLOT).to(kind)
        if operand.code in (VCCZ, EXECZ):
            return (self.read64(VCC if operand.code == VCCZ else EXEC) == 0).to(kind)
        return self.read64(operand.code) if wide else self.read32(operand.code)
