"""Decodes elements of matrix operands from registers to float32 or float64, 16 lanes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from llvmlite import ir as llvm

from mxcomp.formats import ElementFormat
from mxcomp.sim.fast import ir
from mxcomp.sim.semantics.mfma import Mfma
from mxcomp.sim.semantics.small_floats import FORMATS

Position = tuple[int, int]
"""The index along K of an element, as (start, step): start + step · group."""


@dataclass(frozen=True)
class Decoder:
    """Decodes one operand.

    Attributes:
        kind: Element type by AMD's name.
        bits: Width of an element.
        count: Elements per lane.
        split: The lane's elements are two halves, K/2 apart (8-bit operands of f8f6f4).
        depth: K.
        target: Type of the decoded elements.
    """

    kind: str
    bits: int
    count: int
    split: bool
    depth: int
    target: llvm.Type

    def elements(self, builder: llvm.IRBuilder, rows: ir.Value, lane: ir.Value) -> Iterator[tuple[Position, ir.Value]]:
        """Yields the position and values of each element of the 16 lanes from `lane` on."""
        words = [
            ir.load(builder, ir.offset(builder, rows, builder.add(lane, ir.index(ir.WAVE * k)), ir.i32), _WORDS)
            for k in range(max(1, self.count * self.bits // 32))
        ]
        for e in range(self.count):
            yield self._position(e), self._value(builder, _bits(builder, words, e * self.bits, self.bits))

    def _position(self, e: int) -> Position:
        if self.split:
            half = self.count // 2
            return e // half * (self.depth // 2) + e % half, half
        return e, self.count

    def _value(self, builder: llvm.IRBuilder, code: ir.Value) -> ir.Value:
        target = ir.vector(self.target)
        if self.kind == "i8":
            return builder.sext(builder.trunc(code, ir.vector(ir.i8)), target)
        if self.kind == "f16":
            value = builder.bitcast(builder.trunc(code, ir.vector(ir.i16)), ir.vector(ir.half))
        elif self.kind in ("f32", "bf16"):
            value = builder.bitcast(_shifted(builder, code, 32 - self.bits), _SINGLES)
        else:
            value = _small_float(builder, code, FORMATS[self.kind])
        return value if value.type == target else builder.fpext(value, target)


_WORDS, _SINGLES = ir.vector(ir.i32), ir.vector(ir.single)


def decoder_of(shape: Mfma, kind: str, target: llvm.Type) -> Decoder:
    bits = shape.bits(kind)
    return Decoder(kind, bits, shape.per_lane, shape.blocks and bits == 8, shape.k, target)


def _all(value: int) -> ir.Value:
    return ir.constant(_WORDS, [value] * ir.LANES)


def _shifted(builder: llvm.IRBuilder, value: ir.Value, by: int) -> ir.Value:
    return builder.shl(value, _all(by)) if by else value


def _bits(builder: llvm.IRBuilder, words: list[ir.Value], first: int, count: int) -> ir.Value:
    """Returns a bit field that may extend into the next register."""
    word, shift = divmod(first, 32)
    value = builder.lshr(words[word], _all(shift)) if shift else words[word]
    if shift + count > 32:
        value = builder.or_(value, builder.shl(words[word + 1], _all(32 - shift)))
    return value if count == 32 else builder.and_(value, _all((1 << count) - 1))


def _small_float(builder: llvm.IRBuilder, code: ir.Value, fmt: ElementFormat) -> ir.Value:
    """Returns a code as float32: normal numbers by moving the fields, subnormal ones as integers; then NaN and
    infinity."""
    mantissa, magnitude_mask = fmt.mantissa_bits, (1 << (fmt.bits - 1)) - 1
    magnitude = builder.and_(code, _all(magnitude_mask))
    moved = builder.add(_shifted(builder, magnitude, 23 - mantissa), _all(127 - fmt.bias << 23))
    step = ir.constant(_SINGLES, [2.0 ** (1 - fmt.bias - mantissa)] * ir.LANES)
    tiny = builder.bitcast(builder.fmul(builder.uitofp(magnitude, _SINGLES), step), _WORDS)
    bits = builder.select(builder.icmp_unsigned("<", magnitude, _all(1 << mantissa)), tiny, moved)
    if fmt.has_nan:
        infinite = builder.icmp_unsigned("==", magnitude, _all(fmt.max_code + 1))
        bits = builder.select(infinite, _all(0x7F800000), bits)
        first_nan = fmt.max_code + 1 if fmt.max_code + 1 == magnitude_mask else fmt.max_code + 2
        bits = builder.select(builder.icmp_unsigned(">=", magnitude, _all(first_nan)), _all(0x7FC00000), bits)
    sign = _shifted(builder, builder.lshr(code, _all(fmt.bits - 1)), 31)
    return builder.bitcast(builder.or_(bits, sign), _SINGLES)
