"""Finds LHS rows of a batch of blocks in one matrix: contiguous, or selected by ids.

    %q: tensor<96x8x32xf4E2M1FN>                                       (quantised once, whatever reads it)
    %b = iree_tensor_ext.bitcast %q : … -> tensor<3x32x8x32xf4E2M1FN>   (row m of block b is row 32 · b + m)

or a gather of rows (`mxcomp.matching.gathers`). Such an operand is quantised where it is packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching import gathers
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes

_RANK = 4
"""The rank of elements [blocks, rows, K/32, 32]."""
_SAME_ORDER = (*BITCASTS, "tensor.expand_shape")


@dataclass(frozen=True)
class Blocks:
    """Blocks of rows of a matrix of elements [height, K/32, 32] and their scales [height, K/32].

    `part` makes a row of the matrix of block and row, as indices at the insertion point.
    """

    elements: ir.Value
    scales: ir.Value
    count: int
    rows: int
    part: Callable[[ir.Value, ir.Value], ir.Value]


def find(elements: ir.Value, scales: ir.Value) -> Blocks | None:
    """Returns the matrix of elements [blocks, rows, K/32, 32] and scales [blocks, rows, K/32], or None."""
    sizes = static_sizes(elements)
    if len(sizes) != _RANK or None in sizes:
        return None
    count, rows = (size or 0 for size in sizes[:2])
    return _chosen(elements, scales, count, rows) or in_order(elements, scales)


def in_order(elements: ir.Value, scales: ir.Value) -> Blocks | None:
    """Returns `find`, if the rows of the matrix are those of all blocks in order."""
    sizes = static_sizes(elements)
    if len(sizes) != _RANK or None in sizes:
        return None
    count, rows = (size or 0 for size in sizes[:2])
    found = [
        _behind(value, [count * rows, *(size or 0 for size in static_sizes(value)[2:])]) for value in (elements, scales)
    ]
    if found[0] is None or found[1] is None:
        return None
    place = ir.AffineExpr.get_dim(0) * rows + ir.AffineExpr.get_dim(1)
    return Blocks(found[0], found[1], count, rows, lambda block, row: build.apply(place, [block, row]))


def _chosen(elements: ir.Value, scales: ir.Value, count: int, rows: int) -> Blocks | None:
    both = [gathers.find(value) for value in (elements, scales)]
    first, second = both
    if first is None or second is None or first.leading != 2 or not first.same_parts(second):
        return None
    found = []
    for gather, value in ((first, elements), (second, scales)):
        shape = [static_sizes(gather.source)[0] or 0, *(size or 0 for size in static_sizes(value)[2:])]
        found.append(_behind(gather.source, shape, build.element(value)))
    if found[0] is None or found[1] is None:
        return None

    def part(block: ir.Value, row: ir.Value) -> ir.Value:
        return first.part(tensor.ExtractOp(first.ids, [block, row]).result)

    return Blocks(found[0], found[1], count, rows, part)


def _behind(value: ir.Value, shape: list[int], element: ir.Type | None = None) -> ir.Value | None:
    """Returns the value with this shape and element type, among `value` and what it is bitcast, or expanded, from."""
    wanted = build.tensor_type(shape, element or build.element(value))
    while value.type != wanted:
        if (op := graph.producer(value, *_SAME_ORDER)) is None:
            return None
        value = op.operands[0]
    return value
