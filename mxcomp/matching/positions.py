"""Analyses masks that a model computes from the positions of queries and keys, without computing them.

    %mask = linalg.generic … outs(%empty : tensor<8x64x64xbf16>) {
      %t = linalg.index 1 : index
      %l = linalg.index 2 : index
      %seen = arith.cmpi sge, %t, %l : index
      %0 = arith.select %seen, %zero, %minus_infinity : bf16
      …

An element is followed back through views, transposes, elementwise operations, gathers at places that are known, and
reductions over keys, as an expression of its subscripts (`mxcomp.matching.conditions`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.matching.conditions import Choice, Some, Sum, Value, choice, constant, of_scalars, turned
from mxcomp.matching.elements import Element, Index, UntraceableError, loop_subscripts
from mxcomp.matching.following import KEY, Following, reduction
from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes, concatenated
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, loop_sizes, reassociation, yielded


@dataclass(frozen=True)
class Bound:
    """An index among the keys: `number`, plus that of the query, plus an element of a tensor of integers."""

    number: int
    of_query: bool
    position: Element | None


@dataclass(frozen=True)
class Seen:
    """A mask by which a query sees the keys below all `ends`, from all `starts` on, for which an element is true.

    Attributes:
        among: An element of a tensor of truth values, of a key and perhaps its batch and head; None: all.
        hides_finitely: A query that sees no key has all of them count alike, unless that is `guarded`.
        question: What all these are.
    """

    ends: tuple[Bound, ...]
    starts: tuple[Bound, ...]
    among: Element | None
    hides_finitely: bool
    question: frozenset[Sum | Element | Some]


HIDES = -1e30
"""A number that, added to a score, makes its exponential 0; lower ones do, too."""
_FARTHEST = 2**29
"""The largest distance of a number from the first key."""
_QUERY, _KEY = "t", KEY


def seen(mask: ir.Value, axes: Sequence[Index], hides: float = HIDES) -> Seen | None:
    """Returns the mask [n, t, l] in this form; None for any other. `hides` is the highest number that hides a key."""
    found = Follower().element(mask, axes)
    is_boolean = isinstance(build.element(mask), ir.IntegerType)
    if found == (1.0 if is_boolean else 0.0):
        return Seen((), (), None, False, frozenset())
    if found is None or not isinstance(found := turned(found), Choice):
        return None
    if not found.is_plain if is_boolean else found.yes != 0.0 or not found.no <= hides:
        return None
    ends, starts, among = list[Bound](), list[Bound](), list[Element]()
    for each in found.conditions:
        if isinstance(each, Sum) and (found_bound := _bound(each)) is not None:
            is_start, bound = found_bound
            (starts if is_start else ends).append(bound)
        elif isinstance(each, Element) and not any(index.axis == _QUERY for index in each.indices):
            among.append(each)
        else:
            return None
    if len(among) > 1:
        return None
    hides_finitely = found.or_for_none or (not is_boolean and math.isfinite(found.no))
    first, then = (tuple(sorted(each, key=lambda bound: (bound.number, bound.of_query))) for each in (ends, starts))
    return Seen(first, then, among[0] if among else None, hides_finitely, found.conditions)


def _bound(condition: Sum) -> tuple[bool, Bound] | None:
    """Returns the start of the keys for which a condition holds, or their end (False)."""
    of_key = [by for place, by in condition.places if place.axis == _KEY and place.stride == 1]
    of_query = [by for place, by in condition.places if place.axis == _QUERY and place.stride == 1]
    if of_key not in ([1], [-1]) or len(of_query) + 1 != len(condition.places) or len(condition.elements) > 1:
        return None
    sign = -of_key[0]
    elements = [(element, by) for element, by in condition.elements if isinstance(element, Element)]
    known = [(element, by) for element, by in elements if not _is_of(element, (_QUERY, _KEY))]
    signs = [by * sign for by in of_query], [by * sign for _, by in known]
    if len(known) != len(condition.elements) or signs[0] not in ([], [1]) or signs[1] not in ([], [1]):
        return None
    number = condition.number * sign + (sign > 0)
    if abs(number) >= _FARTHEST:
        return None
    return sign < 0, Bound(number, bool(of_query), known[0][0] if known else None)


def _is_of(element: Element, axes: Sequence[str]) -> bool:
    return any(index.axis in axes for index in element.indices)


@dataclass(frozen=True)
class Guard:
    """An operation that returns an attention's result, but 0 for queries that see no key, if it `zeroes` those."""

    op: ir.Operation
    operand: int
    zeroes: bool


def guard(value: ir.Value, indices: Sequence[Index], seen: Seen, keys: Size) -> Guard | None:
    """Returns the only use of an attention's result, perhaps behind views, if that is a guard by its mask.

    There are so many `keys`, at least one.
    """
    places = list(indices)
    while len(uses := list(value.uses)) == 1:
        op, number = uses[0].owner.operation, uses[0].operand_number
        try:
            match op.name:
                case "tensor.expand_shape":
                    sizes = build.static_sizes(op.results[0])
                    groups = zip(places, reassociation(op), strict=True)
                    places = [part for place, group in groups for part in place.split([sizes[i] for i in group])]
                case "tensor.collapse_shape":
                    places = [Index.join([places[i] for i in group]) for group in reassociation(op)]
                case _:
                    zeroes = _zeroes(op, number, places, seen, keys)
                    return None if zeroes is None else Guard(op, number, zeroes)
        except UntraceableError:
            return None
        value = op.results[0]
    return None


def _zeroes(op: ir.Operation, number: int, places: Sequence[Index], seen: Seen, keys: Size) -> bool | None:
    """Returns whether an operation zeroes an operand where no key is seen. False: it is unchanged; None: anything
    else."""
    if (select := _selection(op)) is None or ir.BlockArgument(select.operands[1]).arg_number != number:
        return None
    loops, follower = loop_subscripts(op, places), Follower(keys)
    condition, other = (follower.body(op, select.operands[i], loops, {select.operands[1]: None}) for i in (0, 2))
    if condition == 1.0:
        return False
    return True if other == 0.0 and condition == Choice(frozenset({Some(seen.question)}), 1.0, 0.0) else None


def chosen(op: ir.Operation) -> ir.Value | None:
    """Returns the operand that an operation always selects, at the same places; None where it is not known to."""
    if (select := _selection(op)) is None:
        return None
    kept, loops = select.operands[1], loop_subscripts(op, _places(op.results[0]))
    condition = Follower().body(op, select.operands[0], loops, {kept: None})
    return op.operands[ir.BlockArgument(kept).arg_number] if condition == 1.0 else None


def _selection(op: ir.Operation) -> ir.Operation | None:
    """Returns the selection that an elementwise operation yields, of an operand at the same places or anything else."""
    select = graph.producer(yielded(op), "arith.select") if is_elementwise(op) else None
    if select is None or select.operands[1] not in list(op.regions[0].blocks[0].arguments)[:-1]:
        return None
    number, maps = ir.BlockArgument(select.operands[1]).arg_number, indexing_maps(op) or []
    return select if maps[number] == maps[-1] and op.operands[number].type == op.results[0].type else None


def _places(value: ir.Value) -> list[Index]:
    """Returns a subscript of an axis of its own for each dimension."""
    return [Index(f"axis {i}", 1, size) for i, size in enumerate(build.static_sizes(value))]


def largest(op: ir.Operation) -> float | None:
    """Returns the largest element of each row that a reduction finds, where all elements are equal; else None."""
    if op.name != "linalg.generic" or is_elementwise(op) or not isinstance(build.element(op.results[0]), ir.FloatType):
        return None
    found = Follower().element(op.results[0], _places(op.results[0]))
    return found if isinstance(found, float) else None


class Follower(Following[Value]):
    """Traces elements; dimensions of one dynamic size may be known not to be 0."""

    def __init__(self, above_0: Size | None = None) -> None:
        super().__init__()
        self._above_0 = above_0
        self._sizes = Sizes()

    def of_element(self, place: Element, found: Value | None) -> Value | None:
        kind = str(build.element(place.value))
        if found is not None or kind not in ("i1", "i32", "i64"):
            return found
        return choice(frozenset({place}), 1.0, 0.0) if kind == "i1" else Sum(0, (), ((place, 1),))

    def outside(self, value: ir.Value) -> Value | None:
        return self._sizes.scalar(value)

    def scalar(self, op: ir.Operation, operands: Sequence[Value | None], loops: Sequence[Index]) -> Value | None:
        if op.name == "linalg.index":
            return _sum(loops[ir.IntegerAttr(op.attributes["dim"]).value])
        if op.name == "tensor.extract":
            places = [each.place if isinstance(each, Sum) else None for each in operands[1:]]
            sizes = build.static_sizes(op.operands[0])
            if all(each is not None and each.extent in (1, size) for each, size in zip(places, sizes, strict=True)):
                return self.element(op.operands[0], [each for each in places if each])
            return self._at(op.operands[0], [each if isinstance(each, Sum) else None for each in operands[1:]])
        return of_scalars(op, operands)

    def _at(self, value: ir.Value, places: Sequence[Sum | None]) -> Sum | None:
        """Returns the integer at places of a tensor, which may be unknown where it does not depend on them."""
        subscripts = _places(value)
        found = self.element(value, subscripts)
        return found.moved(dict(zip(subscripts, places, strict=True))) if isinstance(found, Sum) else None

    def other(self, op: ir.Operation, place: Element) -> Value | None:
        """Returns a constant, an integer of a part or of a row with a first column, or the value of a reduction."""
        match op.name:
            case "arith.constant":
                return constant(place.value)
            case "tensor.extract_slice":
                offsets = Sizes().offsets(op) or ()
                places = [_sum(each).plus(Sum(by)) for each, by in zip(place.indices, offsets, strict=False)]
                return self._at(op.operands[0], places) if len(offsets) == len(place.indices) else None
            case "tensor.concat":
                return self._continued(op, place.indices)
            case "iree_linalg_ext.scan":
                is_sum = graph.producer(yielded(op), "arith.addi") is not None
                return Sum(0) if is_sum and all(self._is_zero(each) for each in op.operands) else None
        return self._reduced(op, place)

    def _is_zero(self, value: ir.Value) -> bool:
        return self._at(value, [None] * len(_places(value))) == Sum(0)

    def _continued(self, op: ir.Operation, indices: Sequence[Index]) -> Sum | None:
        """Returns an integer of a row whose first column, which is put in front, continues it."""
        dim, places = concatenated(op), list[Sum | None](map(_sum, indices))
        if len(op.operands) != 2 or build.static_sizes(op.operands[0])[dim] != 1:
            return None
        first, row = op.operands
        at = [[*places[:dim], each, *places[dim + 1 :]] for each in (Sum(0), Sum(-1), _sum(indices[dim]).plus(Sum(-1)))]
        start, before, found = (self._at(*each) for each in zip((first, row, row), at, strict=True))
        return found if start == before else None

    def _reduced(self, op: ir.Operation, place: Element) -> Value | None:
        """Returns the largest number of a row, or whether one is true."""
        rows = reduction(op, place)
        if rows is None or rows.name not in ("arith.maximumf", "arith.ori"):
            return None
        start, maps = graph.producer(op.operands[1], "linalg.fill"), indexing_maps(op) or []
        before = None if start is None else self.outside(start.operands[0])
        if not isinstance(before, float) or 0 in loop_sizes(op, maps).values():
            return None
        found = self.body(op, rows.scalar, rows.loops, {})
        found = None if found is None else turned(found)
        if isinstance(found, float):
            return max(found, before) if self._has_any(op, maps[0], rows.reduced) else None
        if not isinstance(found, Choice) or found.yes < found.no or len(rows.reduced) != 1:
            return None
        if found.or_for_none:
            return max(found.yes, before)
        return choice(frozenset({Some(found.conditions)}), max(found.yes, before), max(found.no, before))

    def _has_any(self, op: ir.Operation, of_operand: ir.AffineMap, loops: Sequence[int]) -> bool:
        """Returns whether a reduction is known to have elements along loops, each of which is a dimension."""
        places = [each.position for each in of_operand.results]
        sizes = (Sizes().of(op.operands[0], places.index(loop)) for loop in loops)
        return all(not size.roots or size == self._above_0 for size in sizes)


def _sum(index: Index) -> Sum:
    return Sum(0, ((index, 1),)) if index.axis and index.extent != 1 else Sum(0)
