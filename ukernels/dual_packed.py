"""MX × MX → f32 for two matrices of one shape, gate and up: `multistage` whose tile has columns of both.

A wave has fragments of either matrix at the same places, so that what is computed from both results needs no memory
between them. Both are packed as for `multistage`. Operands are bytes: LHS [tiles, units, K tiles, bytes of a unit] and
its scales; elements and scales of one RHS, and of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.mlir import build
from mxcomp.ukernels import builder, family, multistage
from mxcomp.ukernels.builder import Factor, Index, Values
from mxcomp.ukernels.multistage import Multistage
from mxcomp.ukernels.operands import Operand, Staging, argument_types, packed_buffer
from mxcomp.ukernels.waves import LANES, MFMA

# Tiles


@dataclass(frozen=True)
class Tile(multistage.Tile):
    """A tile of this kind: `layout` has the columns of one matrix."""

    def unstaged(self, elements: tuple[str, str]) -> list[Staging]:
        lhs, rhs = super().unstaged(elements)
        return [lhs, rhs, rhs]


_UNITS = ((16, 16), (8, 16), (8, 8))
"""The units along M and N of the tiles of `multistage` that have a pair."""
_BITS = ((4, 4), (8, 4), (8, 8))
"""The bits of elements for which there are pairs."""


@dataclass(frozen=True)
class Instance(family.Instance):
    """A member: the tile and types of an instance of `multistage`, with half of the columns for each matrix."""

    @property
    def name(self) -> str:
        """The name, for example mx_dual_f4E2M1FN_f4E2M1FN_f32_m256_n128_k512."""
        return super().name.replace("mx_", "mx_dual_", 1)

    @property
    def plain(self) -> family.Instance:
        """The instance for one matrix with the columns of both, which takes the same time."""
        m, n = self.tile.units
        tile = next(each for each in multistage.TILES if _is_plain(each) and each.units == (m, 2 * n))
        return family.Instance(tile, self.elements, Multistage)

    @property
    def rule(self) -> dict[str, Any]:
        return super().rule | {"operands": DualPacked.operands}

    def covers(self, m: int, n: int, k: int) -> bool:
        """Returns whether it computes a problem of this size: more than one tile along each dimension.

        IREE would drop the loop over a single one, and with it what it was told of the others.
        """
        return all(size > step for size, step in zip((m, n, k), self.layout.workgroup_tile, strict=True))

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        (units_m, units_n), steps = self.tile.units, self.layout.intrinsics_k
        shapes = [
            (units, steps * LANES * each)
            for units, element in ((units_m, LHS), *[(units_n, RHS)] * len(_BOTH))
            for each in (MFMA.lane_bytes(self.elements[element]), 1)
        ]
        results = [argument_types(self.layout, self.elements)[-1]] * len(_BOTH)
        return (*(build.tensor_type((1, units, None, size), "i8") for units, size in shapes), *results)


_BOTH = range(2)
"""The numbers of the matrices."""


# The kernel


class _Flat(Operand):
    """An operand whose units are bytes."""

    def _opened(self, elements: ir.Value) -> ir.Value:
        return packed_buffer(elements, self._k_tiles)


class _Joined(Operand):
    """Both matrices as one RHS: a wave multiplies fragments of one, then those of the other."""

    def __init__(self, *of: Operand) -> None:
        self._of, self.fragments = of, sum(each.fragments for each in of)

    def _part(self, number: int) -> tuple[Operand, int]:
        which, own = divmod(number, self._of[0].fragments)
        return self._of[which], own

    def fragment(self, number: int, place: Index) -> ir.Value:
        of, own = self._part(number)
        return of.fragment(own, place)

    def scales(self, number: int, slot: Index | int) -> ir.Value:
        of, own = self._part(number)
        return of.scales(own, slot)

    def factor(self, fragment: ir.Value, scales: ir.Value, step: int) -> Factor:
        return self._of[0].factor(fragment, scales, step)


class DualPacked(Multistage):
    """Writes the kernel of an instance."""

    operands, results = "packed_pair", len(_BOTH)

    def _open(self, *arguments: ir.Value) -> None:
        k_tiles = self.k_tiles = Index.of(build.dim(arguments[0], 2))
        left, right = self.instance.elements
        kinds = (left, self.rows), *[(right, self.columns // self.results)] * self.results
        of = zip(arguments[::2], arguments[1::2], kinds, self.staging, strict=False)
        self.sides = tuple(
            _Flat(elements, scales, kind, fragments, staging, k_tiles)
            for elements, scales, (kind, fragments), staging in of
        )
        self.a, self.b = self.sides[0], _Joined(*self.sides[1:])
        self._stage()

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        of_one = self.columns // self.results
        numbers = range(len(acc))
        super()._epilogue([acc[i] for which in _BOTH for i in numbers if i // of_one % len(_BOTH) == which], threads)


def _is_plain(tile: multistage.Tile) -> bool:
    """Returns whether a tile has whole units, a compute unit to itself, and columns for a pair."""
    return tile.units in _UNITS and not tile.is_half and tile.waves.occupancy == 1


def _dual(tile: multistage.Tile) -> Tile:
    (m, n), layout = tile.units, tile.layout
    bits = tuple(each for each in tile.bits if each in _BITS)
    return Tile(replace(layout, units=(m, n // len(_BOTH))), tile.benefit, waves=tile.waves, bits=bits)


INSTANCES = tuple(
    Instance(_dual(plain.tile), plain.elements, DualPacked)
    for plain in multistage.INSTANCES
    if isinstance(plain.tile, multistage.Tile) and _is_plain(plain.tile) and _dual(plain.tile).fits(plain.elements)
)
