"""Requantises a result in the dispatch of its matmul, directly into the packed operand of the next one.

Before (after fusing consumers, while the next matmul is still encoded):

    %h  = iree_encoding.unset_encoding %he : tensor<256x512xf32, #acc> -> tensor<256x512xf32>
    %am = linalg.generic … ins(%h) { math.absf … arith.maxui }      %s = linalg.generic … ins(%am)
    %q  = linalg.generic … ins(%h, %am) { arith.scaling_truncf } -> tensor<256x16x32xf4E2M1FN>
    %qe = iree_encoding.set_encoding %q … #lhs                      %se = iree_encoding.set_encoding %s … #lhs_scale

After, in the region of the first matmul (two results, which are the packed LHS and LHS scales of the second):

    %t = iree_codegen.inner_tiled …
    %am = linalg.generic {… 2 reductions} ins(%t) -> tensor<4x1x4x4x4x16xi32>
    %q  = linalg.generic … ins(%t, %am) -> tensor<1x4x4x4x4x16x8x4xf4E2M1FN>     %s = linalg.generic …

Both matmuls are computed transposed, on tiles in which a lane's accumulators are the 32 elements of a block
(`DataTiledLayout.lane_rows`): so amax needs no other lane, and a result tile is a tile of the next operand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.layout.problem import Problem
from mxcomp.layout.swizzle import COLUMNS, ROWS, TileSwizzle
from mxcomp.matching import gates, quantiser, requantise_chains
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import decision_of
from mxcomp.matching.elements import RESHAPES
from mxcomp.matching.quantiser import Producer
from mxcomp.matching.replacing import Reading
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.packing import gate_tiles
from mxcomp.packing.packed_loops import LoopNest, OperandSize
from mxcomp.packing.quantised_operand import Builder, as_packed
from mxcomp.packing.stored_operand import without_padding


@dataclass(frozen=True)
class Requantisation:
    """`results`, used for nothing else, are quantised by `producer`, and read by `consumer` in `layout`.

    One is the result of a matmul; two are the gate and up that tiles of it have. `nest` goes over accumulator tiles,
    whose dimensions are its loops `accumulators`; `orders` are the loops that are dimensions of elements and scales,
    packed, or row by row if there is no `layout`.
    """

    results: tuple[ir.Value, ...]
    consumer: ir.Operation
    sources: tuple[ir.Value, ...]
    producer: Producer
    layout: DataTiledLayout | None
    nest: LoopNest
    accumulators: tuple[int, ...]
    orders: tuple[list[int], list[int]]

    @property
    def types(self) -> list[ir.RankedTensorType]:
        """Returns the result types of `compute`."""
        builder = Builder(self.nest)
        return [builder.stored_type(node, order) for node, order in zip(self.producer.nodes, self.orders, strict=True)]

    def compute(self, tiled: ir.Value) -> list[ir.Value]:
        """Returns elements and scales from accumulator tiles, at the insertion point."""
        parts = gate_tiles.split(tiled, self._is_padding) if len(self.results) > 1 else (tiled,)
        given = {result: (part, self.accumulators) for result, part in zip(self.results, parts, strict=True)}
        builder = Builder(self.nest, given)
        return [builder.root(node, order) for node, order in zip(self.producer.nodes, self.orders, strict=True)]

    def packed(self, elements: ir.Value, scales: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Returns the results of `compute` as the consumer's packed operands."""
        assert self.layout is not None
        rows, blocks = self.nest.tiles
        outer = (*self._batch, (rows or 0) // math.prod(self._batch), blocks)
        return as_packed(elements, scales, self.layout, RHS, self._element, outer)

    def replace_sources(self, elements: ir.Value, scales: ir.Value) -> None:
        """Gives the consumer the results of `compute` row by row, without the padding of the last tile."""
        sizes = static_sizes(self.sources[LHS_SCALE])
        padded = [(count or 0) * size for count, size in zip(self.nest.tiles, self.nest.tile, strict=True)]
        for old, new, inner in (
            (self.sources[LHS], elements, [self.nest.operand.block]),
            (self.sources[LHS_SCALE], scales, []),
        ):
            kind = ir.RankedTensorType(old.type).element_type
            value = build.bitcast(new, build.tensor_type([*padded, *inner], kind))
            if padded != sizes:
                value = without_padding(value, ir.RankedTensorType(old.type))
            old.replace_all_uses_with(value)

    @property
    def _batch(self) -> list[int]:
        *batch, _, _ = static_sizes(self.sources[LHS_SCALE])
        return [size or 0 for size in batch]

    def _is_padding(self, loops: list[ir.Value]) -> ir.Value | None:
        """Returns whether an element of gate or up, whose dimensions are these loops, is after the last block."""
        of_dim = {dim: loop for dim, loop in zip(self.accumulators, loops, strict=True)}
        return self.nest.is_padding([of_dim[i] for i in range(self.nest.rank)])

    @property
    def _element(self) -> str:
        return str(ir.RankedTensorType(self.producer.elements.op.results[0].type).element_type)


def find(
    result: ir.Value, layout: DataTiledLayout, requantised_for: int, following: DataTiledLayout | None
) -> Requantisation | str:
    """Returns how to requantise an [M, N] result, computed transposed in `layout`, for the matmul of this index.

    `following` is the layout of that if it is computed transposed. Why not, if it cannot be done after all.
    """
    consumers = list(dict.fromkeys(_consumers(result)))
    decisions = [decision_of(consumer) for consumer in consumers]
    if len(consumers) != 1 or decisions[0] is None or decisions[0].index != requantised_for:
        return f"{len(consumers)} matmuls are computed from the result: expected one"
    consumer = consumers[0]
    problem = problem_of(consumer)
    encodings = [consumer.operands[index].owner.operation for index in range(ACC)]
    sources = tuple(encoding.operands[0] for encoding in encodings)
    ends = [Reading(encodings[index], 0, None) for index in (LHS, LHS_SCALE)]
    found = (_gated if layout.gated else _plain)(result, sources, problem, consumer, ends)
    if isinstance(found, str):
        return found
    producer, results = found
    tile = _Tile((layout.half if layout.gated else layout).packing(ACC), layout.shape.block, len(problem.batch))
    nest, packed = tile.nest(static_sizes(results[0]), is_padded=layout.gated), None
    order, scale_order = tile.row_major(), tile.row_major()
    if layout.gated or requantise_chains.is_packed(problem):
        packed = following
        if following is None:
            return "the next matmul is not computed transposed"
        operands = ((RHS, problem.types[LHS]), (RHS_SCALE,))
        order, scale_order = (tile.order(following.packing(*operand)) for operand in operands)
    if nest is None or order is None or scale_order is None:
        return "its tiles are not whole tiles of the next matmul"
    order += range(nest.rank, nest.rank + len(nest.inner))
    return Requantisation(results, consumer, sources, producer, packed, nest, tuple(tile.loops), (order, scale_order))


_Found: TypeAlias = tuple[Producer, tuple[ir.Value, ...]]
"""A quantiser, and what it reads."""


def _plain(
    result: ir.Value, sources: Sequence[ir.Value], problem: Problem, _: ir.Operation, ends: Sequence[Reading]
) -> _Found | str:
    producer = quantiser.find(sources[LHS], sources[LHS_SCALE])
    if producer is None or producer.reads() != {result}:
        return _NOT_ALONE
    packed = requantise_chains.is_packed(problem)
    return requantise_chains.objection(producer, [result], problem, ends, packed) or (producer, (result,))


def _gated(
    result: ir.Value, sources: Sequence[ir.Value], _: Problem, consumer: ir.Operation, ends: Sequence[Reading]
) -> _Found | str:
    found = gates.pair_of(sources[LHS], sources[LHS_SCALE])
    if found is None or gates.both(found[1]) != result:
        return _NOT_ALONE
    producer, pair = found
    return gates.objection(producer, pair, consumer, ends) or (producer, pair)


_NOT_ALONE = "the LHS of the next matmul is not quantised from the result alone"


def _consumers(value: ir.Value) -> Iterator[ir.Operation]:
    """Returns the matmuls that read, encoded, what is computed from `value`."""
    for use in value.uses:
        op = use.owner.operation
        if op.name == "iree_encoding.set_encoding":
            yield from (inner.owner.operation for inner in op.results[0].uses)
        elif op.name in (*RESHAPES, *BITCASTS, gates.SLICE) or (indexing_maps(op) is not None and len(op.results) == 1):
            yield from _consumers(op.results[0])


class _Tile:
    """Accumulator tiles of a transposed matmul: ROWS are K of the next matmul, COLUMNS its rows.

    `loops` are the packed tensor's dimensions as loops: `batch`, counts of tiles, dimensions, those inside a block.
    """

    def __init__(self, swizzle: TileSwizzle, block: int, batch: int) -> None:
        self._shape, self._sizes, self._block, self._batch = swizzle.tile_shape, swizzle.packed_shape, block, batch
        self._k, self._rows = swizzle.strides(ROWS), swizzle.strides(COLUMNS)
        dims = range(len(self._sizes))
        inside = [i for i in dims if 0 < self._k[i] * self._sizes[i] <= block]
        self._inside = sorted(inside, key=lambda i: -self._k[i])
        self._outside = [i for i in dims if i not in inside]
        self._outer = batch + 2
        loop_of = {dim: self._outer + loop for loop, dim in enumerate([*self._outside, *self._inside])}
        self.loops = [*range(self._outer), *(loop_of[i] for i in dims)]

    def nest(self, size: list[int | None], is_padded: bool) -> LoopNest | None:
        """Returns the loops of a result of [(batch,) M, N]. None where lanes have no whole blocks, or N no whole tiles
        and it may not have padding."""
        (*batch, height, width), (tile_k, tile_rows) = size, self._shape
        inner = tuple(self._sizes[i] for i in self._inside)
        if height is None or width is None or width % (self._block if is_padded else tile_k):
            return None
        if math.prod(inner) != self._block:
            return None
        tiles = build.tiles(height, tile_rows)
        matrices = [count or 0 for count in batch]
        sizes = (*batch, -(-width // tile_k), tiles, *(self._sizes[i] for i in self._outside))
        all_rows = math.prod(matrices) * (tiles or 0) * tile_rows if batch else height
        column, row = (ir.AffineExpr.get_dim(len(batch) + i) for i in range(2))
        for dim in range(len(matrices)):
            row = row + ir.AffineExpr.get_dim(dim) * (math.prod(matrices[dim + 1 :]) * (tiles or 0))
        return LoopNest(
            operand=OperandSize(all_rows, width // self._block, self._block, None, []),
            tile=(tile_rows, tile_k // self._block),
            multiple=1,
            sizes=sizes,
            outer=self._outer,
            row=self._sum(self._outside, self._rows, 1) + row * tile_rows,
            block=self._sum(self._outside, self._k, self._block) + column * (tile_k // self._block),
            within=self._sum(self._inside, self._k, 1),
            inner=inner,
        )

    def _sum(self, dims: list[int], strides: tuple[int, ...], unit: int) -> ir.AffineExpr:
        terms = (ir.AffineExpr.get_dim(self.loops[self._outer + i]) * (strides[i] // unit) for i in dims)
        return sum(terms, ir.AffineExpr.get_constant(0))

    def order(self, packed: TileSwizzle) -> list[int] | None:
        """Returns the loops that are the dimensions of a packed operand, units separate; None if its tile differs."""
        tile_k, tile_rows = self._shape
        if packed.tile_shape[:2] != (tile_rows, tile_k // self._block):
            return None
        here = {
            (self._rows[i], self._k[i] // self._block, self._sizes[i]): self.loops[self._outer + i]
            for i in self._outside
        }
        there = zip(packed.strides(ROWS), packed.strides(COLUMNS), packed.packed_shape, strict=True)
        found = [here.get(dim) for dim in there if dim[:2] != (0, 0)]  # constant along both
        known = [loop for loop in found if loop is not None]
        return [*self._rows_and_columns, *known] if len(known) == len(found) else None

    def row_major(self) -> list[int] | None:
        """Returns the loops in the order of rows, and of blocks in them."""
        rows = sorted((i for i in self._outside if self._rows[i]), key=lambda i: -self._rows[i])
        blocks = sorted((i for i in self._outside if self._k[i]), key=lambda i: -self._k[i])
        *outer, columns = self._rows_and_columns
        inner = [[self.loops[self._outer + i] for i in dims] for dims in (rows, blocks)]
        return [*outer, *inner[0], columns, *inner[1]]

    @property
    def _rows_and_columns(self) -> list[int]:
        """Returns the loops over (matrices and) tiles: those of rows before those of K."""
        return [*range(self._batch), self._batch + 1, self._batch]
