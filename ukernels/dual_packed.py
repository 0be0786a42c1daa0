"""MX × MX → f32 for two matrices of one shape, gate and up: `multistage` whose tile has columns of both.

A wave has fragments of either matrix at the same places, so that what is computed from both results needs no memory
between them. Both are packed as for `multistage`. Operands are bytes: LHS [tiles, inner tiles, K tiles, bytes of an
inner tile] and its scales; elements and scales of one RHS, and of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.mlir import build
from mxcomp.ukernels import family, multistage
from mxcomp.ukernels.multistage import Multistage
from mxcomp.ukernels.operands import Staging, argument_types
from mxcomp.ukernels.waves import LANES, MFMA

# Tiles


@dataclass(frozen=True)
class Tile(multistage.Tile):
    """A tile of this kind: `layout` has the columns of one matrix."""

    def unstaged(self, elements: tuple[str, str]) -> list[Staging]:
        lhs, rhs = super().unstaged(elements)
        return [lhs, rhs, rhs]


BOTH = range(2)
"""The numbers of the matrices."""
_INNER_TILES = ((16, 16), (8, 16), (8, 8))
"""The inner tiles along M and N of the tiles of `multistage` that have a pair."""
_BITS = ((4, 4), (8, 4), (8, 8))
"""The bits of elements for which there are pairs."""


@dataclass(frozen=True)
class Instance(family.Instance):
    """A member: the tile and types of an instance of `multistage`, with half of the columns for each matrix."""

    @property
    def plain(self) -> family.Instance:
        """The instance for one matrix with the columns of both, which takes the same time."""
        m, n = self.tile.inner_tiles
        tile = next(each for each in multistage.TILES if _is_plain(each) and each.inner_tiles == (m, 2 * n))
        return family.Instance(tile, self.elements, Multistage)

    def covers(self, m: int, n: int, k: int) -> bool:
        """Returns whether it computes a problem of this size, of several tiles along each dimension: IREE would drop
        the loop over a single one, and with it what it was told of the others."""
        return all(size > step for size, step in zip((m, n, k), self.layout.workgroup_tile, strict=True))

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        (inner_m, inner_n), steps = self.tile.inner_tiles, self.layout.intrinsics_k
        shapes = [
            (inner_tiles, steps * LANES * each)
            for inner_tiles, element in ((inner_m, LHS), *[(inner_n, RHS)] * len(BOTH))
            for each in (MFMA.lane_bytes(self.elements[element]), 1)
        ]
        results = [argument_types(self.layout, self.elements)[-1]] * len(BOTH)
        return (*(build.tensor_type((1, inner_tiles, None, size), "i8") for inner_tiles, size in shapes), *results)


# The kernel


class DualPacked(Multistage):
    prefix, operands, results = "mx_dual_", "packed_pair", len(BOTH)


def _is_plain(tile: multistage.Tile) -> bool:
    """Returns whether a tile has whole inner tiles, a compute unit to itself, and columns for a pair."""
    return tile.inner_tiles in _INNER_TILES and not tile.is_half and tile.waves.occupancy == 1


def _dual(tile: multistage.Tile) -> Tile:
    (m, n), layout = tile.inner_tiles, tile.layout
    bits = tuple(each for each in tile.bits if each in _BITS)
    return Tile(replace(layout, inner_tiles=(m, n // len(BOTH))), tile.benefit, waves=tile.waves, bits=bits)


INSTANCES = tuple(
    Instance(_dual(plain.tile), plain.elements, DualPacked)
    for plain in multistage.INSTANCES
    if isinstance(plain.tile, multistage.Tile) and _is_plain(plain.tile) and _dual(plain.tile).fits(plain.elements)
)
