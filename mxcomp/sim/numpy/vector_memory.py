"""Scalar, buffer, global, flat and scratch instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.waits import Transfer
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import M0, Instruction, MemoryOperands
from mxcomp.sim.numpy import global_memory as g
from mxcomp.sim.numpy.lds import apply_atomic, lds_load, lds_store, put_words, transferring
from mxcomp.sim.numpy.operands import scalar_read
from mxcomp.sim.numpy.wave import MASK32, MASK64, Lanes, Step, Wave, lanes_of
from mxcomp.sim.semantics import memory as m
from mxcomp.sim.semantics.constants import PRIVATE_BASE, SHARED_BASE

Addresses = Callable[[Wave], tuple[Lanes, Lanes | None]]
"""Returns the address of each lane (int64), and the bytes from there to the end of the buffer, if there is a buffer."""


def memory_step(i: Instruction) -> Step:
    op = m.parse(i.mnemonic)
    operands = i.memory
    assert op is not None and operands is not None
    if op.space in ("scalar", "scalar_buffer"):
        return {"load": _scalar_load, "store": _scalar_store, "atomic": _scalar_atomic}[op.kind](i, op, operands)
    addresses = addresses_of(i, op, operands)
    if op.kind == "atomic":
        return _atomic(i, op, operands, addresses)
    if op.to_lds or i.flag("lds"):
        return _direct_load(i, op, operands, addresses)
    return (_load if op.kind == "load" else _store)(i, op, operands, addresses)


def _scalar_load(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.result is not None
    result, count, place = operands.result.code, op.size // 4, _scalar_place(op, operands)

    def load(w: Wave, transfer: Transfer) -> int:
        address, inside = place(w)
        words = g.load_scalar(w, i, address, inside) if inside else []
        for k, word in enumerate(words + [0] * (count - inside)):
            w.set32(result + k, word)
        return op.size

    return transferring(i, load)


def _scalar_place(op: m.MemoryOp, operands: MemoryOperands) -> Callable[[Wave], tuple[int, int]]:
    """Returns the address, and how many of the dwords there lie within the buffer, if there is a buffer."""
    assert operands.base is not None
    base, count = operands.base.code, op.size // 4
    register = scalar_read(operands.scalar_offset, "u") if operands.scalar_offset is not None else lambda w: 0

    def place(w: Wave) -> tuple[int, int]:
        offset = operands.offset + register(w)
        if op.space == "scalar":
            return (w.s[base] | w.s[base + 1] << 32) + offset & MASK64, count
        resource = m.BufferResource.unpack(*w.s[base : base + 4])
        return resource.base + offset, max(0, min(count, (resource.records - (offset & ~3)) // 4))

    return place


_FIRST_LANE = lanes_of(1)
"""The mask of scalar stores and atomics, which are those of a single lane."""


def _scalar_store(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.data is not None
    first, place = operands.data.code, _scalar_place(op, operands)

    def store(w: Wave, transfer: Transfer) -> int:
        address, inside = place(w)
        words = np.array(w.s[first : first + inside], np.uint32)
        if inside:
            g.store(w, i, _everywhere(address & ~3), _FIRST_LANE, np.tile(words.view(np.uint8), (64, 1)))
        return op.size

    return transferring(i, store)


def _scalar_atomic(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.data is not None
    data, result, place = operands.data, operands.result, _scalar_place(op, operands)

    def atomic(w: Wave, transfer: Transfer) -> int:
        address, inside = place(w)
        operand = np.array([w.s[data.code : data.code + data.dwords]], np.uint32).view(np.uint8)
        lanes = [0] if inside == op.size // 4 else []
        old = _updated(w, i, op, _everywhere(address & ~3), lanes, operand)[0]
        for k, word in enumerate(old.view(np.uint32).tolist() if result is not None else ()):
            w.set32(data.code + k, word)
        return op.size

    return transferring(i, atomic)


def _everywhere(address: int) -> Lanes:
    return np.full(64, address, np.int64)


# -- addresses


def addresses_of(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Addresses:
    """Returns the addresses that the lanes of a vector memory instruction access."""
    return {"buffer": _buffer, "scratch": _scratch}.get(op.space, _global)(i, operands)


def _buffer(i: Instruction, operands: MemoryOperands) -> Addresses:
    assert operands.base is not None and operands.scalar_offset is not None
    base, immediate = operands.base.code, operands.offset
    scalar_offset = scalar_read(operands.scalar_offset, "u")
    offset_row = operands.address.vgpr if operands.address is not None else None
    index_row = operands.index.vgpr if operands.index is not None else None

    def addresses(w: Wave) -> tuple[Lanes, Lanes | None]:
        resource = m.BufferResource.unpack(*w.s[base : base + 4])
        if not resource.is_linear(index_row is not None):
            raise SimulationError("buffer resources with swizzled indices or thread ids are not implemented")
        offset = np.full(64, immediate, np.int64)
        if offset_row is not None:
            offset += w.v[offset_row]
        index = w.v[index_row].astype(np.int64) if index_row is not None else None
        return m.buffer_address(resource, index, offset, scalar_offset(w))

    return addresses


def _global(i: Instruction, operands: MemoryOperands) -> Addresses:
    assert operands.address is not None
    row, immediate = operands.address.vgpr, operands.offset
    if operands.base is not None:
        base = operands.base.code
        return lambda w: (_signed64(w.s[base], w.s[base + 1]) + immediate + w.v[row].astype(np.int64), None)
    return lambda w: (m.lanes_64(w.v[row], w.v[row + 1]) + immediate, None)


def _signed64(low: int, high: int) -> np.int64:
    return np.array([low | high << 32], np.uint64).view(np.int64)[0]


def _scratch(i: Instruction, operands: MemoryOperands) -> Addresses:
    row = operands.address.vgpr if operands.address is not None else None
    base = operands.base.code if operands.base is not None else None
    immediate = operands.offset

    def addresses(w: Wave) -> tuple[Lanes, Lanes | None]:
        start = immediate + (0 if base is None else w.s[base])
        lanes = np.zeros(64, np.int64) if row is None else w.v[row].astype(np.int64)
        return lanes + start, None

    return addresses


def in_range(w: Wave, room: Lanes | None, size: int) -> tuple[Lanes, bool]:
    """Returns the lanes whose first dword is in range, and whether some of them end within their data."""
    if room is None:
        return w.active, False
    inside = w.active & (room >= min(4, size))
    return inside, bool(size > 4 and (inside & (room < size)).any())


# -- loads and stores


def _read(w: Wave, op: m.MemoryOp, addresses: Lanes, room: Lanes | None, transfer: Transfer) -> Lanes:
    """Returns the loaded bytes, uint8[64, size]. Buffers are checked dword by dword: what is out of range reads 0."""
    i = transfer.instruction
    if op.space == "scratch":
        return g.load_scratch(w, i, addresses, w.active, op.size)
    if op.space == "flat":
        return _read_flat(w, op, addresses, transfer)
    inside, straddles = in_range(w, room, op.size)
    if room is None or not straddles:
        return g.load(w, i, addresses, inside, op.size)
    parts = [g.load(w, i, addresses + k, w.active & (room >= k + 4), 4) for k in range(0, op.size, 4)]
    return np.concatenate(parts, axis=1)


def _apertures(w: Wave, addresses: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """Yields the active lanes whose flat addresses are in LDS, in scratch and in device memory."""
    upper = addresses >> 32
    shared, private = w.active & (upper == SHARED_BASE >> 32), w.active & (upper == PRIVATE_BASE >> 32)
    return shared, private, w.active & ~shared & ~private


def _read_flat(w: Wave, op: m.MemoryOp, addresses: Lanes, transfer: Transfer) -> Lanes:
    i = transfer.instruction
    shared, private, device = _apertures(w, addresses)
    result = g.load(w, i, addresses, device, op.size)
    if private.any():
        result[private] = g.load_scratch(w, i, addresses & MASK32, private, op.size)[private]
    if shared.any():
        result[shared] = lds_load(w, i, addresses & MASK32, shared, op.size, transfer)[shared]
    return result


def _load(i: Instruction, op: m.MemoryOp, operands: MemoryOperands, addresses: Addresses) -> Step:
    assert operands.result is not None
    row = operands.result.vgpr

    def load(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        put_words(w, row, m.extend(_read(w, op, where, room, transfer), op.signed), op.half)
        return op.size * int(np.count_nonzero(w.active))

    return transferring(i, load)


def _store(i: Instruction, op: m.MemoryOp, operands: MemoryOperands, addresses: Addresses) -> Step:
    assert operands.data is not None
    row, count = operands.data.vgpr, operands.data.dwords

    def store(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        values = m.to_bytes(w.v[row : row + count], op.size, op.half)
        if op.space == "scratch":
            g.store_scratch(w, i, where, w.active, values)
        elif op.space == "flat":
            _write_flat(w, where, values, transfer)
        else:
            inside, straddles = in_range(w, room, op.size)
            if room is None or not straddles:
                g.store(w, i, where, inside, values)
            else:
                for k in range(0, op.size, 4):
                    g.store(w, i, where + k, w.active & (room >= k + 4), values[:, k : k + 4])
        return op.size * int(np.count_nonzero(w.active))

    return transferring(i, store)


def _write_flat(w: Wave, addresses: Lanes, values: Lanes, transfer: Transfer) -> None:
    i = transfer.instruction
    shared, private, device = _apertures(w, addresses)
    g.store(w, i, addresses, device, values)
    if private.any():
        g.store_scratch(w, i, addresses & MASK32, private, values)
    if shared.any():
        lds_store(w, i, addresses & MASK32, shared, values, transfer)


def _direct_load(i: Instruction, op: m.MemoryOp, operands: MemoryOperands, addresses: Addresses) -> Step:
    """Returns the step of a load from global memory to LDS. Lanes beyond the buffer write 0, inactive lanes write
    nothing."""
    lanes = np.arange(64, dtype=np.int64)

    def load(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        values = _read(w, op, where, room, transfer)
        if op.size < 4:
            values = np.ascontiguousarray(m.extend(values, op.signed).T).view(np.uint8)
        target = m.direct_lds_address(w.s[M0], operands.offset, lanes, op.size)
        lds_store(w, i, target, w.active, values, transfer)
        return op.size * int(np.count_nonzero(w.active))

    return transferring(i, load)


# -- atomics: lanes one after another, in ascending order


def _atomic(i: Instruction, op: m.MemoryOp, operands: MemoryOperands, addresses: Addresses) -> Step:
    assert operands.data is not None
    data, result, size = operands.data, operands.result, op.size

    def atomic(w: Wave, transfer: Transfer) -> int:
        where, room = addresses(w)
        lanes = np.flatnonzero(in_range(w, room, size)[0]).tolist()
        operand = m.to_bytes(w.v[data.vgpr : data.vgpr + data.dwords], 4 * data.dwords, "")
        old = _updated(w, i, op, where, lanes, operand)
        if result is not None:
            put_words(w, result.vgpr, m.extend(old, False))
        return size * len(lanes)

    return transferring(i, atomic)


def _updated(
    w: Wave, i: Instruction, op: m.MemoryOp, addresses: Lanes, lanes: list[int], operand: Lanes
) -> NDArray[np.uint8]:
    """Updates memory, and returns the bytes before, uint8[64, size]; 0 of other lanes."""
    old = np.zeros((64, op.size), np.uint8)
    for lane in lanes:
        alone = lanes_of(1 << lane)
        values = g.load(w, i, addresses, alone, op.size)
        old[lane] = values[lane]
        values[lane] = apply_atomic(op, old[lane], operand[lane])
        g.store(w, i, addresses, alone, values)
    return old
