"""MX × MX → f32 for large tiles: eight waves, of which two on each SIMD play ping-pong between LDS and matrix units.

In a turn a wave reads all fragments of a step along K into registers; in the next one it multiplies them. The two
groups of waves are a turn apart, and all waves meet between turns:

    group 0    read 0 | multiply 0 | read 1     | multiply 1 | ...
    group 1           | read 0     | multiply 0 | read 1     | ...

So a SIMD always has one wave that does nothing but multiply. LDS holds a ring of `stages` steps, copied there
`stages - 1` ahead, and the scales of one or two K tiles. With the reads of a step goes the copying of what comes into
the place of the step before it, which both groups have read. Copies past the last K tile fetch nothing.

Its tiles are for an LHS that is row-major, or for such an RHS, which is multiplied in its place. Where both are packed,
four waves are faster (`intrawave`); tiles of one's own may be for such operands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout import LHS
from mxcomp.target import Target
from mxcomp.ukernels import builder, family, gemm
from mxcomp.ukernels.builder import Index, Values, assume, loop, opaque, s_barrier, sched_barrier, select, when
from mxcomp.ukernels.gemm import Gemm, Scales
from mxcomp.ukernels.operands import Operand, RowMajor, Staging
from mxcomp.ukernels.waves import Waves, in_columns, unit_layout

# Tiles

_MOST_STAGES, _STAGES_IN_ROWS = 4, 5
"""Steps in a ring: at most those of a K tile, as its scales come with one of them; of LHS in rows two come together."""

_WITHOUT = family.other_than(((4, 4),))
"""Of 4 bits 16 bytes of a row lie in LDS together, like packed ones. Beside them 6 bits spill registers, and 8 bits
leave no room for three stages."""

_ONE_BY_ONE = ((16, 16, Waves(4, 2)), (20, 16, Waves(4, 2)))
"""Units along M and N, and waves: whose MFMA take longer than all reads of a step take LDS."""


@dataclass(frozen=True)
class Tile(gemm.Tile):
    """A tile of this kind."""

    def staging(self, elements: tuple[str, str], target: Target) -> tuple[Staging, Staging]:
        """What LDS holds of LHS and RHS: scales of two K tiles, or of one where a short ring gets a stage more."""
        sides = self.unstaged(elements)
        if self.lhs_in_rows:
            sides[LHS] = replace(sides[LHS], in_rows=True, stages=_STAGES_IN_ROWS)

        def stages(slots: int) -> int:
            room = target.lds_bytes - sum(slots * each.scale_bytes + each.ring_bytes for each in sides)
            return min(_MOST_STAGES, room // sum(each.stage_bytes for each in sides if not each.stages))

        slots = 2 if stages(2) == _MOST_STAGES else 1
        lhs, rhs = (replace(each, stages=each.stages or stages(slots), scale_slots=slots) for each in sides)
        return lhs, rhs


TILES = (
    *(
        Tile(in_columns(unit_layout(m, n)), -9, waves=replace(waves, lhs_in_rows=True), without=_WITHOUT)
        for m, n, waves in _ONE_BY_ONE
    ),
    *(
        Tile(unit_layout(m, n), -9, waves=replace(waves, lhs_in_rows=True), without=_WITHOUT, for_rhs=True)
        for m, n, waves in _ONE_BY_ONE
    ),
)


class Instance(gemm.Instance):
    @property
    def kernel(self) -> type[Gemm]:
        return _RowMajorPingPong if self.tile.lhs_in_rows else _PingPong


INSTANCES = tuple(Instance(tile, pair) for tile in TILES for pair in family.PAIRS if tile.fits(pair))

# The kernel

_SCALE_TURNS = 4
"""In which scales of the next K tile are read, where LDS holds those of two."""

_STEPS_OF_LINE = 2
"""Of an LHS in rows: steps for which a cache line has elements."""

_SPREAD, _COPIES_BETWEEN_READS, _COPIES_BETWEEN_ROWS = 4, 7, 10
"""How much LLVM is told to mix, found by replays: scalar instructions with MFMA; copies with reads, and of rows."""

_FRAGMENTS_OF_LONG_TURN = 33
"""Of the result, from which on a turn of multiplying hides the addresses of its loads between its reads."""


@dataclass(frozen=True)
class _Turn:
    """What a turn of reading takes: computed before the waves meet, as the other group may have to wait for it.

    Attributes:
        i, step: The step of K tile `i`.
        places: Of the step, in both rings.
        free: Where the step lies that is copied meanwhile.
        slot: Of the scales that are read.
        scale_tiles: Whose scales are copied, if any are.
    """

    i: Index
    step: int
    places: dict[Operand, Index]
    free: dict[Operand, Index]
    slot: Index
    scale_tiles: dict[Operand, Index]


class _PingPong(Gemm):
    """Over units."""

    def __init__(self, instance: gemm.Instance, target: Target) -> None:
        super().__init__(instance, target)
        self.places: list[Values] = []
        self._schedule()

    def _schedule(self) -> None:
        """What LLVM is told of the order of instructions: found by replays.

        `mixes`: the steps whose reads and copies are mixed, `mixed` of them; else they are kept apart. `between_mfma`:
        whether what depends on the number of a K tile is computed between MFMA: LLVM would do it in front of or behind
        reads, and the other group would wait. 256x256 tiles of packed 4-bit elements read for nearly as long as they
        multiply.
        """
        sizes = [each.fragment_bytes for each in self.staging]
        is_long = self.rows * self.columns >= _FRAGMENTS_OF_LONG_TURN
        is_short = not self.staging[LHS].in_rows and max(sizes) == 16
        self.between_mfma = is_long or not is_short
        self.mixes = range(self.steps if is_long else int(is_short))
        self.mixed = _COPIES_BETWEEN_ROWS if self.staging[LHS].in_rows else _COPIES_BETWEEN_READS

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.is_first, self.is_second = self.wave < self.waves.count // 2, self.wave >= self.waves.count // 2

    # Prologue

    def _prologue(self) -> list[Values]:
        """Asks for all steps but the last of a ring; meanwhile accumulators become zero, some rows with each step."""
        acc: dict[int, Values] = {}
        for step in range(self.stages - 1):
            if step < self.slots:  # the scales of as many K tiles as there are places for
                for x in (self.a, self.b):
                    x.copy_scales(x.in_bounds(Index.of(step)), step)
            self._copy_ahead(step)
            sched_barrier()
            for row in range(step, self.rows, self.stages - 1):
                acc[row] = [builder.zeros(self._sums) for _ in range(self.columns)]
            sched_barrier()
            s_barrier()  # data comes in the order in which it was asked for: by all waves for one step before the next
        sched_barrier()
        builder.wait_groups(self._groups_ahead)
        builder.lds_barrier()
        with when(self.is_second):  # it begins a turn later
            s_barrier()
        sched_barrier()
        return [[each for row in range(self.rows) for each in acc[row]]]

    def _copy_ahead(self, step: int) -> None:
        """Asks for one of the first steps."""
        self._copy_first(step, self.a, self.b)

    def _copy_first(self, step: int, *operands: Operand) -> None:
        tile, step_of_tile = divmod(step, self.steps)
        for x in operands:
            x.copy(x.in_bounds(Index.of(tile)), step_of_tile, Index.of(step * x.staging.stage_bytes))
        builder.async_group()

    @property
    def _groups_ahead(self) -> int:
        """Groups of copies in flight when the first step is there."""
        return self.stages - 2

    # Main loop

    def _main_loop(self, *first: Values) -> Values:
        """All K tiles: accumulators, and the scales that were read ahead, are carried on."""
        (acc,) = first
        ahead = [x.scales(n, 0) for x, n in self._read_ahead]
        # A loop even of a single K tile, which takes more registers than there are where LLVM sees that it is one.
        tiles = assume(opaque(self.k_tiles), 1)
        return loop(tiles, self._k_tile, acc, ahead, *self.places)[0]

    @property
    def _read_ahead(self) -> list[tuple[Operand, int]]:
        """The fragments whose scales are read with the K tile before."""
        return [(x, n) for x in (self.a, self.b) for n in range(x.fragments) if self._scale_turn(n)]

    def _scale_turn(self, fragment: int) -> int:
        """The turn in which its scales are read: with the first step or, where LDS has those of two K tiles, spread."""
        return (fragment + 1) % _SCALE_TURNS if self.slots > 1 else 0

    def _k_tile(self, i: Index, acc: Values, ahead: Values, *places: Values) -> list[Values]:
        now, following = dict(zip(self._read_ahead, ahead, strict=True)), Scales()
        self.places = list(places)
        for step in range(self.steps):
            turn = self._turn(i, step)
            if self.between_mfma and step:
                builder.sched_groups("mfma_wmma", "salu", times=_SPREAD)
            sched_barrier()
            s_barrier()
            sched_barrier()
            # The other group multiplies, and this one reads.
            fragments = self._read(turn, now if step == 0 else following)
            builder.wait_groups(self._groups_in_flight(step))  # for this wave's part of the next step
            builder.lds_barrier()
            sched_barrier()
            # The other group reads, and this one multiplies.
            if self.between_mfma and step == 0:
                i = assume(opaque(i, pinned=True), 0)
            self._move_on(step)
            self._multiply(step, fragments, now, acc)
            if self.between_mfma and step == self.steps - 1:
                builder.sched_groups("mfma_wmma", "salu", times=_SPREAD)
        return [acc, [following[each] for each in self._read_ahead], *self.places]

    def _turn(self, i: Index, step: int) -> _Turn:
        slot = (i % self.slots).here, ((i + 1) % self.slots).here
        tiles = {x: x.in_bounds(i + self.slots) for x in (self.a, self.b)}
        far = step + self.stages - 1
        return _Turn(i, step, self._places(i, step), self._places(i, far), slot[step > 0], tiles)

    def _places(self, i: Index, step: int) -> dict[Operand, Index]:
        """Of a step, counted from the first of K tile `i`, in both rings."""
        stage = (i * self.steps + step) % self.stages
        return {x: (stage * x.staging.stage_bytes).here for x in (self.a, self.b)}

    def _read(self, turn: _Turn, scales: Scales) -> dict[Operand, Values]:
        """Reads the fragments of a step, and some scales.

        Copies stand between the reads of A and B: while some waves compute addresses, others keep LDS busy.
        """
        fragments: dict[Operand, Values] = {}
        for x in (self.a, self.b):
            self._keep_apart(turn)
            if x is self.b:
                self._copy_between(turn)
                self._keep_apart(turn)
            fragments[x] = []
            for n in range(x.fragments):
                fragments[x].append(x.factor(x.fragment(n, turn.places[x])))
                if self._scale_turn(n) == turn.step:
                    scales[x, n] = x.scales(n, turn.slot)
        self._keep_apart(turn)
        self._copy_behind(turn)
        self._keep_apart(turn)
        if turn.step in self.mixes:
            builder.sched_groups("ds_read", "valu", "salu", "all_vmem", times=self.mixed)
        return fragments

    def _keep_apart(self, turn: _Turn) -> None:
        if turn.step not in self.mixes:
            sched_barrier()

    def _copy_between(self, turn: _Turn) -> None:
        """What is asked for between the reads of A and B."""
        self._copy_scales(turn, (1, self.slots))
        self._copy(turn, self.a, self.b)

    def _copy_behind(self, turn: _Turn) -> None:
        """What is asked for behind all reads: nothing here."""

    def _copy(self, turn: _Turn, *operands: Operand) -> None:
        """Asks for the step that comes into the place of the one before."""
        far = turn.step + self.stages - 1
        for x in operands:
            x.copy(self._far_tile(x, turn.i, far), far % self.steps, turn.free[x])
        builder.async_group()

    def _far_tile(self, x: Operand, i: Index, far: int) -> Index:
        """The K tile of a step, counted from the first of K tile `i`."""
        return x.in_bounds(i + far // self.steps) if far >= self.steps else i

    def _copy_scales(self, turn: _Turn, turns: tuple[int, int]) -> None:
        """Asks for scales as many K tiles ahead as there are places, when both groups have read what was there."""
        for x, when_ in zip((self.a, self.b), turns, strict=True):
            if turn.step == when_:
                x.copy_scales(turn.scale_tiles[x], turn.i % self.slots)

    def _groups_in_flight(self, step: int) -> int:
        """Groups of copies that are wanted later than the next step."""
        return self.stages - 2

    def _move_on(self, step: int) -> None:
        """Counts what is counted from step to step: nothing here."""

    def _multiply(self, step: int, fragments: dict[Operand, Values], scales: Scales, acc: Values) -> None:
        """Adds the step's product to the accumulators, row by row of the wave."""
        for number, (m, n) in enumerate(product(range(self.rows), range(self.columns))):
            a, b = (
                (fragments[x][each], x.scale_factor(scales[x, each], step)) for x, each in ((self.a, m), (self.b, n))
            )
            acc[number] = self._mfma(a, b, acc[number])

    # Epilogue

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        """The first group stores while the second one still multiplies."""
        with when(self.is_first):
            s_barrier()
        # Nothing may arrive in LDS that another kernel or the next tile of this workgroup has taken over.
        builder.wait_groups(0)
        self._store(acc, threads)


class _RowMajorPingPong(_PingPong):
    """The same with LHS in rows: in every second turn it is copied for two steps, into the places of two before.

    A turn has two groups of copies: RHS between the reads, and LHS, or scales, behind them, as they are wanted later.
    The places of steps are counted, and carried on by the loop: five stages are too many to divide by.
    """

    a: RowMajor

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.places = [_places(self.a, 3), _places(self.b, 2)]

    def _copy_ahead(self, step: int) -> None:
        """LHS with the first step and, as in the loop, with the one in front of a step that is even."""
        self._copy_first(step, self.b)
        if step in (0, self.stages - 2):
            first = 0 if step == 0 else _STEPS_OF_LINE
            self.a.copy_two_steps(
                self.a.in_bounds(Index.of(0)), first, (self.a.half + first) * self.a.staging.stage_bytes
            )
        builder.async_group()

    @property
    def _groups_ahead(self) -> int:
        return 2 * super()._groups_ahead

    def _turn(self, i: Index, step: int) -> _Turn:
        (before_last, before, lhs), (free, rhs) = self.places
        own = select(self.a.half >= 1, before, before_last)
        places = {self.a: Index.of(lhs), self.b: Index.of(rhs)}
        return replace(super()._turn(i, step), places=places, free={self.a: own, self.b: Index.of(free)})

    def _copy_between(self, turn: _Turn) -> None:
        self._copy(turn, self.b)

    def _copy_behind(self, turn: _Turn) -> None:
        self._copy_scales(turn, (2, 2))
        if turn.step % _STEPS_OF_LINE:
            far = turn.step + self.staging[LHS].stages - _STEPS_OF_LINE
            self.a.copy_two_steps(self._far_tile(self.a, turn.i, far), far % self.steps, turn.free[self.a])
        builder.async_group()

    def _groups_in_flight(self, step: int) -> int:
        """But for scales that LDS has one place for, which are wanted with the next step but one."""
        return self.stages - (step % _STEPS_OF_LINE and self.slots == 1)

    def _move_on(self, step: int) -> None:
        if self.between_mfma and step < self.steps - 1:
            self.places = [[*before, builder.opaque_i32(last, pinned=True)] for *before, last in self.places]
        self.places = [
            [*places[1:], _next(places[-1], x.staging)] for places, x in zip(self.places, (self.a, self.b), strict=True)
        ]


def _places(x: Operand, count: int) -> Values:
    """Places of the steps in front of the first one, and its own: so many, in bytes."""
    ring, stage = x.staging.ring_bytes, x.staging.stage_bytes
    return [builder.i32((ring - before * stage) % ring) for before in reversed(range(count))]


def _next(place: ir.Value, staging: Staging) -> ir.Value:
    """The place of the next step in a ring: the smaller one, as what is below zero is large."""
    behind = arith.AddIOp(place, builder.i32(staging.stage_bytes)).result
    return arith.MinUIOp(behind, arith.SubIOp(behind, builder.i32(staging.ring_bytes)).result).result
