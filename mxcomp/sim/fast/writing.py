"""Writes results of vector instructions: output modifiers, canonical NaN, halves, SDWA parts, EXEC."""

from __future__ import annotations

from typing import Any

import numpy as np

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.tracing import InsertPoint, Traced, lift
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics.modifiers import float_result, half_result, part_result
from mxcomp.sim.semantics.table import DTYPES, u32, u64

_WHOLE = 6


def write_result(point: InsertPoint, i: Instruction, letter: str, value: Any, row: ir.Value, active: ir.Value) -> None:
    """Writes lanes of a type to the row, and to the next one if they have 64 bits."""
    if not isinstance(value, Traced):
        value = lift(point, value, np.dtype(DTYPES.get(letter, u32)))
    if letter in "fdh":
        value = float_result(value, letter, i.flag("omod"), i.flag("clmp"))
    if letter in "dUI":
        bits = value.view(u64)
        _store(point, bits.astype(u32), row, active)
        _store(point, (bits >> 32).astype(u32), ir.offset(point.builder, row, ir.WAVE, ir.i32), active)
        return
    old: Any = _load(point, row)
    if letter in "hHS":
        value = half_result(value, old, bool(i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1))
    if i.sdwa and i.dpp is None and i.flag("dst_sel") != _WHOLE:
        value = part_result(value, old, i.flag("dst_sel"), i.flag("dst_unused"))
    _store(point, value, row, active)


def _at(point: InsertPoint, row: ir.Value) -> ir.Value:
    return ir.offset(point.builder, row, point.lane, ir.i32)


def _load(point: InsertPoint, row: ir.Value) -> Traced:
    return Traced(point, u32, ir.load(point.builder, _at(point, row), ir.vector(ir.i32)))


def _store(point: InsertPoint, value: Traced, row: ir.Value, active: ir.Value) -> None:
    builder = point.builder
    words = value.value if value.dtype.itemsize == 4 else value.astype(u32).value
    words = builder.bitcast(words, ir.vector(ir.i32))
    ir.store(builder, builder.select(active, words, _load(point, row).value), _at(point, row))
