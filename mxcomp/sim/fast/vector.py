"""Vector instructions: one function per form, traced from the table; instructions that differ in registers only share
it.

A form's function takes EXEC, the result rows, and per source a row, or the value all lanes share. It returns the mask
result if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.fast import ir, lanes
from mxcomp.sim.fast.fetching import Source, argument, fetch, sources
from mxcomp.sim.fast.frame import MODE_SLOT, Frame
from mxcomp.sim.fast.tracing import InsertPoint, Traced, Untraceable
from mxcomp.sim.fast.writing import write_result
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics import VECTOR
from mxcomp.sim.semantics.table import VectorOp

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
    wanted = sources(i, op)
    if not any(source.operand is None for source in wanted):
        _call(frame, i, op, wanted, 0)
        return
    mode = frame.builder.lshr(frame.read32(MODE_SLOT), ir.constant(ir.i32, _OVERFLOW_MODE))
    with frame.builder.if_else(frame.builder.trunc(mode, ir.i1)) as (saturating, plain):
        with saturating:
            _call(frame, i, op, wanted, 1 << _OVERFLOW_MODE)
        with plain:
            _call(frame, i, op, wanted, 0)


def _call(frame: Frame, i: Instruction, op: VectorOp, wanted: list[Source], mode: int) -> None:
    fields = tuple(sorted(i.fields.items()))
    key = (i.mnemonic, i.encoding, fields, i.sdwa, i.dpp, mode, tuple(source.key for source in wanted))
    name = f"v.{key}".replace('"', "'")
    function = ir.once(frame.module, name, lambda: _define(frame.module, name, i, op, wanted, mode))
    rows = [frame.rows(operand) for operand in i.dst if operand.is_vgpr]
    values = [argument(frame, source) for source in wanted if source.operand is not None]
    mask = frame.builder.call(function, [frame.exec(), *rows, *values])
    for operand in i.dst:
        if not operand.is_vgpr:
            frame.write(operand.code, mask)


def _define(
    module: llvm.Module, name: str, i: Instruction, op: VectorOp, wanted: list[Source], mode: int
) -> llvm.Function:
    function = _lane_function(i, op)
    results = [operand for operand in i.dst if operand.is_vgpr]
    types = [source.type for source in wanted if source.operand is not None]
    defined = ir.internal(module, name, ir.i64, [ir.i64, *[ir.pointer] * len(results), *types])
    _fill(defined, i, op, wanted, mode, function)
    return defined


def _fill(
    defined: llvm.Function, i: Instruction, op: VectorOp, wanted: list[Source], mode: int, function: Callable[..., Any]
) -> None:
    builder = llvm.IRBuilder(defined.append_basic_block("entry"))
    active, arguments = defined.args[0], list(defined.args[1:])
    count = sum(operand.is_vgpr for operand in i.dst)
    rows, values = arguments[:count], arguments[count:]
    written = active
    if i.dpp is not None:
        values[0], written = lanes.exchange(builder, i.dpp, values[0], active)
    mask = ir.entry_alloca(builder, ir.i64)
    ir.store(builder, ir.index(0), mask, 8)
    with ir.loop(builder, ir.WAVE, ir.LANES) as lane:
        point, given = InsertPoint(builder, lane), iter(values)
        traced = [mode if source.operand is None else fetch(point, source, next(given)) for source in wanted]
        found = function(*traced)
        pointers, where = iter(rows), lanes.chunk(builder, written, lane)
        for letter, value in zip(op.dst, found if len(op.dst) > 1 else (found,), strict=True):
            if letter == "M":
                lanes.collect(builder, mask, _boolean(value), lane)
            else:
                write_result(point, i, letter, value, next(pointers), where)
    builder.ret(builder.and_(ir.load(builder, mask, ir.i64, 8), active))


def _lane_function(i: Instruction, op: VectorOp) -> Callable[..., Any]:
    if op.clamped is not None and i.flag("clmp"):
        return op.clamped
    function: Callable[..., Any] = op.function(i) if op.specialise else op.function
    return function


def _boolean(value: Any) -> ir.Value:
    if not isinstance(value, Traced):
        raise Untraceable("a constant mask")
    return value.astype(np.bool_).value
