"""LDS instructions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.banks import conflict_cycles
from mxcomp.sim.checks.lds import Cells
from mxcomp.sim.checks.waits import Flight, Transfer
from mxcomp.sim.counters import memory_event
from mxcomp.sim.instruction import Instruction, MemoryOperands
from mxcomp.sim.memory import UNWRITTEN, gather, scatter
from mxcomp.sim.numpy.wave import Lanes, Step, Wave
from mxcomp.sim.semantics import lane as lane_ops
from mxcomp.sim.semantics import memory as m

Addresses = NDArray[np.int64]
Mask = NDArray[np.bool_]


def lds_step(i: Instruction) -> Step:
    op = m.parse(i.mnemonic)
    operands = i.memory
    assert op is not None and operands is not None
    if op.kind == "permute":
        return _permute(i, operands)
    return {"load": _load, "store": _store, "atomic": _atomic}[op.kind](i, op, operands)


def flight_of(i: Instruction) -> Flight:
    flight = Flight.of(i)
    assert flight is not None
    return flight


def _allowed(w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int, verb: str) -> NDArray[np.int64]:
    """Returns the active lanes within LDS, and reports the others."""
    lanes = np.flatnonzero(active)
    at = addresses[lanes]
    limit = w.group.dispatch.lds_bytes
    if not len(lanes) or (int(at.min()) >= 0 and int(at.max()) + size <= limit):
        return lanes
    bad = (at < 0) | (at + size > limit)
    if w.group.report.bounds:
        lane = int(lanes[np.flatnonzero(bad)[0]])
        w.group.report("bounds", f"{verb} beyond {limit} bytes of LDS", w, i, lane, int(addresses[lane]))
    return lanes[~bad]


def lds_load(w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int, transfer: Transfer) -> Lanes:
    """Returns the loaded bytes, uint8[64, size]; inactive lanes give 0, lanes outside UNWRITTEN."""
    group = w.group
    lanes = _allowed(w, i, addresses, active, size, "reads")
    result = np.zeros((64, size), np.uint8)
    if len(lanes) < np.count_nonzero(active):
        result[active] = UNWRITTEN
    if len(lanes):
        at = addresses[lanes]
        cells = Cells(at, size, lanes)
        group.shadow.read(w, i, cells)
        transfer.reads += (cells,)
        result[lanes] = gather(group.lds, group.lds_words, at, size)
    return result


def lds_store(w: Wave, i: Instruction, addresses: Addresses, active: Mask, values: Lanes, transfer: Transfer) -> None:
    """Stores uint8[64, size] of the active lanes."""
    group, size = w.group, values.shape[1]
    lanes = _allowed(w, i, addresses, active, size, "writes")
    if not len(lanes):
        return
    at, new = addresses[lanes], values[lanes]
    cells = Cells(at, size, lanes)
    transfer.writes += (cells,)
    same = lambda: bool((gather(group.lds, group.lds_words, at, size) == new).all())  # noqa: E731
    group.shadow.write(w, i, cells, transfer, same)
    scatter(group.lds, group.lds_words, at, new)


def _base(w: Wave, row: int) -> Addresses:
    """Returns a VGPR as signed int64[64]: immediates are added modulo 2³², and LLVM emits `base - 8 + 8`."""
    return w.v[row].view(np.int32).astype(np.int64)


def _load(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.result is not None and operands.address is not None
    row, offsets = operands.address.vgpr, lds_offsets(op, operands)
    result, flight, event = operands.result.vgpr, flight_of(i), f"{memory_event(i)}.bytes"
    per_access = op.registers // op.accesses

    def load(w: Wave) -> None:
        base = _base(w, row)
        transfer = Transfer(flight, w.barriers)
        loaded = [lds_load(w, i, base + offset, w.active, op.size, transfer) for offset in offsets]
        for k, raw in enumerate(loaded):
            words = m.transpose(raw, op.transpose) if op.transpose else m.extend(raw, op.signed)
            for n, word in enumerate(words):
                target = result + k * per_access + n
                w.put(target, m.merge_half(word, w.v[target], op.half) if op.half else word)
        _count(w, event, op, base, offsets, "load")
        w.outstanding.issue(w, transfer)

    return load


def _store(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.data is not None and operands.address is not None
    row, offsets, event = operands.address.vgpr, lds_offsets(op, operands), f"{memory_event(i)}.bytes"
    flight = flight_of(i)
    sources = [operand for operand in (operands.data, operands.data1) if operand is not None]

    def store(w: Wave) -> None:
        base = _base(w, row)
        transfer = Transfer(flight, w.barriers)
        for operand, offset in zip(sources, offsets, strict=True):
            values = m.to_bytes(w.v[operand.vgpr : operand.vgpr + operand.dwords], op.size, op.half)
            lds_store(w, i, base + offset, w.active, values, transfer)
        _count(w, event, op, base, offsets, "store")
        w.outstanding.issue(w, transfer)

    return store


def lds_offsets(op: m.MemoryOp, operands: MemoryOperands) -> list[int]:
    """Returns the immediate offsets of the accesses of an LDS instruction."""
    if op.accesses == 1:
        return [operands.offset]
    return [operands.offset * op.stride, operands.offset1 * op.stride]


def _count(w: Wave, event: str, op: m.MemoryOp, base: Addresses, offsets: list[int], kind: str) -> None:
    w.counters[event] += op.size * len(offsets) * int(np.count_nonzero(w.active))
    for offset in offsets:
        w.counters["lds.conflict.cycles"] += conflict_cycles(base + offset, w.active, op.size, kind)


def _atomic(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.data is not None and operands.address is not None
    from mxcomp.sim.numpy.vector_memory import apply_atomic

    row, data, result, flight = operands.address.vgpr, operands.data, operands.result, flight_of(i)
    event = f"{memory_event(i)}.bytes"

    def atomic(w: Wave) -> None:
        addresses = _base(w, row) + operands.offset
        operand = m.to_bytes(w.v[data.vgpr : data.vgpr + data.dwords], 4 * data.dwords, "")
        old = np.zeros((64, op.size), np.uint8)
        lanes = _allowed(w, i, addresses, w.active, op.size, "updates")
        if len(lanes):
            w.group.shadow.update(w, i, Cells(addresses[lanes], op.size, lanes))
        for lane in lanes:
            at = slice(int(addresses[lane]), int(addresses[lane]) + op.size)
            old[lane] = w.group.lds[at]
            w.group.lds[at] = apply_atomic(op, old[lane], operand[lane])
        if result is not None:
            for k, word in enumerate(m.extend(old, False)):
                w.put(result.vgpr + k, word)
        w.counters[event] += op.size * int(np.count_nonzero(w.active))
        w.outstanding.issue(w, Transfer(flight))

    return atomic


def _permute(i: Instruction, operands: MemoryOperands) -> Step:
    """Exchanges values between lanes through LDS hardware, not memory."""
    assert operands.result is not None and operands.address is not None
    address, result, flight = operands.address.vgpr, operands.result.vgpr, flight_of(i)
    fixed = lane_ops.swizzle_lanes(operands.offset) if i.mnemonic == "ds_swizzle_b32" else None
    exchange = lane_ops.push if i.mnemonic == "ds_permute_b32" else lane_ops.pull
    data = address if operands.data is None else operands.data.vgpr

    def permute(w: Wave) -> None:
        lanes = fixed if fixed is not None else (w.v[address].astype(np.int64) + operands.offset >> 2) & 63
        w.put(result, exchange(w.active, lanes, w.v[data]))
        w.outstanding.issue(w, Transfer(flight))

    return permute
