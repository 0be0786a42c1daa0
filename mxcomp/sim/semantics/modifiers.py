"""Makes arguments of lane functions from registers, and registers from their results (CDNA4 ISA: VOP3, SDWA).

Sources: SDWA picks a byte or word, op_sel the upper half, then come |x| and −x, on the bits. Results: omod multiplies,
clamp limits floats to 0 … 1 (NaN becomes 0), NaN is made canonical, and SDWA writes a byte or word. Both engines use
these functions, on arrays or on lanes that they trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics.table import DTYPES, MASK32, Lanes, VectorOp, f32, u16, u32, u64

PARTS = {0: (0, 0xFF), 1: (8, 0xFF), 2: (16, 0xFF), 3: (24, 0xFF), 4: (0, 0xFFFF), 5: (16, 0xFFFF)}
"""Shift and mask of each SDWA selector; `WHOLE` is the whole register."""
WHOLE = 6

OUTPUT_FACTORS = {0: None, 1: 2.0, 2: 4.0, 3: 0.5}
"""The factors of a float result, by the omod field."""

CANONICAL_NAN: dict[str, Any] = {"f": u32(0x7FC00000), "d": u64(0x7FF8000000000000), "h": u16(0x7E00)}
FLOAT_BITS: dict[str, type] = {"f": u32, "d": u64, "h": u16}


class Source(NamedTuple):
    """One argument of a lane function: its type's letter, its operand (None: MODE), whether it comes through DPP."""

    letter: str
    operand: Operand | None
    exchanged: bool = False


def sources(i: Instruction, op: VectorOp) -> list[Source]:
    """Returns sources in the order of the function's arguments: those of the signature, then the old result."""
    operands = iter(i.src)
    found = [
        Source(letter, None if letter == "m" else next(operands), k == 0 and i.dpp is not None)
        for k, letter in enumerate(op.src)
    ]
    if op.old:
        found.append(Source(op.dst[0] if op.old == "accumulate" and not op.cross_lane else "u", next(operands)))
    return found


def fetched(words: Sequence[Any], source: Source) -> Any:
    """Returns the one or two registers of a source as its letter's type, with the source modifiers."""
    letter, operand, exchanged = source
    assert operand is not None
    if letter == "Q":
        return tuple(words)
    if letter in "UId":
        return modified64(words[0].astype(u64) | words[1].astype(u64) << 32, operand, letter)
    word = words[0] if operand.sel == WHOLE or exchanged else selected_part(words[0], operand)
    return modified16(word, operand, letter) if letter in "hHSb" else modified32(word, operand, letter)


def result_words(i: Instruction, letter: str) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Returns what computes the one or two registers to write from a result, and the old content of the first."""
    omod, clamp, high = i.flag("omod"), i.flag("clmp"), bool(i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1)
    select, unused = (i.flag("dst_sel"), i.flag("dst_unused")) if i.sdwa and i.dpp is None else (WHOLE, 0)

    def words(value: Any, old: Any) -> tuple[Any, ...]:
        if letter in "fdh":
            value = float_result(value, letter, omod, clamp)
        if letter in "dUI":
            bits = value.view(u64)
            return bits.astype(u32), (bits >> 32).astype(u32)
        if letter in "hHS":
            value = half_result(value, old, high)
        return (value if select == WHOLE else part_result(value, old, select, unused),)

    return words


def selected_part(word: Lanes, operand: Operand) -> Lanes:
    """Returns the byte or word that SDWA picks, extended to 32 bits."""
    shift, mask = PARTS[operand.sel]
    sign = u32((mask + 1) >> 1 if operand.signed else 0)
    return ((word >> shift & mask) ^ sign) - sign


def modified32(word: Lanes, operand: Operand, letter: str) -> Lanes:
    """Returns 32 bits as the letter's type, with the source modifiers."""
    if operand.absolute:
        word = word & u32(0x7FFFFFFF)
    if operand.negate:
        word = word ^ u32(0x80000000)
    return word.view(DTYPES.get(letter, u32))


def modified16(word: Lanes, operand: Operand, letter: str) -> Lanes:
    """Returns 16 of 32 bits as the letter's type; bfloat16 as float32. op_sel means nothing for constants."""
    shift = 16 if operand.high and (operand.is_vgpr or operand.is_sgpr) else 0
    bits = (word >> shift).astype(u16)
    if operand.absolute:
        bits = bits & u16(0x7FFF)
    if operand.negate:
        bits = bits ^ u16(0x8000)
    return (bits.astype(u32) << 16).view(f32) if letter == "b" else bits.view(DTYPES[letter])


def modified64(bits: Lanes, operand: Operand, letter: str) -> Lanes:
    """Returns 64 bits as the letter's type, with the source modifiers."""
    if operand.absolute:
        bits = bits & u64(0x7FFFFFFFFFFFFFFF)
    if operand.negate:
        bits = bits ^ u64(0x8000000000000000)
    return bits.view(DTYPES[letter])


def limited(value: Lanes) -> Lanes:
    """Applies the clamp bit: limits to 0 … 1; NaN and −0 become 0."""
    dtype: Any = value.dtype.type
    return np.where(value > 0, np.minimum(value, dtype(1)), dtype(0))


def float_result(value: Lanes, letter: str, omod: int, clamp: int) -> Lanes:
    """Returns the bits of a float result."""
    dtype = DTYPES[letter]
    factor = OUTPUT_FACTORS[omod]
    if factor is not None:
        value = value * dtype(factor)
    if clamp:
        value = limited(value)
    return np.where(value != value, CANONICAL_NAN[letter], value.view(FLOAT_BITS[letter]))


_UNUSED_SIGN, _UNUSED_PRESERVE = 1, 2


def half_result(value: Lanes, old: Lanes, high: bool) -> Lanes:
    """Returns a register with 16 new bits: in its lower half, where the upper one becomes zero, or in its upper
    half."""
    word = value.view(u16).astype(u32)
    return old & u32(0xFFFF) | word << 16 if high else word


def part_result(word: Lanes, old: Lanes, select: int, unused: int) -> Lanes:
    """Returns a register with the byte or word that SDWA selects replaced; `unused`: its other bits are 0,
    sign-extended, or kept."""
    shift, mask = PARTS[select]
    part = (word & mask) << shift
    if unused == _UNUSED_PRESERVE:
        return old & u32(~(mask << shift) & MASK32) | part
    if unused == _UNUSED_SIGN:
        above = u32(~((mask << shift) | ((1 << shift) - 1)) & MASK32)
        return np.where(word & (mask + 1 >> 1) != 0, part | above, part)
    return part
