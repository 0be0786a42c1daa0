"""Ukernels for at most 16 rows that take activations, and quantise them in registers, times one matrix or two.

The RHS is packed in inner tiles as for `split_k.py`, so that instances of both kinds are interchangeable
(`Instance.plain`). Operands are words and bytes: [M · K/32 blocks, words of 32 activations], the RHS [inner tiles, K
tiles, steps, bytes of all lanes], its scales [inner tiles, K tiles, bytes of all lanes]; the result is [inner tiles, 4,
16, 4].

Two matrices of one shape are gate and up of a gated MLP (dual GEMM): elements and scales of the second one follow, and
there are two results, of the same places, so that what makes one of them is fused behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from iree.compiler import ir

from mxcomp.formats import ELEMENT_TYPES, element_format
from mxcomp.layout import LHS, RHS
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, family, split_k
from mxcomp.ukernels.brought import BLOCKS_IN_ROW, quantised
from mxcomp.ukernels.builder import Factor, Index, Values, sched_barrier, select
from mxcomp.ukernels.operands import factor
from mxcomp.ukernels.split_k import Flight, InFlight
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, INNER_ROWS, LANES, MFMA, inner_tiled_layout

MOST_ROWS = 16
"""The number of rows of an inner tile."""
SOURCE_BITS = {"bf16": 16, "f16": 16, "f32": 32}
"""The bits of activations, by MLIR type."""

_LOAD, _WORD_BITS = 4, 32
"""The number of words of 32 bits that a lane loads at a time: LLVM splits vectors of bytes."""


def fragment(inner_m: int) -> tuple[int, ...]:
    """Returns the shape of the result of an inner tile along N: inner tiles along M where there are several, groups of
    lanes, lanes, values."""
    return (*(() if inner_m == 1 else (inner_m,)), 4, 16, 4)


_SPILLING = ((32, 2, 6), (32, 2, 8), (32, 4, 4))
"""Bits of activations, inner tiles along N and bits of an RHS element without an instance, as registers would spill:
found by compiling all (benchmarks/kernel_times.py)."""

_ELEMENTS = tuple(kind for kind in ELEMENT_TYPES if element_format(kind).loadable)
"""The LHS elements that conversion instructions of vectors produce: no 6-bit ones."""


@dataclass(frozen=True)
class Instance(family.Instance):
    """A member: tile and types of an instance of `split_k.py`, kernel, bits of an activation, number of matrices."""

    kernel: type[FlatStream]
    bits: int
    matrices: int = 1

    @property
    def prefix(self) -> str:
        return super().prefix.format(self.bits) + "dual_" * (self.matrices > 1)

    @property
    def operands(self) -> str:
        return super().operands + "_pair" * (self.matrices > 1)

    @property
    def plain(self) -> family.Instance:
        """The instance with the same RHS, and a packed LHS."""
        return family.Instance(self.tile, self.elements, split_k.Stream)

    def lds_bytes(self, target: Target) -> int:
        return self.matrices * super().lds_bytes(target)

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(source for source, bits in SOURCE_BITS.items() if bits == self.bits)

    def missing(self, target: Target) -> str:
        conversions = (target.lacks_conversion(source, self.elements[LHS]) for source in self.sources)
        return super().missing(target) or next(filter(None, conversions), "")

    @property
    def timed_rows(self) -> tuple[int, int]:
        """The numbers of rows between which its times are known: the fewest that need its inner tiles, and the most."""
        rows = self.layout.workgroup_tile[0]
        return (1 if rows == MOST_ROWS else rows // 2 + 1), rows

    @property
    def most_rows(self) -> int:
        """The largest number of rows in its inner tiles along M."""
        return max(self.timed_rows)

    def covers(self, m: int, n: int, k: int) -> bool:
        """Returns whether it computes a problem of this size, of several inner tiles along N, and blocks of LHS: IREE
        would drop the loop over a single one, and with it what it was told of the others."""
        _, tile_n, _ = self.layout.workgroup_tile
        inner_tiles = -(-n // tile_n) * self.tile.inner_tiles[RHS]
        return 1 <= m <= self.most_rows and inner_tiles > 1 and m * k > BLOCK and k % BLOCK == 0

    def arguments(self) -> tuple[ir.RankedTensorType, ...]:
        """Returns the argument types: words of activations, elements and scales of each matrix, results.

        None has a dimension of 1: IREE drops such of an operation that it knows nothing special of.
        """
        (inner_m, inner_n), steps, count = self.tile.inner_tiles, self.layout.intrinsics_k, self.matrices
        step_bytes = LANES * MFMA.lane_bytes(self.elements[RHS])
        weights = ((inner_n, None, steps, step_bytes), "i8"), ((inner_n, None, steps * LANES), "i8")
        words = (None, BLOCK * self.bits // _WORD_BITS), "i32"
        result = (inner_n, *fragment(inner_m)), "f32"
        return tuple(build.tensor_type(*each) for each in (words, *weights * count, *[result] * count))


TILES = [
    tile
    for tile in split_k.TILES
    if not tile.is_half
    and tile.max_m is None  # whose operand it quantises, whatever rows it has
    and tile.threads > LANES
    and tile.inner_tiles[LHS] == 1
]
"""The tiles of one inner tile along M."""

# The kernel


class Activations(InFlight):
    """Rows of activations, of which a lane loads the 32 of a block per step, which it multiplies.

    Rows behind the last, and blocks behind the last of a row, are loaded from out of the buffer's range.
    """

    def __init__(self, words: ir.Value, blocks: Index, inner_tiles: int, steps: int) -> None:
        self.inner_tiles, self.steps, self._blocks = inner_tiles, steps, blocks
        self._source, all_blocks, self._words = opened(words)
        self.rows = all_blocks // blocks

    def distribute(self, lane: Index) -> None:
        self._group, row = (lane // INNER_ROWS).here, lane % INNER_ROWS
        rows = [(row + inner_tile * INNER_ROWS).here for inner_tile in range(self.inner_tiles)]
        self._rows = [(row.times(self._blocks), select(row < self.rows, self._blocks, 0)) for row in rows]

    def step(self, tile: Index, step: int) -> list[Any]:
        """Loads a step of a K tile: pieces of each inner tile's row."""
        first = tile * (self.steps * BLOCKS) + step * BLOCKS
        return [
            [piece for block, words in self._parts() for piece in self._load(row, first + block, words)]
            for row in self._rows
        ]

    def _load(self, row: tuple[Index, Index], block: Index, words: Sequence[Index]) -> Values:
        start, blocks = row
        there = select(block < blocks, start + block, BEYOND // (self._words * _WORD_BITS // 8))
        return [builder.load(self._source, [there, word], _LOAD) for word in words]

    def _parts(self) -> list[tuple[Index, list[Index]]]:
        """Returns the blocks of a step that a lane has a part of, and where pieces of it begin."""
        return [(self._group, [Index.of(word) for word in range(0, self._words, _LOAD)])]


def opened(words: ir.Value) -> tuple[ir.Value, Index, int]:
    """Returns blocks of words as a buffer, their number, and the number of words of one."""
    blocks, size = Index.of(build.dim(words, 0)), ir.RankedTensorType(words.type).shape[1]
    return builder.buffer(words, blocks, (None, size), (size, 1), "i32"), blocks, size


class FlatStream(split_k.Stream):
    """The base of kernels that take activations, with inner tiles in operands of few dimensions."""

    operands, prefix = "quantising", "mx_fused_quant{}_"  # of so many bits of an activation
    in_order = False
    """Whether `@quantise` is to return elements in order, not as the MFMA takes them from lanes."""

    def __init__(self, instance: Instance, target: Target) -> None:
        super().__init__(instance, target)
        self.results = instance.matrices

    def _operands(self, *given: ir.Value) -> None:
        """Sets up activations, with the number of blocks in a row, and RHS: elements and scales of each matrix."""
        x, *weights = given
        (blocks,) = builder.call(BLOCKS_IN_ROW, [], ir.IndexType.get())
        self.k_tiles = Index.of(build.dim(weights[0], 1))
        self.b = [self._operand(RHS, pair) for pair in zip(weights[::2], weights[1::2], strict=True)]
        self._activations(x, Index.of(blocks))

    def _activations(self, x: ir.Value, blocks: Index) -> None:
        """Sets up activations, of so many blocks in a row, and what is streamed."""
        raise NotImplementedError

    def _stored(self, row: Index, column: Index, in_fragment: list[Index]) -> tuple[list[int], list[Index | int]]:
        """Returns the shape of a share: columns of one row of fragments, a dimension where there are several."""
        rows = [row] if self.inner_tiles[LHS] > 1 else []
        return [self.columns, *(1 for _ in rows), 1, 1, self.values], [column, *rows, *in_fragment]


class Quantising(FlatStream):
    """Writes the kernel of an instance: a lane loads the 32 activations of a block as they are, and `@quantise` makes
    elements and a scale of them. Every workgroup quantises for itself, each of its waves what no other wave multiplies.

    What quantises a K tile needs no more than its activations, which come from the L2: they are loaded in front of the
    RHS, and quantised while that is on its way. Results of loads are waited for in order.
    """

    def _activations(self, x: ir.Value, blocks: Index) -> None:
        self.streamed = tuple(self.b)
        self.x = Activations(x, blocks, 1, self.steps)

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        self.x.distribute(self.lane)

    def _prologue(self) -> list[Flight]:
        """Loads weights, a K tile of LHS, and words of the next one."""
        words = self._load(self.wave)
        flights = super()._prologue()
        quantised = self._quantised(words)
        return [*flights, quantised, self._load(self.wave + self.waves)]

    def _load(self, tile: Index) -> Flight:
        words = [self.x.step(tile, step) for step in range(self.steps)]
        sched_barrier()
        return words

    def _quantised(self, words: Flight) -> Flight:
        """Returns a quantised K tile of LHS: scales, and each step's fragment."""
        blocks = [quantised(self.instance.elements[LHS], builder.joined(pieces)) for (pieces,) in words]
        sched_barrier()
        return [[builder.from_elements([scale for _, scale in blocks])], *([elements] for elements, _ in blocks)]

    def _k_tile(self, i: Index, acc: Values, *flights: Flight) -> list[Any]:
        acc, *after = super()._k_tile(i, acc, *flights)
        return [acc, *after, self._quantised(flights[-1]), self._load(i + 2 * self.waves)]

    def _factors(self, step: int, flights: Sequence[Flight]) -> tuple[Sequence[Factor], Sequence[Factor]]:
        *weights, (scales, *steps), _ = flights
        a = factor(steps[step][0], self.instance.elements[LHS], scales[0], step)
        of_weights = zip(self.streamed, weights, strict=True)
        return [a], [each for x, flight in of_weights for each in x.factors(flight, step)]


SINGLES = tuple(
    Instance(tile, elements, Quantising, bits)
    for tile, elements, bits in product(TILES, product(_ELEMENTS, ELEMENT_TYPES), sorted({*SOURCE_BITS.values()}))
    if tile.fits(elements) and (bits, tile.inner_tiles[RHS], element_format(elements[RHS]).bits) not in _SPILLING
)


_SPILLING_PAIRS = ((32, 2),)
"""The bits of activations, and inner tiles along N, of pairs whose registers would spill."""


def _fits_twice(single: Instance) -> bool:
    """Returns whether registers have room for twice the columns."""
    inner_tiles = single.tile.inner_tiles[RHS]
    wider = replace(single.tile, layout=inner_tiled_layout(1, 2 * inner_tiles))
    return (single.bits, inner_tiles) not in _SPILLING_PAIRS and wider.fits(single.elements)


PAIRS = tuple(replace(single, matrices=2) for single in SINGLES if _fits_twice(single))
INSTANCES = (*SINGLES, *PAIRS)
