"""LDS bank conflicts (CDNA4: banks of 4 bytes, 64 for reads, 32 for writes and for reads of 12 bytes)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def _halves(*lanes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(half + lane for lane in group) for half in (0, 32) for group in lanes)


def _consecutive(lanes: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(start, start + lanes)) for start in range(0, 64, lanes))


_READS = {
    8: (_consecutive(32), 64),
    12: (
        _halves(
            *(
                (*range(start, start + 4), *range(other, other + 4))
                for start, other in ((0, 20), (4, 16), (8, 28), (12, 24))
            )
        ),
        32,
    ),
    16: (
        _halves((*range(4), *range(12, 16), *range(20, 28)), (*range(4, 12), *range(16, 20), *range(28, 32))),
        64,
    ),
}
"""The lanes served in each phase, and the number of banks, by the bytes a lane reads. Measured on MI355X as
SQ_LDS_BANK_CONFLICT of pairs of lanes (HazyResearch/HipKittens, paper_experiments/phases). Smaller reads serve all
lanes at once, on 64 banks (nod-ai/amd-shark-ai, amdgpu_kernel_optimization_guide.md)."""


def phases(size: int, kind: str) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Returns the groups of lanes served together, and the number of banks. Writes of n dwords serve 32/n lanes at a
    time."""
    if kind == "load":
        return _READS.get(size, (_consecutive(64), 64))
    return _consecutive({8: 16, 12: 8, 16: 8}.get(size, 32)), 32


def by_lanes(size: int, kind: str) -> bool:
    """Returns whether a misaligned access is served lane by lane. ds_read_b128 is (thread traces of
    ROCm/gfx950-gluon-tutorials)."""
    return kind == "load" and size == 16


def conflict_cycles(addresses: NDArray[np.int64], active: NDArray[np.bool_], size: int, kind: str) -> int:
    """Returns the cycles beyond one per phase. A phase takes as many cycles as the busiest bank has different
    dwords."""
    if not active.any():
        return 0
    first = int(addresses[active].min()) & ~0xFF  # the pattern repeats with the banks
    relative = np.where(active, addresses - first, -1).astype(np.int32)
    return _cycles(relative.tobytes(), size, kind)


@lru_cache(maxsize=4096)
def _cycles(pattern: bytes, size: int, kind: str) -> int:
    relative = np.frombuffer(pattern, np.int32)
    groups, banks = phases(size, kind)
    total = 0
    misaligned = by_lanes(size, kind) and bool((relative[relative >= 0] % size).any())
    for group in groups:
        starts = relative[list(group)]
        starts = starts[starts >= 0]
        words = np.unique((starts[:, None] >> 2) + np.arange(max(1, size // 4)))
        if misaligned:
            total += max(0, len(starts) - 1)
        elif len(words):
            total += int(np.bincount(words % banks).max()) - 1
    return total
