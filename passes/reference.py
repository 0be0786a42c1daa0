"""The mathematical meaning of the inner tiles, for targets that have no scaled MFMA.

Packed operands go back to row-major by plain transposes, a canonical scaled matmul multiplies them, and its result
goes into packed accumulator tiles. Everything around the inner tiles (packing, padding, unpacking) stays as compiled
for the GPU, so that running this on a CPU checks it.
"""

from __future__ import annotations

import math

from iree.compiler import ir
from iree.compiler.dialects import arith, linalg, tensor

from mxcomp import build
from mxcomp.formats import ElementFormat, element_format
from mxcomp.layout import ACC, BLOCK_SIZE, LHS, RHS, DataTiledLayout, TileSwizzle
from mxcomp.passes.canonical import CANONICAL_ITERATORS, canonical_maps, product


def inner_tiles(
    packed: list[ir.Value],
    acc: ir.Value,
    layout: DataTiledLayout,
    types: list[str],
    tiles: list[ir.Value],
) -> ir.Value:
    """The packed accumulator tiles of a matmul on packed operands; `tiles` is the dynamic count of M tiles."""
    inputs = [
        _row_major(packed[operand], layout, operand, types[operand], tiles if operand % 2 == LHS else [])
        for operand in range(ACC)
    ]
    m, n = build.static_sizes(inputs[LHS])[0], build.static_sizes(inputs[RHS])[0]
    rows = _padded_rows(tiles, layout.tile[0])
    result = build.tensor_type((m, n), types[ACC])
    init = build.zero_filled(result, rows)
    product = build.generic(result, inputs, init, canonical_maps(), CANONICAL_ITERATORS, _product_of).results[0]
    tiled = _tiled(_barrier(product, rows), layout.swizzle(ACC), ir.RankedTensorType(acc.type), tiles)
    return _barrier(tiled, tiles)


def _barrier(value: ir.Value, sizes: list[ir.Value]) -> ir.Value:
    """Keeps IREE from cancelling the transposes here against the packing and unpacking that are to be checked."""
    opaque = ir.Operation.create("util.optimization_barrier", results=[value.type], operands=[value]).result
    return build.tie_shape(opaque, sizes) if sizes else opaque


def _padded_rows(tiles: list[ir.Value], tile: int) -> list[ir.Value]:
    return [build.apply(ir.AffineExpr.get_dim(0) * tile, tiles) for _ in tiles]


def _row_major(value: ir.Value, layout: DataTiledLayout, operand: int, element: str, tiles: list[ir.Value]) -> ir.Value:
    """[rows, K/32, 32] elements or [rows, K/32] scales from packed tiles, padding included."""
    value = _barrier(value, tiles)
    outer = build.static_sizes(value)[:2]
    if operand in (LHS, RHS):
        swizzle = layout.swizzle(operand, element)
        *inner, unit = swizzle.packed_shape
        inner.append(unit * element_format(element).bits // 32)
        value = build.bitcast(value, build.tensor_type((*outer, *inner), "i32"), tiles)
    else:
        swizzle = layout.swizzle(operand)
        value = build.bitcast(value, build.tensor_type((*outer, *swizzle.packed_shape), "i8"), tiles)
    order, groups = _order(swizzle)
    value = _transpose(value, order, tiles)
    sizes = build.static_sizes(value)
    collapsed = [_product([sizes[i] for i in group]) for group in groups]
    value = tensor.CollapseShapeOp(
        build.tensor_type(collapsed, ir.RankedTensorType(value.type).element_type), value, groups
    ).result
    columns = (outer[1] or 0) * layout.tile[2] // BLOCK_SIZE
    rows = _padded_rows(tiles, swizzle.tile_shape[0])
    if operand not in (LHS, RHS):
        return build.bitcast(value, build.tensor_type((collapsed[0], columns), element), rows)
    if element_format(element).bits == 6:
        size = BLOCK_SIZE * 6 // 8
        value = build.bitcast(value, build.tensor_type((collapsed[0], columns, size), "i8"), rows)
        return _decoded(value, element_format(element), rows)
    return build.bitcast(value, build.tensor_type((collapsed[0], columns, BLOCK_SIZE), element), rows)


def _decoded(source: ir.Value, element: ElementFormat, rows: list[ir.Value]) -> ir.Value:
    """f32 values from bytes of 6-bit elements, a type that IREE's code generation for CPUs cannot load.

    An element is in two bytes: first byte 6·kb / 8, from bit 6·kb % 8. Its magnitude is a count of `step`, computed in
    integers because f32 denormals may be flushed.
    """
    i32, f32 = ir.IntegerType.get_signless(32), ir.F32Type.get()
    height, blocks, size = build.static_sizes(source)
    result = build.tensor_type((height, blocks, BLOCK_SIZE), f32)
    first_bit = ir.AffineExpr.get_dim(0) * element.bits
    mantissa, step = element.mantissa_bits, 2.0 ** (1 - element.bias - element.mantissa_bits)

    def constant(number: int) -> ir.Value:
        return arith.ConstantOp(i32, number).result

    def body(_: ir.Value) -> ir.Value:
        row, block, kb = (linalg.IndexOp(i).result for i in range(3))
        first = build.apply(ir.AffineExpr.get_floor_div(first_bit, 8), [kb])
        second = build.clamp(build.apply(ir.AffineExpr.get_dim(0) + 1, [first]), size or 0)
        low, high = (
            arith.ExtUIOp(i32, tensor.ExtractOp(source, [row, block, at]).result).result for at in (first, second)
        )
        shift = arith.IndexCastOp(i32, build.apply(ir.AffineExpr.get_mod(first_bit, 8), [kb])).result
        pair = arith.OrIOp(low, arith.ShLIOp(high, constant(8)).result).result
        code = arith.ShRUIOp(pair, shift).result
        exponent = arith.AndIOp(arith.ShRUIOp(code, constant(mantissa)).result, constant((32 >> mantissa) - 1)).result
        fraction = arith.AndIOp(code, constant((1 << mantissa) - 1)).result
        leading = arith.ShLIOp(arith.MinUIOp(exponent, constant(1)).result, constant(mantissa)).result
        steps = arith.SubIOp(arith.MaxUIOp(exponent, constant(1)).result, constant(1)).result
        magnitude = arith.ShLIOp(arith.OrIOp(fraction, leading).result, steps).result
        value = arith.MulFOp(arith.SIToFPOp(f32, magnitude).result, arith.ConstantOp(f32, step).result).result
        sign = arith.ShLIOp(arith.AndIOp(code, constant(32)).result, constant(26)).result
        bits = arith.OrIOp(arith.BitcastOp(i32, value).result, sign).result
        return arith.BitcastOp(f32, bits).result

    identity, iterators = ir.AffineMap.get_identity(3), ["parallel"] * 3
    return build.generic(result, [], build.empty(result, rows), [identity], iterators, body).results[0]


def _product_of(a: ir.Value, b: ir.Value, a_scale: ir.Value, b_scale: ir.Value, acc: ir.Value) -> ir.Value:
    """`scaled_product`, also of elements that are f32 already."""
    f32 = ir.F32Type.get()
    lhs, rhs = (
        arith.MulFOp(element, arith.ExtFOp(f32, scale).result).result
        if element.type == f32
        else arith.ScalingExtFOp(f32, element, scale).result
        for element, scale in ((a, a_scale), (b, b_scale))
    )
    return product(lhs, rhs, acc)


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
