"""Kernels of all experts of a single token: gate and up with what quantises hidden activations, and down with its sum.

The first one quantises the token (`once.py`), and a workgroup has 16 columns of an expert's gate and up, which
alternate, and makes eight hidden activations of them (`computed.py`). Down has a wave or several for each expert, with
all that they multiply in flight at once, while hidden activations are quantised, a block by each lane. So a workgroup
has some columns of all experts, and computes what is behind them: biases, the sum by weights, a residual.

Weights are those of all experts, packed as for `split_k.py`, and read by the ids of those that the token has chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.layout import DataTiledLayout
from mxcomp.layout.inner_tiles import BLOCK, BLOCKS, HALF_STEPS, INNER_ROWS, LANES, MFMA, STEPS, VALUES
from mxcomp.mlir import build, composing
from mxcomp.mlir import scalars as s
from mxcomp.target import Target
from mxcomp.ukernels import builder, once, split_k, standing
from mxcomp.ukernels.brought import quantised
from mxcomp.ukernels.builder import Index, Values, Window, sched_barrier, select, when
from mxcomp.ukernels.chain_operations import size
from mxcomp.ukernels.computed import Computed, Loads
from mxcomp.ukernels.softmax import added
from mxcomp.ukernels.split_k import Flight, InFlight, Streamed
from mxcomp.ukernels.waves import BEYOND, Waves, in_columns, inner_tiled_layout

UNITS = 2
"""The inner tiles of gate and up that a workgroup has."""
_COLUMNS, _HIDDEN = UNITS * INNER_ROWS, UNITS * INNER_ROWS // 2
"""The columns of a workgroup for gate and up, and its hidden activations."""
_TILES, _PIECE = BLOCK // _HIDDEN, 4
"""The workgroups that have a block of hidden activations; and how many of these are loaded at a time."""
_PIECES, _GATED_WAVES = BLOCK // _PIECE, 8
TOKEN_BITS = once.BITS
"""The bits of an element of a token."""
MOST_WAVES, MOST_TURNS = 16, 4
"""The most waves of a workgroup for down, and the most K tiles that each has in flight."""


@dataclass(frozen=True)
class Weights:
    """Packed weights of so many experts: the inner tiles of each, and K tiles of so many steps."""

    element: str
    experts: int
    inner_tiles: int
    k_tiles: int
    steps: int
    tile: int

    @staticmethod
    def of(element: str, experts: int, n: int, k: int, is_down: bool) -> Weights:
        """Returns those of gate and up, or of down, with so many columns and elements along K."""
        steps, tile = (STEPS, 1) if is_down else (_steps(k), UNITS)
        inner_tiles = -(-n // (tile * INNER_ROWS)) * tile
        return Weights(element, experts, inner_tiles, -(-k // (steps * BLOCKS * BLOCK)), steps, tile)

    @property
    def layout(self) -> DataTiledLayout:
        return in_columns(inner_tiled_layout(1, self.tile, self.steps))

    @property
    def types(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([inner_tiles * k_tiles * size], "i8") for inner_tiles, k_tiles, size in self._shapes]

    @property
    def _shapes(self) -> list[tuple[int, int, int]]:
        sizes = LANES * MFMA.lane_bytes(self.element), LANES
        return [(self.experts * self.inner_tiles, self.k_tiles, self.steps * size) for size in sizes]

    def opened(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Returns elements and scales by inner tiles and K tiles, whose number is hidden."""
        pairs = zip(operands, self._shapes, strict=True)
        return [builder.without_size(build.expand(operand, shape), 1) for operand, shape in pairs]

    @property
    def is_far(self) -> bool:
        """Whether elements have more bytes than a buffer: other kernels are given copies of those of chosen experts."""
        return math.prod(self._shapes[0]) > builder.MOST_BYTES

    @property
    def objection(self) -> str:
        """Why they cannot be read; "" if they can."""
        elements, scales = map(math.prod, self._shapes)
        is_read = max(elements // self.experts, scales) <= builder.MOST_BYTES
        return "" if is_read else f"weights of an expert, or all scales, exceed {builder.MOST_BYTES} bytes"

    def first(self, ids: ir.Value, number: Index) -> Index:
        """Returns the first inner tile of the expert with one of the ids."""
        id_ = s.clamped(tensor.ExtractOp(ids, [number.value]).result, self.experts - 1)
        return builder.uniform(Index.of(id_)) * self.inner_tiles

    def window(self, first: Index) -> Window | None:
        """Returns the inner tiles of an expert, where those of all have more bytes than a buffer."""
        return (first.here, self.inner_tiles) if self.is_far else None


def _steps(k: int) -> int:
    """Returns the steps of a K tile of gate and up: of half an inner tile if that is less padding."""
    half = HALF_STEPS * BLOCKS * BLOCK
    return HALF_STEPS if -(-k // half) % 2 else STEPS


def _waves(k_tiles: int, most: int) -> int:
    """Returns the fewest waves along K that take as few turns as so many."""
    return -(-k_tiles // -(-k_tiles // most))


@dataclass(frozen=True)
class _Experts(standing.Digested):
    """A dispatch: weights, the number of chosen experts, and what is computed of products; `lhs` is its elements.

    `called` is the module of functions that quantise what is multiplied.
    """

    target: Target
    lhs: str
    weights: Weights
    chosen: int
    computed: Computed
    called: str

    def _inputs(self, lhs: ir.RankedTensorType) -> list[ir.RankedTensorType]:
        """Returns the types of operands: of the LHS, of weights, of ids, and of what is computed with products."""
        others = [build.tensor_type([size(each)], build.element(each)) for each in self.computed.others]
        return [lhs, *self.weights.types, build.tensor_type([self.chosen], "i32"), *others]

    @property
    def llvm_func_attrs(self) -> dict[str, str]:
        """Attributes of the function for LLVM: the waves that a SIMD has of a workgroup."""
        return {"amdgpu-waves-per-eu": str(-(-self.threads // (LANES * self.target.simds)))}

    @property
    def modules(self) -> list[str]:
        return [self.called]

    @property
    def objection(self) -> str:
        """Why there is no such kernel; "" if there is."""
        is_known = {self.lhs, self.weights.element} <= set(once.ELEMENTS)
        return self.weights.objection if is_known else f"no kernel multiplies {self.lhs} with {self.weights.element}"

    def _loads(self, others: Values, place: Sequence[ir.Value], thread: Index) -> Loads:
        """Loads what an element is computed from, besides products, in the first wave."""
        loads = Loads(self.computed, [builder.whole_buffer(each) for each in others], place)
        loads.ahead(builder.uniform(thread // LANES) < 1)
        sched_barrier()
        return loads


def _exchange(acc: Values, wave: Index, lane: Index, columns: int, waves: int) -> ir.Value:
    """Returns LDS with what each wave has of the only row."""
    sums = builder.lds(waves * columns, "f32")
    with when(lane % INNER_ROWS < 1):
        for number, part in enumerate(acc):
            at = wave * columns + number * INNER_ROWS + lane // INNER_ROWS * VALUES
            builder.write_lds(part, sums, at)
    builder.lds_barrier()
    return sums


# Gate and up


class _Gated(once.Once):
    """Multiplies a token with columns of gate and up of an expert."""

    def _share_out(self, waves: int) -> None:
        """Shares nothing: threads of a wave add up the columns of the only row."""

    def products(
        self, x: ir.Value, weights: Values, window: Window | None, inner_tile: Index, thread: Index
    ) -> ir.Value:
        """Returns LDS with what each wave has of the columns from an inner tile on."""
        self.window = window
        self._operands(builder.without_size(x, 0), *weights)  # the number of blocks
        (rhs,) = self.b
        rhs.inner_tile = inner_tile
        self._distribute(thread)
        acc = self._main_loop(*self._prologue())
        return _exchange(acc, self.wave, self.lane, _COLUMNS, self.waves)


@dataclass(frozen=True)
class GateUp(_Experts):
    """Gate and up with hidden activations, so many blocks of each expert, of a token of `of_token` blocks of 16 bits.

    What is computed are hidden activations, in f32. `called` is the module of functions.
    """

    blocks: int
    of_token: int

    prefix, along = "mx_token_gate_up", (2, 0)

    @property
    def _instance(self) -> once.Instance:
        waves = max(self.target.simds, _waves(self.weights.k_tiles, _GATED_WAVES))
        tile = split_k.Tile(self.weights.layout, -4, waves=Waves(k=waves))
        return once.Instance(tile, (self.lhs, self.weights.element), _Gated, once.BITS)

    @property
    def threads(self) -> int:
        return self._instance.tile.threads

    @property
    def objection(self) -> str:
        is_token = 1 < self.of_token <= once.MOST_BLOCKS - STEPS * BLOCKS
        of_token = "" if is_token else f"a token has {self.of_token} blocks"
        return super().objection or of_token or self._instance.objection(self.target)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return self._inputs(build.tensor_type([self.of_token, BLOCK // 2], "i32"))

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The type of pieces of four activations, of which a workgroup has two, by blocks."""
        return [build.tensor_type([_TILES, _PIECES // _TILES, self.chosen * self.blocks, _PIECE], "f32")]

    def write(self, workgroup: Index, given: Values, threads: builder.Threads) -> None:
        x, elements, scales, ids, *others = given[:-1]
        block, tile = (workgroup // _TILES).here, (workgroup % _TILES).here
        number, inner_tile = (block // self.blocks).here, (block % self.blocks * _TILES + tile).here
        own, first = (threads.number % _HIDDEN).here, block * BLOCK + tile * _HIDDEN
        place = composing.split((first + own).value, build.static_sizes(self.computed.value))
        loads = self._loads(others, place, threads.number)
        kernel = _Gated(self._instance, self.target)
        expert, weights = self.weights.first(ids, number), self.weights.opened([elements, scales])
        chosen = expert + inner_tile * UNITS
        sums = kernel.products(x, weights, self.weights.window(expert), chosen, threads.number)
        products = partial(_product, sums, inner_tile * _COLUMNS, kernel.waves, _COLUMNS, True)
        at: list[Index | int] = [0, (own // _PIECE).here, 0, (own % _PIECE).here]
        threads.put(0, at, 1, partial(loads.element, products), threads.number < _HIDDEN)
        threads.keep()


def _product(
    sums: ir.Value, first: Index, waves: int, columns: int, is_one: bool, place: Sequence[ir.Value]
) -> ir.Value:
    """Returns the product at a place, the sum of what so many waves have in LDS of these columns from one on.

    Of all experts, or of only one.
    """
    number, _, column = place
    at = Index.of(column) + first * -1 + (0 if is_one else Index.of(number) * (waves * columns))
    return builder.element(reduce(added, [builder.read_lds(sums, at + i * columns, 1) for i in range(waves)]), 0)


# Down


@dataclass(frozen=True)
class Down(_Experts):
    """Down of all chosen experts, of so many blocks of hidden activations each."""

    blocks: int

    prefix = "mx_token_down"

    @property
    def waves(self) -> int:
        return _waves(self.weights.k_tiles, MOST_WAVES // self.chosen)

    @property
    def threads(self) -> int:
        return self.waves * self.chosen * LANES

    @property
    def objection(self) -> str:
        turns = -(-self.weights.k_tiles // (MOST_WAVES // self.chosen)) if 1 < self.chosen <= MOST_WAVES else 0
        if not 0 < turns <= MOST_TURNS:
            return f"{self.chosen} experts of {self.weights.k_tiles} K tiles are not in flight at once"
        last = build.static_sizes(self.computed.value)[-1]
        is_whole = last == self.weights.inner_tiles * INNER_ROWS
        return super().objection or ("" if is_whole else f"a row has {last} columns")

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return self._inputs(build.tensor_type([_PIECES * self.chosen * self.blocks * _PIECE], "i32"))

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([self.weights.inner_tiles, INNER_ROWS], build.element(self.computed.value))]

    def write(self, workgroup: Index, given: Values, threads: builder.Threads) -> None:
        hidden, elements, scales, ids, *others = given[:-1]
        thread = threads.number
        wave, lane = builder.assume(builder.uniform(thread // LANES), 0, self.threads // LANES - 1), thread % LANES
        number, part = (wave // self.waves).here, (wave % self.waves).here
        first = (workgroup * INNER_ROWS).here
        parts = self._hidden(builder.whole_buffer(hidden), thread)
        place = composing.split((first + lane % INNER_ROWS).value, build.static_sizes(self.computed.value))
        loads = self._loads(others, place, threads.number)
        packed = self.weights.opened([elements, scales])
        expert, k_tiles = self.weights.first(ids, number), Index.of(self.weights.k_tiles)
        window = self.weights.window(expert)
        rhs = Streamed((packed[0], packed[1]), k_tiles, self.weights.element, 1, STEPS, window=window)
        rhs.inner_tile = (expert + workgroup).here
        lhs = once.Blocks(self.lhs, Index.of(self.chosen), STEPS, self.chosen * self._padded)
        for each in (rhs, lhs):
            each.distribute(lane.here)
        lhs.row = number  # the only one that a wave multiplies
        acc = self._multiplied(rhs, lhs, part, parts)
        sums = _exchange(acc, wave, lane, INNER_ROWS, self.threads // LANES)
        products = partial(_product, sums, first, self.waves, INNER_ROWS, False)
        threads.put(0, [0, lane.here], 1, partial(loads.element, products), thread < INNER_ROWS)
        threads.keep()

    @property
    def _padded(self) -> int:
        """The blocks of a row, up to whole K tiles."""
        return self.weights.k_tiles * STEPS * BLOCKS

    def _hidden(self, source: ir.Value, thread: Index) -> once.Parts:
        """Loads a thread's blocks of hidden activations, and returns them by their numbers."""
        parts = []
        for first in range(0, self.chosen * self._padded, self.threads):
            entry = (thread + first).here
            row, block = entry // self._padded, (entry % self._padded).here
            is_there = builder.both(row < self.chosen, block < self.blocks)
            at = select(is_there, (row * self.blocks + block) * _PIECE, BEYOND // 4)
            step = self.chosen * self.blocks * _PIECE
            parts.append((entry, [builder.load(source, [at + piece * step], _PIECE) for piece in range(_PIECES)]))
        sched_barrier()
        return parts

    def _multiplied(self, rhs: Streamed, lhs: once.Blocks, part: Index, parts: once.Parts) -> Values:
        """Returns the sum of a wave's K tiles, all of which are in flight while blocks are quantised."""
        tiles = [part + first for first in range(0, self.weights.k_tiles, self.waves)]
        there = [(tile, tile < self.weights.k_tiles) for tile in tiles]
        flights = [_flight(rhs, rhs.first(*each)) for each in there]
        builder.fence()
        for entry, words in parts:
            with when(entry < self.chosen * self._padded):
                code, scale = quantised(self.lhs, builder.joined(words))
                block = entry % self._padded
                lhs.write(block, (entry // self._padded).here, block < self.blocks, code, scale)
        builder.lds_barrier()
        acc = builder.f32_zeros(VALUES)
        for each, of_rhs in zip(there, flights, strict=True):
            of_lhs = _flight(lhs, lhs.first(*each))
            for step in range(STEPS):
                acc = builder.scaled_mfma(MFMA, rhs.factors(of_rhs, step)[0], lhs.factors(of_lhs, step)[0], acc)
        return [acc]


def _flight(operand: InFlight, tile: Index) -> Flight:
    scales = operand.scales(tile)
    flight = [scales, *(operand.step(tile, step) for step in range(STEPS))]
    sched_barrier()
    return flight
