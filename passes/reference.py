"""The mathematical meaning of the inner tiles, for targets that have no scaled MFMA.

Packed operands go back to row-major by plain transposes, a canonical scaled matmul multiplies them, and its result
goes into packed accumulator tiles. Everything around the inner tiles (packing, padding, unpacking) stays as compiled
for the GPU, so that running this on a CPU checks it.
"""

from __future__ import annotations

import math

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp import build
from mxcomp.layout import ACC, BLOCK_SIZE, LHS, RHS, DataTiledLayout, TileSwizzle
from mxcomp.passes.canonical import CANONICAL_ITERATORS, canonical_maps, scaled_product


def inner_tiles(
    packed: list[ir.Value],
    acc: ir.Value,
    layout: DataTiledLayout,
    types: list[str],
    tiles: list[ir.Value],
) -> ir.Value:
    """The packed accumulator tiles of a matmul on packed operands; `tiles` is the dynamic count of M tiles."""
    inputs = [
        _row_major(packed[operand], layout.swizzle(operand), types[operand], tiles if operand % 2 == LHS else [])
        for operand in range(ACC)
    ]
    m, n = build.static_sizes(inputs[LHS])[0], build.static_sizes(inputs[RHS])[0]
    rows = _padded_rows(tiles, layout.tile[0])
    result = build.tensor_type((m, n), types[ACC])
    init = build.zero_filled(result, rows)
    product = build.generic(result, inputs, init, canonical_maps(), CANONICAL_ITERATORS, scaled_product).results[0]
    tiled = _tiled(_barrier(product, rows), layout.swizzle(ACC), ir.RankedTensorType(acc.type), tiles)
    return _barrier(tiled, tiles)


def _barrier(value: ir.Value, sizes: list[ir.Value]) -> ir.Value:
    """Keeps IREE from cancelling the transposes here against the packing and unpacking that are to be checked."""
    opaque = ir.Operation.create("util.optimization_barrier", results=[value.type], operands=[value]).result
    return build.tie_shape(opaque, sizes) if sizes else opaque


def _padded_rows(tiles: list[ir.Value], tile: int) -> list[ir.Value]:
    return [build.apply(ir.AffineExpr.get_dim(0) * tile, tiles) for _ in tiles]


def _row_major(value: ir.Value, swizzle: TileSwizzle, element: str, tiles: list[ir.Value]) -> ir.Value:
    """[rows, K/32, 32] elements or [rows, K/32] scales from packed tiles, padding included."""
    value = _barrier(value, tiles)
    words = len(swizzle.expand_shape) == 3
    shape = build.static_sizes(value)
    outer, inner = shape[:2], list(swizzle.packed_shape)
    if words:
        inner[-1] = BLOCK_SIZE // 8
    value = build.bitcast(value, build.tensor_type((*outer, *inner), "i32" if words else "i8"), tiles)
    order, groups = _order(swizzle)
    value = _transpose(value, order, tiles)
    sizes = build.static_sizes(value)
    collapsed = [_product([sizes[i] for i in group]) for group in groups]
    value = tensor.CollapseShapeOp(
        build.tensor_type(collapsed, ir.RankedTensorType(value.type).element_type), value, groups
    ).result
    final = (*collapsed[:2], BLOCK_SIZE) if words else collapsed
    return build.bitcast(value, build.tensor_type(final, element), _padded_rows(tiles, swizzle.tile_shape[0]))


def _product(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _order(swizzle: TileSwizzle) -> tuple[list[int], list[list[int]]]:
    """Packed positions in source order, and which of them form each source dimension."""
    order: list[int] = []
    groups: list[list[int]] = []
    start = 0
    for source_dim, dims in enumerate(swizzle.expand_shape):
        first = len(order)
        order += [source_dim] if source_dim < 2 else []
        order += [2 + swizzle.permutation.index(start + i) for i in range(len(dims))]
        start += len(dims)
        groups.append(list(range(first, len(order))))
    return order, groups


def _transpose(value: ir.Value, permutation: list[int], dynamic: list[ir.Value]) -> ir.Value:
    source = ir.RankedTensorType(value.type)
    shape = [build.static_sizes(value)[i] for i in permutation]
    init = build.empty(build.tensor_type(shape, source.element_type), dynamic)
    return build.transpose(value, init, permutation)


def _tiled(value: ir.Value, swizzle: TileSwizzle, result: ir.RankedTensorType, tiles: list[ir.Value]) -> ir.Value:
    """Packed accumulator tiles from a row-major [M, N] of whole tiles."""
    order, groups = _order(swizzle)
    packed_sizes = [None if size == build.DYNAMIC else size for size in result.shape]
    expanded = build.tensor_type([packed_sizes[i] for i in order], result.element_type)
    static = [build.DYNAMIC if packed_sizes[i] is None else packed_sizes[i] for i in order]
    value = tensor.ExpandShapeOp(expanded, value, groups, tiles, static).result
    return _transpose(value, [order.index(i) for i in range(len(order))], tiles)
