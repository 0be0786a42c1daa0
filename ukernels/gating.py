"""Members of the family for mixtures of experts: what quantises hidden activations in its tile, and what takes them.

Both are computed transposed, weights in the place of LHS, on few rows: 64 or 128, two or four waves side by side. A
tile of the first has gate and up of 128 hidden activations (`DataTiledLayout.gated`): four blocks, of which a lane has
all 32 elements. The second takes 128 of them in a step.
"""

from __future__ import annotations

from itertools import product

from mxcomp.formats import E2M1, E4M3
from mxcomp.layout import GATE_AND_UP, DataTiledLayout
from mxcomp.ukernels.family import M16, Instance, Tile

HEIGHT = 128
"""Hidden activations of a tile, and of a step along K in what takes them."""

WAVES = (2, 4)
"""Along rows, of which each has 32."""

_LEAST_BENEFIT = -9
_ELEMENTS = (E2M1.mlir_type, E4M3.mlir_type)


def _tile(subgroups_m: int, waves: int) -> Tile:
    layout = DataTiledLayout(
        M16,
        intrinsics_m=8,
        intrinsics_n=2,
        subgroups_m=subgroups_m,
        subgroups_n=waves,
        operands_interleaving_intrinsics_m=(2,),
        operands_interleaving_intrinsics_n=(3,),
        operands_interleaving_intrinsics_k=(2, 3),
    )
    return Tile(layout, benefit=_LEAST_BENEFIT)


GATED = tuple(_tile(len(GATE_AND_UP), waves) for waves in WAVES)
DOWN = tuple(_tile(1, waves) for waves in WAVES)
INSTANCES = tuple(Instance(tile, pair) for tile in (*GATED, *DOWN) for pair in product(_ELEMENTS, _ELEMENTS))


def fitting(tiles: tuple[Tile, ...], rows: int) -> Tile:
    """The smallest tile that holds so many rows, or else the largest."""
    return next((tile for tile in tiles if rows <= tile.layout.tile[1]), tiles[-1])
