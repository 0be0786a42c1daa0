"""Sources of vector instructions: one argument of a form's function as the lanes its type letter asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mxcomp.sim.fast import ir, lanes
from mxcomp.sim.fast.frame import Frame
from mxcomp.sim.fast.tracing import Place, Traced
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
        """All lanes have the same value."""
        return self.operand is None or not self.operand.is_vgpr

    @property
    def type(self) -> Any:
        """LLVM's type of the argument: a row, or the bits all lanes share."""
        return ir.pointer if not self.shared else ir.i64 if self.letter in _WIDE else ir.i32

    @property
    def key(self) -> tuple[Any, ...]:
        """What the code depends on."""
        o = self.operand
        if o is None:
            return (self.letter,)
        kind = "v" if o.is_vgpr else "s" if o.is_sgpr else "c"
        return (self.letter, kind, o.negate, o.absolute, o.high, o.sel, o.signed)


def sources(i: Instruction, op: VectorOp) -> list[Source]:
    """In the order of the function's arguments: those of the signature, then the old result."""
    operands = list(i.src)
    found = [
        Source(letter, None if letter == "m" else operands.pop(0), k == 0 and i.dpp is not None)
        for k, letter in enumerate(op.src)
    ]
    if op.old:
        found.append(Source(op.dst[0] if op.old == "accumulate" else "u", operands.pop(0)))
    return found


def argument(frame: Frame, source: Source) -> ir.Value:
    """What the caller passes."""
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
    """A pair of SGPRs, or a float constant twice."""
    if operand.is_sgpr:
        return frame.read64(operand.code)
    low = frame.builder.zext(frame.scalar(operand, "f"), ir.i64)
    return frame.builder.or_(low, frame.builder.shl(low, ir.index(32)))


def fetch(place: Place, source: Source, given: ir.Value) -> Any:
    """The lanes from `place` on."""
    letter, operand = source.letter, source.operand
    assert operand is not None
    if letter == "M":
        return Traced(place, bool, lanes.chunk(place.builder, given, place.lane))
    words: list[Any] = [_word(place, source, given, k) for k in range(2 if letter in "UIdQ" else 1)]
    if letter == "Q":
        return tuple(words)
    if letter in "UId":
        bits = words[0].astype(u64) | words[1].astype(u64) << 32
        return modified64(bits, operand, letter)
    raw: Any = words[0] if operand.sel == 6 or source.exchanged else selected_part(words[0], operand)
    return modified16(raw, operand, letter) if letter in "hHSb" else modified32(raw, operand, letter)


def _word(place: Place, source: Source, given: ir.Value, k: int) -> Traced:
    """Register k of a source, or the k-th half of what all lanes share."""
    builder = place.builder
    if source.shared:
        wide = given.type == ir.i64
        word = builder.trunc(builder.lshr(given, ir.index(32 * k)), ir.i32) if wide else given
        return Traced(place, u32, ir.splat(builder, word))
    at = builder.add(place.lane, ir.index(ir.WAVE * k))
    return Traced(place, u32, ir.load(builder, ir.offset(builder, given, at, ir.i32), ir.vector(ir.i32)))
