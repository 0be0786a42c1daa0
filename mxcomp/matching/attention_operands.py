"""Finds what stores an operand of attention: the first tensor in front of it in which a kernel can read its rows.

Views, transposes and broadcasts in front of an operand only say which element is where. Of a slice of rows it is the
whole tensor: IREE would copy them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from iree.compiler import ir

from mxcomp.matching.elements import ZERO, Element, Index
from mxcomp.matching.expressions import moved
from mxcomp.matching.sizes import Sizes, in_columns
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import reassociation
from mxcomp.ukernels.attention_memory import LANE, Stored, Subscript
from mxcomp.ukernels.builder import MOST_BYTES

_STEP = 4 * LANE
"""The number of a row's elements that the lanes of a column load at a time."""


class NotCoveredError(Exception):
    """An attention has no kernel of ours, for the reason in the message."""


def find_stored(
    place: Element, axes: Mapping[str, int | None], whole: str, most: int = MOST_BYTES
) -> tuple[ir.Value, Stored]:
    """Returns the first tensor that stores an operand such that elements along the axis `whole` are contiguous.

    Raises NotCoveredError for one of more than `most` bytes.
    """
    of = [index.axis for index in place.indices if index.axis]
    for each in reversed(moved(place)):
        if (stored := as_stored(each, axes, whole, of, most)) is not None:
            return _in_source(each, axes, whole, of) or _in_longer_rows(each, axes, whole, most) or (each.value, stored)
    raise NotCoveredError(f"{'/'.join(of)} stored in another order")


def find_parts(place: Element, axes: Mapping[str, int | None], whole: str) -> list[tuple[ir.Value, Stored]] | None:
    """Returns what stores both parts of rows that are concatenated of two, if the concatenation is all that makes them.

    Parts that are computed, such as halves of a rotation, are written as rows.
    """
    *_, found = moved(place)
    if not _is_row(found, axes, whole) or len(parts := in_columns(found.value)) != 2:
        return None
    sizes = [build.static_sizes(each)[-1] or 0 for each in parts]
    if 0 in sizes or sizes[0] % _STEP or sizes[1] % LANE:
        return None
    try:
        stored = [
            find_stored(Element(part, (*found.indices[:-1], Index(whole, 1, size))), {**axes, whole: size}, whole)
            for part, size in zip(parts, sizes, strict=True)
        ]
    except NotCoveredError:
        return None
    computed = (source == part and _is_computed(part) for part, (source, _) in zip(parts, stored, strict=True))
    return None if any(computed) else stored


def _is_row(place: Element, axes: Mapping[str, int | None], whole: str) -> bool:
    """Returns whether a tensor has all elements along the axis `whole`, if there is one, in its last dimension."""
    return place.indices[-1:] == (Index(whole, 1, axes.get(whole)),)


def _is_computed(value: ir.Value) -> bool:
    op = graph.producer(value)
    return op is not None and op.name != "flow.dispatch.region"


def _in_longer_rows(
    place: Element, axes: Mapping[str, int | None], whole: str, most: int
) -> tuple[ir.Value, Stored] | None:
    """Returns what stores the rows that the rows of an operand are slices of."""
    op = graph.producer(place.value, "tensor.extract_slice")
    if op is None or not _is_row(place, axes, whole):
        return None
    offsets, sizes, strides = graph.slicing(op)
    *outer, row = build.static_sizes(op.operands[0])
    *others, offset = offsets
    is_of_rows = sizes[:-1] == outer and not any(others) and set(strides) == {1}
    if row is None or not is_of_rows or offset < 0 or offset % LANE or row % LANE:
        return None
    try:
        longer = Element(op.operands[0], (*place.indices[:-1], Index(whole, 1, row)))
        source, stored = find_stored(longer, {**axes, whole: row}, whole, most)
    except NotCoveredError:
        return None
    own = replace(stored.subscripts[-1], extent=axes[whole])
    return source, replace(stored, offset=stored.offset + offset, subscripts=(*stored.subscripts[:-1], own))


def _in_source(
    place: Element, axes: Mapping[str, int | None], whole: str, of: Sequence[str]
) -> tuple[ir.Value, Stored] | None:
    """Returns the tensor that an operand is a slice of, if its rows are parts of rows there: IREE would copy them.

    Where the program counts rows these are all, from the first one on.
    """
    value, indices = place.value, place.indices
    expansion = graph.producer(value, "tensor.expand_shape")
    groups = [[i] for i in range(len(indices))] if expansion is None else reassociation(expansion)
    op = graph.producer(value if expansion is None else expansion.operands[0], "tensor.extract_slice")
    if op is None or len(build.static_sizes(op.operands[0])) != len(groups):
        return None
    offsets, sizes, strides = graph.slicing(op)
    there, counted = build.static_sizes(op.operands[0]), list(op.operands)[1:]
    known = [size or 1 for size in there]
    outermost = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
    if sizes[outermost + 1 :] == known[outermost + 1 :] or set(strides) != {1}:
        return None
    if [each == build.DYNAMIC for each in (*offsets, *sizes)] != [False] * len(there) + [
        each is None for each in there
    ]:
        return None
    dynamic = [i for i, size in enumerate(there) if size is None]
    found = [(Sizes().of_index(size), Sizes().of(op.operands[0], i)) for size, i in zip(counted, dynamic, strict=True)]
    if any(offsets[: max(dynamic, default=-1) + 1]) or any(one != other for one, other in found):
        return None
    shape = build.static_sizes(value)
    for (first, *inner), size in zip(groups, known, strict=True):
        count, rest = divmod(size, math.prod(shape[i] or 1 for i in inner))
        if rest or count < (shape[first] or 1):
            return None
        shape[first] = shape[first] and count
    if shape.count(None) > len(counted):
        return None
    offset = sum(at * math.prod(known[i + 1 :]) for i, at in enumerate(offsets))
    if offset % LANE or math.prod(size or 1 for size in shape) * build.element(value).width // 8 > MOST_BYTES:
        return None
    with ir.InsertionPoint(op), op.location:
        source = op.operands[0] if expansion is None else build.expand(op.operands[0], shape, groups, counted)
    stored = as_stored(Element(source, indices), axes, whole, of)
    return None if stored is None else (source, replace(stored, offset=offset))


def as_stored(
    place: Element, axes: Mapping[str, int | None], whole: str, of: Sequence[str], most: int = MOST_BYTES
) -> Stored | None:
    """Returns a tensor as an operand, if it has keys in one dimension, and elements along `whole` in the last one.

    A single key, as all that is of size 1, has none; a single element is all of one.
    """
    found = _without_ones(place)
    parts = list(zip(found.sizes, found.subscripts, strict=True))
    steps = {axis: [(each.stride, size) for size, each in parts if each.axis == axis] for axis in "ntldv"}
    is_last = not whole or [each.axis for each in found.subscripts[-1:]] == [whole]
    is_whole = is_last and (not whole or steps[whole] == [(1, axes[whole])])
    has_keys = steps["l"] == ([(1, axes["l"])] if "l" in of and axes["l"] != 1 else []) or not (whole or steps["l"])
    of_program = [each.axis for size, each in parts if size is None and each.axis != "l"]
    is_known = all((size is None) == (each.extent is None) for size, each in parts if each.axis in ("n", "t", "d", "v"))
    if not is_whole or not has_keys or not is_known or len(of_program) > len(set(of_program)):
        return None
    if found.bytes > most:
        raise NotCoveredError(f"an operand of more than {most} bytes")
    return found


def integers(position: Element) -> Stored | None:
    """Returns how integers lie in memory; None for those that are not all read."""
    found = _without_ones(position)
    pairs = zip(found.sizes, found.subscripts, strict=True)
    return None if any(size is None or each.extent != size for size, each in pairs) else found


def _without_ones(place: Element) -> Stored:
    """Returns a tensor, truth values of which are read as numbers, without its dimensions of size 1, or with one."""
    pairs = zip(build.static_sizes(place.value), place.indices, strict=True)
    kept = [(size, index) for size, index in pairs if size != 1] or [(1, ZERO)]
    element = str(build.element(place.value))
    subscripts = tuple(Subscript(index.axis, index.stride, index.extent) for _, index in kept)
    return Stored("f32" if element == "i1" else element, tuple(size for size, _ in kept), subscripts)
