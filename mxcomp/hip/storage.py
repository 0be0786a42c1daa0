"""Device memory that the host program can access."""

from __future__ import annotations

import mmap

import numpy as np


class SharedStorage:
    """Implements `mxcomp.sim.memory.Storage` with two files: the contents, and the marks of what has been written."""

    def __init__(self, data_file: int, marks_file: int, capacity: int) -> None:
        self._maps = mmap.mmap(data_file, capacity), mmap.mmap(marks_file, capacity)
        self.data, self.written = (np.frombuffer(each, np.uint8) for each in self._maps)

    def discard(self, start: int, end: int) -> None:
        """Returns pages to the system; they read as zeros from now on."""
        if end > start:
            for each in self._maps:
                each.madvise(mmap.MADV_REMOVE, start, end - start)


def available_bytes() -> int:
    """Returns the memory of this machine that is still available."""
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 62
