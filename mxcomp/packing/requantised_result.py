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
from mxcomp.layout.swizzle import TileSwizzle
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
from mxcomp.packing.packed_loops import Loop, LoopNest, OperandSize, loops_of
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
    is_packed = layout.gated or requantise_chains.is_packed(problem)
    packed = following if is_packed else None
    if is_packed and packed is None:
        return "the next matmul is not computed transposed"
    swizzle = (layout.half if layout.gated else layout).packing(ACC)
    made = _nest(swizzle, layout.shape.block, static_sizes(results[0]), is_padded=layout.gated)
    orders = None if made is None else _orders(made[0], packed, problem)
    if made is None or orders is None:
        return "its tiles are not whole tiles of the next matmul"
    return Requantisation(results, consumer, sources, producer, packed, *made, orders)


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


def _nest(
    swizzle: TileSwizzle, block: int, size: list[int | None], is_padded: bool
) -> tuple[LoopNest, tuple[int, ...]] | None:
    """Returns the loops over accumulator tiles of a transposed result of [(batch,) M, N], and the tiles' dimensions.

    Rows of a tile are K of the next matmul, columns its rows. None is returned where lanes have no whole blocks, or N
    no whole tiles and it may not have padding.
    """
    (*batch, height, width), (tile_k, tile_rows) = size, swizzle.tile_shape
    dims = [Loop(each.size, each.column, each.row) for each in loops_of(swizzle)]
    inside = [i for i, each in enumerate(dims) if 0 < each.column * (each.size or 0) <= block]
    inside.sort(key=lambda i: -dims[i].column)
    outside = [i for i in range(len(dims)) if i not in inside]
    inner = tuple(swizzle.packed_shape[i] for i in inside)
    if height is None or width is None or width % (block if is_padded else tile_k) or math.prod(inner) != block:
        return None
    tiles, matrices = -(-height // tile_rows), [count or 0 for count in batch]
    rows = tiles * tile_rows
    of_batch = [Loop(count, math.prod(matrices[i + 1 :]) * rows, 0) for i, count in enumerate(matrices)]
    over = (*of_batch, Loop(-(-width // tile_k), 0, tile_k), Loop(tiles, tile_rows, 0), *(dims[i] for i in outside))
    outer = len(batch) + 2
    of_dim = {dim: outer + loop for loop, dim in enumerate([*outside, *inside])}
    within = sum((ir.AffineExpr.get_dim(of_dim[i]) * dims[i].column for i in inside), ir.AffineExpr.get_constant(0))
    operand = OperandSize(math.prod(matrices) * rows if batch else height, width // block, block, None, [])
    nest = LoopNest(operand, (tile_rows, tile_k // block), 1, over, outer, block, within, inner)
    return nest, (*range(outer), *(of_dim[i] for i in range(len(dims))))


def _orders(nest: LoopNest, following: DataTiledLayout | None, problem: Problem) -> tuple[list[int], list[int]] | None:
    """Returns the loops that are dimensions of elements and of scales: as the next matmul has them packed, or row by
    row; None if its tiles are others."""
    *matrices, columns, rows = range(nest.outer)
    if following is None:
        inside = sorted(range(nest.outer, nest.rank), key=lambda i: (-nest.over[i].row, -nest.over[i].column))
        of_rows, of_blocks = ([i for i in inside if nest.over[i][axis]] for axis in (1, 2))
        order = scales = [*matrices, rows, *of_rows, columns, *of_blocks]
    else:
        of_elements, of_scales = following.packing(RHS, problem.types[LHS]), following.packing(RHS_SCALE)
        packed, packed_scales = nest.order(of_elements), nest.order(of_scales)
        if packed is None or packed_scales is None:
            return None
        order, scales = [*matrices, rows, columns, *packed], [*matrices, rows, columns, *packed_scales]
    return [*order, *range(nest.rank, nest.rank + len(nest.inner))], scales
