"""Loop nests over packed operands, or accumulator tiles, with their positions in the tensor that is packed.

A `LoopNest` iterates in packed order, with the loops inside one block of 32 elements innermost. Ops on elements have
all of its loops, ops on scales and other values per block the outer ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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


class Loop(NamedTuple):
    """A loop: its size, None where dynamic, and how far one step is along rows, and along columns."""

    size: int | None
    row: int
    column: int


@dataclass(frozen=True)
class LoopNest:
    """Loops `over` a packed operand, of which the first `outer` ones are over tiles, and `inner` ones in a block.

    `per_block` columns are a block, `within` is the position in it, affine in all loops. `tile` is how many rows and
    blocks a packed tile has; there are `multiple` tiles of rows, or twice as many, and so on.
    """

    operand: OperandSize
    tile: tuple[int, int]
    multiple: int
    over: tuple[Loop, ...]
    outer: int
    per_block: int
    within: ir.AffineExpr
    inner: tuple[int, ...]

    @staticmethod
    def of(swizzle: TileSwizzle, unit: int, operand: OperandSize) -> LoopNest:
        """Returns the nest over packed elements, `unit` of them together, or over packed scales (rank 2).

        There is no loop over a single tile: IREE would drop it, and with it what it was told of the loops.
        """
        per_block, (rows, columns) = operand.block // unit, swizzle.tile_shape[:2]
        of_rows = Loop(swizzle.tiles(ROWS, operand.height), rows, 0)
        of_columns = Loop(build.tiles(operand.blocks, columns // per_block), 0, columns)
        outer = [each for each in (of_rows, of_columns) if each.size != 1]
        over = (*outer, *loops_of(swizzle)[: len(swizzle.permutation) - (len(swizzle.tile_shape) - 2)])
        within = ir.AffineExpr.get_mod(_along(each.column for each in over), per_block) * unit
        within = within + ir.AffineExpr.get_dim(len(over))
        tile, multiple = (rows, columns // per_block), swizzle.multiples[ROWS]
        return LoopNest(operand, tile, multiple, over, len(outer), per_block, within, (unit,))

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return tuple(each.size for each in self.over)

    @property
    def row(self) -> ir.AffineExpr:
        return _along(each.row for each in self.over)

    @property
    def block(self) -> ir.AffineExpr:
        return ir.AffineExpr.get_floor_div(_along(each.column for each in self.over), self.per_block)

    def order(self, swizzle: TileSwizzle) -> list[int] | None:
        """Returns the loops of each dimension of a tile that is packed by blocks; None if they are others.

        A dimension may be several loops, the outer ones first.
        """
        if swizzle.tile_shape[:2] != self.tile:
            return None
        steps = {i: (self.over[i].row, self.over[i].column // self.per_block) for i in range(self.outer, self.rank)}
        order = list[int]()
        for size, row, block in loops_of(swizzle):
            parts, covered = list[int](), 1
            while (row or block) and (not parts or covered < (size or 1)):  # a part of a block is no loop
                used, step = (*order, *parts), (row * covered, block * covered)
                free = [i for i, each in steps.items() if each == step and i not in used]
                if not free:
                    return None
                parts.insert(0, next((i for i in free if self.over[i].size == size), free[0]))
                covered *= self.over[parts[0]].size or 1
            if covered != size and parts:
                return None
            order += parts
        return order if len(order) == len(steps) else None

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
        return len(self.over)

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


def loops_of(swizzle: TileSwizzle) -> list[Loop]:
    """Returns a loop for each dimension of a packed tile."""
    return [
        Loop(*each) for each in zip(swizzle.packed_shape, swizzle.strides(ROWS), swizzle.strides(COLUMNS), strict=True)
    ]


def _along(strides: Iterable[int]) -> ir.AffineExpr:
    """Returns the position after loops with these strides."""
    terms = (ir.AffineExpr.get_dim(i) * stride for i, stride in enumerate(strides) if stride)
    return sum(terms, ir.AffineExpr.get_constant(0))


def _part(expression: ir.AffineExpr, stride: int, extent: int | None, size: int | None) -> ir.AffineExpr:
    """Returns (expression // stride) % extent, for an expression below `size`."""
    part = ir.AffineExpr.get_floor_div(expression, stride)
    covers = extent is None or (size is not None and stride * extent >= size)
    return part if covers else ir.AffineExpr.get_mod(part, extent)
