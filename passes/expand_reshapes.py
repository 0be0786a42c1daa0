"""mxcomp-expand-reshapes: rewrites reshapes of dynamic sizes as expansions and collapses.

PyTorch's views of dynamic sizes come as `tensor.reshape` by a tensor of sizes, which says nothing of which dimensions
are others' parts: neither quantisers nor what is fused behind a matmul can be seen through one. Where it can be told
from static sizes, with a single dynamic one to be split or made, or from how dynamic ones are computed, it is said.

Before:

    %sizes = tensor.from_elements %c2, %tokens, %columns : tensor<3xi64>
    %y = tensor.reshape %x(%sizes) : (tensor<?x576xbf16>, tensor<3xi64>) -> tensor<2x?x576xbf16>

After:

    %n = arith.index_cast %tokens : i64 to index
    %y = tensor.expand_shape %x [[0, 1], [2]] output_shape [2, %n, 576] : tensor<?x576xbf16> into tensor<2x?x576xbf16>
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes
from mxcomp.mlir import build, graph


def run(module: ir.Operation) -> None:
    """Rewrites reshapes below `module` that are expansions or collapses."""
    for op in [op for op in graph.walk(module) if op.name == "tensor.reshape"]:
        if (value := _regrouped(op)) is not None:
            graph.replace(op, value)


def _regrouped(op: ir.Operation) -> ir.Value | None:
    """Returns the result by an expansion or a collapse; None where it is neither, or ambiguous."""
    source, shape = op.operands
    kinds = source.type, op.results[0].type
    if not all(isinstance(kind, ir.RankedTensorType) for kind in kinds):
        return None
    before, after = build.static_sizes(source), build.static_sizes(op.results[0])
    (few, fewer), (many, more) = sorted(((before, source), (after, op.results[0])), key=lambda each: len(each[0]))
    if len(few) == len(many):
        return None
    found = list(_groups(_sizes(fewer), _sizes(more)) if few.count(None) > 1 else _groups(few, many))
    if len({_without_ones(groups, many) for groups in found}) != 1:
        return None
    groups = found[0]  # the group of a size of 1 does not matter
    with op.location, ir.InsertionPoint(op):
        if len(after) == len(few):
            return tensor.CollapseShapeOp(op.results[0].type, source, groups).result
        sizes = [_size(shape, i) for i, size in enumerate(after) if size is None]
        static = ir.RankedTensorType(op.results[0].type).shape
        return tensor.ExpandShapeOp(op.results[0].type, source, groups, sizes, list(static)).result


def _sizes(value: ir.Value) -> list[Size]:
    sizes = Sizes()
    return [sizes.of(value, dim) for dim in range(len(build.static_sizes(value)))]


_Sizes: TypeAlias = Sequence[int | None] | Sequence[Size]


def _groups(few: _Sizes, many: _Sizes, first: int = 0) -> Iterator[list[list[int]]]:
    """Yields all ways to divide dimensions into groups, in order, one for each of the fewer dimensions.

    A known size is the product of known ones, an unknown one has an unknown one in its group.
    """
    if not few:
        if not many:
            yield []
        return
    for count in range(1, len(many) - len(few) + 2):
        group = many[:count]
        if _makes(few[0], group):
            for rest in _groups(few[1:], many[count:], first + count):
                yield [list(range(first, first + count)), *rest]


def _without_ones(groups: list[list[int]], sizes: Sequence[int | None]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(i for i in group if sizes[i] != 1) for group in groups)


def _makes(size: int | Size | None, group: _Sizes) -> bool:
    known = [each for each in group if each is not None]
    if size is None or len(known) < len(group):
        return size is None and len(known) < len(group)
    return math.prod(known, start=1 if isinstance(size, int) else Size()) == size


def _size(shape: ir.Value, at: int) -> ir.Value:
    """Returns element `at` of a tensor of sizes."""
    made = graph.producer(shape, "tensor.from_elements")
    value = made.operands[at] if made else tensor.ExtractOp(shape, [build.constant_index(at)]).result
    return build.as_index(value)
