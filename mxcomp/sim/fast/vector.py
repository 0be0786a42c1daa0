"""Vector instructions: one function per form, traced from the table; instructions that differ in registers only share
it.

A form's function takes EXEC, the result rows, and per source a row, or the value all lanes share. It returns the mask
result if there is one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.fast import ir, lanes
from mxcomp.sim.fast.frame import MODE_SLOT, Frame
from mxcomp.sim.fast.tracing import InsertPoint, Traced, Untraceable, lift
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.semantics import VECTOR
from mxcomp.sim.semantics.modifiers import Source, fetched, result_words, sources
from mxcomp.sim.semantics.table import DTYPES, VectorOp, u32

_OVERFLOW_MODE = 23
"""The only bit of MODE that lane functions look at: FP16_OVFL."""


_BY_ORACLE = re.compile(r"v_(exp|log|sin|cos)_")
"""Matches functions without an LLVM instruction, which NumPy computes in both engines so that they agree."""


def is_compiled(i: Instruction) -> bool:
    """Returns whether `emit_vector` compiles it; the NumPy engine executes the rest."""
    if VECTOR[i.mnemonic].cross_lane:
        return lanes.is_compiled(i)
    wide = i.dpp is not None and VECTOR[i.mnemonic].src[0] in "UIdQ"
    return not wide and _BY_ORACLE.match(i.mnemonic) is None


def emit_vector(frame: Frame, i: Instruction) -> None:
    """Emits one row of the vector table."""
    op = VECTOR[i.mnemonic]
    if op.cross_lane:
        lanes.emit_cross_lane(frame, i)
        return
    if "m" not in op.src:
        _call(frame, i, op, 0)
        return
    with frame.builder.if_else(frame.read32(MODE_SLOT).bit(_OVERFLOW_MODE)) as (saturating, plain):
        with saturating:
            _call(frame, i, op, 1 << _OVERFLOW_MODE)
        with plain:
            _call(frame, i, op, 0)


def _call(frame: Frame, i: Instruction, op: VectorOp, mode: int) -> None:
    wanted, fields = sources(i, op), tuple(sorted(i.fields.items()))
    key = (i.mnemonic, i.encoding, fields, i.sdwa, i.dpp, mode, tuple(map(_key, wanted)))
    name = f"v.{key}".replace('"', "'")
    given = [frame.rows(operand) for operand in i.dst if operand.is_vgpr]
    given += [_argument(frame, source.letter, source.operand) for source in wanted if source.operand is not None]
    types = [value.type for value in given]
    function = ir.once(frame.module, name, lambda: _define(frame.module, name, i, op, mode, types))
    mask = frame.call(function, frame.exec(), *given)
    for operand in i.dst:
        if not operand.is_vgpr:
            frame.write(operand.code, mask)


def _key(source: Source) -> tuple[Any, ...]:
    """Returns the properties of a source that the generated code depends on."""
    o = source.operand
    if o is None:
        return (source.letter,)
    kind = "v" if o.is_vgpr else "s" if o.is_sgpr else "c"
    return (source.letter, kind, o.negate, o.absolute, o.high, o.sel, o.signed)


def _argument(frame: Frame, letter: str, operand: Operand) -> ir.Value:
    """Returns what the caller passes: a row, or the bits that all lanes share; a constant stands for both of a pair."""
    if operand.is_vgpr:
        return frame.rows(operand)
    if letter != "Q":
        return frame.scalar(operand, letter)
    if operand.is_sgpr:
        return frame.read64(operand.code)
    low = frame.scalar(operand, "f").to(ir.i64)
    return low | low << 32


def _define(
    module: llvm.Module, name: str, i: Instruction, op: VectorOp, mode: int, types: list[llvm.Type]
) -> llvm.Function:
    """Defines the function of a form; the types are those of its rows and sources."""
    function, count = op.lane_function(i), sum(operand.is_vgpr for operand in i.dst)
    builder, (active, *arguments) = ir.define(module, name, ir.i64, [ir.i64, *types])
    rows, values, written = arguments[:count], arguments[count:], active
    if i.dpp is not None:
        values[0], written = lanes.exchange(builder, i.dpp, values[0], active)
    mask = ir.Variable(builder, ir.i64, 0)
    with ir.loop(builder, ir.WAVE, ir.LANES) as lane:
        point, given = InsertPoint(builder, lane), iter(values)
        traced = [mode if source.operand is None else _fetch(point, source, next(given)) for source in sources(i, op)]
        found = function(*traced)
        pointers, where = iter(rows), lanes.chunk(written, lane)
        for letter, value in zip(op.dst, found if len(op.dst) > 1 else (found,), strict=True):
            if letter == "M":
                lanes.collect(mask, _boolean(value), lane)
            else:
                _write(point, i, letter, value, next(pointers), where)
    builder.ret(mask.get() & active)
    return builder.function


def _fetch(point: InsertPoint, source: Source, given: ir.Value) -> Any:
    """Returns the lanes of a source from `point.lane` on."""
    if source.letter == "M":
        return Traced(point, bool, lanes.chunk(given, point.lane))
    return fetched([_word(point, given, k) for k in range(2 if source.letter in "UIdQ" else 1)], source)


def _word(point: InsertPoint, given: ir.Value, k: int) -> Traced:
    """Returns register k from a row on, or the k-th half of the bits that all lanes share."""
    if given.type == ir.pointer:
        return Traced(point, u32, given.item(point.lane + ir.WAVE * k, ir.i32, ir.LANES))
    word = (given >> 32 * k).to(ir.i32) if given.type == ir.i64 else given
    return Traced(point, u32, ir.splat(point.builder, word))


def _boolean(value: Any) -> ir.Value:
    if not isinstance(value, Traced):
        raise Untraceable("a constant mask")
    return value.astype(np.bool_).value


def _write(point: InsertPoint, i: Instruction, letter: str, value: Any, row: ir.Value, active: ir.Value) -> None:
    """Writes lanes of a type to the row, and to the next one if they have 64 bits."""
    if not isinstance(value, Traced):
        value = lift(point, value, np.dtype(DTYPES.get(letter, u32)))
    old = None if letter in "dUI" else _word(point, row, 0)
    for k, word in enumerate(result_words(i, letter)(value, old)):
        at = row.at(ir.WAVE, ir.i32) if k else row
        bits = word.value if word.dtype.itemsize == 4 else word.astype(u32).value
        given = point.builder.bitcast(bits, ir.vector(ir.i32))
        at.put(point.lane, active.select(given, at.item(point.lane, ir.i32, ir.LANES)))
