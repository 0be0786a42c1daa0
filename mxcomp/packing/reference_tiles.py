"""Computes inner tiles by their mathematical definition, for targets without scaled MFMA.

Packed operands are transposed back to row-major, a canonical scaled matmul multiplies them, and its result is
transposed to packed accumulator tiles. Everything around the inner tiles (packing, padding, unpacking) stays as
compiled for the GPU, so that running this on a CPU checks it.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes.decode import stored_values
from mxcomp.formats import UNLOADABLE, element_format
from mxcomp.layout import ACC, LHS, RHS, DataTiledLayout
from mxcomp.layout.problem import Problem
from mxcomp.layout.swizzle import TileSwizzle
from mxcomp.matching.canonical import contracted
from mxcomp.mlir import build
from mxcomp.packing.runtime_sizes import TileCounts


def inner_tiles(
    packed: list[ir.Value], acc: ir.Value, problem: Problem, layout: DataTiledLayout, counts: TileCounts
) -> ir.Value:
    """Returns the packed accumulator tiles of a matmul on packed operands. `counts` are those of tiles where
    dynamic."""
    types = problem.types
    inputs = [_row_major(packed[i], layout, i, types[i], counts.of(i)) for i in range(ACC)]
    *batch, m, _, _ = build.static_sizes(inputs[LHS])
    n = build.static_sizes(inputs[RHS])[-3]
    sizes = _scaled(counts.of(ACC), [m, n], layout.workgroup_tile[:2])
    result = build.tensor_type((*batch, m, n), types[ACC])
    init = build.zero_filled(result, sizes)
    product = contracted(inputs, init, _product_of).results[0]
    tiled = _tiled(
        _barrier(product, sizes), layout.packing(ACC), ir.RankedTensorType(acc.type), len(batch), counts.of(ACC)
    )
    return _barrier(tiled, counts.of(ACC))


def _barrier(value: ir.Value, sizes: list[ir.Value]) -> ir.Value:
    """Keeps IREE from cancelling the transposes here against the packing and unpacking that are to be checked."""
    opaque = build.barrier(value)
    return build.tie_shape(opaque, sizes) if sizes else opaque


def _scaled(tiles: list[ir.Value], sizes: list[int | None], steps: Sequence[int]) -> list[ir.Value]:
    """Returns dynamic sizes from their numbers of tiles, padding included."""
    dynamic = [step for size, step in zip(sizes, steps, strict=True) if size is None]
    return [build.times(count, step) for count, step in zip(tiles, dynamic, strict=True)]


def _row_major(value: ir.Value, layout: DataTiledLayout, operand: int, element: str, tiles: list[ir.Value]) -> ir.Value:
    """Returns row-major elements or scales from packed tiles, padding included."""
    value = _barrier(value, tiles)
    shape, taken = build.static_sizes(value), tiles
    batch = len(shape) - len(layout.multiplied_shape(operand, layout.packed_shape(operand, (None, None))))
    outer = shape[: batch + 2]
    if layout.inner_tiles is not None:
        count, units, columns = shape[batch : batch + 3]
        outer = [*shape[:batch], count and count * (units or 1), columns]
        tiles = _scaled(tiles, [count, columns], [units or 1, 1])
    if operand in (LHS, RHS):
        swizzle = layout.packing(operand, element)
        *inner, unit = swizzle.packed_shape
        inner.append(unit * element_format(element).bits // 32)
        value = build.bitcast(value, build.tensor_type((*outer, *inner), "i32"), taken, tiles)
    else:
        swizzle = layout.packing(operand)
        value = build.bitcast(value, build.tensor_type((*outer, *swizzle.packed_shape), "i8"), taken, tiles)
    value = build.merged(value, _source_dims(swizzle, batch), tiles)
    *leading, rows = build.static_sizes(value)[: batch + 1]
    block = layout.shape.block
    columns = None if outer[-1] is None else outer[-1] * layout.tile[2] // block
    own = build.dynamic_sizes(value)
    sizes = _scaled(tiles, outer[batch:], (swizzle.tile_shape[0], layout.tile[2] // block))
    if operand not in (LHS, RHS):
        return build.bitcast(value, build.tensor_type((*leading, rows, columns), element), own, sizes)
    value = build.bitcast(value, build.tensor_type((*leading, rows, columns, block), element), own, sizes)
    return stored_values(value) if element in UNLOADABLE else value  # which IREE's code generation cannot load


def _product_of(a: ir.Value, b: ir.Value, a_scale: ir.Value, b_scale: ir.Value, acc: ir.Value) -> ir.Value:
    """Returns `scaled_product`, also of elements that are f32 already."""
    f32 = ir.F32Type.get()
    lhs, rhs = (
        arith.MulFOp(element, arith.ExtFOp(f32, scale).result).result
        if element.type == f32
        else arith.ScalingExtFOp(f32, element, scale).result
        for element, scale in ((a, a_scale), (b, b_scale))
    )
    return arith.AddFOp(acc, arith.MulFOp(lhs, rhs).result).result


def _source_dims(swizzle: TileSwizzle, batch: int) -> list[list[int]]:
    """Returns the packed dimensions that each source dimension is made of. The batch comes first."""
    inside = [[batch + 2 + i for i in dims] for dims in swizzle.factors]
    return [*([i] for i in range(batch)), *([batch + dim] * (dim < 2) + each for dim, each in enumerate(inside))]


def _tiled(
    value: ir.Value, swizzle: TileSwizzle, result: ir.RankedTensorType, batch: int, tiles: list[ir.Value]
) -> ir.Value:
    """Returns packed accumulator tiles from a row-major [(batch,) M, N] of whole tiles."""
    dims = _source_dims(swizzle, batch)
    order, numbers = [i for each in dims for i in each], iter(range(result.rank))
    groups = [[next(numbers) for _ in each] for each in dims]
    sizes = [None if result.is_dynamic_dim(i) else result.shape[i] for i in order]
    value = build.expand(value, sizes, groups, tiles)
    return build.transpose(value, [order.index(i) for i in range(len(order))], tiles)
