"""Ukernels for up to 64 rows of unquantised bf16 activations, and MX weights.

Operands are words and bytes as those of `quantising`. A lane has the 32 elements of the packed layout: a block, or, of
8-bit elements, halves of two blocks that are 64 elements apart. It loads activations of the same K, and the scales of
the blocks that it has a part of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import ELEMENT_TYPES
from mxcomp.layout import LHS, RHS
from mxcomp.target import Target
from mxcomp.ukernels import builder, family, quantising, split_k
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.operands import in_tile
from mxcomp.ukernels.split_k import Flight, Streamed
from mxcomp.ukernels.waves import BLOCK, INNER_ROWS, MFMA, STEPS, Waves, inner_tiled_layout

ACTIVATIONS = "bf16"
"""The MLIR type of activations."""

_BITS, _VECTOR, _LOAD = 16, 8, 4
"""The bits of an activation, the activations that an MFMA of 16x16x32 takes of a lane, and their number of words."""
_INTRINSIC, _SHAPE, _MFMA = "MFMA_F32_16x16x32_BF16", (16, 16, 32), BLOCK // _VECTOR
"""The MFMA, its shape, and the number of them that a block takes."""
_BYTE_BITS = 8
ACTIVATION_BYTES = _BITS // _BYTE_BITS


@dataclass(frozen=True)
class Instance(quantising.Instance):
    """A member: the tile, and the type of weights, in both entries of `elements`."""

    @property
    def types(self) -> tuple[str, ...]:
        return ACTIVATIONS, *super().types[1:]

    def missing(self, target: Target) -> str:
        lacking = target.lacks_instruction(_INTRINSIC, (ACTIVATIONS, ACTIVATIONS))
        return lacking or target.lacks_conversion(self.elements[RHS], ACTIVATIONS)


@dataclass(frozen=True)
class Tile(split_k.Tile):
    """A tile that was compiled to find that registers have room: LHS are no elements, as `split_k` counts them."""

    def fits(self, elements: tuple[str, str], registers: int = split_k.REGISTERS) -> bool:
        return family.Tile.fits(self, elements) and registers >= split_k.REGISTERS


_FOUR, _SIX, _EIGHT = ((4, 4),), ((6, 6),), ((8, 8),)
_OTHERS: tuple[tuple[int, int, int, family.Pairs], ...] = (
    (1, 4, 4, _SIX), (2, 1, 8, _FOUR + _EIGHT), (2, 1, 4, _SIX), (2, 2, 8, _FOUR), (2, 2, 4, _SIX + _EIGHT),
    (2, 4, 4, family.ALL_BITS), (4, 1, 4, _FOUR + _EIGHT), (4, 2, 4, family.ALL_BITS), (4, 4, 4, family.ALL_BITS),
)  # fmt: skip
"""The inner tiles along M and N, waves along K, and bits of weights, of tiles that `quantising` has not."""

_TILES = (
    *quantising.TILES,
    *(Tile(inner_tiled_layout(m, n), -4, waves=Waves(k=k), bits=bits) for m, n, k, bits in _OTHERS),
)

MOST_ROWS = max(tile.layout.tile[0] * tile.inner_tiles[LHS] for tile in _TILES)
"""The largest number of rows of a workgroup, which takes all rows of a matrix if there are no more."""

# The kernel


class _Activations(quantising.Activations):
    """Rows of bf16, of which a lane has the same K as of weights by their packing."""

    in_halves = False

    def factors(self, flight: Flight, step: int) -> list[Values]:
        """Returns each inner tile's activations of a step, as many at a time as an MFMA takes."""
        return [[builder.bitcast(piece, ACTIVATIONS, _VECTOR) for piece in row] for row in flight[1 + step]]

    def _parts(self) -> list[tuple[Index, list[Index]]]:
        if not self.in_halves:
            return super()._parts()
        words = [self._group % 2 * 8 + word for word in (0, _LOAD)]
        return [(self._group // 2 + 2 * half, words) for half in range(2)]


class _Weights(Streamed):
    """RHS, of which a lane has whole blocks, or of 8-bit elements halves of two, each with its own scale."""

    def distribute(self, lane: Index) -> None:
        super().distribute(lane)
        group, row = lane // INNER_ROWS, lane % INNER_ROWS
        is_whole = MFMA.holds_blocks(self.element)
        first = ((group if is_whole else group // 2) * (INNER_ROWS * STEPS) + row * STEPS).here
        self._halves_from = first, first if is_whole else first + 2 * INNER_ROWS * STEPS

    def scales(self, tile: Index) -> Values:
        """Loads the scales of a K tile for the first half of each inner tile's blocks, and for the second one."""
        places = product(range(self.inner_tiles), self._halves_from)
        at = (in_tile(self._scale_source, Index.of(n), tile, half) for n, half in places)
        four = (builder.load(self._scale_source, each, self.steps) for each in at)
        return [builder.element(builder.bitcast(each, "i32", 1), 0) for each in four]

    def factors(self, flight: Flight, step: int) -> Values:
        """Returns each inner tile's weights of a step as bf16, rows of as many as an MFMA takes."""
        scales = [_byte(each, step) for each in flight[0]]
        kind = ir.VectorType.get([_MFMA, _VECTOR], ir.BF16Type.get())
        return [
            builder.call("dequantise", [fragment, *scales[2 * n : 2 * n + 2]], kind)[0]
            for n, fragment in enumerate([builder.joined(pieces) for pieces in flight[1 + step]])
        ]


def _byte(word: ir.Value, number: int) -> ir.Value:
    """Returns a byte of a word. A vector of bytes LLVM would take apart, and wait for, in the turn that loads it."""
    shift = arith.ConstantOp(word.type, _BYTE_BITS * number)
    return arith.TruncIOp(ir.IntegerType.get_signless(_BYTE_BITS), arith.ShRUIOp(word, shift)).result


class Dequantising(quantising.FlatStream):
    """Writes the kernel of an instance: activations are multiplied as they are, and weights as bf16, of which they are
    exact: `@dequantise` makes them of elements and scales, once for all inner tiles along M. An MFMA takes eight of
    both: which K a lane has does not matter, as long as it is the same on both sides."""

    prefix, weights = "mx_", _Weights

    def _activations(self, x: ir.Value, blocks: Index) -> None:
        self.x = _Activations(x, blocks, self.inner_tiles[LHS], self.steps)
        self.x.in_halves = not MFMA.holds_blocks(self.instance.elements[RHS])
        self.streamed = *self.b, self.x

    def _multiply(self, step: int, flights: Sequence[Flight], acc: Values) -> None:
        weights, rows = (x.factors(flight, step) for x, flight in zip(self.streamed, flights, strict=True))
        for (n, b), (m, a) in product(enumerate(weights), enumerate(rows)):
            number = m * self.inner_tiles[RHS] + n
            for i in range(_MFMA):
                acc[number] = builder.mfma(_SHAPE, a[i], builder.element(b, i), acc[number])


INSTANCES = tuple(
    Instance(tile, (kind, kind), Dequantising, _BITS)
    for tile in _TILES
    for kind in ELEMENT_TYPES
    if tile.fits((kind, kind))
)
