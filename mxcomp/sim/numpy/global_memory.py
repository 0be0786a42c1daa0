"""Access to device memory and scratch, with the checks "bounds" and "uninit" (see `mxcomp.sim.checks.unwritten`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.trial import Space
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.memory import BASE, UNWRITTEN, gather, scatter
from mxcomp.sim.numpy.wave import Wave

Addresses = NDArray[np.int64]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]


def load(w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int) -> Bytes:
    """Returns the loaded bytes, uint8[64, size]; inactive lanes give 0, lanes outside of allocations UNWRITTEN."""
    result = np.zeros((64, size), np.uint8)
    lanes, offsets = _allowed(w, i, addresses, active, size, "reads")
    memory = w.group.dispatch.memory
    if len(lanes) < np.count_nonzero(active):
        result[active] = UNWRITTEN
    if len(lanes):
        values, trial = gather(memory.data, memory.words, offsets, size), w.group.trial
        result[lanes] = values if trial is None else trial.load(w, i, lanes, offsets, values)
    return result


def store(w: Wave, i: Instruction, addresses: Addresses, active: Mask, values: Bytes) -> None:
    """Stores uint8[64, size] of the active lanes."""
    size = values.shape[1]
    lanes, offsets = _allowed(w, i, addresses, active, size, "writes")
    if len(lanes):
        memory = w.group.dispatch.memory
        if w.group.trial is not None:
            w.group.trial.journal.note(offsets, size)
        scatter(memory.data, memory.words, offsets, values[lanes])
        scatter(memory.written, memory.written_words, offsets, np.ones((len(lanes), size), np.uint8))


def load_scalar(w: Wave, i: Instruction, address: int, count: int) -> list[int]:
    """Returns dwords at an aligned address."""
    memory = w.group.dispatch.memory
    start = (address & ~3) - BASE
    if not memory.contains(start, 4 * count):
        if w.group.report.bounds:
            message = f"reads {4 * count} bytes outside of every allocation"
            w.group.report("bounds", message, w, i, address=address)
        return [UNWRITTEN * 0x01010101] * count
    words = memory.words[start >> 2 : (start >> 2) + count]
    if w.group.trial is not None:
        raw = words.view(np.uint8)[None]
        words = w.group.trial.load(w, i, None, np.array([start], np.int64), raw)[0].view(np.uint32)
    dwords: list[int] = words.tolist()
    return dwords


def _allowed(
    w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int, verb: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the active lanes within allocations and their offsets in memory, and reports the others."""
    lanes = np.flatnonzero(active)
    offsets = addresses[lanes] - BASE
    if not len(lanes):
        return lanes, offsets
    bad = w.group.dispatch.memory.outside(offsets, size)
    if bad is None:
        return lanes, offsets
    if w.group.report.bounds:
        first = int(np.flatnonzero(bad)[0])
        message = f"{verb} {size} bytes outside of every allocation"
        w.group.report("bounds", message, w, i, int(lanes[first]), int(offsets[first]) + BASE)
    return lanes[~bad], offsets[~bad]


# -- scratch: private to a lane, addresses from 0


def load_scratch(w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int) -> Bytes:
    data = w.private()
    lanes = within(w, i, addresses, active, size, "reads", Space.SCRATCH)
    result = np.zeros((64, size), np.uint8)
    at = (lanes[:, None], addresses[lanes, None] + np.arange(size))
    written, trial = w.scratch_written, w.group.trial
    if trial is not None and trial.needs_reads and written is not None and not written[at].all():
        row, byte = np.nonzero(~written[at])
        trial.read(Space.SCRATCH, w, i, lanes[row], at[1][row, byte], data.shape[1])
    result[lanes] = data[at]
    return result


def store_scratch(w: Wave, i: Instruction, addresses: Addresses, active: Mask, values: Bytes) -> None:
    data = w.private()
    lanes = within(w, i, addresses, active, values.shape[1], "writes", Space.SCRATCH)
    at = (lanes[:, None], addresses[lanes, None] + np.arange(values.shape[1]))
    data[at] = values[lanes]
    if w.scratch_written is not None:
        w.scratch_written[at] = True


def within(
    w: Wave, i: Instruction, addresses: Addresses, active: Mask, size: int, verb: str, space: Space
) -> NDArray[np.int64]:
    """Returns the active lanes within LDS, or their scratch, and reports the others."""
    lanes = np.flatnonzero(active)
    dispatch, at = w.group.dispatch, addresses[lanes]
    limit = dispatch.lds_bytes if space is Space.LDS else dispatch.scratch_bytes
    if not len(lanes) or (int(at.min()) >= 0 and int(at.max()) + size <= limit):
        return lanes
    bad = (at < 0) | (at + size > limit)
    if w.group.report.bounds:
        lane, name = int(lanes[np.flatnonzero(bad)[0]]), "LDS" if space is Space.LDS else "scratch"
        w.group.report("bounds", f"{verb} beyond {limit} bytes of {name}", w, i, lane, int(addresses[lane]))
    return lanes[~bad]
