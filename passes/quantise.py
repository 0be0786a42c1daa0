"""Packing of an operand that is computed on the way (`producers`): activations in, packed elements and scales out.

All of it happens in packed order: every linalg op of the quantiser becomes one over tiles and packed dimensions, and a
lane computes one block of 32, or the half of it that 8-bit elements have together:

    %p, %s = flow.dispatch.region {
      %x    = linalg.generic … tensor.extract %activations[…] -> tensor<2x4x8x2x4x16x32xf32>
      %amax = linalg.generic {compilation_info = …} ins(%x) -> tensor<2x4x8x2x4x16xi32>
      %q    = linalg.generic … ins(%x, %amax) { arith.scaling_truncf } -> tensor<2x4x8x2x4x16x32xf4E2M1FN>
      %e    = linalg.generic … ins(%amax) -> tensor<2x4x8x2x4x16xf8E8M0FNU>
      %t    = linalg.transpose ins(%e) -> tensor<2x4x4x16x8x2xf8E8M0FNU>
    }

IREE compiles that to 128-bit loads, v_cvt_scalef32_pk_* and 128-bit stores. The scales of 8-bit elements take a
dispatch of their own: the packed order does not keep the 32 elements of a scale together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, tensor

from mxcomp import attributes, build
from mxcomp.formats import element_format
from mxcomp.layout import BLOCK_SIZE, COLUMNS, LHS_SCALE, ROWS, DataTiledLayout, TileSwizzle, k_unit
from mxcomp.passes import six_bit
from mxcomp.passes.inline import constant, inline
from mxcomp.passes.producers import Compute, Node, Read, is_inside
from mxcomp.passes.trace import Index, indexing_maps

_THREADS = 256
_CONFIG = "compilation_info"


@dataclass(frozen=True)
class Extent:
    """The operand's size: rows (and their value, where dynamic), blocks, and the tiles of rows where dynamic."""

    height: int | None
    blocks: int
    rows: ir.Value | None
    tiles: list[ir.Value]


@dataclass(frozen=True)
class Space:
    """Loops over packed positions, two counts of tiles and the packed dimensions, and over `inner` elements of a block.

    `row`, `block` and `first`, the first of those elements, are affine in the loops.
    """

    extent: Extent
    tile: tuple[int, int]
    sizes: tuple[int | None, ...]
    row: ir.AffineExpr
    block: ir.AffineExpr
    first: ir.AffineExpr
    inner: int = BLOCK_SIZE

    @staticmethod
    def of(swizzle: TileSwizzle, unit: int, extent: Extent) -> Space:
        """Of elements, `unit` of them together, or of scales (rank 2)."""
        rank = len(swizzle.permutation) - (len(swizzle.tile_shape) - 2)
        coordinates = [ir.AffineExpr.get_dim(2 + i) for i in range(rank)]

        def source(dim: int) -> ir.AffineExpr:
            steps = zip(coordinates, swizzle.strides(dim), strict=False)
            return sum(
                (c * stride for c, stride in steps if stride), ir.AffineExpr.get_dim(dim) * swizzle.tile_shape[dim]
            )

        per_block = BLOCK_SIZE // unit
        tile = (swizzle.tile_shape[ROWS], swizzle.tile_shape[COLUMNS] // per_block)
        outer = [build.tiles(size, step) for size, step in zip((extent.height, extent.blocks), tile, strict=True)]
        column = source(COLUMNS)
        block = ir.AffineExpr.get_floor_div(column, per_block)
        first = ir.AffineExpr.get_mod(column, per_block) * unit
        return Space(extent, tile, (*outer, *swizzle.packed_shape[:rank]), source(ROWS), block, first, unit)

    @property
    def whole_blocks(self) -> Space:
        return replace(self, first=ir.AffineExpr.get_constant(0), inner=BLOCK_SIZE)

    @property
    def rank(self) -> int:
        return len(self.sizes)

    def tensor(self, element: ir.Type, inside: bool) -> ir.RankedTensorType:
        """The type of a value of this space; `inside`: one for each element, not for each block."""
        return build.tensor_type((*self.sizes, self.inner) if inside else self.sizes, element)

    def access(self, inside: bool, loops: int) -> ir.AffineMap:
        """Where such a value is read in a nest of loops."""
        return ir.AffineMap.get(loops, 0, [ir.AffineExpr.get_dim(i) for i in range(self.rank + inside)])

    def places(self, loops: list[ir.Value]) -> list[ir.Value]:
        """Row, block, and position in the block; in the padding, those of the last row and block."""
        extent, packed = self.extent, loops[: self.rank]
        row, block = build.apply(self.row, packed), build.apply(self.block, packed)
        if extent.rows is not None or (extent.height or 0) % self.tile[ROWS]:
            row = build.clamp(row, extent.rows or extent.height or 0)
        if extent.blocks % self.tile[COLUMNS]:
            block = build.clamp(block, extent.blocks)
        if len(loops) == self.rank:
            return [row, block, build.constant_index(0)]
        return [row, block, build.apply(self.first + ir.AffineExpr.get_dim(self.rank), loops)]

    def is_padding(self, loops: list[ir.Value]) -> ir.Value | None:
        """Whether a position is behind the last block; None if there is no such."""
        if self.extent.blocks % self.tile[COLUMNS] == 0:
            return None
        block, count = build.apply(self.block, loops[: self.rank]), build.constant_index(self.extent.blocks)
        return arith.CmpIOp(arith.CmpIPredicate.sge, block, count).result


def pack(
    producer: tuple[Compute, Compute],
    layout: DataTiledLayout,
    operand: int,
    source: ir.Value,
    rows: ir.Value | None,
    regions: bool,
) -> tuple[ir.Value, ir.Value]:
    """Elements and scales of LHS or RHS as `pack.pack` gives them, computed by `producer`.

    `source` is the tensor [rows, K/32, 32] that it computes elsewhere; `rows` is its row count where dynamic.
    """
    height, blocks, *_ = build.static_sizes(source)
    element = str(ir.RankedTensorType(source.type).element_type)
    tiles = [build.ceildiv(rows, layout.swizzle(operand).tile_shape[ROWS])] if rows is not None else []
    extent = Extent(height, blocks or 0, rows, tiles)
    swizzle, scale_swizzle = layout.swizzle(operand, element), layout.swizzle(operand + LHS_SCALE)
    space = Space.of(swizzle, k_unit(element), extent)
    outer = space.sizes[:2]
    if space.inner == BLOCK_SIZE:
        order = [0, 1, *(2 + swizzle.permutation.index(p) for p in scale_swizzle.permutation)]
        elements, scales = _dispatch(producer, space, [None, order], regions)
    else:
        (elements,) = _dispatch(producer[:1], space, [None], regions)
        (scales,) = _dispatch(producer[1:], Space.of(scale_swizzle, BLOCK_SIZE, extent), [None], regions)
    shape = layout.packed_shape(operand, outer)
    stored = build.tensor_type((*shape[:-1], BLOCK_SIZE * element_format(element).bits // 8), "i8")
    return build.bitcast(elements, stored, extent.tiles), scales


def _dispatch(
    nodes: tuple[Compute, ...], space: Space, orders: list[list[int] | None], regions: bool
) -> list[ir.Value]:
    """One dispatch that computes all of `nodes`, each with its dimensions in the given order."""
    results = [_stored_type(node, space, order) for node, order in zip(nodes, orders, strict=True)]
    with build.dispatch_region(results, space.extent.tiles * len(results), enabled=regions) as region:
        builder = _Builder(space)
        values = [builder.root(node) for node in nodes]
        builder.configure()
        region.returned = [
            value if order is None else build.transpose(value, build.empty(result, space.extent.tiles), order)
            for value, result, order in zip(values, results, orders, strict=True)
        ]
    return region.results


def _stored_type(node: Compute, space: Space, order: list[int] | None) -> ir.RankedTensorType:
    element = ir.RankedTensorType(node.op.results[0].type).element_type
    if order is not None:
        return build.tensor_type([space.sizes[i] for i in order], element)
    plain = space.tensor(element, node.inside)
    return six_bit.stored_type(plain) if str(element) in six_bit.TYPES else plain


class _Builder:
    """Builds nodes in a space, each once; `leading` is the op that tells IREE how to compile them."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._built: dict[tuple[Node, int], ir.Value] = {}
        self._leading: ir.Operation | None = None

    def root(self, node: Compute) -> ir.Value:
        """A node as it is stored."""
        value = self._value(node, self._space, masked=node.inside)
        if str(ir.RankedTensorType(node.op.results[0].type).element_type) in six_bit.TYPES:
            return six_bit.packed(value, self._space.extent.tiles)
        return value

    def _value(self, node: Node, space: Space, masked: bool = False) -> ir.Value:
        key = (node, space.inner)
        if key not in self._built:
            self._built[key] = self._read(node, space) if isinstance(node, Read) else self._compute(node, space, masked)
        return self._built[key]

    def _read(self, node: Read, space: Space) -> ir.Value:
        inside = is_inside(node)

        def body(_: ir.Value) -> ir.Value:
            places = space.places([linalg.IndexOp(i).result for i in range(space.rank + inside)])
            position = [build.apply(_position(index, space.extent), places) for index in node.subscripts]
            return tensor.ExtractOp(node.value, position).result

        return self._generic(space, inside, ir.RankedTensorType(node.value.type).element_type, [], body)

    def _compute(self, node: Compute, space: Space, masked: bool) -> ir.Value:
        """`masked`: from zeros in the padding of K, whatever activations are made of."""
        start = None if node.start is None else constant(node.start.operands[0])
        space = space if start is None else space.whole_blocks
        inputs = [(self._value(operand, space), is_inside(operand)) for operand in node.operands]

        def body(*arguments: ir.Value) -> ir.Value:
            *given, out = arguments
            loops = [linalg.IndexOp(i).result for i in range(space.rank)] if masked else []
            if masked and (padding := space.is_padding(loops)) is not None:
                pairs = zip(given, inputs, strict=True)
                given = [_zero_if(padding, value) if inside else value for value, (_, inside) in pairs]
            return inline(node.op, [*given, out], six_bit.rewrite)

        element = six_bit.code_type(ir.RankedTensorType(node.op.results[0].type).element_type)
        return self._generic(space, node.inside, element, inputs, body, start)

    def _generic(
        self,
        space: Space,
        inside: bool,
        element: ir.Type,
        inputs: list[tuple[ir.Value, bool]],
        body: Callable[..., ir.Value],
        start: ir.Value | None = None,
    ) -> ir.Value:
        """A generic over a space; with `start` a reduction over the elements of each block."""
        reduces = start is not None
        loops, tiles = space.rank + (inside or reduces), space.extent.tiles
        result = space.tensor(element, inside)
        init = build.filled(start, result, tiles) if start is not None else build.empty(result, tiles)
        maps = [*(space.access(within, loops) for _, within in inputs), space.access(inside, loops)]
        iterators = ["parallel"] * space.rank + ["reduction" if reduces else "parallel"] * (loops - space.rank)
        op = build.generic(result, [value for value, _ in inputs], init, maps, iterators, body)
        if reduces or self._leading is None or not _reduces(self._leading):
            self._leading = op
        return op.results[0]

    def configure(self) -> None:
        """Says how IREE is to compile the dispatch: a lane takes what is inside one block."""
        assert self._leading is not None
        reduces, rank = _reduces(self._leading), self._space.rank
        workgroup, threads = [], 1
        for size in reversed(self._space.sizes[2:]):
            workgroup.append(math.gcd(size or 1, _THREADS // threads))
            threads *= workgroup[-1]
        rest = len((indexing_maps(self._leading) or [])[-1].results) - rank if not reduces else 1
        tiles = [1, 1, *reversed(workgroup)]
        inner = [0 if reduces else self._space.inner] * rest
        reduction = [0] * rank + [BLOCK_SIZE] if reduces else []
        self._leading.attributes[_CONFIG] = attributes.tiled(
            [*tiles, *inner], [*[1] * rank, *inner], reduction, threads
        )


def _reduces(op: ir.Operation) -> bool:
    return "reduction" in str(op.attributes["iterator_types"])


def _zero_if(condition: ir.Value, value: ir.Value) -> ir.Value:
    zero = arith.ConstantOp(value.type, 0.0 if isinstance(value.type, ir.FloatType) else 0).result
    return arith.SelectOp(condition, zero, value).result


def _position(index: Index, extent: Extent) -> ir.AffineExpr:
    """A subscript, over row, block and position in the block."""
    row, block, within = (ir.AffineExpr.get_dim(i) for i in range(3))
    if not index.axis or index.extent == 1:
        return ir.AffineExpr.get_constant(0)
    if index.axis == "row":
        return _part(row, index.stride, index.extent, extent.height)
    if index.stride % BLOCK_SIZE == 0:
        return _part(block, index.stride // BLOCK_SIZE, index.extent, extent.blocks)
    if index.extent is not None and index.stride * index.extent <= BLOCK_SIZE:
        return _part(within, index.stride, index.extent, BLOCK_SIZE)
    return _part(block * BLOCK_SIZE + within, index.stride, index.extent, extent.blocks * BLOCK_SIZE)


def _part(expression: ir.AffineExpr, stride: int, extent: int | None, size: int | None) -> ir.AffineExpr:
    """(expression // stride) % extent, for an expression below `size`."""
    part = ir.AffineExpr.get_floor_div(expression, stride)
    covers = extent is None or (size is not None and stride * extent >= size) or (size is None and stride > 1)
    return part if covers else ir.AffineExpr.get_mod(part, extent)
