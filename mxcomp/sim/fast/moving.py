"""Moves data between registers and memory, lane by lane in ascending order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir as llvm

from mxcomp.sim.checks.journal import ROW_BYTES
from mxcomp.sim.fast import ir
from mxcomp.sim.fast.addresses import WRITTEN, Bound, Found, base_pointer
from mxcomp.sim.fast.frame import Env, Frame
from mxcomp.sim.fast.scalar import exact
from mxcomp.sim.fast.tracing import Untraceable
from mxcomp.sim.instruction import MemoryOp, Space
from mxcomp.sim.semantics.memory import INTEGER_ATOMICS


def _cell(row: ir.Value, lane: ir.Value, k: int = 0) -> ir.Value:
    """Returns the address of a lane of the k-th register after a row."""
    return row.at(lane + ir.WAVE * k, ir.i32)


def load_lanes(frame: Frame, op: MemoryOp, row: ir.Value, found: Found, active: ir.Value, offset: int) -> None:
    """Loads data; active lanes outside a buffer's range get 0."""
    builder, base = frame.builder, base_pointer(frame, found.space)
    count, out = max(1, op.size // 4), active & ~found.inside
    with builder.if_then(out != 0, likely=False), ir.each_lane(builder, out) as lane:
        for k in range(count):
            _put(op, _cell(row, lane, k), ir.Value(builder, ir.constant(ir.i32, 0)))
    with ir.each_lane(builder, found.inside) as lane:
        address = found.at(frame, base, lane, offset)
        for k in range(count):
            cell = _cell(row, lane, k)
            if op.size >= 4:
                _put(op, cell, address.at(4 * k).load(ir.i32))
            else:
                _put(op, cell, address.load(llvm.IntType(8 * op.size)).to(ir.i32, op.signed))


def _put(op: MemoryOp, target: ir.Value, value: ir.Value) -> None:
    """Writes a register, of which a d16 load replaces half."""
    if op.half:
        target.at(2 if op.half == "hi" else 0).put(0, value.to(ir.i16))
    else:
        target.put(0, value)


def store_lanes(frame: Frame, op: MemoryOp, row: ir.Value, found: Found, offset: int) -> None:
    """Stores data, and marks in the shadow that they were written."""
    base, marks = base_pointer(frame, found.space), WRITTEN.get(found.space)
    shadow = None if marks is None else frame.pointer(marks)
    with ir.each_lane(frame.builder, found.inside) as lane:
        for target in (base,) if shadow is None else (base, shadow):
            address = found.at(frame, target, lane, offset)
            for k in range(max(1, op.size // 4)):
                value: Any = _stored(op, _cell(row, lane, k).load(ir.i32, 4))
                if target is shadow:
                    value = ir.constant(value.type, 0x01010101 & (1 << value.type.width) - 1)
                address.at(4 * k).store(value)


def journal_lanes(frame: Frame, found: Found, offset: int, size: int) -> None:
    """Records dwords of device memory, and their marks, in the journal if there is one."""
    builder, rows = frame.builder, frame.pointer(Env.JOURNAL)
    data, marks = frame.pointer(Env.DATA), frame.pointer(Env.WRITTEN)
    count = max(1, size // 4)
    with builder.if_then(frame.get(Env.JOURNAL) != 0):
        position = ir.Variable(builder, ir.i64, frame.get(Env.JOURNALED))
        with ir.each_lane(builder, found.inside) as lane:
            first, number = found.addresses.item(lane, ir.i64), position.get()
            for k in range(count):
                address, row = first + (offset + 4 * k), rows.at((number + k) * ROW_BYTES)
                row.put(0, address)
                for at_byte, space in ((8, data), (12, marks)):
                    word = space.at(address).load(ir.i32)
                    row.at(at_byte).put(0, word)
            position.set(number + count)
        frame.set(Env.JOURNALED, position.get())


def _stored(op: MemoryOp, word: ir.Value) -> ir.Value:
    """Returns the part of a register that is stored."""
    if op.size >= 4:
        return word
    return (word >> 16 if op.half == "hi" else word).to(llvm.IntType(8 * op.size))


def stores_the_same(frame: Frame, op: MemoryOp, row: ir.Value, found: Found, offset: int) -> ir.Value:
    """Returns whether a store to LDS would change nothing."""
    base = base_pointer(frame, Space.LDS)
    same = ir.Variable(frame.builder, ir.i1, 1)
    with ir.each_lane(frame.builder, found.inside) as lane:
        address, equal = found.at(frame, base, lane, offset), same.get()
        for k in range(max(1, op.size // 4)):
            value = _stored(op, _cell(row, lane, k).load(ir.i32, 4))
            equal = equal & (address.at(4 * k).load(value.type) == value)
        same.set(equal)
    return same.get()


def transpose_lanes(frame: Frame, op: MemoryOp, row: ir.Value, found: Found, active: ir.Value, offset: int) -> None:
    """Emits transposing LDS reads: 16 lanes have a matrix of 16 columns, row after row; their lane i gets column i."""
    bits = op.transpose
    if bits not in (4, 8, 16):
        raise Untraceable(f"transposing read of {bits} bits")
    builder, base = frame.builder, base_pointer(frame, found.space)
    whole = llvm.IntType(8 * op.size)
    raw = ir.entry_alloca(builder, llvm.ArrayType(whole, ir.WAVE))
    with ir.loop(builder, ir.WAVE) as lane:
        raw.put(lane, ir.constant(whole, 0))
    with ir.each_lane(builder, found.inside) as lane:
        raw.put(lane, found.at(frame, base, lane, offset).load(whole))
    with ir.each_lane(builder, active) as lane:
        column = lane & 15
        group = raw.at(lane - column, whole)
        total = ir.Value(builder, ir.constant(whole, 0))
        for k in range(8 * op.size // bits):
            total = total | _element(group, column, k, bits).to(whole) << k * bits
        for k in range(op.size // 4):
            _cell(row, lane, k).put(0, (total >> 32 * k).to(ir.i32))


def _element(group: ir.Value, column: ir.Value, k: int, bits: int) -> ir.Value:
    """Returns element k of a column: number 16·k + column of the group."""
    if bits == 4:
        byte = group.item((column >> 1) + 8 * k, ir.i8)
        return byte >> ((column.to(ir.i8) & 1) << 2) & 15
    return group.at(column + 16 * k, llvm.IntType(bits)).load(llvm.IntType(bits))


# -- atomics: lanes one after another, in ascending order


def _add_f32(old: ir.Value, x: ir.Value) -> ir.Value:
    b = old.builder
    total = ir.Value(b, b.fadd(old.bits(ir.single), x.bits(ir.single)))
    nan = ir.Value(b, b.fcmp_unordered("uno", total, total))
    return nan.select(ir.constant(ir.i32, 0x7FC00000), total.bits(ir.i32))


def _add_bfloat_pair(old: ir.Value, x: ir.Value) -> ir.Value:
    """Adds pairs of bfloat16, rounded to nearest even; NaN is canonical."""
    b, halves = old.builder, []
    for upper in (False, True):
        one, other = ((word & -65536 if upper else word << 16).bits(ir.single) for word in (old, x))
        total = ir.Value(b, b.fadd(one, other))
        bits = total.bits(ir.i32)
        even = bits >> 16 & 1
        nan = ir.Value(b, b.fcmp_unordered("uno", total, total))
        halves.append(nan.select(ir.constant(ir.i32, 0x7FC00000), bits + 0x7FFF + even) >> 16)
    return halves[0] | halves[1] << 16


_FLOATS: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {"add_f32": _add_f32, "pk_add_bf16": _add_bfloat_pair}


def _combined(op: MemoryOp, old: ir.Value, x: ir.Value) -> ir.Value:
    """Returns what a 32-bit atomic stores; the others are left to the NumPy engine."""
    if op.size == 4 and op.atomic in _FLOATS:
        return _FLOATS[op.atomic](old, x)
    if op.size != 4 or op.atomic not in INTEGER_ATOMICS:
        raise Untraceable(f"atomic {op.atomic}")
    found = INTEGER_ATOMICS[op.atomic](exact(old.builder, old), exact(old.builder, x), op.size)
    return exact(old.builder, found).to(ir.i32)


def update_lanes(frame: Frame, op: MemoryOp, bound: Bound, found: Found, active: ir.Value) -> None:
    builder, base, result = frame.builder, base_pointer(frame, found.space), bound.get("result")
    if result is not None:
        with ir.each_lane(builder, active & ~found.inside) as lane:
            result.put(lane, ir.constant(ir.i32, 0))
    with ir.each_lane(builder, found.inside) as lane:
        address = found.at(frame, base, lane)
        old, operand = address.load(ir.i32), bound["data"].item(lane, ir.i32)
        address.store(_combined(op, old, operand))
        if found.space is Space.DEVICE:
            found.at(frame, frame.pointer(Env.WRITTEN), lane).store(ir.constant(ir.i32, 0x01010101))
        if result is not None:
            result.put(lane, old)
