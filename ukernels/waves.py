"""Inner tiles of packed operands, and the waves of a workgroup that computes a tile of inner tiles."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.layout.inner_tiles import *  # noqa: F403
from mxcomp.layout.inner_tiles import INNER_ROWS, LANES

SIMDS = 4
"""The number of SIMDs of a compute unit for which workgroups have waves."""
MOST_THREADS = 1024
"""The most threads of a workgroup."""
BEYOND = 2**31
"""An out-of-bounds byte offset: a K tile that begins there, or its scales, is not loaded."""


@dataclass(frozen=True)
class Pieces:
    """The loads of a fragment: `count` loads of `size` bytes in each lane, `step` and `lane` bytes apart in memory.

    In LDS the bytes of a load follow each other by lanes; from there a lane reads its fragment `read` bytes at a time.
    """

    count: int
    size: int
    step: int
    lane: int
    read: int

    @property
    def direct(self) -> tuple[int, int]:
        """The bytes between lanes, and between loads of one, where a lane loads what it multiplies."""
        return (self.lane, self.step) if self.read == self.size else (self.read, self.size)


PIECES = {16: Pieces(1, 16, 0, 16, 16), 24: Pieces(2, 12, 12 * LANES, 12, 24), 32: Pieces(2, 16, 16, 32, 16)}
"""The pieces by bytes of a fragment in a lane.

LDS takes 4, 12 or 16 bytes from a lane. The 24 bytes of 6-bit elements arrive as they lie in memory, so that a lane
finds its own in one place, on banks of its own; the 32 of 8-bit elements arrive in halves, each free of conflicts.
"""

INNER_PIECES = PIECES | {32: Pieces(2, 16, 16 * LANES, 16, 16)}
"""The pieces in inner tiles, where the halves of 8-bit elements are separate."""


@dataclass(frozen=True)
class Waves:
    """The waves of a workgroup: along M, N and K of its tile.

    Attributes:
        meet: Where operands are shared, the row of each step before which waves meet: found by replays.
        lhs_row_major: Whether they read LHS as it is stored, row-major, and only its scales in inner tiles.
        lhs_rows: Rows of an LHS inner tile that they load: if not all, the layout has `lhs_row_lines`.
        occupancy: Workgroups of which a compute unit is to take so many at a time: their part of LDS.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    meet: int = 0
    lhs_row_major: bool = False
    lhs_rows: int = INNER_ROWS
    occupancy: int = 1

    @property
    def count(self) -> int:
        return self.m * self.n * self.k


ONE_WAVE = Waves()
"""A workgroup of a single wave."""
