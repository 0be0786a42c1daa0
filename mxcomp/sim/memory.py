"""Device memory: one lazily committed arena whose allocations are separated by guard gaps."""

from __future__ import annotations

import bisect
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from mxcomp.sim.errors import SimulationError

BASE = 0x4000_0000_0000
"""The device address of the arena's first byte. Linux maps nothing of its own there, so a process can map it at the
same address."""

_GUARD = 1 << 16
_ALIGN = 4096
UNWRITTEN = 0xFF
"""The byte that fresh memory is filled with: NaN in most formats, so that code that relies on zeros is noticed."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """An allocation: its 64-bit device address and size in bytes."""

    address: int
    nbytes: int

    @property
    def start(self) -> int:
        """Index into `Memory.data`."""
        return self.address - BASE


class Storage:
    """Keeps the bytes, and marks of which are written; marks of what is not allocated are 0.

    Args:
        maps: The bytes, and the marks.
        advice: The way in which the system takes pages back; they read as zeros from then on.
    """

    def __init__(self, maps: tuple[mmap.mmap, mmap.mmap], advice: int) -> None:
        self._maps, self._advice = maps, advice
        self.data, self.written = (np.frombuffer(each, np.uint8) for each in maps)

    @classmethod
    def private(cls, capacity: int) -> Storage:
        """Returns storage that belongs to this process."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        return cls((mmap.mmap(-1, capacity, flags), mmap.mmap(-1, capacity, flags)), mmap.MADV_DONTNEED)

    @classmethod
    def shared(cls, data_file: int, marks_file: int, capacity: int) -> Storage:
        """Returns storage in two files, which other processes have access to."""
        return cls((mmap.mmap(data_file, capacity), mmap.mmap(marks_file, capacity)), mmap.MADV_REMOVE)

    def discard(self, start: int, end: int) -> None:
        """Clears marks of whole pages of `_ALIGN` bytes by returning them to the system, contents and all: clearing
        marks that nobody wrote would take as long as writing them."""
        if start < end:
            for each in self._maps:
                each.madvise(self._advice, start, end - start)


_MAP_NORESERVE = 0x4000
"""A flag of Linux's mmap that Python has no name for: without it, a process with much unused memory cannot fork."""


class Memory:
    """The arena: its bytes, which of them have been written, and the allocations.

    Several memories may have the same storage, each with a part of it for its own allocations; `map` gives one access
    to what another has allocated.

    Attributes:
        data: uint8[capacity].
        written: uint8[capacity], 1 where the host or a kernel has written.
    """

    def __init__(self, capacity: int = 8 << 30, storage: Storage | None = None, first: int = 0) -> None:
        """Allocates from index `first` of the storage up to `capacity`."""
        self._storage = Storage.private(capacity) if storage is None else storage
        self.data, self.written = self._storage.data, self._storage.written
        self.words = self.data.view(np.uint32)
        self.written_words = self.written.view(np.uint32)
        self._first, self._limit = first + _GUARD, capacity
        self._next = self._first
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._ranges: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        self._temporaries: list[Buffer] | None = None

    def alloc(self, nbytes: int, fill: bool = True) -> Buffer:
        """Reserves memory; freed memory is reused as late as possible. Raises SimulationError when the arena is full.

        Without `fill` the content is undefined.
        """
        start = self._gap(nbytes, self._next)
        start = self._gap(nbytes, self._first) if start is None else start
        if nbytes < 0 or start is None:
            used = sum(self._ends) - sum(self._starts)
            raise SimulationError(f"cannot allocate {nbytes} bytes: {used} of {self._limit - self._first} are in use")
        if fill:
            self.data[start : start + nbytes] = UNWRITTEN
        buffer = Buffer(BASE + start, nbytes)
        self.map(buffer)
        self._next = start + nbytes + _GUARD
        if self._temporaries is not None:
            self._temporaries.append(buffer)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Gives memory back: from now on it lies outside of every allocation. Raises SimulationError."""
        self.unmap(buffer)
        self._storage.discard(buffer.start, _aligned(buffer.start + buffer.nbytes))

    def map(self, buffer: Buffer) -> None:
        """Lets kernels access an allocation."""
        k = bisect.bisect_right(self._starts, buffer.start)
        self._starts.insert(k, buffer.start)
        self._ends.insert(k, buffer.start + buffer.nbytes)
        self._ranges = None

    def unmap(self, buffer: Buffer) -> None:
        """Takes access away. Raises SimulationError for what is no allocation."""
        k = bisect.bisect_left(self._starts, buffer.start)
        if self._starts[k : k + 1] != [buffer.start] or self._ends[k] != buffer.start + buffer.nbytes:
            raise SimulationError(f"{buffer.address:#x} is not the start of an allocation of {buffer.nbytes} bytes")
        del self._starts[k], self._ends[k]
        self._ranges = None

    @contextmanager
    def temporary(self) -> Iterator[None]:
        """Frees at its end what was allocated within."""
        before, outer, made = self._next, self._temporaries, list[Buffer]()
        self._temporaries = made
        try:
            yield
        finally:
            self._temporaries, self._next = outer, before
            for buffer in made:
                self.free(buffer)

    def _gap(self, nbytes: int, start: int) -> int | None:
        """Returns the first offset at or after `start` with room for so many bytes and a guard on either side."""
        start = _aligned(start)
        for k in range(bisect.bisect_right(self._starts, start), len(self._starts) + 1):
            if k:
                start = max(start, _aligned(self._ends[k - 1] + _GUARD))
            end = min(self._starts[k], self._limit) if k < len(self._starts) else self._limit
            if start + nbytes + _GUARD <= end:
                return start
        return None

    def ranges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the first and one-past-last offset in `data` of every allocation, ascending."""
        if self._ranges is None:
            self._ranges = np.array(self._starts, np.int64), np.array(self._ends, np.int64)
        return self._ranges

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
        """Returns the index into `data`. Raises SimulationError outside of allocations."""
        start = address - BASE
        if nbytes and not self.contains(start, nbytes):
            raise SimulationError(f"{nbytes} bytes at {address:#x} lie outside of every allocation")
        return start

    def allocation(self, address: int) -> tuple[int, int]:
        """Returns the first and one-past-last index into `data` of the allocation that contains an address."""
        k = bisect.bisect_right(self._starts, address - BASE) - 1
        return self._starts[k], self._ends[k]

    def contains(self, start: int, nbytes: int) -> bool:
        k = bisect.bisect_right(self._starts, start) - 1
        return k >= 0 and start + nbytes <= self._ends[k]

    def outside(self, offsets: NDArray[np.int64], nbytes: int) -> NDArray[np.bool_] | None:
        """Returns which accesses of `nbytes` at these offsets leave their allocation, or None if none does."""
        low, high = int(offsets.min()), int(offsets.max()) + nbytes
        if self.contains(low, high - low):
            return None
        starts, ends = self.ranges()
        k = np.searchsorted(starts, offsets, side="right") - 1
        bad = (k < 0) | (offsets > ends[np.maximum(k, 0)] - nbytes)  # no sum that could overflow
        return bad if bad.any() else None


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def gather(data: NDArray[np.uint8], words: NDArray[np.uint32], offsets: NDArray[np.int64], size: int) -> NDArray[Any]:
    """Returns the bytes uint8[n, size] at the offsets; `words` is the same memory as dwords."""
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
