"""Splits a tile of accumulators into gate and up, in registers.

    %both: tensor<24x12x1x2x2x8x2x4x16x4xf32>      (matrices, tiles along rows and columns, gate or up, …)
    %bits = linalg.generic {… "reduction" …} ins(%both) outs(%zeros) { arith.select, arith.ori }
    %gate = linalg.generic … ins(%bits) { arith.bitcast } -> tensor<24x12x1x2x8x2x4x16x4xf32>

IREE would not fuse a slice into the dispatch of a matmul, but it fuses a reduction over a dimension that a lane has
whole. Bits of the other half are replaced by zero, which needs no arithmetic in the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout import GATE_AND_UP
from mxcomp.mlir import build, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import names, reduced

_GATE_DIM = 2
"""The dimension of gate and up, after those of the batch and of tile counts."""


def split(both: ir.Value, is_padding: Callable[[list[ir.Value]], ir.Value | None], batch: int = 1) -> list[ir.Value]:
    """Returns tiles of gate, and of up, with zeros where their dimensions, as loops, are padding."""
    return [_part(both, batch + _GATE_DIM, which, is_padding) for which in GATE_AND_UP]


def _part(both: ir.Value, dim: int, which: int, is_padding: Callable[[list[ir.Value]], ir.Value | None]) -> ir.Value:
    element, sizes = ir.FloatType(build.element(both)), build.static_sizes(both)
    integer, loops = ir.IntegerType.get_signless(element.width), names(len(sizes))
    shape = [*sizes[:dim], *sizes[dim + 1 :]]

    def own(value: ir.Value) -> ir.Value:
        number = build.constant_index(which)
        is_own = arith.CmpIOp(arith.CmpIPredicate.eq, linalg.IndexOp(dim).result, number).result
        none = arith.ConstantOp(integer, 0).result
        return arith.SelectOp(is_own, arith.BitcastOp(integer, value).result, none).result

    kept = loops.replace(loops[dim], "")
    bits = reduced(loops, kept, shape, integer, [(loops, both)], lambda new, found: s.either(found, new), own)

    def number(value: ir.Value) -> ir.Value:
        padding = is_padding([linalg.IndexOp(i).result for i in range(len(shape))])
        return arith.BitcastOp(element, value if padding is None else s.select(padding, 0, value)).result

    return build.elementwise(build.tensor_type(shape, element), [bits], number, [])
