"""Loop nests over packed operands, or accumulator tiles, with their positions in the tensor that is packed.

A `LoopNest` iterates in packed order, with the loops inside one block of 32 elements innermost. Ops on elements have
all of its loops, ops on scales and other values per block the outer ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout.swizzle import COLUMNS, ROWS, TileSwizzle
from mxcomp.matching.elements import Index
from mxcomp.mlir import build


@dataclass(frozen=True)
class OperandSize:
    """The operand's size: rows (and their value, where dynamic), blocks, and the tiles of rows where dynamic.

    Where rows are chosen from other ones, `chosen` makes one of those, of which there are `source_height`, of a row.
    """

    height: int | None
    blocks: int
    block: int
    rows: ir.Value | None
    tiles: list[ir.Value]
    chosen: Callable[[ir.Value], ir.Value] | None = None
    source_height: int | None = None

    @property
    def readable(self) -> int | None:
        """The number of rows that may be read."""
        return self.height if self.chosen is None else self.source_height


@dataclass(frozen=True)
class LoopNest:
    """Loops of sizes `sizes`, `outer` ones over tiles and the others over packed dimensions, and `inner` in a block.

    `row` and `block` are affine in the former, `within`, the position in the block, in all of them. `tile` is how many
    rows and blocks a packed tile has; there are `multiple` tiles of rows, or twice as many, and so on.
    """

    operand: OperandSize
    tile: tuple[int, int]
    multiple: int
    sizes: tuple[int | None, ...]
    outer: int
    row: ir.AffineExpr
    block: ir.AffineExpr
    within: ir.AffineExpr
    inner: tuple[int, ...]

    @staticmethod
    def of(swizzle: TileSwizzle, unit: int, operand: OperandSize) -> LoopNest:
        """Returns the nest over packed elements, `unit` of them together, or over packed scales (rank 2).

        There is no loop over a single tile: IREE would drop it, and with it what it was told of the loops.
        """
        per_block = operand.block // unit
        tile = (swizzle.tile_shape[ROWS], swizzle.tile_shape[COLUMNS] // per_block)
        counts = [swizzle.tiles(ROWS, operand.height), build.tiles(operand.blocks, tile[COLUMNS])]
        packed = swizzle.packed_shape[: len(swizzle.permutation) - (len(swizzle.tile_shape) - 2)]
        outer = [dim for dim, count in enumerate(counts) if count != 1]
        loops, rank = range(len(outer), len(outer) + len(packed)), len(outer) + len(packed)
        row, column = (
            source(swizzle, dim, loops, outer=outer.index(dim) if dim in outer else None) for dim in (ROWS, COLUMNS)
        )
        block = ir.AffineExpr.get_floor_div(column, per_block)
        within = ir.AffineExpr.get_mod(column, per_block) * unit + ir.AffineExpr.get_dim(rank)
        sizes = (*(counts[dim] for dim in outer), *packed)
        return LoopNest(operand, tile, swizzle.multiples[ROWS], sizes, len(outer), row, block, within, (unit,))

    @property
    def whole_blocks(self) -> LoopNest:
        """Returns the same nest with all elements of a block inside."""
        if math.prod(self.inner) == self.operand.block:
            return self
        return replace(self, within=ir.AffineExpr.get_dim(self.rank), inner=(self.operand.block,))

    @property
    def tiles(self) -> tuple[int | None, int | None]:
        """The numbers of tiles, of rows and of K."""
        height, blocks = self.operand.height, self.operand.blocks
        rows = build.tiles(height, self.tile[ROWS] * self.multiple)
        return rows and rows * self.multiple, build.tiles(blocks, self.tile[COLUMNS])

    @property
    def rank(self) -> int:
        return len(self.sizes)

    def loops(self, inside: bool) -> int:
        """Returns the number of loops of an op, on elements or on values per block."""
        return self.rank + len(self.inner) * inside

    def tensor(self, element: ir.Type, inside: bool, order: Sequence[int] | None = None) -> ir.RankedTensorType:
        """Returns the type of a value with one dimension for each loop, or for those in `order`."""
        sizes = (*self.sizes, *self.inner)
        return build.tensor_type([sizes[i] for i in order or range(self.loops(inside))], element)

    def coordinates(self, loops: list[ir.Value]) -> list[ir.Value]:
        """Returns row, block, and position in the block; in the padding, those of the last row and block."""
        operand, packed = self.operand, loops[: self.rank]
        row, block = build.apply(self.row, packed), build.apply(self.block, packed)
        if operand.rows is not None or (operand.height or 0) % (self.tile[ROWS] * self.multiple):
            row = build.clamp(row, operand.rows or operand.height or 0)
        if operand.chosen is not None:
            row = operand.chosen(row)
        if operand.blocks % self.tile[COLUMNS]:
            block = build.clamp(block, operand.blocks)
        inside = len(loops) > self.rank
        return [row, block, build.apply(self.within, loops) if inside else build.constant_index(0)]

    def is_padding(self, loops: list[ir.Value]) -> ir.Value | None:
        """Returns whether a position is after the last block; None if there is no such position."""
        if self.operand.blocks % self.tile[COLUMNS] == 0:
            return None
        block, count = build.apply(self.block, loops[: self.rank]), build.constant_index(self.operand.blocks)
        return arith.CmpIOp(arith.CmpIPredicate.sge, block, count).result

    def position(self, index: Index) -> ir.AffineExpr:
        """Returns a subscript, over row, block and position in the block."""
        row, block, within = (ir.AffineExpr.get_dim(i) for i in range(3))
        if not index.axis or index.extent == 1:
            return ir.AffineExpr.get_constant(0)
        if index.axis == "row":
            return _part(row, index.stride, index.extent, self.operand.readable)
        size = self.operand.block
        if index.stride % size == 0:
            return _part(block, index.stride // size, index.extent, self.operand.blocks)
        if index.extent is not None and index.stride * index.extent <= size:
            return _part(within, index.stride, index.extent, size)
        if index.extent is not None and size % index.stride == 0 and index.stride * index.extent % size == 0:
            # Apart, so that elements of a block are seen to be neighbours.
            of_block = _part(block, 1, index.stride * index.extent // size, self.operand.blocks)
            return of_block * (size // index.stride) + ir.AffineExpr.get_floor_div(within, index.stride)
        return _part(block * size + within, index.stride, index.extent, self.operand.blocks * size)


def source(swizzle: TileSwizzle, dim: int, loops: Sequence[int], outer: int | None) -> ir.AffineExpr:
    """Returns the position of packed dimensions along `dim` of the source: they are these loops, and `outer` counts
    tiles."""
    zero = ir.AffineExpr.get_constant(0)
    expression = zero if outer is None else ir.AffineExpr.get_dim(outer) * swizzle.tile_shape[dim]
    for loop, stride in zip(loops, swizzle.strides(dim), strict=False):
        if stride:
            expression = expression + ir.AffineExpr.get_dim(loop) * stride
    return expression


def _part(expression: ir.AffineExpr, stride: int, extent: int | None, size: int | None) -> ir.AffineExpr:
    """Returns (expression // stride) % extent, for an expression below `size`."""
    part = ir.AffineExpr.get_floor_div(expression, stride)
    covers = extent is None or (size is not None and stride * extent >= size)
    return part if covers else ir.AffineExpr.get_mod(part, extent)
