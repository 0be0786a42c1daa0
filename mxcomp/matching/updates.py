"""Finds updates of rows of a tensor, such as a cache of keys, at positions that the program computes.

    %u = iree_linalg_ext.scatter dimension_map = [0, 1, 2, 3] ins(%rows, %places : …) outs(%cache : …)

(PyTorch's index_copy, index_put and scatter), whose subscripts are all loops but for one; or

    %u = linalg.generic … ins(%seen, %gathered, %cache) { arith.select … }

(its where), whose condition leaves so many places from one on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.matching.conditions import Choice, Sum, Value
from mxcomp.matching.elements import RESHAPES, ZERO, Element, Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.matching.expressions import moved
from mxcomp.matching.positions import Follower
from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes, in_columns
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, reassociation, yielded

SCATTER = "iree_linalg_ext.scatter"


@dataclass(frozen=True)
class Places:
    """The positions of rows: an integer of `table`, plus the row's number times `step`, plus `number`.

    Attributes:
        table: Has an integer for each of the first `sequences` parts of a cache, or one; with `by_row`, for each row.
    """

    table: ir.Value
    sequences: int
    by_row: bool
    step: int
    number: int


@dataclass(frozen=True)
class Update:
    """An operation whose result is a cache with new rows.

    Attributes:
        op: The operation.
        cache: What it writes over.
        order: Which dimension of the cache each of the result is.
        axis: That of the cache which places are counted in.
        rows: New ones.
        rows_order: Their dimensions, without those of size 1, as the cache has them.
        count: Rows for each part of the cache.
        places: Where they go.
    """

    op: ir.Operation
    cache: ir.Value
    order: tuple[int, ...]
    axis: int
    rows: ir.Value
    rows_order: tuple[int, ...]
    count: Size
    places: Places


def find(op: ir.Operation) -> Update | None:
    """Returns the update that an operation is; None for any other, and where sizes of a cache are dynamic."""
    if any(None in build.static_sizes(value) for value in op.results):
        return None
    try:
        if op.name == SCATTER:
            return _scattered(op)
        return _chosen(op) if op.name == "linalg.generic" and is_elementwise(op) else None
    except UntraceableError:
        return None


def _scattered(op: ir.Operation) -> Update | None:
    updates, indices, target = op.operands
    block = op.regions[0].blocks[0]
    is_unique = ir.BoolAttr(op.attributes["unique_indices"]).value
    if not is_unique or list(block.operations)[-1].operands[0] != block.arguments[0]:
        return None
    sizes, batch = build.static_sizes(target), build.static_sizes(indices)[:-1]
    written = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    whole = [i for i in range(len(sizes)) if i not in written]
    inner = build.static_sizes(updates)[len(batch) :]
    if build.static_sizes(indices)[-1] != len(written) or inner != [sizes[i] for i in whole]:
        return None
    ids = Index("n", 1, None if None in batch else math.prod(size or 0 for size in batch)).split(batch)
    loops = {i: _axis(f"s{i}", sizes[i]) for i in whole}
    plain = _columns(indices, ids), Element(updates, (*ids, *loops.values()))
    moved_back = _apart(*plain) if None in batch else (plain[0], _uncollapsed(plain[1], loops.values()))
    # Of places of sequences and their rows only one number may be known.
    return _placed(op, written, loops, *moved_back) or _placed(op, written, loops, *plain)


def _placed(
    op: ir.Operation, written: Sequence[int], whole: Mapping[int, Index], columns: Sequence[Element], source: Element
) -> Update | None:
    """Returns the update that a scatter is, by an element of each column of its subscripts, and one of its rows."""
    target = op.operands[-1]
    sizes = build.static_sizes(target)
    found = [(dim, _subscript(each, sizes[dim])) for each, dim in zip(columns, written, strict=True)]
    places = [(dim, each) for dim, each in found if not isinstance(each, Index)]
    loops = {**whole, **{dim: each for dim, each in found if isinstance(each, Index)}}
    if len(places) != 1 or len(free := _free(source, loops)) > 1:
        return None
    ((axis, place),), row = places, free[0] if free else ZERO
    cache, order = _unpermuted(target)
    by_dim = {order[dim]: loop for dim, loop in loops.items()} | {order[axis]: row}
    by_axis = [by_dim[dim] for dim in range(len(sizes))]
    where, rows_order = _places(place, by_axis, order[axis]), _order(source.indices, by_axis)
    if where is None or rows_order is None:
        return None
    count = Sizes().of(source.value, source.indices.index(row)) if row.extent is None else Size(Fraction(row.extent))
    return Update(op, cache, order, order[axis], source.value, rows_order, count, where)


def _free(row: Element, loops: Mapping[int, Index]) -> list[Index]:
    """Returns the subscripts of rows that are none of a cache."""
    return [each for each in row.indices if each.axis and each not in loops.values()]


def _axis(name: str, size: int | None) -> Index:
    return ZERO if size == 1 else Index(name, 1, size)


def _uncollapsed(place: Element, kept: Collection[Index]) -> Element:
    """Returns an element of a collapsed tensor as one of its source; `kept` subscripts are not split."""
    while (op := graph.producer(place.value, "tensor.collapse_shape")) is not None:
        before = RESHAPES[op.name](op, place.indices)
        if any(each.axis and each not in before for each in kept):
            break
        place = Element(op.operands[0], before)
    return place


def _argument(op: ir.Operation, value: ir.Value) -> int | None:
    """Returns the index of the argument of a body that a value is, among those read from tensors, or None."""
    arguments = list(op.regions[0].blocks[0].arguments)[: len(op.operands) - 1]
    number = arguments.index(value) if value in arguments else None
    return number if number is not None and isinstance(op.operands[number].type, ir.RankedTensorType) else None


def _operand(op: ir.Operation, number: int, loops: Sequence[Index]) -> Element:
    return Element(op.operands[number], apply_map((indexing_maps(op) or [])[number], loops))


_Place: TypeAlias = tuple[Element, tuple[Index, int] | None, int]
"""An integer that says where a row goes, an axis and how often its number is added, and a number that is."""


def _columns(indices: ir.Value, ids: Sequence[Index]) -> list[Element]:
    """Returns an element of each column of a scatter's subscripts."""
    columns = [indices] if build.static_sizes(indices)[-1] == 1 else in_columns(indices)
    if not columns or any(build.static_sizes(each)[-1] != 1 for each in columns):
        raise UntraceableError
    return [Element(each, (*ids, ZERO)) for each in columns]


def _apart(columns: list[Element], row: Element) -> tuple[list[Element], Element]:
    """Returns elements of columns and of rows before a dynamic dimension of all was put together with others.

    Those themselves where it was not.
    """
    op = graph.producer(row.value, "tensor.collapse_shape")
    together, *others = [[], []] if op is None else reassociation(op)
    if op is None or any(len(each) > 1 for each in others):
        return columns, row
    shape = build.static_sizes(op.operands[0])[: len(together)]
    ids = tuple(_axis(f"n{i}", size) for i, size in enumerate(shape))
    found = [graph.look_through(each.value, graph.RESHAPES) for each in columns]
    if shape.count(None) != 1 or any(build.static_sizes(each) != shape for each in found):
        return columns, row
    return [Element(each, ids) for each in found], Element(op.operands[0], (*ids, *row.indices[1:]))


def _subscript(column: Element, size: int | None) -> Index | _Place:
    """Returns a subscript of a scatter: its loop, a whole dimension of `size`, or its computation."""
    found = Follower().element(column.value, column.indices)
    if not isinstance(found, Sum):
        raise UntraceableError
    if (place := found.place) is not None and place.extent == size:
        return place
    element, by = found.element
    if not isinstance(element, Element) or by != 1 or len(found.places) > 1:
        return moved(column)[-1], None, 0
    return element, found.places[0] if found.places else None, found.number


def _places(place: _Place, loops: list[Index], axis: int) -> Places | None:
    """Returns the positions of rows by the loops of a cache, or None where the kernel's tables cannot express them."""
    (element, step, number), row = place, loops[axis]
    table = element.value
    if not isinstance(build.element(table), ir.IntegerType) or ir.IntegerType(build.element(table)).width < 32:
        return None
    if step is not None and step[0] != row:
        return None
    by = [each for each in element.indices if each.axis]
    if row not in by and {each.axis for each in by} == {row.axis}:
        by = [Index.join(by)]  # of integers for each sequence and row
    by_row = bool(by) and by[-1] == row and bool(row.axis)
    outer = by[:-1] if by_row else by
    leading = [each for each in loops[:axis] if each.axis][: len(outer)]
    if outer != leading or (row.axis and not by_row and step is None):
        return None
    sequences = math.prod(each.extent or 0 for each in outer)
    return Places(table, sequences, by_row, 0 if step is None else step[1], number)


def _order(subscripts: Sequence[Index], loops: Iterable[Index]) -> tuple[int, ...] | None:
    """Returns the dimensions of rows, without those of size 1, in the order of loops; None if they differ."""
    wanted = [each for each in loops if each.axis]
    if sorted(map(str, wanted)) != sorted(str(each) for each in subscripts if each.axis):
        return None
    return tuple(list(subscripts).index(each) for each in wanted)


def _unpermuted(value: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    """Returns the source of a transpose, and the source dimension of each of its own."""
    op = graph.producer(value)
    order = None if op is None else permutation(op)
    if op is None or order is None:
        return value, tuple(range(ir.RankedTensorType(value.type).rank))
    return op.operands[0], order


def permutation(op: ir.Operation) -> tuple[int, ...] | None:
    """Returns the source dimension of each dimension of a transpose, or None for any other operation."""
    if not is_elementwise(op) or len(op.operands) != 2 or _argument(op, yielded(op)) != 0:
        return None
    read, written = indexing_maps(op) or []
    if not read.is_permutation:
        return None
    dims = [*map(linalg_ops.loops, (read, written))]
    return tuple(dims[0].index(loop) for loop in dims[1])


def moves_nothing(op: ir.Operation) -> bool:
    """Returns whether an operation is a transpose after which elements lie as before, as it moves sizes of 1."""
    order = permutation(op)
    moved = [] if order is None else [dim for dim in order if build.static_sizes(op.operands[0])[dim] != 1]
    return order is not None and moved == sorted(moved)


def _chosen(op: ir.Operation) -> Update | None:
    select = graph.producer(yielded(op))
    if select is None or select.name != "arith.select" or len(list(op.regions[0].blocks[0].operations)) != 2:
        return None
    arguments = [_argument(op, value) for value in select.operands]
    sizes = build.static_sizes(op.results[0])
    loops = [_axis(f"d{i}", size) for i, size in enumerate(sizes)]
    condition, new, old = (
        None if each is None else _operand(op, each, loop_subscripts(op, loops)) for each in arguments
    )
    if condition is None or new is None or old is None or old.indices != tuple(loops):
        return None
    found = Follower().element(condition.value, condition.indices)
    span = _span(found) if isinstance(found, Choice) else None
    if span is None or span[0] not in loops:
        return None
    line, position, first, count = span
    axis = loops.index(line)
    row = _axis(line.axis, count.number)
    source = _taken(new, line, position, -first, count)
    by_axis = [*loops[:axis], row, *loops[axis + 1 :]]
    order = _order([each if each.extent != 1 else ZERO for each in source.indices], by_axis)
    where = _places((position, (row, 1) if row.axis else None, first), by_axis, axis)
    if order is None or where is None:
        return None
    return Update(op, old.value, tuple(range(len(sizes))), axis, source.value, order, count, where)


def _span(found: Choice) -> tuple[Index, Element, int, Size] | None:
    """Returns an axis, an integer, the offset from it where a condition begins to hold, and the length."""
    sums = [each for each in found.conditions if isinstance(each, Sum)]
    if not found.is_plain or found.or_for_none or len(sums) != 2 or len(found.conditions) != 2:
        return None
    low, high = sorted(sums, key=lambda each: [-factor for _, factor in each.places])
    if len(low.places) != 1 or low.places[0][1] != 1 or high.places != ((low.places[0][0], -1),):
        return None
    element, by = low.element
    count = _size(low.plus(high).plus(Sum(1)))
    line = low.places[0][0]
    if not isinstance(element, Element) or by != -1 or count is None:
        return None
    if any(index.axis == line.axis for index in element.indices):  # each place has an integer of its own, not each row
        return None
    return line, element, -low.number, count


def _size(found: Sum) -> Size | None:
    """Returns a sum that is a number above 0, or a dynamic size; None for others."""
    if found == Sum(found.number):
        return Size(Fraction(found.number)) if found.number > 0 else None
    return found.size if found.size is not None and found.size.factor.denominator == 1 else None


def _taken(place: Element, line: Index, position: Element, number: int, count: Size) -> Element:
    """Returns the tensor that new rows are taken from, and its subscript along rows of an axis of this size.

    Raises UntraceableError where the row of an element is not that of its place.
    """
    *_, place = moved(place)
    op = graph.producer(place.value)
    extract = graph.producer(yielded(op)) if op is not None and is_elementwise(op) else None
    if op is None or extract is None or extract.name != "tensor.extract":
        if count.number != 1 or line in place.indices:
            raise UntraceableError
        return place
    loops, known = loop_subscripts(op, place.indices), dict[ir.Value, Value | None]()
    row, (source, *places) = _Row(line, position, number, count), extract.operands
    found = []
    for dim, (at, size) in enumerate(zip(places, build.static_sizes(source), strict=True)):
        where = row.body(op, at, loops, known)
        index = where.place if isinstance(where, Sum) else None
        if size == 1:
            found.append(ZERO)
        elif where == row.of_place and Sizes().of(source, dim) == count:
            found.append(Index(line.axis, 1, count.number))
        elif index is not None and index.extent == size:
            found.append(index)
        else:
            raise UntraceableError
    return Element(source, tuple(found))


class _Row(Follower):
    """Follows integers; of what is the row of each of `count` places, limits that keep all of these change nothing."""

    def __init__(self, line: Index, position: Element, number: int, count: Size) -> None:
        super().__init__()
        self.of_place = Sum(number, ((line, 1),), ((position, -1),))
        self._last = Sum.of(count).plus(Sum(-1))

    def scalar(self, op: ir.Operation, operands: Sequence[Value | None], loops: Sequence[Index]) -> Value | None:
        if op.name in _LIMITS and operands[0] == self.of_place:
            bound = operands[1]
            if isinstance(bound, Sum) and _LIMITS[op.name](bound, self._last).holds:
                return self.of_place
        return super().scalar(op, operands, loops)


_LIMITS: Mapping[str, Callable[[Sum, Sum], Sum]] = {
    "arith.maxsi": lambda bound, last: bound.times(-1),
    "arith.minsi": lambda bound, last: bound.plus(last, -1),
}
"""Functions of a bound and the last number; an operation keeps all from 0 to that where the result is at least 0."""
