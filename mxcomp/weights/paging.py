"""Returns the memory of mapped files to the system as soon as their contents have been read.

What a process has read of a mapped file counts as its memory until something else needs the space: a checkpoint of
20 GB that passes through tensor by tensor would seem to take 20 GB.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

_PAGEOUT = 21
"""MADV_PAGEOUT of Linux 5.4 and later: pages go back to their file, and are read again if they are accessed. Nothing is
lost, whatever the memory is; a kernel without it returns an error, which is ignored."""


def give_back(data: np.ndarray) -> None:
    """Returns the whole pages of an array to the system, which has been read and is not needed soon."""
    if sys.platform != "linux" or not data.flags.c_contiguous:
        return
    page = mmap.PAGESIZE
    first = -(-data.ctypes.data // page) * page
    end = (data.ctypes.data + data.nbytes) // page * page
    if end > first:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _PAGEOUT)
