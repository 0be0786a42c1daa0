"""MX × MX → f32 for few rows: split-K over the waves of a workgroup, operands directly to registers.

A problem of few rows is bound by memory, and waves share no operands. So each wave computes the whole tile over K tiles
of its own: wave w takes w, w + waves, w + 2 · waves, … Operands bypass LDS, and no wave waits for another one until the
parts are summed at the end, in the order of waves. Tiles of a single wave need no sum, and many of them share a compute
inner tile.

Nearly a whole K tile is in flight: the registers of a step along K are reloaded for the next K tile as soon as it is
multiplied:

    prologue     load 0 | load 1 | load 2 | load 3
    main loop    multiply 0 | load 0 of the next | multiply 1 | load 1 of the next | …
    last K tile  multiply 0 | multiply 1 | …

A wave without a K tile loads beyond the buffer, where the hardware returns zeros and fetches nothing. So do loads of
LHS rows beyond the few that an instance is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from operator import mul
from typing import Any, TypeAlias

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import LHS, RHS
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, family
from mxcomp.ukernels.builder import Factor, Index, Values, Window, sched_barrier, select
from mxcomp.ukernels.family import Kernel
from mxcomp.ukernels.operands import SCALE_VECTOR, Direct, factor, in_tile
from mxcomp.ukernels.waves import BEYOND, HALF_STEPS, INNER_PIECES, INNER_ROWS, LANES, VALUES, Waves, inner_tiled_layout

# Tiles

_TILES = ((1, 1, 4), (1, 2, 8), (1, 4, 8), (2, 2, 8), (2, 4, 8), (4, 4, 4))
"""The inner tiles along M and N, and the waves along K, of tiles."""

_SINGLE_WAVE = ((1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (4, 8))
"""The inner tiles along M and N of tiles of a single wave, many of which share a compute unit: for short K."""

_HALF_SINGLE_WAVE = ((1, 2), (4, 8), (8, 4))
"""The inner tiles of tiles of half inner tiles of a single wave."""

_ALL = family.ALL_BITS
_FEW_ROWS: tuple[tuple[int, int, int, family.Pairs], ...] = (
    (2, 1, 4, _ALL), (2, 2, 8, ((4, 4), (8, 4), (8, 6))), (2, 4, 8, ((4, 4), (8, 4))),
    (8, 1, 4, _ALL), (8, 2, 8, _ALL), (8, 4, 8, ((6, 4), (8, 4))), (8, 2, 1, ((6, 6), (6, 8), (8, 6), (8, 8))),
)  # fmt: skip
"""Tiles of one inner tile along M that load only so many rows of it, for M of at most as many: with inner tiles along
N, waves along K, and bits of elements for which they are the fastest.

All 16 rows are as many bytes for a workgroup as 16 columns of RHS.
"""

REGISTERS = 512
"""The registers of a SIMD, shared by its waves, with which tiles were compiled."""

_SUM_BYTES = 4
"""The size of an accumulator, an f32."""


@dataclass(frozen=True)
class Tile(family.Tile):
    def fits(self, elements: tuple[str, str], registers: int = REGISTERS) -> bool:
        """Returns whether it is for these elements, and a wave's registers have room for the data in flight.

        That was found by compiling all, as others spill. Registers of a fragment in a lane are four, or eight: six
        count as eight.
        """
        sizes = (4 if element_format(kind).bits == 4 else 8 for kind in elements)
        in_flight = self.layout.intrinsics_k * sum(map(mul, self.inner_tiles, sizes))
        return super().fits(elements) and in_flight <= registers // self.waves_per_simd * 3 // 8

    def objection(self, elements: tuple[str, str], target: Target) -> str:
        few = f"a SIMD of {target.name} has {target.registers} registers, too few for what is in flight"
        return super().objection(elements, target) or ("" if self.fits(elements, target.registers) else few)

    def lds_bytes(self, elements: tuple[str, str], target: Target) -> int:
        """Returns the bytes of parts that waves sum. A single wave has the whole result."""
        return _SUM_BYTES * LANES * VALUES * prod(self.fragments) * self.waves.k if self.waves.k > 1 else 0


TILES = (
    *(Tile(inner_tiled_layout(m, n), -4, waves=Waves(k=k)) for m, n, k in _TILES),
    *(
        Tile(replace(inner_tiled_layout(1, n), lhs_row_lines=True), -4, waves=Waves(k=k, lhs_rows=rows), bits=bits)
        for rows, n, k, bits in _FEW_ROWS
    ),
    *(Tile(inner_tiled_layout(m, n), -6) for m, n in _SINGLE_WAVE),
    *(Tile(inner_tiled_layout(m, n, HALF_STEPS), -7) for m, n in _HALF_SINGLE_WAVE),
)

# Operands

Flight: TypeAlias = list[Any]
"""An operand's K tile in registers, or in flight: scales, and each step."""


class InFlight:
    """LHS or RHS, of which a K tile is in flight while another one is multiplied, step by step."""

    def distribute(self, lane: Index) -> None:
        """Sets a lane's offset in a fragment."""

    def first(self, tile: Index, has_any: ir.Value) -> Index:
        """Returns a wave's first K tile, or one that it may load where it has none."""
        return tile

    def scales(self, tile: Index) -> Values:
        """Loads a lane's scales of a K tile, of each inner tile, where they do not come with steps."""
        return []

    def step(self, tile: Index, step: int) -> list[Any]:
        """Loads a lane's part of a step of a K tile: pieces of each inner tile's fragment."""
        raise NotImplementedError

    def factors(self, flight: Flight, step: int) -> Sequence[Any]:
        """Returns each inner tile's factor of a step."""
        raise NotImplementedError


class Streamed(Direct, InFlight):
    """LHS or RHS in inner tiles; of few `rows`, whose blocks lie together then (`lhs_row_lines`).

    `inner_tile` is the first of the inner tiles that are read.
    """

    inner_tile = Index({})

    def __init__(
        self, packed: tuple[ir.Value, ir.Value], k_tiles: Index, element: str, inner_tiles: int, steps: int,
        rows: int | None = None, window: Window | None = None,
    ) -> None:  # fmt: skip
        super().__init__(packed, k_tiles, element, INNER_PIECES, rows is not None, rows, window)
        self.inner_tiles, self.steps = inner_tiles, steps
        self._before = Index({}) if window is None else window[0]

    def distribute(self, lane: Index) -> None:
        super().distribute(lane)
        self._scales_from = (lane * self.steps).here

    def first(self, tile: Index, has_any: ir.Value) -> Index:
        return select(has_any, tile, -(-BEYOND // (self.steps * self._fragment_bytes)))

    def scales(self, tile: Index) -> Values:
        numbers = (self.inner_tile + n for n in range(self.inner_tiles))
        places = (in_tile(self._scale_source, number, tile, self._scales_from) for number in numbers)
        return [builder.padded(builder.load(self._scale_source, place, self.steps), SCALE_VECTOR) for place in places]

    def step(self, tile: Index, step: int) -> list[Any]:
        numbers = (self.inner_tile + self._before * -1 + n for n in range(self.inner_tiles))
        return [self.pieces(number, tile, step * self._fragment_bytes) for number in numbers]

    def factors(self, flight: Flight, step: int) -> Sequence[Any]:
        fragments = [builder.joined(pieces) for pieces in flight[1 + step]]
        return [factor(each, self.element, four, step) for each, four in zip(fragments, flight[0], strict=True)]


# The kernel


class Stream(Kernel):
    weights: type[Streamed] = Streamed
    window: Window | None = None

    def __init__(self, instance: family.Instance, target: Target) -> None:
        super().__init__(instance, target)
        self.waves, self.inner_tiles = instance.tile.waves.k, instance.tile.fragments
        self.steps, self.turn = self._turn()
        self._share_out(self.waves)

    def _turn(self) -> tuple[int, int]:
        """Returns the steps of an iteration of the loop, and the distance in K tiles of a wave's iterations."""
        return self.layout.intrinsics_k, self.waves

    def _share_out(self, waves: int) -> None:
        """Sets the share of the sum of each of so many waves: rows or columns of fragments, or values in a lane."""
        (m, n), self.sharing = self.inner_tiles, waves
        values = max(1, m * n * VALUES // waves)
        self.values = min(VALUES, values)
        self.columns = min(n, values // self.values)
        self.rows = values // self.values // self.columns
        if self.rows * self.columns * self.values * waves != m * n * VALUES:
            raise ValueError(f"{m} × {n} fragments cannot be shared by {waves} waves")

    def _open(self, *arguments: ir.Value) -> None:
        self._operands(*arguments[: -self.results])
        results = self.results if self.waves > 1 else 0  # a single wave has the whole result
        self.parts = [builder.lds(self.waves * self._part, "f32") for _ in range(results)]

    def _operands(self, *given: ir.Value) -> None:
        self.k_tiles, (lhs, *each_rhs) = Index.of(build.dim(given[LHS], 2)), self._pairs(*given)
        a = self._operand(LHS, lhs, self.instance.tile.max_m)
        self.streamed: tuple[InFlight, ...] = *(self._operand(RHS, rhs) for rhs in each_rhs), a  # in order of loading

    def _operand(self, side: int, packed: tuple[ir.Value, ir.Value], rows: int | None = None) -> Streamed:
        kind, window = (self.weights, self.window) if side == RHS else (Streamed, None)
        return kind(
            packed, self.k_tiles, self.instance.elements[side], self.inner_tiles[side], self.steps, rows, window
        )

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.has_any = self.wave < self.k_tiles
        for x in self.streamed:
            x.distribute(self.lane)

    # Prologue

    def _prologue(self) -> list[Flight]:
        return self._loaded(*self.streamed)

    def _loaded(self, *operands: InFlight) -> list[Flight]:
        """Loads the wave's first K tile of operands, or an out-of-bounds one."""
        tiles = {x: x.first(self.wave, self.has_any) for x in operands}
        flights = {x: [x.scales(tile)] for x, tile in tiles.items()}
        for step in range(self.steps):
            sched_barrier()
            for x, tile in tiles.items():
                flights[x].append(x.step(tile, step))
        sched_barrier()
        return list(flights.values())

    # Main loop

    def _main_loop(self, *flights: Flight) -> Values:
        """Computes all of the wave's K tiles: while a step is multiplied, others are loaded for the next K tile."""
        last = self.k_tiles + -self.turn
        if self.waves > 1:
            builder.fence()  # or LLVM would load the first K tile only in waves that have one
            last = builder.opaque(last)  # hides a loop of one K tile, for which LLVM takes more registers
        acc = [builder.f32_zeros(VALUES) for _ in range(self.results * prod(self.inner_tiles))]
        ahead = select(Index.of(self.turn) < self.k_tiles, last, 0)
        acc, *left = builder.loop(ahead, self._k_tile, acc, *flights, start=self.wave, step=self.turn)
        return self._last_k_tile(acc, left)

    def _k_tile(self, i: Index, acc: Values, *flights: Flight) -> list[Any]:
        following = i + self.turn
        after = [[x.scales(following)] for x in self.streamed]
        sched_barrier()
        for step in range(self.steps):
            self._multiply(step, flights, acc)
            sched_barrier()  # the next loads stay behind the last use of what they replace
            for x, flight in zip(self.streamed, after, strict=True):
                flight.append(x.step(following, step))
            sched_barrier()
        return [acc, *after]

    def _multiply(self, step: int, flights: Sequence[Flight], acc: Values) -> None:
        for number, pair in enumerate(product(*self._factors(step, flights))):
            acc[number] = builder.scaled_mfma(self.layout.shape, *self._ordered(*pair), acc[number])

    def _factors(self, step: int, flights: Sequence[Flight]) -> tuple[Sequence[Factor], Sequence[Factor]]:
        """Returns A's and B's factors of a step; A is the last operand."""
        *each_b, a = (x.factors(flight, step) for x, flight in zip(self.streamed, flights, strict=True))
        return a, [factor for b in each_b for factor in b]

    def _last_k_tile(self, acc: Values, flights: Sequence[Flight]) -> Values:
        """Computes the last K tile, after which nothing is loaded that would be waited for."""

        def multiplied() -> Values:
            sums = list(acc)
            for step in range(self.steps):
                self._multiply(step, flights, sums)
                sched_barrier()
            return sums

        return builder.choose(self.has_any, multiplied, [builder.f32_zeros(VALUES) for _ in acc])

    # Epilogue

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        """Sums the parts of all waves; each has a share: some fragments, or some of a fragment's values in a lane."""
        wave = self.wave if self.sharing > 1 else Index.of(0)
        of_fragment, of_row = VALUES // self.values, self.inner_tiles[RHS] // self.columns
        mine, value = wave // of_fragment, wave % of_fragment * self.values
        if self.waves > 1:
            first, fragments = mine * (self.rows * self.columns), range(self.rows * self.columns)
            self._exchange(acc)
            acc = self._added(
                lambda wave: [self._place(wave, first + j, self.lane, value) for j in fragments], self.values
            )
        row, column = mine // of_row * self.rows, mine % of_row * self.columns
        lane_place = self.lane // INNER_ROWS, self.lane % INNER_ROWS
        threads.store(acc, *self._stored(row, column, [*lane_place, value]))

    def _stored(self, row: Index, column: Index, in_fragment: list[Index]) -> tuple[list[int], list[Index | int]]:
        """Returns the shape of a wave's share of the result, and its index."""
        return [1, 1, self.rows, self.columns, 1, 1, self.values], [0, 0, row, column, *in_fragment]

    def _exchange(self, acc: Values) -> None:
        """Writes the wave's part of each result, one behind the other, to LDS."""
        count = prod(self.inner_tiles)
        for number, part in enumerate(acc):
            place = self._place(self.wave, number % count, self.lane)
            builder.write_lds(part, self.parts[number // count], place)
        builder.lds_barrier()

    def _added(self, places: Callable[[Index], Sequence[Index]], size: int) -> Values:
        """Returns the sums of all waves' parts, of so many values from places of a wave's part on, of each result."""
        sums = [builder.f32_zeros(size) for _ in product(self.parts, places(Index.of(0)))]
        for wave in range(self.waves):
            parts = [builder.read_lds(*each, size) for each in product(self.parts, places(Index.of(wave)))]
            sums = builder.sums(sums, parts)
        return sums

    def _place(self, wave: Index, fragment: Index | int, lane: Index, value: Index | int = 0) -> Index:
        """Returns the index of a lane's value of a fragment in a wave's part."""
        return wave * self._part + fragment * (LANES * VALUES) + lane * VALUES + value

    @property
    def _part(self) -> int:
        return prod(self.inner_tiles) * LANES * VALUES


INSTANCES = family.instances(Stream, TILES)
