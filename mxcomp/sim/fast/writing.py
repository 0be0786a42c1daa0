"""Results of vector instructions: output modifiers, canonical NaN, halves, SDWA parts, EXEC."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.tracing import Place, Traced, lift
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics.modifiers import float_result, half_result, part_result
from mxcomp.sim.semantics.table import DTYPES, u32, u64

_WHOLE = 6


def write_result(place: Place, i: Instruction, letter: str, value: Any, row: ir.Value, active: ir.Value) -> None:
    """Writes lanes of a type to the row, and the next one if they have 64 bits."""
    if not isinstance(value, Traced):
        value = lift(place, value, np.dtype(DTYPES.get(letter, u32)))
    if letter in "fdh":
        value = float_result(value, letter, i.flag("omod"), i.flag("clmp"))
    if letter in "dUI":
        bits = value.view(u64)
        _store(place, bits.astype(u32), row, active)
        _store(place, (bits >> 32).astype(u32), ir.offset(place.builder, row, ir.WAVE, ir.i32), active)
        return
    old: Any = _load(place, row)
    if letter in "hHS":
        value = half_result(value, old, bool(i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1))
    if i.sdwa and i.dpp is None and i.flag("dst_sel") != _WHOLE:
        value = part_result(value, old, i.flag("dst_sel"), i.flag("dst_unused"))
    _store(place, value, row, active)


def _at(place: Place, row: ir.Value) -> ir.Value:
    return ir.offset(place.builder, row, place.lane, ir.i32)


def _load(place: Place, row: ir.Value) -> Traced:
    return Traced(place, u32, ir.load(place.builder, _at(place, row), ir.vector(ir.i32)))


def _store(place: Place, value: Traced, row: ir.Value, active: ir.Value) -> None:
    builder = place.builder
    words = value.value if value.dtype.itemsize == 4 else value.astype(u32).value
    words = builder.bitcast(words, ir.vector(ir.i32))
    ir.store(builder, builder.select(active, words, _load(place, row).value), _at(place, row))
