"""Builds one dispatch of results that are each computed from elements of tensors: `mxcomp.ukernels.elementwise`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir

from mxcomp.mlir import build, composing, graph
from mxcomp.packing import standing
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.elementwise import Elementwise, Piece

_PIECE_BYTES = 16


def fits(values: Sequence[ir.Value]) -> bool:
    """Returns whether tensors can be computed at once: of one type, and of sizes that are alike in a dimension."""
    shapes, kinds = [_shape(value) for value in values], {build.element(value) for value in values}
    if (
        len({len(shape) for shape in shapes}) > 1
        or len(kinds) > 1
        or not isinstance(build.element(values[0]), ir.FloatType)
    ):
        return False
    width = _width(values)
    return width > 1 and bool(Elementwise.dimensions(shapes, width)) and all(map(is_taken, composing.leaves(values)))


def fused(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Returns the same values, computed by one dispatch at the insertion point."""
    leaves = [each for each in composing.leaves(values) if isinstance(each.type, ir.RankedTensorType)]
    numbers, width, shapes = (
        {leaf: i for i, leaf in enumerate(leaves)},
        _width(values),
        [_shape(each) for each in values],
    )
    taken = [flat(leaf) for leaf in leaves]
    kinds = [build.tensor_type(shape, build.element(values[0])) for shape in shapes]
    kernel = Elementwise(
        tuple(ir.RankedTensorType(each.type) for each in taken), tuple(kinds), Elementwise.dimensions(shapes, width),
        width, tuple(_piece(value, numbers, width) for value in values),
    )  # fmt: skip
    made = standing.dispatch(kernel, taken, kinds, kernel.threads, along=kernel.along)
    return [build.reshaped(each, build.static_sizes(value)) for each, value in zip(made, values, strict=True)]


def _shape(value: ir.Value) -> list[int]:
    """Returns sizes without those of 1, which IREE drops, and with them the name of the kernel."""
    return [size or 0 for size in build.static_sizes(value) if size != 1]


def _width(values: Sequence[ir.Value]) -> int:
    """Returns the number of elements of a piece: at most as many as a lane loads at once."""
    width = _PIECE_BYTES * 8 // build.element(values[0]).width
    while width > 1 and not all(composing.is_in_pieces(value, width) for value in values):
        width //= 2
    return width


def _piece(value: ir.Value, numbers: dict[ir.Value, int], width: int) -> Piece:
    """Returns the function that computes a piece of a tensor."""

    def piece(buffers: Values, place: Sequence[Index]) -> ir.Value:
        def loaded(leaf: ir.Value, at: composing.Place, count: int) -> ir.Value:
            return load(leaf, buffers[numbers[leaf]], at, count)

        kept = iter(place)
        whole = [Index.of(0) if size == 1 else next(kept) for size in build.static_sizes(value)]
        return composing.Pieces(width, loaded).at(value, [each.value for each in whole])

    return piece


def flat(leaf: ir.Value) -> ir.Value:
    """Returns a tensor in one dimension; integers as halves, so that there are two or more."""
    kind, sizes = build.element(leaf), build.static_sizes(leaf)
    count = math.prod(size or 0 for size in sizes)
    if isinstance(kind, ir.IntegerType):
        return build.bitcast(leaf, build.tensor_type([2 * count], ir.IntegerType.get_signless(kind.width // 2)))
    return build.collapse(leaf, [list(range(len(sizes)))]) if len(sizes) > 1 else leaf


def load(leaf: ir.Value, buffer: ir.Value, place: composing.Place, count: int) -> ir.Value:
    """Returns neighbours of an operand of a kernel from a place on, as a vector."""
    sizes, kind = [size or 1 for size in build.static_sizes(leaf)], build.element(leaf)
    at = Index.of(0)
    for each, size in zip(place, sizes, strict=True):
        at = at * size + Index.of(each) if size > 1 else at
    if isinstance(kind, ir.IntegerType):
        return builder.bitcast(builder.load(buffer, [at * 2], 2 * count), str(kind), count)
    return builder.load(buffer, [at], count, alignment=count * kind.width // 8)


def is_taken(leaf: ir.Value) -> bool:
    """Returns whether a kernel can take a tensor that is not followed, or copy a constant."""
    if not isinstance(leaf.type, ir.RankedTensorType):
        return graph.producer(leaf, "arith.constant") is not None
    kind, count = build.element(leaf), math.prod(size or 0 for size in build.static_sizes(leaf))
    if not count or not isinstance(kind, ir.FloatType | ir.IntegerType) or kind.width < 16:
        return False
    return isinstance(kind, ir.IntegerType) or count > 1
