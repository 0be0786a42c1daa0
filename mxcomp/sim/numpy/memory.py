"""Scalar, buffer, global, flat, scratch and LDS instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mxcomp.sim.banks import conflict_cycles
from mxcomp.sim.checks.waits import Flight, Transfer
from mxcomp.sim.counters import memory_event
from mxcomp.sim.instruction import M0, Instruction, MemoryOp, MemoryOperands, Space
from mxcomp.sim.numpy.addresses import Addresses, addresses_of, in_range, offsets_of, parts, scalar_place
from mxcomp.sim.numpy.spaces import read, update, write
from mxcomp.sim.numpy.wave import Lanes, Step, Wave, lanes_of
from mxcomp.sim.semantics import lane as lane_ops
from mxcomp.sim.semantics import memory as m
from mxcomp.sim.semantics.table import MASK64

_Move = Callable[[Wave, Transfer], int]
"""Does what a memory instruction does, and returns the bytes that count."""


def memory_step(i: Instruction) -> Step:
    flight, event, operands = Flight.of(i), f"{memory_event(i)}.bytes", i.memory
    assert flight is not None and operands is not None
    move = _move(i, operands)

    def step(w: Wave) -> None:
        transfer = Transfer(flight, w.barriers)
        if moved := move(w, transfer):
            w.counters[event] += moved
        w.outstanding.issue(w, transfer)

    return step


def _move(i: Instruction, operands: MemoryOperands) -> _Move:
    op = operands.op
    if op.kind == "permute":
        return _permute(i, operands)
    if op.is_scalar:
        return _scalar(operands)
    make = {"atomic": _atomic, "store": _store}.get(op.kind, _direct_load if op.to_lds else _load)
    return make(operands, addresses_of(operands))


# -- loads and stores


def _read(w: Wave, op: MemoryOp, addresses: Lanes, room: Lanes | None, transfer: Transfer) -> Lanes:
    """Returns the loaded bytes, uint8[64, size]; what is out of a buffer's range reads 0."""
    (space, at, active, part), *others = parts(w, op, addresses, room)
    first = read(w, space, at, active, part.stop - part.start, transfer)
    if not others:
        return first
    result = np.zeros((64, op.size), np.uint8)
    result[:, part] = first
    for space, at, active, part in others:
        result[:, part] |= read(w, space, at, active, part.stop - part.start, transfer)
    return result


def _load(operands: MemoryOperands, addresses: Addresses) -> _Move:
    assert operands.result is not None
    op, row, offsets = operands.op, operands.result.vgpr, offsets_of(operands)

    def load(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        loaded = [_read(w, op, where + offset, room, transfer) for offset in offsets]
        for k, raw in enumerate(loaded):
            words = m.transpose(raw, op.transpose) if op.transpose else m.extend(raw, op.signed)
            _put(w, row + k * len(words), words, op.half)
        return _counted(w, op, where, offsets)

    return load


def _store(operands: MemoryOperands, addresses: Addresses) -> _Move:
    op, offsets = operands.op, offsets_of(operands)
    sources = [operand for operand in (operands.data, operands.data1) if operand is not None]

    def store(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        for operand, offset in zip(sources, offsets, strict=True):
            values = m.to_bytes(w.v[operand.vgpr : operand.vgpr + operand.dwords], op.size, op.half)
            for space, at, active, part in parts(w, op, where + offset, room):
                write(w, space, at, active, values[:, part], transfer)
        return _counted(w, op, where, offsets)

    return store


def _direct_load(operands: MemoryOperands, addresses: Addresses) -> _Move:
    """Loads from global memory to LDS. Lanes beyond the buffer write 0, inactive lanes write nothing."""
    op, lanes = operands.op, np.arange(64, dtype=np.int64)

    def load(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        values = _read(w, op, where, room, transfer)
        if op.size < 4:
            values = np.ascontiguousarray(m.extend(values, op.signed).T).view(np.uint8)
        target = m.direct_lds_address(w.s[M0], operands.offset, lanes, op.size)
        write(w, Space.LDS, target, w.active, values, transfer)
        return _counted(w, op, where, [0])

    return load


def _put(w: Wave, row: int, words: Lanes, half: str = "") -> None:
    """Writes loaded registers uint32[n, 64]."""
    for k, word in enumerate(words, row):
        w.put(k, m.merge_half(word, w.v[k], half))


def _counted(w: Wave, op: MemoryOp, addresses: Lanes, offsets: list[int]) -> int:
    """Counts bank conflicts of LDS, and returns the bytes that are moved."""
    for offset in offsets if op.where is Space.LDS else ():
        w.counters["lds.conflict.cycles"] += conflict_cycles(addresses + offset, w.active, op.size, op.kind)
    return op.size * len(offsets) * int(np.count_nonzero(w.active))


# -- atomics, permutes, scalars


def _atomic(operands: MemoryOperands, addresses: Addresses) -> _Move:
    assert operands.data is not None
    op, data, result, (offset,) = operands.op, operands.data, operands.result, offsets_of(operands)

    def atomic(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        active, _ = in_range(w, room, op.size)
        operand = m.to_bytes(w.v[data.vgpr : data.vgpr + data.dwords], 4 * data.dwords, "")
        old = update(w, op, where + offset, active, operand, transfer)
        if result is not None:
            _put(w, result.vgpr, m.extend(old, False))
        return op.size * int(np.count_nonzero(active))

    return atomic


def _permute(i: Instruction, operands: MemoryOperands) -> _Move:
    """Exchanges values between lanes through LDS hardware, not memory."""
    assert operands.result is not None and operands.address is not None
    address, result = operands.address.vgpr, operands.result.vgpr
    fixed = lane_ops.swizzle_lanes(operands.offset) if i.mnemonic == "ds_swizzle_b32" else None
    exchange = lane_ops.push if i.mnemonic == "ds_permute_b32" else lane_ops.pull
    data = address if operands.data is None else operands.data.vgpr

    def permute(w: Wave, transfer: Transfer) -> int:
        lanes = fixed if fixed is not None else (w.v[address].astype(np.int64) + operands.offset >> 2) & 63
        w.put(result, exchange(w.active, lanes, w.v[data]))
        return 0

    return permute


_ONE_LANE = lanes_of(1)
"""The mask of scalar accesses, which are those of a single lane."""


def _scalar(operands: MemoryOperands) -> _Move:
    op, place = operands.op, scalar_place(operands)
    data, result = operands.data or operands.result, operands.result
    assert data is not None

    def move(w: Wave, transfer: Transfer) -> int:
        address, inside = place(w)
        where, given = np.full(64, address & MASK64, np.uint64).view(np.int64), w.s[data.code : data.code + data.dwords]
        operand = np.broadcast_to(np.array(given, np.uint32).view(np.uint8), (64, 4 * data.dwords))
        old = np.zeros((64, op.size), np.uint8)
        if op.kind == "load" and inside:
            old[:, : 4 * inside] = read(w, Space.DEVICE, where, _ONE_LANE, 4 * inside, transfer)
        elif op.kind == "store" and inside:
            write(w, Space.DEVICE, where, _ONE_LANE, operand[:, : 4 * inside], transfer)
        elif inside == op.size // 4:
            old = update(w, op, where, _ONE_LANE, operand, transfer)
        for k, word in enumerate(old[0].view(np.uint32).tolist() if result is not None else ()):
            w.set32(data.code + k, word)
        return op.size

    return move
