"""Reads codes of elements and scales from the bytes in which they are stored, in any order and width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.matching.storage import source_and_map, storage
from mxcomp.mlir import build
from mxcomp.mlir.build import static_sizes


@dataclass(frozen=True)
class Codes:
    """The codes of a gathered operand. `view` contains bytes: 8-bit ones in `shape`, others without dimensions.

    `sizes` are `shape` as values.
    """

    view: ir.Value
    bits: int
    shape: tuple[int | None, ...]
    sizes: tuple[ir.Value, ...]
    access_map: ir.AffineMap

    def at(self, position: Sequence[ir.Value]) -> ir.Value:
        """Returns the code of an element at (batch,) row and K, as i32; of a scale at (batch,) row and block."""
        i32 = ir.IntegerType.get_signless(32)
        subscripts = [build.apply(expr, position) for expr in self.access_map.results]
        if self.bits == 8:
            return arith.ExtUIOp(i32, tensor.ExtractOp(self.view, subscripts).result).result
        index = subscripts[0]
        for size, inner in zip(self.sizes[1:], subscripts[1:], strict=True):
            index = arith.AddIOp(arith.MulIOp(index, size).result, inner).result
        bit = ir.AffineExpr.get_dim(0) * self.bits
        first = build.apply(ir.AffineExpr.get_floor_div(bit, 8), [index])
        pair = arith.ExtUIOp(i32, tensor.ExtractOp(self.view, [first]).result).result
        if self.bits == 6:
            following = build.apply(ir.AffineExpr.get_dim(0) + 1, [first])
            second = build.clamp(following, static_sizes(self.view)[0] or build.dim(self.view, 0))
            high = arith.ExtUIOp(i32, tensor.ExtractOp(self.view, [second]).result).result
            pair = arith.OrIOp(pair, arith.ShLIOp(high, arith.ConstantOp(i32, 8).result).result).result
        shift = arith.IndexCastOp(i32, build.apply(ir.AffineExpr.get_mod(bit, 8), [index])).result
        mask = arith.ConstantOp(i32, (1 << self.bits) - 1).result
        return arith.AndIOp(arith.ShRUIOp(pair, shift).result, mask).result


def codes(operand_: ir.Value, access_map: ir.AffineMap | None = None) -> Codes:
    """Returns the codes of an operand in canonical form, elements or scales, gathered or not. Or of a tensor by
    `access_map`."""
    source, access_map = source_and_map(operand_) if access_map is None else (operand_, access_map)
    shape, store = static_sizes(source), storage(source)
    bits = ir.RankedTensorType(source.type).element_type.width
    sizes = tuple(build.dim(source, i) if size is None else build.constant_index(size) for i, size in enumerate(shape))
    dynamic = [value for value, size in zip(sizes, shape, strict=True) if size is None]
    if bits == 8:
        view = build.bitcast(store, build.tensor_type(shape, "i8"), build.dynamic_sizes(store), dynamic)
        return Codes(view, bits, tuple(shape), sizes, access_map)
    count = (
        []
        if not dynamic
        else [build.apply(ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0) * bits, 8), [build.product(sizes)])]
    )
    total = None if dynamic else math.prod(size or 1 for size in shape) * bits // 8
    view = build.bitcast(store, build.tensor_type([total], "i8"), build.dynamic_sizes(store), count)
    return Codes(view, bits, tuple(shape), sizes, access_map)
