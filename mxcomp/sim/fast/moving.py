"""Moves data between registers and memory, lane by lane in ascending order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir as llvm

from mxcomp.sim.checks.journal import ROW_BYTES
from mxcomp.sim.fast import ir
from mxcomp.sim.fast.addresses import Found
from mxcomp.sim.fast.frame import Env, Frame
from mxcomp.sim.fast.spaces import WRITTEN, Space, base_pointer, lane_pointer
from mxcomp.sim.fast.tracing import Untraceable
from mxcomp.sim.semantics.memory import MemoryOp


@contextmanager
def each_lane(builder: llvm.IRBuilder, mask: ir.Value) -> Iterator[ir.Value]:
    """Emits `for lane in mask`."""
    with ir.loop(builder, ir.WAVE) as lane, builder.if_then(builder.trunc(builder.lshr(mask, lane), ir.i1)):
        yield lane


def at(frame: Frame, space: Space, base: ir.Value, found: Found, lane: ir.Value, offset: int = 0) -> ir.Value:
    builder = frame.builder
    address = ir.load(builder, ir.offset(builder, found.addresses, lane, ir.i64), ir.i64, 8)
    return lane_pointer(frame, space, base, builder.add(address, ir.index(offset)), lane)


def cell(builder: llvm.IRBuilder, row: ir.Value, lane: ir.Value, k: int = 0) -> ir.Value:
    """Returns the address of a lane of the k-th register after a row."""
    return ir.offset(builder, row, builder.add(lane, ir.index(ir.WAVE * k)), ir.i32)


def load_lanes(
    frame: Frame, op: MemoryOp, space: Space, row: ir.Value, found: Found, active: ir.Value, offset: int
) -> None:
    """Loads data; active lanes outside a buffer's range get 0."""
    builder, base = frame.builder, base_pointer(frame, space)
    count = max(1, op.size // 4)
    out = builder.and_(active, builder.not_(found.inside))
    with builder.if_then(builder.icmp_unsigned("!=", out, ir.index(0)), likely=False), each_lane(builder, out) as lane:
        for k in range(count):
            _put(builder, op, cell(builder, row, lane, k), ir.constant(ir.i32, 0))
    with each_lane(builder, found.inside) as lane:
        address = at(frame, space, base, found, lane, offset)
        for k in range(count):
            _put(builder, op, cell(builder, row, lane, k), _word(builder, op, address, k))


def _word(builder: llvm.IRBuilder, op: MemoryOp, address: ir.Value, k: int) -> ir.Value:
    if op.size >= 4:
        return ir.load(builder, ir.offset(builder, address, 4 * k), ir.i32, 1)
    value = ir.load(builder, address, llvm.IntType(8 * op.size), 1)
    return builder.sext(value, ir.i32) if op.signed else builder.zext(value, ir.i32)


def _put(builder: llvm.IRBuilder, op: MemoryOp, target: ir.Value, value: ir.Value) -> None:
    """Writes a register, of which a d16 load replaces half."""
    if not op.half:
        ir.store(builder, value, target)
        return
    half = ir.offset(builder, target, 2 if op.half == "hi" else 0)
    ir.store(builder, builder.trunc(value, ir.i16), half, 2)


def store_lanes(frame: Frame, op: MemoryOp, space: Space, row: ir.Value, found: Found, offset: int) -> None:
    """Stores data, and marks in the shadow that they were written."""
    builder, base = frame.builder, base_pointer(frame, space)
    shadow = frame.pointer(WRITTEN[space]) if space in WRITTEN else None
    with each_lane(builder, found.inside) as lane:
        for target, ones in ((base, False), (shadow, True)):
            if target is None:
                continue
            address = at(frame, space, target, found, lane, offset)
            for k in range(max(1, op.size // 4)):
                value = _stored(builder, op, ir.load(builder, cell(builder, row, lane, k), ir.i32))
                if ones:
                    value = ir.constant(value.type, 0x01010101 & (1 << value.type.width) - 1)
                ir.store(builder, value, ir.offset(builder, address, 4 * k), 1)


def journal_lanes(frame: Frame, found: Found, offset: int, size: int) -> None:
    """Records dwords of device memory, and their marks, in the journal if there is one."""
    builder, rows = frame.builder, frame.pointer(Env.JOURNAL)
    data, marks = frame.pointer(Env.DATA), frame.pointer(Env.WRITTEN)
    on = builder.icmp_unsigned("!=", frame.get(Env.JOURNAL), ir.index(0))
    count, position = max(1, size // 4), ir.entry_alloca(builder, ir.i64)
    with builder.if_then(on):
        ir.store(builder, frame.get(Env.JOURNALED), position, 8)
        with each_lane(builder, found.inside) as lane:
            first = ir.load(builder, ir.offset(builder, found.addresses, lane, ir.i64), ir.i64, 8)
            number = ir.load(builder, position, ir.i64, 8)
            for k in range(count):
                address = builder.add(first, ir.index(offset + 4 * k))
                row = ir.offset(builder, rows, builder.mul(builder.add(number, ir.index(k)), ir.index(ROW_BYTES)))
                ir.store(builder, address, row, 8)
                for at_byte, space in ((8, data), (12, marks)):
                    word = ir.load(builder, ir.offset(builder, space, address), ir.i32, 1)
                    ir.store(builder, word, ir.offset(builder, row, at_byte))
            ir.store(builder, builder.add(number, ir.index(count)), position, 8)
        frame.set(Env.JOURNALED, ir.load(builder, position, ir.i64, 8))


def _stored(builder: llvm.IRBuilder, op: MemoryOp, word: ir.Value) -> ir.Value:
    """Returns the part of a register that is stored."""
    if op.size >= 4:
        return word
    if op.half == "hi":
        word = builder.lshr(word, ir.constant(ir.i32, 16))
    return builder.trunc(word, llvm.IntType(8 * op.size))


def stores_the_same(frame: Frame, op: MemoryOp, row: ir.Value, found: Found, offset: int) -> ir.Value:
    """Returns whether a store to LDS would change nothing."""
    builder, base = frame.builder, base_pointer(frame, Space.LDS)
    same = ir.entry_alloca(builder, ir.i1)
    ir.store(builder, ir.constant(ir.i1, 1), same, 1)
    with each_lane(builder, found.inside) as lane:
        address = at(frame, Space.LDS, base, found, lane, offset)
        equal = ir.load(builder, same, ir.i1, 1)
        for k in range(max(1, op.size // 4)):
            value = _stored(builder, op, ir.load(builder, cell(builder, row, lane, k), ir.i32))
            known = ir.load(builder, ir.offset(builder, address, 4 * k), value.type, 1)
            equal = builder.and_(equal, builder.icmp_unsigned("==", known, value))
        ir.store(builder, equal, same, 1)
    return ir.load(builder, same, ir.i1, 1)


def transpose_lanes(
    frame: Frame, op: MemoryOp, space: Space, row: ir.Value, found: Found, active: ir.Value, offset: int
) -> None:
    """Emits transposing LDS reads: 16 lanes have a matrix of 16 columns, row after row; their lane i gets column i."""
    bits = op.transpose
    if bits not in (4, 8, 16):
        raise Untraceable(f"transposing read of {bits} bits")
    builder, base = frame.builder, base_pointer(frame, space)
    whole = llvm.IntType(8 * op.size)
    raw = ir.entry_alloca(builder, llvm.ArrayType(whole, ir.WAVE))
    with ir.loop(builder, ir.WAVE) as lane:
        ir.store(builder, ir.constant(whole, 0), ir.offset(builder, raw, lane, whole), op.size)
    with each_lane(builder, found.inside) as lane:
        value = ir.load(builder, at(frame, space, base, found, lane, offset), whole, 1)
        ir.store(builder, value, ir.offset(builder, raw, lane, whole), op.size)
    with each_lane(builder, active) as lane:
        column = builder.and_(lane, ir.index(15))
        group = ir.offset(builder, raw, builder.sub(lane, column), whole)
        total = ir.constant(whole, 0)
        for k in range(8 * op.size // bits):
            element = builder.zext(_element(builder, group, column, k, bits), whole)
            total = builder.or_(total, builder.shl(element, ir.constant(whole, k * bits)))
        for k in range(op.size // 4):
            word = builder.trunc(builder.lshr(total, ir.constant(whole, 32 * k)), ir.i32)
            ir.store(builder, word, cell(builder, row, lane, k))


def _element(builder: llvm.IRBuilder, group: ir.Value, column: ir.Value, k: int, bits: int) -> ir.Value:
    """Returns element k of a column: number 16·k + column of the group."""
    if bits == 4:
        at_byte = builder.add(builder.lshr(column, ir.index(1)), ir.index(8 * k))
        byte = ir.load(builder, ir.offset(builder, group, at_byte), ir.i8, 1)
        shift = builder.shl(builder.and_(builder.trunc(column, ir.i8), ir.constant(ir.i8, 1)), ir.constant(ir.i8, 2))
        return builder.and_(builder.lshr(byte, shift), ir.constant(ir.i8, 15))
    kind = llvm.IntType(bits)
    return ir.load(builder, ir.offset(builder, group, builder.add(column, ir.index(16 * k)), kind), kind, 1)
