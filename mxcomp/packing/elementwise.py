"""Builds one dispatch of results that are each computed from elements of tensors: `mxcomp.ukernels.elementwise`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, cf, memref

from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes
from mxcomp.mlir import build, composing, graph
from mxcomp.mlir.assumptions import Range, assume
from mxcomp.packing import standing
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import MOST_BYTES, Index, Values
from mxcomp.ukernels.elementwise import Elementwise, Piece
from mxcomp.ukernels.rows import Rows

_PIECE_BYTES = 16


def fits(values: Sequence[ir.Value]) -> bool:
    """Returns whether tensors can be computed at once: of one type, and of sizes that are alike in a dimension.

    A dynamic size is that of all of them, in this dimension.
    """
    shapes, kinds = [_shape(value) for value in values], {build.element(value) for value in values}
    if len({len(shape) for shape in shapes}) > 1 or len(kinds) > 1 or not isinstance(kinds.pop(), ir.FloatType):
        return False
    width = _width(values)
    is_even = width > 1 and _dynamic(values) is not None and bool(Elementwise.dimensions(shapes, width))
    return is_even and all(is_taken(leaf) or _is_dynamic(leaf) for leaf in composing.leaves(values))


def fused(
    values: Sequence[ir.Value],
    rows: Rows | None = None,
    caches: Sequence[ir.Value] = (),
    table: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """Returns the same values, computed by one dispatch at the insertion point.

    The first ones may be new `rows` of `caches`, which are returned in their place; they go where `table` says.
    """
    leaves = [each for each in composing.leaves(values) if build.is_tensor(each)]
    numbers, width = {leaf: i for i, leaf in enumerate(leaves)}, _width(values)
    shapes = [_shape(each) for each in values]
    taken, size = [*(_flat(leaf) for leaf in leaves), *table], _dynamic(values)
    sizes = [] if size is None or not size.roots else [limited(size.build(), values)]
    kinds = [build.tensor_type(shape, build.element(values[0])) for shape in shapes]
    kernel = Elementwise(
        tuple(ir.RankedTensorType(each.type) for each in taken), tuple(kinds), Elementwise.dimensions(shapes, width),
        width, tuple(_piece(value, numbers, width) for value in values), rows,
    )  # fmt: skip
    written = len(caches)
    made = standing.dispatch(kernel, taken, caches, sizes)
    pairs = zip(made[written:], values[written:], strict=True)
    return [*made[:written], *(build.with_ones(each, build.static_sizes(value), sizes) for each, value in pairs)]


def _shape(value: ir.Value) -> list[int | None]:
    """Returns sizes without those of 1."""
    return [size for size in build.static_sizes(value) if size != 1]


def _is_dynamic(value: ir.Value) -> bool:
    """Returns whether it is a tensor of floats, not narrow ones, of one dynamic size."""
    kind = build.element(value)
    return build.static_sizes(value).count(None) == 1 and isinstance(kind, ir.FloatType) and not build.is_narrow(kind)


def _dynamic(values: Sequence[ir.Value]) -> Size | None:
    """Returns the dynamic size of a dimension of all tensors, 1 if there is none; None where there are others."""
    places = {tuple(i for i, size in enumerate(_shape(each)) if size is None) for each in values}
    sizes = {Sizes().of(each, build.static_sizes(each).index(None)) for each in values if _is_dynamic(each)}
    is_one = len(places) == 1 and len(max(places)) < 2 and len(sizes) < 2
    return next(iter(sizes or {Size()})) if is_one else None


def _flat(leaf: ir.Value) -> ir.Value:
    """Returns an operand in one dimension, of a size that is known to fit into a buffer."""
    if not _is_dynamic(leaf):
        return build.flat(leaf)
    (size,), each = build.dynamic_sizes(leaf), _of_each(leaf)
    count = build.times(limited(size, [leaf]), each)
    return build.tie_shape(build.flat(leaf), [assume(count, Range(0, _most([leaf]) * each))])


def _of_each(value: ir.Value) -> int:
    """Returns how many elements a tensor has for one of its dynamic size."""
    return math.prod(size or 1 for size in build.static_sizes(value))


def _most(tensors: Sequence[ir.Value]) -> int:
    """Returns the largest dynamic size of tensors for which buffers have room."""
    return min(MOST_BYTES * 8 // (_of_each(each) * build.element(each).width) for each in tensors)


def limited(size: ir.Value, tensors: Sequence[ir.Value]) -> ir.Value:
    """Returns a dynamic size of tensors, asserted to be one for which buffers have room."""
    most = _most(tensors)
    fits = arith.CmpIOp(arith.CmpIPredicate.ule, size, build.constant_index(most)).result
    cf.AssertOp(fits, f"mxcomp: sizes of what is rotated, or written to caches, must be at most {most}")
    return assume(size, Range(0, most))


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


def load(leaf: ir.Value, buffer: ir.Value, place: composing.Place, count: int) -> ir.Value:
    """Returns neighbours of an operand of a kernel from a place on, as a vector."""
    sizes, kind = build.static_sizes(leaf), build.element(leaf)
    at = Index.of(0)
    for each, size in zip(place, sizes, strict=True):
        if size is None and at.terms:
            elements = Index.of(memref.DimOp(buffer, build.constant_index(0)).result)
            at = at.times(elements // math.prod(known or 1 for known in sizes))
        at = at * (size or 1) + Index.of(each) if size != 1 else at
    return builder.load(buffer, [at], count, alignment=count * kind.width // 8)


def is_taken(leaf: ir.Value) -> bool:
    """Returns whether a kernel can take a tensor that is not followed, or copy a constant."""
    if not isinstance(leaf.type, ir.RankedTensorType):
        return graph.producer(leaf, "arith.constant") is not None
    kind, count = build.element(leaf), math.prod(size or 0 for size in build.static_sizes(leaf))
    return count > 0 and isinstance(kind, ir.FloatType | ir.IntegerType) and kind.width >= 16
