"""Results of vector instructions: output modifiers, canonical NaN, halves, SDWA parts, EXEC."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.tracing import Place, Traced, lift
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics.table import DTYPES, MASK32, f16, f32, f64, u16, u32, u64

_NAN: dict[str, Any] = {"f": u32(0x7FC00000), "d": u64(0x7FF8000000000000), "h": u16(0x7E00)}
_BITS: dict[str, Any] = {"f": u32, "d": u64, "h": u16}
_FLOATS: dict[str, Any] = {"f": f32, "d": f64, "h": f16}
_FACTORS = {1: 2.0, 2: 4.0, 3: 0.5}
_WHOLE, _UNUSED_SIGN, _UNUSED_PRESERVE = 6, 1, 2


def write_result(place: Place, i: Instruction, letter: str, value: Any, row: ir.Value, active: ir.Value) -> None:
    """Writes lanes of a type to the row, and the next one if they have 64 bits."""
    if not isinstance(value, Traced):
        value = lift(place, value, np.dtype(DTYPES.get(letter, u32)))
    if letter in "fdh":
        value = _canonical(_modified(i, value, letter), letter)
    if letter in "dUI":
        bits = value.view(u64)
        _store(place, bits.astype(u32), row, active)
        _store(place, (bits >> 32).astype(u32), ir.offset(place.builder, row, ir.WAVE, ir.i32), active)
        return
    word = _half(place, i, value, row) if letter in "hHS" else value
    if i.sdwa and i.dpp is None and i.flag("dst_sel") != _WHOLE:
        word = _part(place, i, word, row)
    _store(place, word, row, active)


def _modified(i: Instruction, value: Any, letter: str) -> Any:
    """omod, then clamp (which makes NaN 0)."""
    kind = _FLOATS[letter]
    if i.flag("omod"):
        value = value * kind(_FACTORS[i.flag("omod")])
    return np.fmin(np.fmax(value, kind(0)), kind(1)) if i.flag("clmp") else value


def _canonical(value: Any, letter: str) -> Traced:
    result: Traced = np.where(value != value, _NAN[letter], value.view(_BITS[letter]))
    return result


def _half(place: Place, i: Instruction, value: Traced, row: ir.Value) -> Traced:
    """16 bits: the upper half becomes zero; op_sel[3] writes the upper half and keeps the lower."""
    word = value.view(u16).astype(u32)
    if i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1:
        return _load(place, row) & u32(0xFFFF) | word << 16
    return word


def _part(place: Place, i: Instruction, value: Traced, row: ir.Value) -> Traced:
    """SDWA: a byte or word; dst_unused: the rest is 0, sign-extended, or kept."""
    select, unused = i.flag("dst_sel"), i.flag("dst_unused")
    width = 8 if select < 4 else 16
    shift = 8 * select if select < 4 else 16 * (select - 4)
    mask = (1 << width) - 1
    part = (value & mask) << shift
    if unused == _UNUSED_PRESERVE:
        return _load(place, row) & u32(~(mask << shift) & MASK32) | part
    if unused == _UNUSED_SIGN:
        above = u32(MASK32 << (shift + width) & MASK32)
        return np.where(value >> (width - 1) & 1 == 1, part | above, part)
    return part


def _at(place: Place, row: ir.Value) -> ir.Value:
    return ir.offset(place.builder, row, place.lane, ir.i32)


def _load(place: Place, row: ir.Value) -> Traced:
    return Traced(place, u32, ir.load(place.builder, _at(place, row), ir.vector(ir.i32)))


def _store(place: Place, value: Traced, row: ir.Value, active: ir.Value) -> None:
    builder = place.builder
    words = value.value if value.dtype.itemsize == 4 else value.astype(u32).value
    words = builder.bitcast(words, ir.vector(ir.i32))
    ir.store(builder, builder.select(active, words, _load(place, row).value), _at(place, row))
