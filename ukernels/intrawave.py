"""MX × MX → f32 for large tiles: four waves, one on each SIMD, each of which overlaps copies, reads and MFMA
(intrawave).

A wave has a quarter of the tile, up to 160×128 of the result: 64 of its fragments are in accumulator registers, others
in vector registers. Its fragments of A and B are halved, and a step along K is multiplied in quarters. During each
quarter, the half for the next one is read from LDS to registers of a half that is not needed any more:

    multiply   A0 B0 | A1 B0 | A0 B1   | A1 B1   | A0 B0 of the next step | ...
    read       A1    | B1    | next B0 | next A0 | A1                     | ...

Each read and each copy follows a separate MFMA, in the cycles in which a SIMD may issue while its matrix unit is busy;
LLVM does not move them. Scalar instructions compute the address of a step, and a vector instruction adds the lane's
offset.

LDS has a ring buffer of `stages` steps, most of which are copied ahead, and the scales of a K tile. A barrier is in the
middle of a step, when all of it is in registers, and the next one is in LDS: from then on copies reuse its stage. With
two stages a barrier is also at its start, and copies reuse the halves that have been read. Copies past the last K tile
fetch nothing.

MFMA are inline assembly, as LLVM would keep moving some of so many accumulators between both kinds of registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import gcd
from typing import ClassVar

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.target import Target
from mxcomp.ukernels import builder, family, gemm
from mxcomp.ukernels.builder import Index, Values, assume, loop, opaque, s_barrier, sched_barrier
from mxcomp.ukernels.gemm import Gemm
from mxcomp.ukernels.operands import COPIED_SCALES, Operand, RowMajor, Staging, stages_in
from mxcomp.ukernels.waves import LANES, Waves, in_columns, inner_tiled_layout

# Tiles

_MOST_STAGES, _LEAST_STAGES = 4, 2
"""The numbers of stages of the ring buffer: four request data from HBM early enough, and two of 8 bits take as long."""

_FP4: family.Pairs = ((4, 4),)
_SIZES = (
    (16, 16, family.ALL_BITS),
    (20, 16, (*product((4, 6), (4, 6, 8)), (8, 4))),
    (16, 20, ((4, 4), (4, 8), (8, 4))),
)
"""The inner tiles along M and N, and bits of elements, of tiles: others spill, or are no faster than other kinds."""


@dataclass(frozen=True)
class Tile(gemm.Tile):
    least_stages: ClassVar[int] = _LEAST_STAGES

    @property
    def pattern(self) -> str:
        return f"{super().pattern}_intrawave"

    @property
    def llvm_func_attrs(self) -> dict[str, str]:
        """A lane stores up to 320 values in a loop: LLVM unrolls it if told so, else they go through scratch memory."""
        return super().llvm_func_attrs | {"amdgpu-unroll-threshold": "20000"}

    def staging(self, elements: tuple[str, str], target: Target) -> tuple[Staging, Staging]:
        sides = self.unstaged(elements)
        stages = min(_MOST_STAGES, stages_in(sides, 1, target.lds_bytes))
        lhs, rhs = (replace(each, stages=stages, scale_slots=1) for each in sides)
        return replace(lhs, is_row_major=self.lhs_row_major), rhs


_ROW_MAJOR = Waves(2, 2, lhs_row_major=True)

TILES = (
    *(Tile(in_columns(inner_tiled_layout(m, n)), -10, waves=Waves(2, 2), bits=bits) for m, n, bits in _SIZES),
    *(Tile(in_columns(inner_tiled_layout(m, 16)), -9, waves=_ROW_MAJOR, bits=_FP4) for m in (16, 20)),
    *(Tile(inner_tiled_layout(16, n), -9, waves=_ROW_MAJOR, bits=_FP4, for_rhs=True) for n in (16, 20)),
)
"""The tiles. Those for a row-major operand are for 4 bits: 16 bytes of a row are contiguous in LDS, as when packed."""


# The kernel

_ACCUMULATED = 64
"""The number of fragments of the result for which there are accumulator registers."""

_AHEAD = 3
"""The most steps that are copied ahead, as the first MFMA waits for most of them: one more where a step takes hardly
longer than data from HBM."""

_QUARTERS = ((0, 0), (1, 0), (0, 1), (1, 1))
"""The halves of A and B, in the order in which they are multiplied."""

_READ = ((LHS, 1), (RHS, 1), (RHS, 0), (LHS, 0))
"""The half that is read during each quarter; the first one belongs to the next step."""

_SCALE_STEP = 1
"""The step in which scales of the next K tile are copied: all waves have read those before, and passed a barrier."""

_ALIGNED = 16
"""The sizes in bytes that LDS reads only from addresses that are a multiple of them."""

Item = Iterator[None]
"""A generator of instructions behind an MFMA, and then later ones; a list has it as often as it yields."""

Later = Callable[[], Index]
"""A value that is computed where it is first used."""


class _Halved(Operand):
    """An operand that waves read in halves.

    In LDS the fragments of waves that have different ones take turns: so a half is in one piece.
    """

    def stage_in(self, memory: ir.Value, at: int) -> int:
        """Takes its part of LDS from a byte on, and returns the end. One allocation serves all, as each begins at 0."""
        self._ring = self._scale_tiles = memory
        self._ring_at, self._scales_at = at, at + self.staging.ring_bytes
        return self._scales_at + self.staging.scale_bytes

    def distribute(self, wave: Index, lane: Index, first: Index) -> None:
        self._sharing = self.staging.fragments // self.fragments
        super().distribute(wave, lane, first)
        self._memory, self._scale_memory = (builder.whole(x) for x in (self._source, self._scale_source))

    @property
    def _is_odd(self) -> Index:
        return self._wave // self._sharing

    def _place_in_ring(self, first: Index, inner_tile: Index, lane: Index) -> Index:
        return super()._place_in_ring(first // self.fragments, inner_tile * self._sharing, lane) + self._ring_at

    def _place_in_scales(self, first: Index, inner_tile: Index, lane: Index) -> Index:
        return super()._place_in_scales(first, inner_tile, lane) + self._scales_at

    @property
    def halves(self) -> tuple[range, range]:
        """The wave's fragments of each half: the first has as many as waves copy in whole rounds."""
        first = -(-self.fragments // 4) * 2
        return range(first), range(first, self.fragments)

    def begin(self) -> None:
        """Forgets cached addresses, at the start of a loop's body."""
        self._reads_at: list[Index] = []

    # Reads

    def reads(self, half: int, stage: Index, to: dict[int, ir.Value]) -> list[Item]:
        """Reads half of a step from a stage of the ring buffer; the first half of a step is read first."""
        staging, size, part = self.staging, self.staging.pieces.read, self.halves[half]
        starts, together = range(0, staging.inner_tile_stride, LANES * size), len(self._read_from)
        is_new = half == 0 or not self._reads_at

        def items() -> Item:
            if is_new:
                self._reads_at = [builder.pinned(self._place_of(stage) + each) for each in self._read_from]
                yield
            for number in part:
                (first, of_two), read = divmod(number, together), Values()
                for start in starts:
                    at = self._reads_at[of_two] + first * together * self._sharing * staging.inner_tile_stride + start
                    value = builder.read_lds(self._ring, at, size, alignment=gcd(size, _ALIGNED))
                    read.append(builder.bitcast(value, "i32", size // 4))
                    if start == starts[-1]:
                        to[number] = builder.joined(read)
                    yield

        return [items()] * (is_new + len(part) * len(starts))

    def scale_reads(self, half: int, to: dict[int, ir.Value]) -> list[Item]:
        def items() -> Item:
            for number in self.halves[half]:
                to[number] = self.scales(number, 0)
                yield

        return [items()] * len(self.halves[half])

    def _place_of(self, stage: Index) -> Index:
        return stage % self.staging.stages * self.staging.stage_bytes

    # Copies

    def copies(self, half: int, step: int, tile: Index, stage: Index) -> list[Item]:
        """Starts the copy of half of a step to a stage of the ring buffer."""
        staging, pieces, part = self.staging, self.staging.pieces, self.halves[half]
        fragment_bytes, each = self._fragment_stride, staging.waves // self._sharing
        fragment = (self._wave % self._sharing * self.fragments + self._wave // self._sharing).here
        before, of_turn = part.start // each, staging.waves * staging.inner_tile_stride
        turns = list(product(range(len(part) // each), range(pieces.count)))

        def start() -> Index:
            of_fragment = (fragment + part.start).times(fragment_bytes)
            return of_fragment + self.in_bounds(tile) * self._tile_bytes + step * self._step_bytes

        def place() -> Index:
            of_first = (self._wave + before * staging.waves) * staging.inner_tile_stride
            return self._place_of(stage) + self._ring_at + of_first

        further = [
            (fragment_bytes * (each * turn) + piece * pieces.step, turn * of_turn + piece * pieces.size * LANES)
            for turn, piece in turns
        ]
        return self._asked(self._memory, (start, place), further, self._copied, pieces.size)

    def scale_copies(self, tile: Later) -> list[Item]:
        staging, size = self.staging, LANES * COPIED_SCALES

        def start() -> Index:
            return self._wave.times(self._k_tiles * size) + tile() * size

        def place() -> Index:
            return self._wave * size + self._scales_at

        further = [
            (self._k_tiles * (size * turn), size * turn) for turn in range(0, staging.scale_copies, staging.waves)
        ]
        return self._asked(self._scale_memory, (start, place), further, self._scales_copied, COPIED_SCALES)

    def _asked(
        self, source: tuple[ir.Value, Index], first: tuple[Later, Later], further: list[tuple[Index, int]],
        of_lane: Index, size: int,
    ) -> list[Item]:  # fmt: skip
        """Starts copies, with the addresses in memory and in LDS of the first one, and the distances of all from it.

        From one place in LDS to the next go scalar instructions: LLVM would keep all places in registers.
        """
        (memory, offset), (start, place) = source, first

        def items() -> Item:
            begin, to, before = opaque(start() + offset, pinned=True), opaque(place(), pinned=True), 0
            yield
            for distance, in_lds in further:
                to, before = opaque(to + (in_lds - before), pinned=True) if in_lds else to, in_lds
                at = builder.lane_sum(begin + distance, of_lane)
                yield
                builder.copy_to_lds(memory, [at], self._ring, to, size)
                yield

        return [items()] * (1 + 2 * len(further))


class _RowMajorHalved(RowMajor, _Halved):
    """A row-major operand that waves read in halves."""


Read = dict[_Halved, dict[int, ir.Value]]
"""The fragments in registers of each operand, by number."""


class Intrawave(Gemm):
    operand, row_major = _Halved, _RowMajorHalved
    sums = True
    sides: tuple[_Halved, _Halved]

    def __init__(self, instance: family.Instance, target: Target) -> None:
        super().__init__(instance, target)
        self.meets_twice = self.stages == _LEAST_STAGES
        self.ahead = min(self.stages, _AHEAD + (self.rows * self.columns <= _ACCUMULATED))

    def _stage(self) -> None:
        at = 0
        memory = builder.lds(sum(each.ring_bytes + each.scale_ring_bytes for each in self.staging))
        for x in self.sides:
            at = x.stage_in(memory, at)

    # Prologue

    def _prologue(self) -> list[Values | Read]:
        """Copies the first steps, zeroes accumulators meanwhile, and reads what the first quarter takes.

        Memory brings a wave's copies no faster than it zeroes some accumulators between them.
        """
        self._begin(Index.of(0), {x: {} for x in self.sides}, {x: {} for x in self.sides})
        for x in self.sides:
            _write(x.scale_copies(lambda: Index.of(0)))
        first, second, *others = (self._first_copies(step) for step in range(-self.ahead, 0))
        _write(first)
        sched_barrier()
        s_barrier()  # data arrives in the order of requests: all waves request one step before the next
        acc, count = Values(), self.rows * self.columns
        for copied, item in enumerate(second, 1):
            next(item)
            sched_barrier()
            some = range(len(acc), count * copied // len(second))
            acc += [builder.placed_zeros(_registers(number)) for number in some]
            sched_barrier()
        builder.wait_groups(2 + self.meets_twice)
        builder.lds_barrier()
        for x in self.sides:
            _write([*x.scale_reads(0, self.scales[x]), *self._reads(x, 0, -1)])
        sched_barrier()
        for items in others:
            _write(items)
        sched_barrier()
        return [acc, *self._carried()]

    def _first_copies(self, step: int) -> list[Item]:
        """Returns the copies of a step in front of the loop: half of the last one, unless waves meet twice a step."""
        halves = range(2 if step < -1 or self.meets_twice else 1)
        return [item for half in halves for item in (*self._copies(step, half), _group())]

    def _begin(self, i: Index, fragments: Read, scales: Read) -> None:
        """Begins K tile `i`, of which some fragments are in registers."""
        self.i, self.fragments, self.scales = i, fragments, scales
        for x in self.sides:
            x.begin()

    @property
    def _groups_in_flight(self) -> int:
        """Returns the number of groups of copies, half a step each, that a barrier need not wait for."""
        return 2 * (self.ahead - 2 + self.meets_twice)

    # Main loop

    def _main_loop(self, *first: Values | Read) -> Values:
        """Computes all K tiles. The loop carries accumulators, and the halves that are read first."""
        acc, *_ = loop(assume(opaque(self.k_tiles), 1), self._k_tile, *first)
        return acc

    def _k_tile(self, i: Index, acc: Values, fragments: Read, scales: Read) -> list[Values | Read]:
        self._begin(i, fragments, scales)
        self.acc = acc
        for step, is_late in product(range(self.steps), (False, True)):
            self._half_step(step, is_late)
        return [self.acc, *self._carried()]

    def _carried(self) -> list[Read]:
        """Returns the first halves of the next step."""
        return [{x: {n: read[x][n] for n in x.halves[0]} for x in self.sides} for read in (self.fragments, self.scales)]

    def _half_step(self, step: int, is_late: bool) -> None:
        """Computes two quarters: MFMA one after the other, interleaved with reads, and some with copies."""
        quarters = _QUARTERS[2:] if is_late else _QUARTERS[:2]
        lhs, rhs = self.sides
        products = [list(product(lhs.halves[m], rhs.halves[n])) for m, n in quarters]
        slots: list[list[list[Item]]] = [[[] for _ in part] for part in products]
        for part, read in zip(slots, _READ[2:] if is_late else _READ[:2], strict=True):
            for number, item in enumerate(self._reads_of(step, *read)):
                part[number % len(part)].append(item)
        free = [slot for part in slots for slot in part if not slot]
        copies = self._copies_of(step, is_late)
        for number, item in enumerate(copies):
            free[number * len(free) // len(copies)].append(item)
        for is_second in (False, True):
            self._barrier(step, is_late, is_second)
            for (m, n), slot in zip(products[is_second], slots[is_second], strict=True):
                self._multiply(step, m, n)
                sched_barrier()
                _write(slot)
                sched_barrier()
        builder.async_group()
        sched_barrier()

    def _reads_of(self, step: int, side: int, half: int) -> list[Item]:
        """Returns the reads of half of a side, and of its scales at the beginning of a K tile."""
        x = self.sides[side]
        reads = self._reads(x, half, step)
        if (step + (half == 0)) % self.steps == 0:
            reads += x.scale_reads(half, self.scales[x])
        return reads

    def _reads(self, x: _Halved, half: int, step: int) -> list[Item]:
        return x.reads(half, self._stage_of(step + (half == 0)), self.fragments[x])

    def _copies_of(self, step: int, is_late: bool) -> list[Item]:
        """Returns the copies of half of a step to a free stage, and of scales of one side."""
        if self.meets_twice:
            copies = self._copies(step, int(is_late))
        else:  # from the middle of a step to that of the next one
            copies = self._copies(step, 0) if is_late else self._copies(step - 1, 1)
        if step == _SCALE_STEP:
            x = self.sides[is_late]
            copies += x.scale_copies(partial(x.in_bounds, self.i + 1))
        return copies

    def _copies(self, step: int, half: int) -> list[Item]:
        """Returns the copies that replace a step of this K tile."""
        tile, number = divmod(step + self.ahead, self.steps)
        parts = (x.copies(half, number, self.i + tile, self._stage_of(step + self.ahead)) for x in self.sides)
        return [item for part in parts for item in part]

    def _stage_of(self, step: int) -> Index:
        """Returns the stage of a step, counted from the first of this K tile."""
        return self.i * self.steps + step + self.stages

    def _barrier(self, step: int, is_late: bool, is_second: bool) -> None:
        """Synchronises waves after reads. In the middle of a step, all copies of the next one are complete too."""
        builder.wait_lds()
        if not is_second and (is_late or self.meets_twice):
            since_scales = 2 * (self.steps - 1 - _SCALE_STEP) - 1
            before_scales = is_late and step == self.steps - 1
            groups = self._groups_in_flight
            builder.wait_groups(min(groups, since_scales) if before_scales else groups)
            sched_barrier()
            s_barrier()
        sched_barrier()

    def _multiply(self, step: int, m: int, n: int) -> None:
        a, b = (
            x.factor(self.fragments[x][k], self.scales[x][k], step) for x, k in zip(self.sides, (m, n), strict=True)
        )
        number = m * self.columns + n
        self.acc[number] = builder.placed_mfma(*self._ordered(a, b), self.acc[number], _registers(number))

    # Epilogue

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        builder.wait_mfma()
        if self.exchanges:
            acc = [builder.placed(each, _registers(number)) for number, each in enumerate(acc)]
        super()._epilogue(acc, threads)


def _registers(number: int) -> str:
    """Returns the kind of registers of a fragment of the result."""
    return "a" if number < _ACCUMULATED else "v"


def _group() -> Item:
    builder.async_group()
    yield


def _write(items: Iterable[Item]) -> None:
    for item in items:
        next(item)


INSTANCES = family.instances(Intrawave, TILES)
