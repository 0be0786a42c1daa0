"""Sources of vector instructions: each argument of a form's function as lanes of the type that its letter asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mxcomp.sim.fast import ir, lanes
from mxcomp.sim.fast.frame import Frame
from mxcomp.sim.fast.tracing import InsertPoint, Traced
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics.modifiers import modified16, modified32, modified64, selected_part
from mxcomp.sim.semantics.table import VectorOp, u32, u64

_WIDE = "UIdQM"


@dataclass(frozen=True)
class Source:
    """One argument of the lane function.

    Attributes:
        letter: Its type.
        operand: None for MODE.
        exchanged: It goes through DPP.
    """

    letter: str
    operand: Operand | None
    exchanged: bool = False

    @property
    def shared(self) -> bool:
        """Whether all lanes have the same value."""
        return self.operand is None or not self.operand.is_vgpr

    @property
    def type(self) -> Any:
        """LLVM's type of the argument: a row, or the bits that all lanes share."""
        return ir.pointer if not self.shared else ir.i64 if self.letter in _WIDE else ir.i32

    @property
    def key(self) -> tuple[Any, ...]:
        """The properties that the generated code depends on."""
        o = self.operand
        if o is None:
            return (self.letter,)
        kind = "v" if o.is_vgpr else "s" if o.is_sgpr else "c"
        return (self.letter, kind, o.negate, o.absolute, o.high, o.sel, o.signed)


def sources(i: Instruction, op: VectorOp) -> list[Source]:
    """Returns sources in the order of the function's arguments: those of the signature, then the old result."""
    operands = list(i.src)
    found = [
        Source(letter, None if letter == "m" else operands.pop(0), k == 0 and i.dpp is not None)
        for k, letter in enumerate(op.src)
    ]
    if op.old:
        found.append(Source(op.dst[0] if op.old == "accumulate" else "u", operands.pop(0)))
    return found


def argument(frame: Frame, source: Source) -> ir.Value:
    """Returns the value that the caller passes."""
    operand, letter = source.operand, source.letter
    assert operand is not None
    if operand.is_vgpr:
        return frame.rows(operand)
    if letter == "Q":
        return _pair(frame, operand)
    if letter in "Id" and operand.code < 255 and not (letter == "d" and operand.code >= 128):
        letter = "U"
    return frame.scalar(operand, letter)


def _pair(frame: Frame, operand: Operand) -> ir.Value:
    """Returns a pair of SGPRs, or a float constant twice."""
    if operand.is_sgpr:
        return frame.read64(operand.code)
    low = frame.builder.zext(frame.scalar(operand, "f"), ir.i64)
    return frame.builder.or_(low, frame.builder.shl(low, ir.index(32)))


def fetch(point: InsertPoint, source: Source, given: ir.Value) -> Any:
    """Returns the lanes from `at.lane` on."""
    letter, operand = source.letter, source.operand
    assert operand is not None
    if letter == "M":
        return Traced(point, bool, lanes.chunk(point.builder, given, point.lane))
    words: list[Any] = [_word(point, source, given, k) for k in range(2 if letter in "UIdQ" else 1)]
    if letter == "Q":
        return tuple(words)
    if letter in "UId":
        bits = words[0].astype(u64) | words[1].astype(u64) << 32
        return modified64(bits, operand, letter)
    raw: Any = words[0] if operand.sel == 6 or source.exchanged else selected_part(words[0], operand)
    return modified16(raw, operand, letter) if letter in "hHSb" else modified32(raw, operand, letter)


def _word(point: InsertPoint, source: Source, given: ir.Value, k: int) -> Traced:
    """Returns register k of a source, or the k-th half of the bits that all lanes share."""
    builder = point.builder
    if source.shared:
        wide = given.type == ir.i64
        word = builder.trunc(builder.lshr(given, ir.index(32 * k)), ir.i32) if wide else given
        return Traced(point, u32, ir.splat(builder, word))
    at = builder.add(point.lane, ir.index(ir.WAVE * k))
    return Traced(point, u32, ir.load(builder, ir.offset(builder, given, at, ir.i32), ir.vector(ir.i32)))
