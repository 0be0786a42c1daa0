"""Device memory, LDS and scratch: what lanes read and write there, with the checks "bounds" and "uninit" (see
`mxcomp.sim.checks.unwritten`), and what the checks of LDS are told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.marks import Cells
from mxcomp.sim.checks.waits import Transfer
from mxcomp.sim.instruction import MemoryOp, Space
from mxcomp.sim.memory import BASE, UNWRITTEN, gather, scatter
from mxcomp.sim.numpy.wave import Wave, lanes_of
from mxcomp.sim.semantics import memory as m
from mxcomp.sim.semantics.table import MASK64

Addresses = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]


def read(w: Wave, space: Space, addresses: Addresses, active: Mask, size: int, transfer: Transfer) -> Bytes:
    """Returns the loaded bytes, uint8[64, size]; inactive lanes give 0, lanes outside of the space UNWRITTEN."""
    lanes, at = _inside(w, space, addresses, active, size, transfer, "reads")
    result = np.zeros((64, size), np.uint8)
    if len(lanes) < np.count_nonzero(active):
        result[active] = UNWRITTEN
    if len(lanes):
        result[lanes] = _READS[space](w, lanes, at, size, transfer)
    return result


def write(w: Wave, space: Space, addresses: Addresses, active: Mask, values: Bytes, transfer: Transfer) -> None:
    """Stores uint8[64, size] of the active lanes."""
    lanes, at = _inside(w, space, addresses, active, values.shape[1], transfer, "writes")
    if len(lanes):
        _WRITES[space](w, lanes, at, values[lanes], transfer)


def update(w: Wave, op: MemoryOp, addresses: Addresses, active: Mask, operand: Bytes, transfer: Transfer) -> Bytes:
    """Executes an atomic lane by lane, in ascending order, and returns the bytes before; 0 of other lanes."""
    old = np.zeros((64, op.size), np.uint8)
    if op.where is Space.LDS:
        lanes, at = _inside(w, Space.LDS, addresses, active, op.size, transfer, "updates")
        if len(lanes):
            w.group.shadow.update(w, transfer.instruction, Cells(at, op.size, lanes))
        for lane, start in zip(lanes.tolist(), at.tolist(), strict=True):
            cell = w.group.lds[start : start + op.size]
            old[lane] = cell
            cell[:] = _updated(op, old[lane], operand[lane])
        return old
    for lane in np.flatnonzero(active).tolist():
        alone = lanes_of(1 << lane)
        values = read(w, Space.DEVICE, addresses, alone, op.size, transfer)
        old[lane] = values[lane]
        values[lane] = _updated(op, old[lane], operand[lane])
        write(w, Space.DEVICE, addresses, alone, values, transfer)
    return old


def _updated(op: MemoryOp, old: Bytes, operand: Bytes) -> Bytes:
    """Returns uint8[size] after an atomic, from the bytes before and the operand's bytes (and the compare value's)."""
    before = int.from_bytes(old.tobytes(), "little")
    value = int.from_bytes(operand[: op.size].tobytes(), "little")
    if op.atomic == "cmpswap" and int.from_bytes(operand[op.size :].tobytes(), "little") != before:
        return old
    after = m.ATOMICS[op.atomic](before, value, op.size) & (1 << 8 * op.size) - 1
    return np.frombuffer(after.to_bytes(op.size, "little"), np.uint8)


def _inside(
    w: Wave, space: Space, addresses: Addresses, active: Mask, size: int, transfer: Transfer, verb: str
) -> tuple[NDArray[np.int64], Addresses]:
    """Returns the active lanes whose bytes are in the space, and their offsets there; reports the others."""
    lanes, dispatch = np.flatnonzero(active), w.group.dispatch
    at = addresses[lanes] - BASE if space is Space.DEVICE else addresses[lanes]
    if not len(lanes):
        return lanes, at
    if space is Space.DEVICE:
        bad, what = dispatch.memory.outside(at, size), f"{size} bytes outside of every allocation"
    else:
        limit = dispatch.lds_bytes if space is Space.LDS else dispatch.scratch_bytes
        beyond = (at < 0) | (at + size > limit)
        bad, what = beyond if beyond.any() else None, f"beyond {limit} bytes of {space}"
    if bad is None:
        return lanes, at
    if w.group.report.bounds:
        first = int(lanes[np.argmax(bad)])
        lane = None if transfer.is_scalar else first
        address = int(addresses[first])
        address &= MASK64 if space is Space.DEVICE else -1
        w.group.report("bounds", f"{verb} {what}", w, transfer.instruction, lane, address)
    return lanes[~bad], at[~bad]


# -- device memory


def _read_device(w: Wave, lanes: NDArray[np.int64], at: Addresses, size: int, transfer: Transfer) -> Bytes:
    memory, trial = w.group.dispatch.memory, w.group.trial
    values = gather(memory.data, memory.words, at, size)
    if trial is None:
        return values
    return trial.load(w, transfer.instruction, None if transfer.is_scalar else lanes, at, values)


def _write_device(w: Wave, lanes: NDArray[np.int64], at: Addresses, values: Bytes, transfer: Transfer) -> None:
    memory = w.group.dispatch.memory
    if w.group.trial is not None:
        w.group.trial.journal.note(at, values.shape[1])
    scatter(memory.data, memory.words, at, values)
    scatter(memory.written, memory.written_words, at, np.ones_like(values))


# -- LDS


def _read_lds(w: Wave, lanes: NDArray[np.int64], at: Addresses, size: int, transfer: Transfer) -> Bytes:
    cells = Cells(at, size, lanes)
    w.group.shadow.read(w, transfer.instruction, cells)
    transfer.reads += (cells,)
    return gather(w.group.lds, w.group.lds_words, at, size)


def _write_lds(w: Wave, lanes: NDArray[np.int64], at: Addresses, values: Bytes, transfer: Transfer) -> None:
    group, cells = w.group, Cells(at, values.shape[1], lanes)
    transfer.writes += (cells,)
    same = lambda: bool((gather(group.lds, group.lds_words, at, values.shape[1]) == values).all())  # noqa: E731
    group.shadow.write(w, transfer.instruction, cells, transfer, same)
    scatter(group.lds, group.lds_words, at, values)


# -- scratch: private to a lane, addresses from 0


def _read_scratch(w: Wave, lanes: NDArray[np.int64], at: Addresses, size: int, transfer: Transfer) -> Bytes:
    data, written = w.private()
    cells, trial = (lanes[:, None], at[:, None] + np.arange(size)), w.group.trial
    if trial is not None and trial.needs_reads and not written[cells].all():
        row, byte = np.nonzero(~written[cells])
        trial.read(Space.SCRATCH, w, transfer.instruction, lanes[row], cells[1][row, byte], data.shape[1])
    return data[cells]


def _write_scratch(w: Wave, lanes: NDArray[np.int64], at: Addresses, values: Bytes, transfer: Transfer) -> None:
    data, written = w.private()
    cells = lanes[:, None], at[:, None] + np.arange(values.shape[1])
    data[cells], written[cells] = values, True


_READS = {Space.DEVICE: _read_device, Space.LDS: _read_lds, Space.SCRATCH: _read_scratch}
_WRITES = {Space.DEVICE: _write_device, Space.LDS: _write_lds, Space.SCRATCH: _write_scratch}
