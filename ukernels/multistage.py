"""MX × MX → f32 for tiles from 64×128 to 256×256: a multistage pipeline whose waves share A and B in LDS.

LDS has a ring buffer of `stages` steps along K, and the scales of some K tiles. Steps are copied asynchronously,
without registers, `stages - 1` ahead. A step is a row of MFMA for each of a wave's fragments of A: the fragment, read
two rows ahead, times all of the wave's fragments of B, which are read in the last rows of the previous step. Copies and
reads are interleaved with the MFMA of these rows.

A barrier is in the first rows of each step: after it all waves have read the previous step, whose stage is reused, and
the next step has arrived. Copies past the last K tile fetch nothing.

Two workgroups of a compute unit are in different phases: while one multiplies, the other one stores, or waits for its
first data. The multiplying one has the higher priority, as it would otherwise wait for its next step behind all stores
of the other. The first K tile is peeled, and its MFMA add to a constant 0, so that no time is spent on zeroing
accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mxcomp.layout import LHS, RHS
from mxcomp.target import Target
from mxcomp.ukernels import builder, family, gemm
from mxcomp.ukernels.builder import Index, Values, loop, s_barrier, sched_barrier
from mxcomp.ukernels.gemm import Gemm, Scales
from mxcomp.ukernels.operands import Staging, stages_in
from mxcomp.ukernels.waves import HALF_STEPS, STEPS, VALUES, Waves, in_columns, inner_tiled_layout

# Tiles

_HALF_SLOTS = 4
"""The number of K tiles of half inner tiles whose scales are in LDS."""


@dataclass(frozen=True)
class Tile(gemm.Tile):
    joinable: ClassVar[tuple[int, ...]] = (16, 32)
    """The bytes of a fragment in a lane for which two may be joined: a lane reads 16 bytes at a time, and 6-bit
    fragments of one and a half would conflict on banks."""

    def staging(self, elements: tuple[str, str], target: Target) -> tuple[Staging, ...]:
        """Returns the LDS staging of operands: scales of two K tiles, or of one where a short ring buffer gets one
        more stage.

        Scales are asked for in the second step of a K tile, as many K tiles ahead as there are slots, and read in the
        last step before they are used: by then they have come, with at most so many stages. Where waves meet later
        than in a step's first row, they are read before that.
        """
        room = target.lds_bytes // self.waves.occupancy
        sides = self.unstaged(elements)
        steps = self.layout.intrinsics_k
        slots = _HALF_SLOTS if self.is_half else 1 if stages_in(sides, 2, room) < STEPS else 2
        most = slots * steps - (self.waves.meet > 0)
        return tuple(
            replace(each, stages=min(most, stages_in(sides, slots, room)), scale_slots=slots) for each in sides
        )


_ALL, _FP4 = family.ALL_BITS, ((4, 4),)
_WHOLE: tuple[tuple[int, int, Waves, family.Pairs], ...] = (
    (4, 8, Waves(2, 4), _ALL),
    (6, 8, Waves(2, 4), _ALL),
    (8, 6, Waves(4, 1), _ALL),
    (8, 8, Waves(2, 4), _ALL),
    (8, 10, Waves(4, 1), _ALL),
    (8, 12, Waves(4, 2), _ALL),
    (8, 16, Waves(2, 4, meet=1), ((4, 4), (6, 4), (6, 6), (8, 4))),
    (10, 8, Waves(2, 4), ((4, 4), (4, 8), (6, 8), (8, 6), (8, 8))),
    (10, 16, Waves(2, 4), ((4, 4), (6, 4), (8, 4))),
    (12, 8, Waves(2, 4, meet=1), _ALL),
    (12, 10, Waves(4, 1), ((4, 4), (4, 8), (6, 6), (6, 8))),
    (12, 12, Waves(4, 2, meet=1), ((4, 4), (4, 6), (6, 4), (6, 6), (8, 8))),
    (12, 12, Waves(2, 2), ((4, 8), (8, 4))),
    (12, 16, Waves(2, 4), ((4, 4), (4, 6), (6, 4))),
    (16, 8, Waves(4, 2), ((4, 6), (4, 8))),
    (16, 12, Waves(4, 2), ((4, 4), (6, 4))),
    (16, 16, Waves(2, 4, meet=1), _FP4),
)
"""The inner tiles along M and N, waves along both, and bits of elements for which no other tile is as fast, and which
do not spill registers: `benchmarks/basket.py`."""

_TWO_ON_A_CU = (
    (in_columns(inner_tiled_layout(8, 8)), ((4, 4), (4, 6), (4, 8), (6, 4), (6, 6), (8, 4))),
    (inner_tiled_layout(16, 8), _FP4),
)
"""The tiles, like `_WHOLE`, of four waves of which two share a compute unit, for short K; and the bits of elements that
fit into half of 160 KB of LDS.

The larger one has no neighbours in its lanes: so the two wait less for each other, by replays.
"""

_HALF = ((8, Waves(2, 4)), (16, Waves(2, 4, meet=1)))
"""The inner tiles along M of tiles of half inner tiles with 16 along N, and their waves."""

TILES = (
    *(Tile(in_columns(inner_tiled_layout(m, n)), -5, waves=waves, bits=bits) for m, n, waves, bits in _WHOLE),
    *(Tile(layout, -5, waves=Waves(2, 2, occupancy=2), bits=bits) for layout, bits in _TWO_ON_A_CU),
    *(Tile(in_columns(inner_tiled_layout(m, 16, HALF_STEPS)), -8, waves=waves, bits=_FP4) for m, waves in _HALF),
)


# The kernel

_ROWS_AHEAD = 2
"""The number of rows of MFMA by which a fragment of A is read ahead."""

_SCALE_STEP = 1
"""The step in which scales are copied: after its barrier no wave uses the previous ones any more."""

_MOST_PRIORITY = 3

_COPIES_SHARED, _READ_ROWS_SHARED = 2, 3
"""The copies in a row of MFMA, and the rows in which B of the next step is read, with two workgroups on a compute unit,
found by replays. Later reads occupy registers for less time."""


class Multistage(Gemm):
    def __init__(self, instance: family.Instance, target: Target) -> None:
        super().__init__(instance, target)
        self.meet, self.shares_cu = self.waves.meet, self.waves.occupancy > 1
        self._schedule()

    def _schedule(self) -> None:
        """Returns the rows of a step in which copies and reads are issued.

        `copies`: by row, from `meet` on, A's or B's and which of a wave's; `read_rows`: of fragments of the next B.
        """
        turns = [(side, turn) for side, each in enumerate(self.staging) for turn in range(each.copy_turns)]
        in_row = -(-len(turns) // (self.rows - self.meet))
        first_read = max(self.meet, self.rows - self.columns)
        if self.shares_cu:
            in_row, first_read = max(in_row, _COPIES_SHARED), max(self.meet, self.rows - _READ_ROWS_SHARED)
        self.copies = {self.meet + at // in_row: turns[at : at + in_row] for at in range(0, len(turns), in_row)}
        rows = self.rows - first_read
        self.read_rows = [first_read + n * rows // self.columns for n in range(self.columns)]

    # Prologue

    def _prologue(self) -> tuple[Values, Values, Values, Scales]:
        """Starts copying all steps but the last of the ring buffer, and reads what the first rows of MFMA take."""
        for tile in range(self.slots):
            self._copy_scales(Index.of(tile), tile)
        for step in range(self.stages - 1):
            tile, step_of_tile = divmod(step, self.steps)
            for x in self.sides:
                x.copy(x.in_bounds(Index.of(tile)), step_of_tile, Index.of(step * x.staging.stage_bytes))
            builder.async_group()
            sched_barrier()
            s_barrier()  # data arrives in the order of requests: all waves request one step before the next
        sched_barrier()
        builder.wait_groups(self.stages - 2)
        builder.lds_barrier()
        first = Index.of(0)
        scales = {(x, n): x.scales(n, 0) for x in self.sides for n in range(x.fragments)}
        b = [x.fragment(n, first) for x, n in self.of_column]
        a = [self.sides[LHS].fragment(m, first) for m in range(_ROWS_AHEAD)]
        acc = [builder.f32_zeros(VALUES)] * (self.rows * self.columns)
        return acc, a, b, scales

    def _copy_scales(self, tile: Index, slot: Index | int) -> None:
        for x in self.sides:
            x.copy_scales(x.in_bounds(tile), slot)

    # Main loop

    def _main_loop(self, *first: Any) -> Values:
        """Computes all K tiles. The loop carries accumulators, fragments that were read ahead, and scales."""
        if self.shares_cu:
            builder.set_priority(_MOST_PRIORITY)
            first = self._k_tile(Index.of(0), *first)
        acc, *_ = loop(self.k_tiles, self._k_tile, *first, start=int(self.shares_cu))
        if self.shares_cu:
            builder.set_priority(0)
        return acc

    def _k_tile(
        self, i: Index, acc: Values, a: Values, b: Values, scales: Scales
    ) -> tuple[Values, Values, Values, Scales]:
        """Computes rows of MFMA, interleaved with copies and reads.

        `a` are fragments of the next rows, `b` those of this step, and `next_b` of the next one: what is in registers.
        """
        lhs, next_scales = self.sides[LHS], dict(scales)
        for step in range(self.steps):
            here, ahead, free = (self._places(i, step + far) for far in (0, 1, self.stages - 1))
            slot, next_slot = (i % self.slots).here, ((i + 1) % self.slots).here
            far_tile, far_step = divmod(step + self.stages - 1, self.steps)
            far_tiles = [x.in_bounds(i + far_tile) for x in self.sides]
            is_last, next_b = step == self.steps - 1, list(b)
            for row in range(self.rows):
                if row == self.meet:
                    self._barrier()
                    if step == _SCALE_STEP:
                        self._copy_scales(i + self.slots, slot)
                if is_last:  # of the row before, whose place in registers is free; first of the last row
                    behind = (row - 1) % self.rows
                    next_scales[lhs, behind] = lhs.scales(behind, next_slot)
                for side, turn in self.copies.get(row, ()):  # into the place of the step before
                    self.sides[side].copy(far_tiles[side], far_step, free[side], [turn])
                if row == max(self.copies):
                    builder.async_group()
                is_next, read = divmod(row + _ROWS_AHEAD, self.rows)
                a.append(lhs.fragment(read, (ahead if is_next else here)[LHS]))
                left = lhs.factor(a.pop(0), scales[lhs, row], step)
                for n, (rhs, of_rhs) in enumerate(self.of_column):
                    right = rhs.factor(b[n], scales[rhs, of_rhs], step)
                    number = row * self.columns + n
                    acc[number] = builder.scaled_mfma(self.layout.shape, *self._ordered(left, right), acc[number])
                    if row == self.read_rows[n]:
                        next_b[n] = rhs.fragment(of_rhs, ahead[RHS])
                    if is_last and row == n % self.rows:
                        next_scales[rhs, of_rhs] = rhs.scales(of_rhs, next_slot)
                # An MFMA issues in 4 of its 16 to 32 cycles: the rest of this row is spread over the others.
                builder.sched_groups("mfma_wmma", "all_vmem", "ds_read", times=self.columns)
                sched_barrier()
            b = next_b
        return acc, a, b, next_scales

    def _places(self, i: Index, step: int) -> list[Index]:
        """Returns the stages of a step, counted from the first of K tile `i`, in both ring buffers."""
        stage = (i * self.steps + step) % self.stages
        return [(stage * x.staging.stage_bytes).here for x in self.sides]

    def _barrier(self) -> None:
        """Synchronises waves when the next step has arrived. Waiting for a value in registers needs no barrier."""
        builder.wait_groups(self.stages - 3)
        builder.fenced_barrier()


INSTANCES = family.instances(Multistage, TILES)
