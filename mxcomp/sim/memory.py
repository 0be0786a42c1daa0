"""Device memory: one lazily committed arena whose allocations are separated by guard gaps."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mxcomp.sim.errors import SimulationError

BASE = 0x7F00_0000_0000
"""Device address of the arena's first byte."""

_GUARD = 1 << 16
_ALIGN = 4096
UNWRITTEN = 0xFF
"""What fresh memory holds: NaN in most formats, so that reliance on zero shows."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """An allocation: its 64-bit device address and size in bytes."""

    address: int
    nbytes: int


class Memory:
    """Bytes, which of them have been written, and where allocations lie.

    Attributes:
        data: uint8[capacity].
        written: uint8[capacity], 1 where the host or a kernel has written.
    """

    def __init__(self, capacity: int = 8 << 30) -> None:
        self.data = np.zeros(capacity, np.uint8)  # calloc: pages are committed when touched
        self.written = np.zeros(capacity, np.uint8)
        self.words = self.data.view(np.uint32)
        self.written_words = self.written.view(np.uint32)
        self._top = _GUARD
        self._starts: list[int] = []
        self._ends: list[int] = []

    def alloc(self, nbytes: int) -> Buffer:
        """Reserves memory. Raises SimulationError when the arena is full."""
        start = -(-self._top // _ALIGN) * _ALIGN
        if nbytes < 0 or start + nbytes + _GUARD > len(self.data):
            raise SimulationError(f"cannot allocate {nbytes} bytes: {len(self.data) - start} of the arena are left")
        self.data[start : start + nbytes] = UNWRITTEN
        self.written[start : start + nbytes] = 0
        self._starts.append(start)
        self._ends.append(start + nbytes)
        self._top = start + nbytes + _GUARD
        return Buffer(BASE + start, nbytes)

    def ranges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and one-past-last offset in `data` of every allocation, ascending."""
        return np.array(self._starts, np.int64), np.array(self._ends, np.int64)

    def write(self, address: int, array: NDArray[Any]) -> None:
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start = self.offset(address, len(raw))
        self.data[start : start + len(raw)] = raw
        self.written[start : start + len(raw)] = 1

    def read(self, address: int, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        start = self.offset(address, nbytes)
        return self.data[start : start + nbytes].copy().view(kind).reshape(shape)

    def offset(self, address: int, nbytes: int) -> int:
        """Index into `data`. Raises SimulationError outside of allocations."""
        start = address - BASE
        if nbytes and not self.contains(start, nbytes):
            raise SimulationError(f"{nbytes} bytes at {address:#x} lie outside of every allocation")
        return start

    def contains(self, start: int, nbytes: int) -> bool:
        k = bisect.bisect_right(self._starts, start) - 1
        return k >= 0 and start + nbytes <= self._ends[k]

    def outside(self, offsets: NDArray[np.int64], nbytes: int) -> NDArray[np.bool_] | None:
        """Which accesses of `nbytes` at these offsets leave their allocation; None: none does."""
        low, high = int(offsets.min()), int(offsets.max()) + nbytes
        if self.contains(low, high - low):
            return None
        starts, ends = self.ranges()
        k = np.searchsorted(starts, offsets, side="right") - 1
        bad = (k < 0) | (offsets > ends[np.maximum(k, 0)] - nbytes)  # no sum that could overflow
        return bad if bad.any() else None


def gather(data: NDArray[np.uint8], words: NDArray[np.uint32], offsets: NDArray[np.int64], size: int) -> NDArray[Any]:
    """uint8[n, size] at the offsets; `words` is the same memory as dwords."""
    if size % 4 == 0 and not (offsets & 3).any():
        return words[(offsets >> 2)[:, None] + np.arange(size >> 2)].view(np.uint8)
    return data[offsets[:, None] + np.arange(size)]


def scatter(
    data: NDArray[np.uint8], words: NDArray[np.uint32], offsets: NDArray[np.int64], values: NDArray[np.uint8]
) -> None:
    """Stores uint8[n, size]; the last of several writers of a byte wins."""
    size = values.shape[1]
    if size % 4 == 0 and not (offsets & 3).any():
        words[(offsets >> 2)[:, None] + np.arange(size >> 2)] = np.ascontiguousarray(values).view(np.uint32)
    else:
        data[offsets[:, None] + np.arange(size)] = values
