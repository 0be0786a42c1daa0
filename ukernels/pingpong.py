"""MX × MX → f32 for large tiles: eight waves, of which two on each SIMD play ping-pong between LDS and matrix units.

In a turn a wave reads all fragments of a step along K into registers; in the next one it multiplies them. The two groups
of waves are a turn apart, and all waves meet between turns:

    group 0    read 0 | multiply 0 | read 1     | multiply 1 | ...
    group 1           | read 0     | multiply 0 | read 1     | ...

So a SIMD always has one wave that does nothing but multiply. LDS holds a ring of `stages` steps, copied there
`stages - 1` ahead, and the scales of one or two K tiles. With the reads of a step goes the copying of what comes into the
place of the step before it, which both groups have read. Copies past the last K tile fetch nothing.

Tiles are of units one by one, for MFMA of 16x16x128; of units in pairs, for 32x32x64, where registers or LDS are short;
and of an LHS that is row-major, or of such an RHS, which is multiplied in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith, util

from mxcomp.formats import BLOCK_SIZE, element_format
from mxcomp.layout import ACC, LHS, RHS, DataTiledLayout
from mxcomp.mlir import build
from mxcomp.target import GFX950, Target
from mxcomp.ukernels import builder, family
from mxcomp.ukernels.aliases import LANES
from mxcomp.ukernels.builder import (
    Index, Values, assume, loop, opaque, opaque_i32, s_barrier, sched_barrier, sched_groups, select, when,
)  # fmt: skip
from mxcomp.ukernels.operands import Operand, Paired, RowMajor, Staging
from mxcomp.ukernels.waves import Waves, paired_unit_layout, unit_layout

# Tiles

_LEAST_STAGES, _MOST_STAGES, _STAGES_IN_ROWS = 3, 4, 5
"""Steps in a ring: at most those of a K tile, as its scales come with one of them; of LHS in rows two come together."""

_SPILLING = ((4, 6), (6, 4), (6, 6))
"""Bits of elements for which registers would be spilled; 8 bits of both leave no room for three stages."""

_ONE_BY_ONE = ((16, 16, Waves(4, 2)), (20, 16, Waves(4, 2)))
_RHS_IN_ROWS = (*_ONE_BY_ONE, (16, 20, Waves(2, 4)))
"""Units along M and N, and waves: whose MFMA take longer than all reads of a step take LDS. 16, 20 is 320×256 of the
result, which is computed transposed."""


@dataclass(frozen=True)
class Tile(family.Tile):
    """A tile of this kind."""

    def fits(self, elements: tuple[str, str]) -> bool:
        """Whether LDS holds enough stages, and registers a step."""
        bits = tuple(element_format(kind).bits for kind in elements)
        is_narrow = not self.lhs_in_rows or bits[LHS] == 4  # as 16 bytes of a row lie in LDS together, like packed ones
        return bits not in self.without and is_narrow and self.staging(elements, GFX950)[RHS].stages >= _LEAST_STAGES

    def staging(self, elements: tuple[str, str], target: Target) -> tuple[Staging, Staging]:
        """What LDS holds of LHS and RHS: scales of two K tiles, or of one where that gives a short ring another stage."""
        multiplied = self.layout.multiplied
        assert multiplied.units is not None
        assert self.waves is not None
        sides = [
            Staging(units, multiplied.intrinsics_k, element_format(kind).block_bytes, self.waves.count)
            for units, kind in zip(multiplied.units, elements, strict=True)
        ]
        if self.lhs_in_rows:
            sides[LHS] = replace(sides[LHS], in_rows=True, stages=_STAGES_IN_ROWS)

        def stages(slots: int) -> int:
            room = target.max_workgroup_memory_bytes - sum(slots * each.scale_bytes + each.ring_bytes for each in sides)
            return min(_MOST_STAGES, room // sum(each.stage_bytes for each in sides if not each.stages))

        slots = 2 if stages(2) == _MOST_STAGES else 1
        lhs, rhs = (replace(each, stages=each.stages or stages(slots), scale_slots=slots) for each in sides)
        return lhs, rhs


def _in_columns(layout: DataTiledLayout) -> DataTiledLayout:
    """With accumulators of a lane that are neighbours in a row of the result, and are stored in one piece."""
    return replace(layout, lane_columns=True)


TILES = (
    *(Tile(_in_columns(unit_layout(m, n)), -5, waves=waves, without=_SPILLING) for m, n, waves in _ONE_BY_ONE),
    Tile(paired_unit_layout(16, 16), -10, waves=Waves(4, 2), without=((4, 4), (4, 8), (8, 4))),
    *(
        Tile(_in_columns(unit_layout(m, n)), -9, waves=replace(waves, lhs_in_rows=True), without=_SPILLING)
        for m, n, waves in _ONE_BY_ONE
    ),
    *(
        Tile(unit_layout(m, n), -9, waves=replace(waves, lhs_in_rows=True), without=_SPILLING, for_rhs=True)
        for m, n, waves in _RHS_IN_ROWS
    ),
)


@dataclass(frozen=True)
class Instance(family.Instance):
    """A tile, for the element types of LHS and RHS."""

    tile: Tile

    def path(self, folder: Path) -> Path:
        return Path(__file__)

    def module(self, path: Path, target: Target = GFX950) -> ir.Module:
        return builder.module(_PingPong(self, target).function(), family.attribute(self.rule))


PATTERNS = tuple(tile.pattern for tile in TILES)
INSTANCES = tuple(Instance(tile, pair) for tile in TILES for pair in family.PAIRS if tile.fits(pair))

# The kernel

_SCALE_TURNS = 4
"""In which scales of the next K tile are read, where LDS holds those of two."""

_STEPS_OF_LINE = 2
"""Of an LHS in rows: steps for which a cache line has elements."""

_SPREAD, _COPIES_BETWEEN_READS = 4, 7
"""How much LLVM is told to mix, found by replays: scalar instructions with MFMA, copies with reads."""

_FRAGMENTS_OF_LONG_TURN = 33
"""Of the result, from which on a turn of multiplying hides the addresses of its loads between its reads."""


Scales: TypeAlias = dict[tuple[Operand, int], ir.Value]
"""Of a wave's fragments, in registers."""


class _PingPong:
    """Writes the kernel of an instance."""

    def __init__(self, instance: Instance, target: Target) -> None:
        self.instance, self.layout = instance, instance.layout.multiplied
        self.staging = instance.tile.staging(instance.elements, target)
        waves, units = instance.tile.waves, self.layout.units
        assert waves is not None
        assert units is not None
        self.waves, self.units, self.in_rows = waves, units, waves.lhs_in_rows
        self.rows, self.columns = units[LHS] // waves.m, units[RHS] // waves.n
        self.steps = self.layout.intrinsics_k
        self.stages, self.slots = self.staging[RHS].stages, self.staging[RHS].scale_slots
        self._schedule()

    def _schedule(self) -> None:
        """What LLVM is told of the order of instructions: found by replays.

        `mixes`: the steps whose reads and copies are mixed; else they are kept apart. `between_mfma`: whether what
        depends on the number of a K tile is computed between MFMA: LLVM would do it in front of or behind reads, and
        the other group would wait. 256x256 tiles of packed 4-bit elements read for nearly as long as they multiply.
        """
        sizes = [each.fragment_bytes for each in self.staging]
        is_long = self.rows * self.columns >= _FRAGMENTS_OF_LONG_TURN
        is_short = not self.in_rows and max(sizes) == 16
        self.between_mfma = is_long or not is_short
        self.mixes = range(self.steps if is_long else int(is_short))
        # Copies stand between the reads of A and B: while some waves compute addresses, others keep LDS busy.
        self.copies_last = self.instance.layout.pairs and max(sizes) == BLOCK_SIZE

    def function(self) -> ir.Operation:
        """The function, in no module."""
        *operands, result = self._types()
        function = builder.function(self.instance.name, [*operands, result], result)
        block = function.operation.regions[0].blocks[0]
        lhs, rhs, lhs_scale, rhs_scale, _ = block.arguments
        with ir.InsertionPoint(block):
            self.k_tiles = Index.of(build.dim(lhs, 2))
            kind = Paired if self.instance.layout.pairs else Operand
            (lhs_type, rhs_type), (lhs_staging, rhs_staging) = self.instance.elements, self.staging
            self.a = (RowMajor if self.in_rows else kind)(
                lhs, lhs_scale, lhs_type, self.rows, lhs_staging, self.k_tiles
            )
            self.b = kind(rhs, rhs_scale, rhs_type, self.columns, rhs_staging, self.k_tiles)
            self.a.stage()
            self.b.stage()
            self.a.stage_scales()
            self.b.stage_scales()
            with builder.threads(self.waves.count * LANES, result) as threads:
                self._distribute(threads.number)
                acc = self._prologue()
                acc = self._main_loop(acc)
                self._epilogue(acc, threads)
            util.ReturnOp([threads.result])
        return function.operation

    def _types(self) -> Iterator[ir.RankedTensorType]:
        """Of LHS, RHS, their scales, and accumulators."""
        kinds = (*self.instance.elements, "f8E8M0FNU", "f8E8M0FNU")
        for operand, kind in enumerate(kinds):
            packed = self.layout.packed_shape(operand, (self.units[operand % 2], None))
            yield build.tensor_type((1, *self.layout.multiplied_shape(operand, packed)[1:]), kind)
        yield build.tensor_type(self.layout.packed_shape(ACC, (1, 1)), "f32")

    def _distribute(self, thread: Index) -> None:
        """Which wave and lane this is, and what they have of the tile."""
        self.wave = assume(builder.uniform(thread // LANES), 0, self.waves.count - 1)
        lane = (thread % LANES).here
        self.is_first = self.wave < self.waves.count // 2
        self.is_second = self.wave >= self.waves.count // 2
        self.lane_place = lane // self.layout.shape.n, lane % self.layout.shape.n
        self.row = (self.wave // self.waves.n * self.rows).here
        self.column = (self.wave % self.waves.n * self.columns).here
        self.a.distribute(self.wave, lane, self.row)
        self.b.distribute(self.wave, lane, self.column)

    # Prologue

    def _prologue(self) -> Values:
        """Asks for all steps but the last of a ring; meanwhile accumulators become zero, some rows with each step."""
        acc: dict[int, Values] = {}
        for step in range(self.stages - 1):
            tile, step_of_tile = divmod(step, self.steps)
            if step < self.slots:  # the scales of as many K tiles as there are places for
                for x in (self.a, self.b):
                    x.copy_scales(x.in_bounds(Index.of(step)), step)
            for x in (self.b,) if self.in_rows else (self.a, self.b):
                x.copy(x.in_bounds(Index.of(tile)), step_of_tile, Index.of(step * x.staging.stage_bytes))
            builder.async_group()
            if self.in_rows:
                if step in (0, self.stages - 2):
                    self._copy_rows_ahead(0 if step == 0 else 2)
                builder.async_group()
            sched_barrier()
            for row in range(step, self.rows, self.stages - 1):
                acc[row] = [builder.zeros(prod(self._sums)) for _ in range(self.columns)]
            sched_barrier()
            s_barrier()  # data comes in the order in which it was asked for: by all waves for one step before the next
        sched_barrier()
        builder.wait_groups(2 * self.stages - 4 if self.in_rows else self.stages - 2)
        builder.lds_barrier()
        with when(self.is_second):  # it begins a turn later
            s_barrier()
        sched_barrier()
        return [each for row in range(self.rows) for each in acc[row]]

    @property
    def _sums(self) -> tuple[int, int]:
        """Of a fragment of the result, in a lane."""
        return self.layout.shape.acc_outer, self.layout.shape.acc_inner

    def _copy_rows_ahead(self, step: int) -> None:
        """Copies two steps of an LHS in rows before the loop: each wave one of them."""
        tile, step_of_tile = divmod(step, self.steps)
        to = (self.a.half + step) * self.a.staging.stage_bytes
        self.a.copy_two_steps(self.a.in_bounds(Index.of(tile)), step_of_tile, to)

    # Main loop

    def _main_loop(self, acc: Values) -> Values:
        """All K tiles: acc, the scales that were read ahead, and of rows the places in both rings, are carried on."""
        ahead = [x.scales(n, 0) for x, n in self._read_ahead]
        places = [_places(self.a, 3), _places(self.b, 2)] if self.in_rows else [[], []]
        # A loop even of a single K tile, which takes more registers than there are where LLVM sees that it is one.
        tiles = assume(opaque(self.k_tiles), 1)
        return loop(tiles, self._k_tile, acc, ahead, *places)[0]

    @property
    def _read_ahead(self) -> list[tuple[Operand, int]]:
        """The fragments whose scales are read with the K tile before."""
        sides = (self.a, self.rows), (self.b, self.columns)
        return [(x, n) for x, count in sides for n in range(count) if self._scale_turn(n)]

    def _scale_turn(self, fragment: int) -> int:
        """The turn in which its scales are read: with the first step or, where LDS has those of two K tiles, spread."""
        return (fragment + 1) % _SCALE_TURNS if self.slots > 1 else 0

    def _k_tile(self, i: Index, acc: Values, ahead: Values, *places: Values) -> list[Values]:
        now = dict(zip(self._read_ahead, ahead, strict=True))
        following: dict[tuple[Operand, int], ir.Value] = {}
        for step in range(self.steps):
            if self.between_mfma and step:
                sched_groups("mfma_wmma", "salu", times=_SPREAD)
            sched_barrier()
            s_barrier()
            sched_barrier()
            # The other group multiplies, and this one reads.
            fragments = self._read(i, step, now, following, places)
            self._wait(step)
            # The other group reads, and this one multiplies.
            if self.between_mfma and step == 0:
                i = assume(opaque(i, pinned=True), 0)
            places = self._moved_on(step, places)
            self._multiply(step, fragments, now, acc)
            if self.between_mfma and step == self.steps - 1:
                sched_groups("mfma_wmma", "salu", times=_SPREAD)
        return [acc, [following[each] for each in self._read_ahead], *places]

    def _read(
        self, i: Index, step: int, now: Scales, following: Scales, places: Sequence[Values]
    ) -> dict[Operand, Values]:
        """Reads the fragments of a step, and copies: between the reads of A and B, or behind both."""
        slot = i % self.slots if step == 0 else (i + 1) % self.slots
        fragments: dict[Operand, Values] = {}
        for x in (self.a, self.b):
            self._apart(step)
            if x is self.b:
                if not self.in_rows:
                    self._copy_scales(i, step)
                if not self.copies_last:
                    self._copy(i, step, places)
                self._apart(step)
            place = Index.of(places[x is self.b][-1]) if self.in_rows else self._place(x, i * self.steps + step)
            fragments[x] = []
            for n in range(self.rows if x is self.a else self.columns):
                fragments[x].append(x.factor(x.fragment(n, place)))
                if self._scale_turn(n) == step:
                    (now if step == 0 else following)[x, n] = x.scales(n, slot)
        self._apart(step)
        if self.in_rows:
            self._copy_scales(i, step)
            self._copy_rows(i, step, places)
        elif self.copies_last:
            self._copy(i, step, places)
        self._apart(step)
        if step in self.mixes:
            sched_groups("ds_read", "valu", "salu", "all_vmem", times=_COPIES_BETWEEN_READS)
        return fragments

    def _apart(self, step: int) -> None:
        """Keeps reads and copies apart, where they are not mixed."""
        if step not in self.mixes:
            sched_barrier()

    def _place(self, x: Operand, step: Index) -> Index:
        """Of a step, counted from the first, in a ring."""
        return step % self.stages * x.staging.stage_bytes

    def _copy(self, i: Index, step: int, places: Sequence[Values]) -> None:
        """Asks for the step that comes into the place of the one before."""
        far = step + self.stages - 1
        tile, step_of_tile = divmod(far, self.steps)
        for x in (self.b,) if self.in_rows else (self.a, self.b):
            to = Index.of(places[1][0]) if self.in_rows else self._place(x, i * self.steps + far)
            x.copy(x.in_bounds(i + tile) if tile else i, step_of_tile, to)
        builder.async_group()

    def _copy_scales(self, i: Index, step: int) -> None:
        """Asks for scales as many K tiles ahead as there are places, when both groups have read what was there."""
        turns = (2, 2) if self.in_rows else (1, self.slots)  # in rows: turns without LHS
        for x, turn in zip((self.a, self.b), turns, strict=True):
            if step == turn:
                x.copy_scales(x.in_bounds(i + self.slots), i % self.slots)

    def _copy_rows(self, i: Index, step: int, places: Sequence[Values]) -> None:
        """Asks in every second turn for two steps of LHS in rows, each wave for one; the group is there in all turns."""
        if step % _STEPS_OF_LINE:
            tile, step_of_tile = divmod(step + _STAGES_IN_ROWS - _STEPS_OF_LINE, self.steps)
            first, before, _ = places[0]
            to = select(self.a.half >= 1, before, first)
            self.a.copy_two_steps(self.a.in_bounds(i + tile), step_of_tile, to)
        builder.async_group()

    def _wait(self, step: int) -> None:
        """For what this wave has read, and for its part of the next step; then for the others."""
        in_flight = self.stages - 2
        if self.in_rows:  # groups of RHS, and of LHS or scales: those of scales in the only slot are wanted next
            in_flight = self.stages - (step % _STEPS_OF_LINE and self.slots == 1)
        builder.wait_groups(in_flight)
        builder.lds_barrier()
        sched_barrier()

    def _moved_on(self, step: int, places: Sequence[Values]) -> list[Values]:
        """Places in rings one step on, counted, as LHS in rows has too many stages to divide by."""
        if not self.in_rows:
            return list(places)
        if self.between_mfma and step < self.steps - 1:
            places = [[*kept, opaque_i32(last, pinned=True)] for *kept, last in places]
        return [
            [*kept[1:], _next(kept[-1], x.staging)] for kept, x in zip(places, (self.a, self.b), strict=True)
        ]

    def _multiply(self, step: int, fragments: dict[Operand, Values], scales: Scales, acc: Values) -> None:
        """Adds the step's product to the accumulators, row by row of the wave."""
        shape = self.layout.shape
        for number, (m, n) in enumerate(product(range(self.rows), range(self.columns))):
            factors = [
                (fragments[x][each], x.scale_factor(scales[x, each], step)) for x, each in ((self.a, m), (self.b, n))
            ]
            # With factors in each other's place a lane's accumulators are neighbours in a row of the result.
            left, right = factors[::-1] if self.layout.lane_columns else factors
            acc[number] = builder.scaled_mfma(shape, left, right, acc[number])

    # Epilogue

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        """The first group stores while the second one still multiplies."""
        with when(self.is_first):
            s_barrier()
        # Nothing may arrive in LDS that another kernel or the next tile of this workgroup has taken over.
        builder.wait_groups(0)
        outer, inner = self._sums
        outer_shape, outer_place = ([outer], [0]) if outer > 1 else ([], [])
        shape = [1, 1, self.rows, self.columns, *outer_shape, 1, 1, inner]
        threads.store(acc, shape, [0, 0, self.row, self.column, *outer_place, *self.lane_place, 0])


def _places(x: Operand, count: int) -> Values:
    """Places in a ring as the loop counts them: of so many steps, the last of which is the first that is read."""
    i32 = ir.IntegerType.get_signless(32)
    ring, stage = x.staging.ring_bytes, x.staging.stage_bytes
    return [arith.ConstantOp(i32, (ring - behind * stage) % ring).result for behind in reversed(range(count))]


def _next(place: ir.Value, staging: Staging) -> ir.Value:
    """The place of the next step in a ring."""
    sizes = (arith.ConstantOp(place.type, size).result for size in (staging.stage_bytes, staging.ring_bytes))
    stage, ring = sizes
    behind = arith.AddIOp(place, stage).result
    return arith.MinUIOp(behind, arith.SubIOp(behind, ring).result).result
