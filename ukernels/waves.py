"""How fragments of packed operands move, and the waves of a workgroup; `layout.units` says how they lie."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.layout.units import *  # noqa: F403
from mxcomp.layout.units import LANES, UNIT_ROWS

BEYOND = 2**31
"""Bytes from its start that no buffer has: a K tile that begins there, or its scales, is not loaded."""


@dataclass(frozen=True)
class Pieces:
    """How a fragment moves: `count` loads of `size` bytes in each lane, `step` and `lane` bytes apart in memory.

    In LDS the bytes of a load follow each other by lanes; from there a lane reads its fragment `read` bytes at a time.
    """

    count: int
    size: int
    step: int
    lane: int
    read: int


PIECES = {16: Pieces(1, 16, 0, 16, 16), 24: Pieces(2, 12, 12 * LANES, 12, 24), 32: Pieces(2, 16, 16, 32, 16)}
"""By bytes of a fragment in a lane.

LDS takes 4, 12 or 16 bytes from a lane. The 24 bytes of 6-bit elements arrive as they lie in memory, so that a lane
finds its own in one place, on banks of its own; the 32 of 8-bit elements arrive in halves, each free of conflicts.
"""

UNIT_PIECES = PIECES | {32: Pieces(2, 16, 16 * LANES, 16, 16)}
"""The same in units, where the halves of 8-bit elements lie apart."""


@dataclass(frozen=True)
class Waves:
    """Waves of a workgroup: along M, N and K of its tile.

    Attributes:
        meet: Where operands are shared, the row of each step before which waves meet: found by replays.
        lhs_in_rows: Whether they read LHS as it is stored, row-major, and only its scales in units.
        lhs_rows: Rows of an LHS unit that they load: if not all, the layout has `lhs_row_lines`.
        occupancy: Workgroups of which a compute unit is to take so many at a time: their part of LDS.
    """

    m: int = 1
    n: int = 1
    k: int = 1
    meet: int = 0
    lhs_in_rows: bool = False
    lhs_rows: int = UNIT_ROWS
    occupancy: int = 1

    @property
    def count(self) -> int:
        return self.m * self.n * self.k


ALONE = Waves()
"""One that is a workgroup."""
