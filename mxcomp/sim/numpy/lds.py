"""LDS instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.banks import conflict_cycles
from mxcomp.sim.checks.marks import Cells
from mxcomp.sim.checks.trial import Space
from mxcomp.sim.checks.waits import Flight, Transfer
from mxcomp.sim.counters import memory_event
from mxcomp.sim.instruction import Instruction, MemoryOperands
from mxcomp.sim.memory import UNWRITTEN, gather, scatter
from mxcomp.sim.numpy.global_memory import within
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


def transferring(i: Instruction, move: Callable[[Wave, Transfer], int]) -> Step:
    """Returns the step of a memory instruction. `move` does what it does, and returns the bytes that count."""
    flight, event = Flight.of(i), f"{memory_event(i)}.bytes"
    assert flight is not None

    def step(w: Wave) -> None:
        transfer = Transfer(flight, w.barriers)
        if moved := move(w, transfer):
            w.counters[event] += moved
        w.outstanding.issue(w, transfer)

    return step


def lds_load(w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int, transfer: Transfer) -> Lanes:
    """Returns the loaded bytes, uint8[64, size]; inactive lanes give 0, lanes outside UNWRITTEN."""
    group = w.group
    lanes = within(w, i, addresses, active, size, "reads", Space.LDS)
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
    lanes = within(w, i, addresses, active, size, "writes", Space.LDS)
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
    result, per_access = operands.result.vgpr, op.registers // op.accesses

    def load(w: Wave, transfer: Transfer) -> int:
        base = _base(w, row)
        loaded = [lds_load(w, i, base + offset, w.active, op.size, transfer) for offset in offsets]
        for k, raw in enumerate(loaded):
            words = m.transpose(raw, op.transpose) if op.transpose else m.extend(raw, op.signed)
            put_words(w, result + k * per_access, words, op.half)
        return _count(w, op, base, offsets, "load")

    return transferring(i, load)


def put_words(w: Wave, row: int, words: Lanes, half: str = "") -> None:
    """Writes loaded registers uint32[n, 64]."""
    for k, word in enumerate(words, row):
        w.put(k, m.merge_half(word, w.v[k], half))


def _store(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.data is not None and operands.address is not None
    row, offsets = operands.address.vgpr, lds_offsets(op, operands)
    sources = [operand for operand in (operands.data, operands.data1) if operand is not None]

    def store(w: Wave, transfer: Transfer) -> int:
        base = _base(w, row)
        for operand, offset in zip(sources, offsets, strict=True):
            values = m.to_bytes(w.v[operand.vgpr : operand.vgpr + operand.dwords], op.size, op.half)
            lds_store(w, i, base + offset, w.active, values, transfer)
        return _count(w, op, base, offsets, "store")

    return transferring(i, store)


def lds_offsets(op: m.MemoryOp, operands: MemoryOperands) -> list[int]:
    """Returns the immediate offsets of the accesses of an LDS instruction."""
    if op.accesses == 1:
        return [operands.offset]
    return [operands.offset * op.stride, operands.offset1 * op.stride]


def _count(w: Wave, op: m.MemoryOp, base: Addresses, offsets: list[int], kind: str) -> int:
    """Counts bank conflicts, and returns the bytes that are moved."""
    for offset in offsets:
        w.counters["lds.conflict.cycles"] += conflict_cycles(base + offset, w.active, op.size, kind)
    return op.size * len(offsets) * int(np.count_nonzero(w.active))


def _atomic(i: Instruction, op: m.MemoryOp, operands: MemoryOperands) -> Step:
    assert operands.data is not None and operands.address is not None
    row, data, result = operands.address.vgpr, operands.data, operands.result

    def atomic(w: Wave, transfer: Transfer) -> int:
        addresses = _base(w, row) + operands.offset
        operand = m.to_bytes(w.v[data.vgpr : data.vgpr + data.dwords], 4 * data.dwords, "")
        old = np.zeros((64, op.size), np.uint8)
        lanes = within(w, i, addresses, w.active, op.size, "updates", Space.LDS)
        if len(lanes):
            w.group.shadow.update(w, i, Cells(addresses[lanes], op.size, lanes))
        for lane in lanes:
            at = slice(int(addresses[lane]), int(addresses[lane]) + op.size)
            old[lane] = w.group.lds[at]
            w.group.lds[at] = apply_atomic(op, old[lane], operand[lane])
        if result is not None:
            put_words(w, result.vgpr, m.extend(old, False))
        return op.size * int(np.count_nonzero(w.active))

    return transferring(i, atomic)


def _permute(i: Instruction, operands: MemoryOperands) -> Step:
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

    return transferring(i, permute)


def apply_atomic(op: m.MemoryOp, old: Lanes, operand: Lanes) -> Lanes:
    """Returns uint8[size] after an atomic, from the bytes before and the operand's bytes (and the compare value's)."""
    before = int.from_bytes(old.tobytes(), "little")
    value = int.from_bytes(operand[: op.size].tobytes(), "little")
    if op.atomic == "cmpswap" and int.from_bytes(operand[op.size :].tobytes(), "little") != before:
        return old
    after = m.ATOMICS[op.atomic](before, value, op.size) & (1 << 8 * op.size) - 1
    return np.frombuffer(after.to_bytes(op.size, "little"), np.uint8)
