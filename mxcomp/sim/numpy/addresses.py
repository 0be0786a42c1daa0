"""Computes where the lanes of memory instructions access memory, by the rules of `mxcomp.sim.semantics.memory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mxcomp.sim.errors import SimulationError
from mxcomp.sim.instruction import MemoryOp, MemoryOperands, Space
from mxcomp.sim.numpy.operands import scalar_read
from mxcomp.sim.numpy.wave import MASK32, MASK64, Lanes, Wave
from mxcomp.sim.semantics import memory as m
from mxcomp.sim.semantics.constants import PRIVATE_BASE, SHARED_BASE

Addresses = Callable[[Wave], tuple[Lanes, Lanes | None]]
"""Returns the address of each lane (int64), and the bytes from there to the end of the buffer, if there is a buffer."""


def addresses_of(operands: MemoryOperands) -> Addresses:
    """Returns the addresses that the lanes of a vector memory or LDS instruction access."""
    return {"buffer": _buffer, "scratch": _scratch, "lds": _lds}.get(operands.op.space, _global)(operands)


def _buffer(operands: MemoryOperands) -> Addresses:
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


def _global(operands: MemoryOperands) -> Addresses:
    assert operands.address is not None
    row, immediate = operands.address.vgpr, operands.offset
    if operands.base is not None:
        base = operands.base.code
        return lambda w: (_signed64(w.s[base], w.s[base + 1]) + immediate + w.v[row].astype(np.int64), None)
    return lambda w: (m.lanes_64(w.v[row], w.v[row + 1]) + immediate, None)


def _signed64(low: int, high: int) -> np.int64:
    return np.array([low | high << 32], np.uint64).view(np.int64)[0]


def _scratch(operands: MemoryOperands) -> Addresses:
    row = operands.address.vgpr if operands.address is not None else None
    base = operands.base.code if operands.base is not None else None
    immediate = operands.offset

    def addresses(w: Wave) -> tuple[Lanes, Lanes | None]:
        start = immediate + (0 if base is None else w.s[base])
        lanes = np.zeros(64, np.int64) if row is None else w.v[row].astype(np.int64)
        return lanes + start, None

    return addresses


def _lds(operands: MemoryOperands) -> Addresses:
    """Returns VGPRs as signed numbers: immediates are added modulo 2³², and LLVM emits `base - 8 + 8`."""
    assert operands.address is not None
    row = operands.address.vgpr
    return lambda w: (w.v[row].view(np.int32).astype(np.int64), None)


def offsets_of(operands: MemoryOperands) -> list[int]:
    """Returns what is added to the addresses for each access; vector memory has its immediate in them."""
    op = operands.op
    if op.accesses == 2:
        return [operands.offset * op.stride, operands.offset1 * op.stride]
    return [operands.offset if op.space == "lds" else 0]


def in_range(w: Wave, room: Lanes | None, size: int) -> tuple[Lanes, bool]:
    """Returns the lanes whose first dword is in range, and whether some of them end within their data."""
    if room is None:
        return w.active, False
    inside = w.active & (room >= min(4, size))
    return inside, bool(size > 4 and (inside & (room < size)).any())


def parts(w: Wave, op: MemoryOp, addresses: Lanes, room: Lanes | None) -> Iterator[tuple[Space, Lanes, Lanes, slice]]:
    """Yields the accesses to one space that an access consists of: addresses, active lanes, and which of the bytes.

    Buffers are checked dword by dword; lanes of flat accesses are in any space.
    """
    whole = slice(0, op.size)
    if op.space == "flat":
        upper, within = addresses >> 32, addresses & MASK32
        shared, private = w.active & (upper == SHARED_BASE >> 32), w.active & (upper == PRIVATE_BASE >> 32)
        yield Space.DEVICE, addresses, w.active & ~shared & ~private, whole
        yield Space.SCRATCH, within, private, whole
        yield Space.LDS, within, shared, whole
        return
    inside, straddles = in_range(w, room, op.size)
    if room is None or not straddles:
        yield op.where, addresses, inside, whole
        return
    for k in range(0, op.size, 4):
        yield op.where, addresses + k, w.active & (room >= k + 4), slice(k, k + 4)


def scalar_place(operands: MemoryOperands) -> Callable[[Wave], tuple[int, int]]:
    """Returns the address of a scalar access, and how many of its dwords lie within the buffer, if there is one."""
    assert operands.base is not None
    base, op = operands.base.code, operands.op
    register = scalar_read(operands.scalar_offset, "u") if operands.scalar_offset is not None else lambda w: 0

    def place(w: Wave) -> tuple[int, int]:
        offset, count = operands.offset + register(w), op.size // 4
        if op.space == "scalar":
            return (w.s[base] | w.s[base + 1] << 32) + offset & MASK64 & ~3, count
        resource = m.BufferResource.unpack(*w.s[base : base + 4])
        return resource.base + offset & ~3, max(0, min(count, (resource.records - (offset & ~3)) // 4))

    return place
