"""Device memory that the host program sees as well."""

from __future__ import annotations

import mmap

import numpy as np


class SharedStorage:
    """`mxcomp.sim.memory.Storage` in two files, the contents and the marks of what has been written."""

    def __init__(self, data_file: int, marks_file: int, capacity: int) -> None:
        self._maps = mmap.mmap(data_file, capacity), mmap.mmap(marks_file, capacity)
        self.data, self.written = (np.frombuffer(each, np.uint8) for each in self._maps)

    def discard(self, start: int, end: int) -> None:
        """Gives pages back to the system; they read as zeros from now on."""
        if end > start:
            for each in self._maps:
                each.madvise(mmap.MADV_REMOVE, start, end - start)


def available_bytes() -> int:
    """Memory of this machine that can still be used."""
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 1 << 62
