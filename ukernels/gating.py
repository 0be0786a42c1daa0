"""Members of the family for mixtures of experts: what quantises hidden activations in its tile, and what takes them.

Both are computed transposed, weights in the place of LHS, on few rows: 16, with waves along K, 32, with a wave alone,
or 64 or 128, with two or four waves side by side. A tile of the first has gate and up of 128 hidden activations
(`DataTiledLayout.gated`): four blocks, of which a lane has all 32 elements. The second takes 128 of them in a step;
those of 8 bits row by row, as whole blocks are stored.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from mxcomp.formats import BLOCK_SIZE, E2M1, E4M3, element_format
from mxcomp.layout import GATE_AND_UP, DataTiledLayout
from mxcomp.ukernels.family import EXPERTS, M16, Instance, Tile
from mxcomp.ukernels.waves import Waves

HEIGHT = 128
"""Hidden activations of a tile, and of a step along K in what takes them."""

_WAVES = (2, 4)
"""Along rows, of which each has 32."""

_FEW, _ALONE = Waves(k=4, beside=2), Waves()
"""Along K, of a workgroup for 16 rows, of which a compute unit takes two or more; of one that is a wave."""

_LEAST_BENEFIT = -9
ELEMENTS = (E2M1.mlir_type, E4M3.mlir_type)
"""Of weights, and of activations."""


def _tile(subgroups_m: int, waves: int, intrinsics_n: int = 2) -> Tile:
    layout = DataTiledLayout(
        M16,
        intrinsics_m=8,
        intrinsics_n=intrinsics_n,
        subgroups_m=subgroups_m,
        subgroups_n=waves,
        operands_interleaving_intrinsics_m=(2,),
        operands_interleaving_intrinsics_n=(3,),
        operands_interleaving_intrinsics_k=(2, 3),
    )
    return Tile(layout, benefit=_LEAST_BENEFIT)


def _tiles(subgroups_m: int) -> tuple[Tile, ...]:
    streamed = (
        replace(_tile(subgroups_m, waves=1, intrinsics_n=n), body=EXPERTS, waves=waves)
        for n, waves in ((1, _FEW), (2, _ALONE))
    )
    return *streamed, *(_tile(subgroups_m, waves) for waves in _WAVES)


GATED, _DOWN = _tiles(len(GATE_AND_UP)), _tiles(1)
_DOWN_BY_ROWS = tuple(replace(tile, layout=replace(tile.layout, rhs_row_lines=True)) for tile in _DOWN)


def down(element: str) -> tuple[Tile, ...]:
    """Tiles of what takes hidden activations of this type."""
    return _DOWN if element_format(element).lane_unit == BLOCK_SIZE else _DOWN_BY_ROWS


INSTANCES = tuple(
    Instance(tile, (weights, hidden))
    for weights, hidden in product(ELEMENTS, ELEMENTS)
    for tile in (*GATED, *down(hidden))
)


SUFFIX = "_experts"
"""Behind an instance's name in a table of times: as a part of a layer, with SwiGLU where it has gate and up."""


def fitting(tiles: tuple[Tile, ...], rows: int) -> Tile:
    """The smallest tile that holds so many rows, or else the largest."""
    return next((tile for tile in tiles if rows <= tile.layout.tile[1]), tiles[-1])
