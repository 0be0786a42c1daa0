"""Vector instructions: operand fetch, the table's function, modifiers, and the write under EXEC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mxcomp.sim.instruction import EXEC, Instruction, Operand
from mxcomp.sim.oracle.operands import VectorRead, register_read, vector_read
from mxcomp.sim.oracle.wave import Lanes, Step, Wave, mask_of
from mxcomp.sim.semantics import VECTOR
from mxcomp.sim.semantics.lane import dpp_lanes, dpp_written
from mxcomp.sim.semantics.modifiers import float_result, modified16, modified32
from mxcomp.sim.semantics.table import MASK32, VectorOp, u16, u32, u64

_Write = Callable[[Wave, Any], None]


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
    if len(reads) == 1:
        (a,) = reads
        return lambda w: write(w, function(a(w)))
    if len(reads) == 2:
        a, b = reads
        return lambda w: write(w, function(a(w), b(w)))
    if len(reads) == 3:
        a, b, c = reads
        return lambda w: write(w, function(a(w), b(w), c(w)))
    return lambda w: write(w, function(*[read(w) for read in reads]))


def _function(i: Instruction, op: VectorOp) -> Callable[..., Any]:
    if op.clamped is not None and i.flag("clmp"):
        return op.clamped
    function: Callable[..., Any] = op.function(i) if op.specialise else op.function
    return function


def _reads(i: Instruction, op: VectorOp) -> list[VectorRead]:
    """Sources in the order of the function's arguments: those of the signature, then the old result."""
    operands = list(i.src)
    reads: list[VectorRead] = []
    for letter in op.src:
        reads.append((lambda w: w.mode) if letter == "m" else vector_read(operands.pop(0), letter))
    if i.dpp is not None:
        reads[0] = _exchanged(i, op.src[0])
    if op.old:
        letter = op.dst[0] if op.old == "accumulate" and not op.cross_lane else "u"
        reads.append(vector_read(operands.pop(0), letter))
    return reads


def _exchanged(i: Instruction, letter: str) -> VectorRead:
    """The first source through DPP. bound_ctrl: what does not exist or is not active reads as 0."""
    assert i.dpp is not None
    lanes = dpp_lanes(i.dpp.control)
    assert lanes is not None
    source, exists = lanes
    bound, operand = i.dpp.bound_control, i.src[0]
    if letter in "UId":
        wide = vector_read(operand, letter)
        return lambda w: np.where(exists & w.active[source] | (not bound), wide(w)[source], wide(w).dtype.type(0))
    raw = register_read(Operand(operand.code))

    def moved(w: Wave) -> Lanes:
        values = raw(w)[source]
        return np.where(exists & w.active[source], values, u32(0)) if bound else values

    modified = modified16 if letter in "hHSb" else modified32
    return lambda w: modified(moved(w), operand, letter)


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
    """Writes lanes of a type: output modifiers, canonical NaN, DPP and SDWA masks, EXEC."""
    row = operand.vgpr
    store: _Write = lambda w, bits: w.put(row, bits)  # noqa: E731
    if i.dpp is not None:
        store = _dpp_store(i, row)
    elif i.sdwa and i.flag("dst_sel") != 6:
        store = _sdwa_store(i, row)
    if letter in "fdh":
        return _float_writer(i, letter, store, row)
    if letter in "UI":
        return lambda w, value: _store64(w, row, value.view(u64))
    if letter in "HS":
        return _half_writer(i, store, row)
    return store


def _store64(w: Wave, row: int, bits: Lanes) -> None:
    w.put(row, bits.astype(u32))
    w.put(row + 1, (bits >> 32).astype(u32))


def _float_writer(i: Instruction, letter: str, store: _Write, row: int) -> _Write:
    omod, clamp = i.flag("omod"), i.flag("clmp")
    half = _half_writer(i, store, row)
    if letter == "d":
        return lambda w, value: _store64(w, row, float_result(value, letter, omod, clamp))
    target = half if letter == "h" else store
    return lambda w, value: target(w, float_result(value, letter, omod, clamp))


def _half_writer(i: Instruction, store: _Write, row: int) -> _Write:
    """16 bits: the upper half becomes zero; op_sel[3] writes the upper half and keeps the lower."""
    high = i.encoding == "VOP3" and i.flag("opsel") >> 3 & 1

    def write(w: Wave, value: Lanes) -> None:
        word = value.view(u16).astype(u32)
        store(w, w.v[row] & u32(0xFFFF) | word << 16 if high else word)

    return write


def _dpp_store(i: Instruction, row: int) -> _Write:
    """Rows and banks that are off, and without bound_ctrl lanes without a source, keep their value."""
    assert i.dpp is not None
    lanes = dpp_lanes(i.dpp.control)
    assert lanes is not None
    source, exists = lanes
    enabled = dpp_written(i.dpp.row_mask, i.dpp.bank_mask)
    bound = i.dpp.bound_control

    def store(w: Wave, bits: Lanes) -> None:
        where = w.active & enabled
        if not bound:
            where = where & exists & w.active[source]
        np.copyto(w.v[row], bits, where=where)

    return store


_UNUSED_PRESERVE, _UNUSED_SIGN = 2, 1


def _sdwa_store(i: Instruction, row: int) -> _Write:
    """Writes a byte or word; dst_unused: the rest is 0, sign-extended, or kept."""
    select, unused = i.flag("dst_sel"), i.flag("dst_unused")
    width = 8 if select < 4 else 16
    shift = 8 * select if select < 4 else 16 * (select - 4)
    mask = (1 << width) - 1

    def store(w: Wave, bits: Lanes) -> None:
        part = (bits & mask) << shift
        if unused == _UNUSED_PRESERVE:
            part = w.v[row] & u32(~(mask << shift) & MASK32) | part
        elif unused == _UNUSED_SIGN:
            above = u32(MASK32 << (shift + width) & MASK32)
            part = np.where(bits >> (width - 1) & 1 == 1, part | above, part)
        w.put(row, part)

    return store
