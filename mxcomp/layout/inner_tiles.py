"""Inner tiles of packed operands: 16 rows by four matrix instructions along K, of which tiles have any number."""

from __future__ import annotations

from dataclasses import replace

from mxcomp.formats import E8M0
from mxcomp.layout import DataTiledLayout

__all__ = [
    "BLOCK",
    "BLOCKS",
    "HALF_STEPS",
    "INNER_ROWS",
    "LANES",
    "MFMA",
    "SCALE",
    "STEPS",
    "VALUES",
    "in_columns",
    "inner_tiled_layout",
]  # fmt: skip

MFMA = DataTiledLayout().shape
"""The MFMA of inner tiles, and of data-tiled tiles."""
LANES, BLOCK = MFMA.lanes, MFMA.block
"""The lanes of a wave; and the elements along K of a lane, which share a scale."""
SCALE = E8M0.mlir_type
"""The type of scales of the MFMA."""

STEPS, HALF_STEPS = 4, 2
"""The number of MFMA along K of an inner tile, and of half an inner tile."""

INNER_ROWS, BLOCKS, VALUES = 16, 4, 4
"""The rows of a fragment, and blocks of a row, of an MFMA; and the values of a result fragment in a lane."""


def inner_tiled_layout(inner_m: int, inner_n: int, steps: int = STEPS) -> DataTiledLayout:
    """Returns a workgroup's tile of so many inner tiles of LHS and RHS, or of half inner tiles: of `HALF_STEPS`."""
    return DataTiledLayout(
        intrinsics_k=steps, operands_interleaving_intrinsics_k=(2, 3), inner_tiles=(inner_m, inner_n)
    )


def in_columns(layout: DataTiledLayout) -> DataTiledLayout:
    """Returns the layout with a lane's accumulators adjacent in a row of the result, to be stored contiguously.

    Not for fragments of 32 × 32: 32 rows of 32 bytes are twice as many cache lines as a store of 1 KB takes time for.
    """
    return replace(layout, lane_columns=True)
