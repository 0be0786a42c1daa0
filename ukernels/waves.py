"""Units of packed operands, and the waves of a workgroup that computes a tile of so many of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mxcomp.formats import E8M0
from mxcomp.layout import DataTiledLayout

MFMA = DataTiledLayout().shape
"""Of units, and of data-tiled tiles."""
LANES, BLOCK = MFMA.lanes, MFMA.block
"""Of a wave; elements along K that a lane has, and that share a scale."""
SCALE = E8M0.mlir_type
"""The type of scales that it takes."""

STEPS, HALF_STEPS = 4, 2
"""MFMA that a unit takes along K, and half a unit."""

UNIT_ROWS, BLOCKS, VALUES = 16, 4, 4
"""Rows of a fragment, and blocks of a row, that an MFMA takes; of a fragment of the result, in a lane."""

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


def unit_layout(units_m: int, units_n: int, steps: int = STEPS) -> DataTiledLayout:
    """A workgroup's tile of so many units of LHS and RHS, or of half units: of `HALF_STEPS`."""
    return DataTiledLayout(intrinsics_k=steps, operands_interleaving_intrinsics_k=(2, 3), units=(units_m, units_n))


def in_columns(layout: DataTiledLayout) -> DataTiledLayout:
    """With accumulators of a lane that are neighbours in a row of the result, and are stored in one piece.

    Not for fragments of 32 × 32: 32 rows of 32 bytes are twice as many cache lines as a store of 1 KB takes time for.
    """
    return replace(layout, lane_columns=True)


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
