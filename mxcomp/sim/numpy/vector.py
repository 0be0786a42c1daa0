"""Vector instructions: operand fetch, the table's function, modifiers, and the write under EXEC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mxcomp.sim.instruction import EXEC, Dpp, Instruction, Operand
from mxcomp.sim.numpy.operands import VectorRead, register_read, vector_read
from mxcomp.sim.numpy.wave import Lanes, Step, Wave, mask_of
from mxcomp.sim.semantics import VECTOR
from mxcomp.sim.semantics.lane import dpp_lanes, dpp_written
from mxcomp.sim.semantics.modifiers import float_result, half_result, modified16, modified32, part_result
from mxcomp.sim.semantics.table import MASK32, VectorOp, u32, u64

_Write = Callable[[Wave, Any], None]
_Store = Callable[[Wave, int, Lanes], None]

_WHOLE = 6


def vector_step(i: Instruction) -> Step:
    op = VECTOR[i.mnemonic]
    function = _function(i, op)
    reads = _reads(i, op)
    if op.cross_lane:
        return _cross_lane(i, op, function, reads)
    if op.dst == "M":
        return _compare(i, function, reads)
    if len(op.dst) > 1:
        return _several(i, op, function, reads)
    write = _writer(i, op.dst, i.dst[0])
    return lambda w: write(w, function(*[read(w) for read in reads]))


def _function(i: Instruction, op: VectorOp) -> Callable[..., Any]:
    if op.clamped is not None and i.flag("clmp"):
        return op.clamped
    function: Callable[..., Any] = op.function(i) if op.specialise else op.function
    return function


def _reads(i: Instruction, op: VectorOp) -> list[VectorRead]:
    """Returns readers in the order of the function's arguments: those of the signature, then the old result."""
    operands = list(i.src)
    reads: list[VectorRead] = []
    for letter in op.src:
        reads.append((lambda w: w.mode) if letter == "m" else vector_read(operands.pop(0), letter))
    if i.dpp is not None:
        reads[0] = _exchanged(i, _exchange(i.dpp), op.src[0])
    if op.old:
        letter = op.dst[0] if op.old == "accumulate" and not op.cross_lane else "u"
        reads.append(vector_read(operands.pop(0), letter))
    return reads


@dataclass(frozen=True)
class _Exchange:
    """A DPP exchange: for each lane, the lane that its first source comes from.

    With bound_ctrl one that does not exist, or is not active, reads as 0; without it the lane keeps its result.
    """

    source: Lanes
    exists: Lanes
    enabled: Lanes
    bound: bool

    def read(self, raw: VectorRead, w: Wave) -> Lanes:
        values: Lanes = raw(w)[self.source]
        return np.where(self._there(w), values, values.dtype.type(0)) if self.bound else values

    def write(self, w: Wave, row: int, bits: Lanes) -> None:
        where = w.active & self.enabled
        np.copyto(w.v[row], bits, where=where if self.bound else where & self._there(w))

    def _there(self, w: Wave) -> Lanes:
        there: Lanes = self.exists & w.active[self.source]
        return there


@cache
def _exchange(dpp: Dpp) -> _Exchange:
    lanes = dpp_lanes(dpp.control)
    assert lanes is not None, "reserved control"
    return _Exchange(*lanes, dpp_written(dpp.row_mask, dpp.bank_mask), dpp.bound_control)


def _exchanged(i: Instruction, exchange: _Exchange, letter: str) -> VectorRead:
    """Returns a reader of the first source through DPP."""
    operand = i.src[0]
    if letter in "UId":
        wide = vector_read(operand, letter)
        return lambda w: exchange.read(wide, w)
    raw = register_read(Operand(operand.code))
    modified = modified16 if letter in "hHSb" else modified32
    return lambda w: modified(exchange.read(raw, w), operand, letter)


# -- results


def _compare(i: Instruction, function: Callable[..., Any], reads: list[VectorRead]) -> Step:
    a, b = reads
    result = i.dst[0].code
    also_exec = len(i.dst) > 1

    def compare(w: Wave) -> None:
        mask = mask_of(np.broadcast_to(function(a(w), b(w)), 64) & w.active)
        w.set64(result, mask)
        if also_exec:
            w.set64(EXEC, mask)

    return compare


def _several(i: Instruction, op: VectorOp, function: Callable[..., Any], reads: list[VectorRead]) -> Step:
    letters = list(op.dst)
    writes = [
        _mask_writer(operand) if letter == "M" else _writer(i, letter, operand)
        for letter, operand in zip(letters, i.dst, strict=True)
    ]

    def several(w: Wave) -> None:
        results = function(*[read(w) for read in reads])
        results = [np.array(result) for result in results]  # sources may be views of the results' registers
        for write, result in zip(writes, results, strict=True):
            write(w, result)

    return several


def _mask_writer(operand: Operand) -> _Write:
    code = operand.code
    return lambda w, lanes: w.set64(code, mask_of(np.broadcast_to(lanes, 64) & w.active))


def _cross_lane(i: Instruction, op: VectorOp, function: Callable[..., Any], reads: list[VectorRead]) -> Step:
    def full(read: VectorRead, letter: str) -> VectorRead:
        return read if letter in "swxy" else lambda w: np.broadcast_to(read(w), 64)

    letters = op.src + ("u" if op.old else "")
    reads = [full(read, letter) for read, letter in zip(reads, letters, strict=True)]
    first = i.dst[0]
    if op.dst == "s":
        return lambda w: w.set32(first.code, function(w.active, *[read(w) for read in reads]) & MASK32)
    rows = [operand.vgpr for operand in i.dst]
    if op.dst in "wxy":
        rows = [first.vgpr + k for k in range(first.dwords)]
    single = op.dst == "u"

    def exchange(w: Wave) -> None:
        results = function(w.active, *[read(w) for read in reads])
        for row, result in zip(rows, (results,) if single else results, strict=True):
            if op.every_lane:
                w.v[row] = result
            else:
                w.put(row, result)

    return exchange


def _writer(i: Instruction, letter: str, operand: Operand) -> _Write:
    """Returns a writer of lanes of a type: output modifiers, canonical NaN, DPP and SDWA masks, EXEC."""
    row, store = operand.vgpr, _store(i)
    convert = _bits_of(i, letter)
    if letter in "dUI":
        return lambda w, value: _store64(w, store, row, convert(value).view(u64))
    if letter in "hHS":
        high = bool(i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1)
        return lambda w, value: store(w, row, half_result(convert(value), w.v[row], high))
    return lambda w, value: store(w, row, convert(value))


def _bits_of(i: Instruction, letter: str) -> Callable[[Lanes], Lanes]:
    omod, clamp = i.flag("omod"), i.flag("clmp")
    return (lambda value: float_result(value, letter, omod, clamp)) if letter in "fdh" else lambda value: value


def _store64(w: Wave, store: _Store, row: int, bits: Lanes) -> None:
    store(w, row, bits.astype(u32))
    store(w, row + 1, (bits >> 32).astype(u32))


def _store(i: Instruction) -> _Store:
    """Returns a writer of 32 bits per lane."""
    if i.dpp is not None:
        return _exchange(i.dpp).write
    select, unused = i.flag("dst_sel"), i.flag("dst_unused")
    if i.sdwa and select != _WHOLE:
        return lambda w, row, bits: w.put(row, part_result(bits, w.v[row], select, unused))
    return Wave.put
