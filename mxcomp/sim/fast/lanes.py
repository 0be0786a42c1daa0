"""EXEC masks, and instructions that exchange values between lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.frame import Frame
from mxcomp.sim.instruction import Dpp, Instruction
from mxcomp.sim.semantics.lane import dpp_lanes, dpp_written


def chunk(builder: llvm.IRBuilder, mask: ir.Value, lane: ir.Value) -> ir.Value:
    """Returns the bits of a 64-bit mask from `lane` on as a vector of i1."""
    bits = builder.trunc(builder.lshr(mask, lane), llvm.IntType(ir.LANES))
    return builder.bitcast(bits, ir.vector(ir.i1))


def collect(builder: llvm.IRBuilder, total: ir.Value, bits: ir.Value, lane: ir.Value) -> None:
    """Adds a vector of i1 to the mask in memory."""
    wide = builder.zext(builder.bitcast(bits, llvm.IntType(ir.LANES)), ir.i64)
    ir.store(builder, builder.or_(ir.load(builder, total, ir.i64, 8), builder.shl(wide, lane)), total, 8)


def bits_of(lanes: np.ndarray) -> int:
    return int(np.packbits(lanes, bitorder="little").view(np.uint64)[0])


def exchange(builder: llvm.IRBuilder, dpp: Dpp, row: ir.Value, active: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Returns the first source through DPP: a row of exchanged lanes, and the mask of lanes that are written.

    bound_ctrl: what does not exist or is not active reads as 0; without it such lanes keep their result.
    """
    found = dpp_lanes(dpp.control)
    assert found is not None
    source, exists = found
    moved, valid = ir.entry_alloca(builder, llvm.ArrayType(ir.i32, ir.WAVE)), ir.entry_alloca(builder, ir.i64)
    ir.store(builder, ir.index(0), valid, 8)
    lanes = ir.table(builder.module, source.astype(np.uint64))
    existing = ir.index(bits_of(exists))
    with ir.loop(builder, ir.WAVE) as lane:
        at = ir.load(builder, ir.offset(builder, lanes, lane, ir.i64), ir.i64, 8)
        value = ir.load(builder, ir.offset(builder, row, at, ir.i32), ir.i32)
        ok = builder.and_(builder.lshr(active, at), builder.lshr(existing, lane))
        ok = builder.and_(ok, ir.index(1))
        ir.store(builder, builder.or_(ir.load(builder, valid, ir.i64, 8), builder.shl(ok, lane)), valid, 8)
        if dpp.bound_control:
            value = builder.select(builder.trunc(ok, ir.i1), value, ir.constant(ir.i32, 0))
        ir.store(builder, value, ir.offset(builder, moved, lane, ir.i32))
    written = builder.and_(active, ir.index(bits_of(dpp_written(dpp.row_mask, dpp.bank_mask))))
    if not dpp.bound_control:
        written = builder.and_(written, ir.load(builder, valid, ir.i64, 8))
    return moved, written


# -- instructions


def is_compiled(i: Instruction) -> bool:
    """Returns whether the instruction is compiled: row swaps only between different registers."""
    if i.mnemonic not in _CROSS_LANE or i.dpp is not None or i.sdwa:
        return False
    return len(i.dst) == 1 or (i.src[0].is_vgpr and i.src[0].code != i.dst[0].code)


def emit_cross_lane(frame: Frame, i: Instruction) -> None:
    _CROSS_LANE[i.mnemonic](frame, i)


def _lane_of(frame: Frame, i: Instruction, lane: ir.Value) -> ir.Value:
    """Returns a source's value in one lane."""
    source = i.src[0]
    if not source.is_vgpr:
        return frame.scalar(source, "u")
    return ir.load(frame.builder, ir.offset(frame.builder, frame.rows(source), lane, ir.i32), ir.i32)


def _read_first_lane(frame: Frame, i: Instruction) -> None:
    """Reads the lowest active lane, or lane 0 if there is none."""
    builder = frame.builder
    active = frame.exec()
    kind = llvm.FunctionType(ir.i64, [ir.i64, ir.i1])
    count = builder.module.globals.get("llvm.cttz.i64") or llvm.Function(builder.module, kind, "llvm.cttz.i64")
    lowest = builder.and_(builder.call(count, [active, ir.constant(ir.i1, 0)]), ir.index(63))
    frame.write(i.dst[0].code, _lane_of(frame, i, lowest))


def _selected_lane(frame: Frame, i: Instruction) -> ir.Value:
    number = frame.builder.and_(frame.scalar(i.src[1], "u"), ir.constant(ir.i32, 63))
    return frame.builder.zext(number, ir.i64)


def _read_lane(frame: Frame, i: Instruction) -> None:
    frame.write(i.dst[0].code, _lane_of(frame, i, _selected_lane(frame, i)))


def _write_lane(frame: Frame, i: Instruction) -> None:
    builder, value = frame.builder, frame.scalar(i.src[0], "u")
    ir.store(builder, value, ir.offset(builder, frame.rows(i.dst[0]), _selected_lane(frame, i), ir.i32))


def _swap_rows(rows: int) -> Callable[[Frame, Instruction], None]:
    """Exchanges the odd groups of `rows` lanes of the result register with the even groups of the source."""

    def emit(frame: Frame, i: Instruction) -> None:
        builder, kind = frame.builder, ir.vector(ir.i32)
        result, source = frame.rows(i.dst[0]), frame.rows(i.src[0])
        for first in range(0, ir.WAVE, ir.LANES):
            if first & rows:
                continue
            odd = ir.offset(builder, result, first + rows, ir.i32)
            even = ir.offset(builder, source, first, ir.i32)
            a, b = ir.load(builder, odd, kind), ir.load(builder, even, kind)
            ir.store(builder, b, odd)
            ir.store(builder, a, even)

    return emit


_CROSS_LANE: dict[str, Callable[[Frame, Instruction], None]] = {
    "v_readfirstlane_b32": _read_first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_permlane16_swap_b32": _swap_rows(16),
    "v_permlane32_swap_b32": _swap_rows(32),
}
