"""Kernels for mixtures of experts: one quantises hidden activations in its tile, the other takes them.

Both are computed transposed, with weights as LHS, on few rows: 16 with waves along K, 32 with a single wave, or 64 or
128 with two or four waves along them. A tile of the first kernel has gate and up of 128 hidden activations
(`DataTiledLayout.gated`): four blocks, of which a lane has all 32 elements. The second kernel takes 128 of them in a
step; 8-bit ones row by row, as whole blocks are stored.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from iree.compiler import ir

from mxcomp.formats import E2M1, E4M3
from mxcomp.layout import GATE_AND_UP, LHS
from mxcomp.target import Target
from mxcomp.ukernels import builder, data_tiled, family, split_k
from mxcomp.ukernels.builder import Factor, Index, Values, sched_barrier
from mxcomp.ukernels.data_tiled import DataTiled, Tiled, layout_of, stored
from mxcomp.ukernels.split_k import Flight, InFlight, Stream
from mxcomp.ukernels.waves import MFMA, VALUES, Waves

_WAVES = (2, 4)
"""The numbers of waves along rows, each of 32 rows."""

_FEW = Waves(k=4, occupancy=2)
"""The waves along K of a workgroup for 16 rows, two or more of which share a compute unit."""

_LEAST_BENEFIT = -9
ELEMENTS = (E2M1.mlir_type, E4M3.mlir_type)
"""The element types of weights, and of activations."""


def _tiles(parts: int) -> tuple[family.Tile, ...]:
    shared = (data_tiled.Tile(layout_of(8, 2, waves=count, parts=parts), _LEAST_BENEFIT) for count in _WAVES)
    return (
        split_k.Tile(layout_of(8, 1, parts=parts), _LEAST_BENEFIT, waves=_FEW),
        split_k.Tile(layout_of(8, 2, parts=parts), _LEAST_BENEFIT),
        *shared,
    )


GATED, _DOWN = _tiles(len(GATE_AND_UP)), _tiles(1)
_DOWN_BY_ROWS = tuple(replace(tile, layout=replace(tile.layout, rhs_row_lines=True)) for tile in _DOWN)


def down(element: str) -> tuple[family.Tile, ...]:
    """Returns the tiles that take hidden activations of this type."""
    return _DOWN if MFMA.holds_blocks(element) else _DOWN_BY_ROWS


# The kernel for few rows

_RING_BYTES, _RING_BYTES_ONE_WAVE = 32, 512
"""The bytes in flight of each fragment of weights in a lane; and of all of them, for a wave alone on a SIMD."""


class _InFlight(Tiled, InFlight):
    """Weights or activations of which a lane has some K tiles of its wave in registers, one per step."""

    def __init__(self, waves: int, *of: Any) -> None:
        super().__init__(*of)
        self._waves = waves

    def step(self, tile: Index, step: int) -> list[Values]:
        """Loads scales and elements of the wave's K tile at this distance, if there is one."""
        at = self.in_bounds(tile + step * self._waves)
        scales = [self.load_scales(at, part) for part in range(self.parts)]
        sched_barrier()  # the first product waits for scales and one fragment, not for all
        return [scales, *(self.load(at, number) for number in range(self.all_fragments))]

    def factors(self, flight: Flight, step: int) -> list[Factor]:
        scales, *fragments = flight[1 + step]
        numbers = product(range(self.parts), range(self.fragments))
        return [self.factor(pieces, scales[part], n) for pieces, (part, n) in zip(fragments, numbers, strict=True)]


class FewRows(Stream):
    """Writes the kernel of an instance: `split_k.Stream` whose loop iterations are several K tiles of a wave, a step
    each.

    Few rows wait for weights, and for nothing else. Where a tile has gate and up, each wave adds up, and stores, all of
    it: so a lane has whole blocks, and what is fused behind is computed as if there were one wave.
    """

    def __init__(self, instance: family.Instance, target: Target) -> None:
        super().__init__(instance, target)
        if self.layout.subgroups_m > 1:
            self._share_out(1)

    def _turn(self) -> tuple[int, int]:
        bytes_ = _RING_BYTES if self.waves > 1 else _RING_BYTES_ONE_WAVE // self.inner_tiles[LHS]
        depth = bytes_ // MFMA.lane_bytes(self.instance.elements[LHS])
        return depth, depth * self.waves

    def _operands(self, *given: ir.Value) -> None:
        a, b = (_InFlight(self.waves, self.instance, side, *pair) for side, pair in enumerate(self._pairs(*given)))
        self.streamed = b, a
        self.k_tiles = a.k_tiles = b.k_tiles = builder.opaque(a.k_tiles)  # keeps the loop, as in `Stream`

    def _main_loop(self, *flights: Flight) -> Values:
        """Computes all of the wave's K tiles. A peeled last iteration would take more registers than there are."""
        builder.fence()  # as in `Stream`
        acc = [builder.f32_zeros(VALUES) for _ in range(prod(self.inner_tiles))]
        acc, *_ = builder.loop(self.k_tiles, self._k_tile, acc, *flights, start=self.wave, step=self.turn)
        return acc

    def _stored(self, row: Index, column: Index, in_fragment: list[Index]) -> tuple[list[int], list[Index | int]]:
        return stored(self.layout, self.rows // self.layout.subgroups_m, row, column, in_fragment)


def instance(tile: family.Tile, elements: tuple[str, str]) -> family.Instance:
    """Returns the instance for weights and hidden activations of such elements."""
    return family.Instance(tile, elements, DataTiled if isinstance(tile, data_tiled.Tile) else FewRows)


INSTANCES = tuple(
    instance(tile, (weights, hidden))
    for weights, hidden in product(ELEMENTS, ELEMENTS)
    for tile in (*GATED, *down(hidden))
)
