"""MX × MX → f32 on operands packed in IREE's data-tiled layouts: A through LDS, B directly to registers.

The waves of a tile are adjacent along N and share no B: each loads its own fragments directly into registers, as
packing has ordered them by lanes. All waves need the whole of A, which goes through a ring buffer of three K tiles in
LDS. Where a layout has subgroups along M, every wave computes all of them: they are only a dimension of packed tiles.

A wave has one K tile of both in registers. Each load replaces a value right after its last use:

    columns 0 … n − 2   multiply a column of fragments | load B of it for the next K tile
    column n − 1        meet | copy A three K tiles ahead | multiply, and behind each row read its next A | load B

So both are loaded most of a K tile before they are needed, without a second set of registers. That leaves room for 128
accumulators in 256 registers for all widths, so two workgroups share a compute unit, and each uses the other's idle
cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from iree.compiler import ir

from mxcomp.layout import LHS, RHS, DataTiledLayout
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, family
from mxcomp.ukernels.builder import Factor, Index, Values, sched_barrier, select
from mxcomp.ukernels.family import Kernel
from mxcomp.ukernels.operands import Direct, factor, in_tile, read_fragment
from mxcomp.ukernels.waves import BEYOND, INNER_ROWS, LANES, MFMA, PIECES, VALUES

# Tiles


def layout_of(m: int, n: int, k: int = 1, waves: int = 1, parts: int = 1) -> DataTiledLayout:
    """Returns the layout with so many MFMA in a wave along N, and a part along M. A lane's scales are contiguous."""
    return DataTiledLayout(
        intrinsics_m=m,
        intrinsics_n=n,
        intrinsics_k=k,
        subgroups_m=parts,
        subgroups_n=waves,
        operands_interleaving_intrinsics_m=(2,),
        operands_interleaving_intrinsics_n=(3,),
        operands_interleaving_intrinsics_k=(2, 3),
    )


@dataclass(frozen=True)
class Tile(family.Tile):
    """A tile of this kind. Two workgroups share a compute unit."""

    waves_per_simd = 2

    def lds_bytes(self, elements: tuple[str, str], target: Target) -> int:
        return _STAGES * self.fragments[LHS] * self.layout.intrinsics_k * LANES * MFMA.lane_bytes(elements[LHS])


TILES = (
    Tile(layout_of(8, 4, waves=4), benefit=0, min_m=65),
    Tile(layout_of(4, 2, 2, waves=4), benefit=-1),
)
REQUANTISING = TILES[0]
"""The tile whose results can be quantised in it, computed transposed with weights as LHS. Its K is its M: a transposed
tile of accumulators is a tile of the next operand.
"""

# Operands


class KTile(NamedTuple):
    """The number of a K tile, separate for elements and scales: an out-of-bounds one differs for each."""

    elements: Index
    scales: Index


class Tiled(Direct):
    """LHS or RHS. A K tile has parts, a part has fragments; a lane's scales of a part are contiguous.

    Parts of LHS are subgroups along M, of RHS waves.
    """

    def __init__(self, instance: family.Instance, side: int, elements: ir.Value, scales: ir.Value) -> None:
        layout = instance.layout
        self.parts = (layout.subgroups_m, layout.subgroups_n)[side]
        self.fragments = (layout.intrinsics_m, layout.intrinsics_n)[side] * layout.intrinsics_k
        self.all_fragments = self.parts * self.fragments
        self.k_tiles = Index.of(build.dim(elements, 1))
        by_rows = layout.rhs_row_lines and side == RHS
        super().__init__((elements, scales), self.k_tiles, instance.elements[side], PIECES, by_rows)
        self._beyond = [-(-BEYOND // (self.all_fragments * size)) for size in (self._fragment_bytes, LANES)]

    def distribute(self, lane: Index) -> None:
        self._scales_from = (lane * self.fragments).here
        super().distribute(lane)

    def in_bounds(self, tile: Index) -> KTile:
        """Returns a K tile, or an out-of-bounds one, of which nothing is loaded, after the last one."""
        is_there = tile < self.k_tiles
        return KTile(*(select(is_there, tile, beyond) for beyond in self._beyond))

    def load_scales(self, tile: KTile, part: Index | int) -> ir.Value:
        at = self._scales_from + part * (LANES * self.fragments)
        place = in_tile(self._scale_source, Index.of(0), tile.scales, at)
        return builder.load(self._scale_source, place, self.fragments)

    def load(self, tile: KTile, fragment: Index | int) -> Values:
        return self.pieces(0, tile.elements, fragment * self._fragment_bytes)

    def factor(self, pieces: Values, scales: ir.Value, number: int) -> Factor:
        """Returns a fragment as an MFMA takes it, and its scale, by its number in its part."""
        return factor(builder.joined(pieces), self.element, scales, number)


Fragments: TypeAlias = list[Values]
"""Pieces of each, in registers."""


class _Staged(Tiled):
    """LHS, staged in LDS for some K tiles: as in memory, but with the pieces of a fragment contiguous by lanes."""

    def stage(self, waves: int) -> None:
        """Allocates LDS, to which so many waves copy."""
        self._turns = self.all_fragments * self._pieces.count // waves
        self._stage_bytes = self.all_fragments * self._fragment_bytes
        self._ring = builder.lds(_STAGES * self._stage_bytes)

    def share_out(self, wave: Index, lane: Index) -> None:
        """Sets the parts that a lane copies, and reads."""
        self._first_copy = (wave * self._turns).here
        self._copied, self._read = (lane * self._pieces.lane).here, (lane * self._pieces.read).here

    def copy(self, tile: Index, stage: Index | int) -> None:
        """Starts the copy of a K tile, of which each wave copies its part."""
        pieces, at = self._pieces, self.in_bounds(tile).elements
        for turn in range(self._turns):
            number = self._first_copy + turn
            fragment, piece = number // pieces.count, number % pieces.count
            place = in_tile(
                self._source, Index.of(0), at, fragment * self._fragment_bytes + piece * pieces.step + self._copied
            )
            to = stage * self._stage_bytes + number * (pieces.size * LANES)
            builder.copy_to_lds(self._source, place, self._ring, to, pieces.size)
        builder.async_group()

    def read(self, stage: Index | int, fragment: int) -> ir.Value:
        first = stage * self._stage_bytes + fragment * self._fragment_bytes + self._read
        return read_fragment(self._ring, first, self._fragment_bytes, self._pieces)


# The kernel

_STAGES = 3
"""The number of K tiles of LHS in LDS."""

_PRIORITY = 3
"""The priority of waves in the loop, above that of prologues and stores of another workgroup."""


class DataTiled(Kernel):
    def __init__(self, instance: family.Instance, target: Target) -> None:
        super().__init__(instance, target)
        self.steps, (self.rows, self.columns) = self.layout.intrinsics_k, instance.tile.fragments
        self.barrier_at = 0, self.columns - 1  # the step and column from which on A of the next K tile is read

    def _open(self, *arguments: ir.Value) -> None:
        lhs, rhs, lhs_scale, rhs_scale, _ = arguments
        self.a, self.b = _Staged(self.instance, LHS, lhs, lhs_scale), Tiled(self.instance, RHS, rhs, rhs_scale)
        self.a.stage(self.layout.subgroups_n)

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.a.share_out(self.wave, self.lane)
        for x in (self.a, self.b):
            x.distribute(self.lane)

    # Prologue

    def _prologue(self) -> tuple[Values, Fragments, Values]:
        """Starts loading the first K tiles in the order of the loop, in which loads return."""
        for tile in range(_STAGES - 1):
            self.a.copy(Index.of(tile), tile)
        sched_barrier()
        first, b = Index.of(0), [Values() for _ in range(self.b.fragments)]
        scales = self._load_scales(first)
        at = self.b.in_bounds(first)
        for step, n in product(range(self.steps), range(self.columns)):
            sched_barrier()
            if (step, n) == self.barrier_at:
                self.a.copy(Index.of(_STAGES - 1), _STAGES - 1)
                sched_barrier()
            b[n * self.steps + step] = self._load(at, n * self.steps + step)
        builder.wait_groups(_STAGES - 1)
        builder.lds_barrier()
        a = [self.a.read(0, number) for number in range(self.a.all_fragments)]
        builder.set_priority(_PRIORITY)
        return a, b, scales

    def _load_scales(self, tile: Index) -> Values:
        """Loads scales of each part of A, and of the wave's B."""
        a, b = self.a.in_bounds(tile), self.b.in_bounds(tile)
        return [*(self.a.load_scales(a, part) for part in range(self.a.parts)), self.b.load_scales(b, self.wave)]

    def _load(self, tile: KTile, number: int) -> Values:
        return self.b.load(tile, self.wave * self.b.fragments + number)

    # Main loop

    def _main_loop(self, *first: Any) -> Values:
        acc = [builder.f32_zeros(VALUES) for _ in range(self.rows * self.columns)]
        acc, *_ = builder.loop(self.a.k_tiles, self._k_tile, acc, *first)
        return acc

    def _k_tile(
        self, i: Index, acc: Values, a: Values, b: Fragments, scales: Values
    ) -> tuple[Values, Values, Fragments, Values]:
        following, stage, next_stage = (i + 1).here, (i % _STAGES).here, ((i + 1) % _STAGES).here
        next_scales, next_tile = self._load_scales(following), self.b.in_bounds(following)
        sched_barrier()
        for step, n in product(range(self.steps), range(self.columns)):
            if (step, n) == self.barrier_at:
                # After this the next K tile of A has arrived, and all waves have read this one, whose stage is reused
                builder.wait_groups(_STAGES - 2)
                builder.lds_barrier()
                self.a.copy(i + _STAGES, stage)
            self._column(step, n, acc, a, b, scales, next_stage)
            # An MFMA issues in 4 of its 16 to 32 cycles: the rest of this column is spread over the others. After it
            # B is loaded, not in front of its last use.
            builder.sched_groups("mfma_wmma", "all_vmem", "ds_read", "ds_read", times=self.rows)
            sched_barrier()
            number = n * self.steps + step
            b[number] = self._load(next_tile, number)
        return acc, a, b, next_scales

    def _column(
        self, step: int, n: int, acc: Values, a: Values, b: Fragments, scales: Values, next_stage: Index
    ) -> None:
        """Multiplies a column of fragments. In the last one A is replaced by that of the next K tile."""
        number = n * self.steps + step
        right = self.b.factor(b[number], scales[-1], number)
        for row in range(self.rows):
            fragment, place = row * self.steps + step, row * self.columns + n
            part, in_part = divmod(fragment, self.a.fragments)
            left = self.a.factor([a[fragment]], scales[part], in_part)
            acc[place] = builder.scaled_mfma(self.layout.shape, left, right, acc[place])
            if n == self.columns - 1:
                a[fragment] = self.a.read(next_stage, fragment)

    # Epilogue

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        # No copy may arrive after another kernel or the next tile of this workgroup reuses LDS.
        builder.wait_groups(0)
        builder.set_priority(0)
        in_fragment = [self.lane // INNER_ROWS, self.lane % INNER_ROWS, Index.of(0)]
        threads.store(acc, *stored(self.layout, self.layout.intrinsics_m, Index.of(0), self.wave, in_fragment))


def stored(
    layout: DataTiledLayout, rows: int, row: Index, wave: Index, in_fragment: list[Index]
) -> tuple[list[int], list[Index | int]]:
    """Returns the shape of a lane's part of the result, for so many rows of fragments of each part, and its index."""
    dims: list[tuple[int, int, Index | int]] = [  # of the tile, size and place of a wave's part
        (layout.subgroups_m, layout.subgroups_m, 0),
        (layout.subgroups_n, 1, wave),
        (layout.intrinsics_m, rows, row),
        (layout.intrinsics_n, layout.intrinsics_n, 0),
    ]
    there = [(size, place) for whole, size, place in dims if whole > 1]
    return [1, 1, *(size for size, _ in there), 1, 1, VALUES], [0, 0, *(place for _, place in there), *in_fragment]


INSTANCES = family.instances(DataTiled, TILES)
