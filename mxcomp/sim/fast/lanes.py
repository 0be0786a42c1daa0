"""EXEC masks, and instructions that exchange values between lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.frame import Frame
from mxcomp.sim.instruction import Dpp, Instruction
from mxcomp.sim.semantics.lane import dpp_lanes, dpp_written, mask_of


def chunk(mask: ir.Value, lane: ir.Value) -> ir.Value:
    """Returns the bits of a 64-bit mask from `lane` on as a vector of i1."""
    return (mask >> lane).to(llvm.IntType(ir.LANES)).bits(ir.vector(ir.i1))


def collect(total: ir.Variable, bits: ir.Value, lane: ir.Value) -> None:
    """Adds a vector of i1 to a mask."""
    wide = ir.Value(lane.builder, bits).bits(llvm.IntType(ir.LANES)).to(ir.i64)
    total.set(total.get() | wide << lane)


def exchange(builder: llvm.IRBuilder, dpp: Dpp, row: ir.Value, active: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Returns the first source through DPP: a row of exchanged lanes, and the mask of lanes that are written.

    bound_ctrl: what does not exist or is not active reads as 0; without it such lanes keep their result.
    """
    found = dpp_lanes(dpp.control)
    assert found is not None
    source, exists = found
    moved, valid = ir.entry_alloca(builder, llvm.ArrayType(ir.i32, ir.WAVE)), ir.Variable(builder, ir.i64, 0)
    lanes = ir.table(builder, source.astype(np.uint64))
    existing = ir.Value(builder, ir.index(mask_of(exists)))
    with ir.loop(builder, ir.WAVE) as lane:
        at = lanes.item(lane, ir.i64)
        value = row.item(at, ir.i32)
        ok = (active >> at) & (existing >> lane) & 1
        valid.set(valid.get() | ok << lane)
        moved.put(lane, ok.to(ir.i1).select(value, ir.constant(ir.i32, 0)) if dpp.bound_control else value)
    written = active & mask_of(dpp_written(dpp.row_mask, dpp.bank_mask))
    return moved, written if dpp.bound_control else written & valid.get()


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
    return frame.rows(source).item(lane, ir.i32)


def _read_first_lane(frame: Frame, i: Instruction) -> None:
    """Reads the lowest active lane, or lane 0 if there is none."""
    lowest = ir.intrinsic(frame.builder, "cttz", frame.exec(), ir.constant(ir.i1, 0)) & 63
    frame.write(i.dst[0].code, _lane_of(frame, i, lowest))


def _selected_lane(frame: Frame, i: Instruction) -> ir.Value:
    return (frame.scalar(i.src[1], "u") & 63).to(ir.i64)


def _read_lane(frame: Frame, i: Instruction) -> None:
    frame.write(i.dst[0].code, _lane_of(frame, i, _selected_lane(frame, i)))


def _write_lane(frame: Frame, i: Instruction) -> None:
    value = frame.scalar(i.src[0], "u")
    frame.rows(i.dst[0]).put(_selected_lane(frame, i), value)


def _swap_rows(rows: int) -> Callable[[Frame, Instruction], None]:
    """Exchanges the odd groups of `rows` lanes of the result register with the even groups of the source."""

    def emit(frame: Frame, i: Instruction) -> None:
        result, source = frame.rows(i.dst[0]), frame.rows(i.src[0])
        for first in range(0, ir.WAVE, ir.LANES):
            if not first & rows:
                odd, even = result.item(first + rows, ir.i32, ir.LANES), source.item(first, ir.i32, ir.LANES)
                result.put(first + rows, even)
                source.put(first, odd)

    return emit


_CROSS_LANE: dict[str, Callable[[Frame, Instruction], None]] = {
    "v_readfirstlane_b32": _read_first_lane,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_permlane16_swap_b32": _swap_rows(16),
    "v_permlane32_swap_b32": _swap_rows(32),
}
