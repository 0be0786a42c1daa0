"""Conditions on indices and integers, and numbers that depend on whether such conditions hold.

keys <= queries + position & keys > queries + position - window      two sums, each at least 0
select(that, 0, -inf)                                                a choice between two numbers
that | ~any(that)                                                    the same, but for rows of which none holds
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import ml_dtypes
import numpy as np
from iree.compiler import ir

from mxcomp.matching.elements import ZERO, Element, Index
from mxcomp.matching.size import Size
from mxcomp.mlir import graph


@dataclass(frozen=True)
class Sum:
    """A sum of a number and multiples of subscripts, elements and sizes. As a condition: it is at least 0."""

    number: int
    places: tuple[tuple[Index, int], ...] = ()
    elements: tuple[tuple[Element | Size, int], ...] = ()

    @classmethod
    def of(cls, size: Size) -> Sum:
        """Returns the size of a dimension."""
        return cls(0, (), ((size, 1),)) if size.number is None else cls(size.number)

    def plus(self, other: Sum, times: int = 1) -> Sum:
        places, elements = dict(self.places), dict(self.elements)
        for place, factor in other.places:
            places[place] = places.get(place, 0) + times * factor
        for element, factor in other.elements:
            elements[element] = elements.get(element, 0) + times * factor
        return Sum(
            self.number + times * other.number,
            tuple(sorted(((each, by) for each, by in places.items() if by), key=lambda each: repr(each[0]))),
            tuple((each, by) for each, by in elements.items() if by),
        )

    def times(self, factor: int) -> Sum:
        return Sum(0).plus(self, factor)

    @property
    def element(self) -> tuple[Element | Size | None, int]:
        """The only element or size of it, and its factor; None and 0 where there is none or several."""
        return self.elements[0] if len(self.elements) == 1 else (None, 0)

    @property
    def size(self) -> Size | None:
        """The size that it equals; None for other sums."""
        size, _ = self.element
        return size if isinstance(size, Size) and self == Sum.of(size) else None

    @property
    def place(self) -> Index | None:
        """The subscript that it equals; None for other sums."""
        if self == Sum(0):
            return ZERO
        places = [place for place, _ in self.places]
        return places[0] if len(places) == 1 and self == Sum(0, ((places[0], 1),)) else None

    def moved(self, places: Mapping[Index, Sum | None]) -> Sum | None:
        """Returns the sum with others in place of subscripts; None where one that it depends on is unknown."""
        axes, found = {place.axis for place in places}, Sum(self.number, (), self.elements)
        for place, factor in self.places:
            to = places.get(place) if place.axis in axes else Sum(0, ((place, 1),))
            if to is None:
                return None
            found = found.plus(to, factor)
        places_of = [element.indices for element, _ in self.elements if isinstance(element, Element)]
        is_moved = any(index.axis in axes for indices in places_of for index in indices)
        return None if is_moved else found

    @property
    def holds(self) -> bool | None:
        """Whether it is always, or never, at least 0; else None."""
        low: float = self.number
        high: float = self.number
        for term, factor in (*self.places, *self.elements):
            least = -math.inf if isinstance(term, Element) else 0  # a subscript, or a size
            most = math.inf if not isinstance(term, Index) or term.extent is None else term.extent - 1
            low, high = low + min(factor * least, factor * most), high + max(factor * least, factor * most)
        return True if low >= 0 else False if high < 0 else None


@dataclass(frozen=True)
class Some:
    """The condition that others hold for some key."""

    conditions: frozenset[Condition]


Condition: TypeAlias = Sum | Element | Some
"""The condition that a sum is at least 0, that an element of a tensor of booleans is true, or one of others."""


@dataclass(frozen=True)
class Choice:
    """One number where all conditions hold, and another elsewhere.

    `or_for_none`: also where they hold of no key of the row.
    """

    conditions: frozenset[Condition]
    yes: float
    no: float
    or_for_none: bool = False

    @property
    def question(self) -> tuple[frozenset[Condition], bool]:
        return self.conditions, self.or_for_none

    @property
    def is_plain(self) -> bool:
        """Whether it is true where the conditions hold."""
        return (self.yes, self.no) == (1.0, 0.0)


Value: TypeAlias = Sum | Choice | float


def choice(conditions: frozenset[Condition], yes: float, no: float, or_for_none: bool = False) -> Choice | float:
    """Returns a choice, or the number that it always is."""
    known = {each: each.holds for each in conditions if isinstance(each, Sum)}
    if False in known.values() and not or_for_none:
        return no
    unknown = frozenset(each for each in conditions if not isinstance(each, Sum) or not known[each])
    return Choice(unknown, yes, no, or_for_none) if unknown and yes != no else yes


def turned(value: Value) -> Value:
    """Returns an equal choice whose larger number is that where its conditions hold, if possible."""
    if not isinstance(value, Choice) or value.yes > value.no or value.or_for_none or len(value.conditions) > 1:
        return value
    (only,) = value.conditions
    if not isinstance(only, Sum):
        return value
    return Choice(frozenset({Sum(-1).plus(only, -1)}), value.no, value.yes)


def inverted(value: Value) -> Value | None:
    """Returns the negation of a boolean."""
    if isinstance(value, Sum):
        return None
    if isinstance(value, float):
        return 1.0 - value
    return choice(value.conditions, 1 - value.yes, 1 - value.no, value.or_for_none)


def _both(one: Value, other: Value) -> Value | None:
    for a, b in ((one, other), (other, one)):
        if isinstance(a, float):
            return b if a else 0.0
    one, other = turned(one), turned(other)
    assert isinstance(one, Choice) and isinstance(other, Choice)
    if one.or_for_none or other.or_for_none or not one.is_plain or not other.is_plain:
        return None
    return choice(one.conditions | other.conditions, 1.0, 0.0)


def _either(one: Value, other: Value) -> Value | None:
    for a, b in ((one, other), (other, one)):
        some = turned(a)
        is_plain = isinstance(some, Choice) and some.is_plain and not some.or_for_none
        if is_plain and isinstance(some, Choice) and b == Choice(frozenset({Some(some.conditions)}), 0.0, 1.0):
            return replace(some, or_for_none=True)
    not_one, not_other = inverted(one), inverted(other)
    neither = None if not_one is None or not_other is None else _both(not_one, not_other)
    return None if neither is None else inverted(neither)


def chosen(condition: Value, yes: Value, no: Value) -> Value | None:
    """Returns `yes` where a condition holds, else `no`."""
    if isinstance(condition, Sum):
        return None
    if isinstance(condition, float):
        return yes if condition else no
    if condition.yes == 0.0:
        yes, no = no, yes
    yes = yes.yes if isinstance(yes, Choice) and yes.question == condition.question else yes
    no = no.no if isinstance(no, Choice) and no.question == condition.question else no
    if isinstance(yes, float) and isinstance(no, float):
        return choice(condition.conditions, yes, no, condition.or_for_none)
    holds = Choice(condition.conditions, 1.0, 0.0)
    for inner, other, where in ((yes, no, holds), (no, yes, turned(Choice(condition.conditions, 0.0, 1.0)))):
        inner = turned(inner)
        if not isinstance(inner, Choice) or inner.no != other or inner.or_for_none or condition.or_for_none:
            continue
        if isinstance(where, Choice) and where.is_plain:
            return choice(inner.conditions | where.conditions, inner.yes, inner.no)
    return None


# Operations on scalars

_HIDING = (0.0, -math.inf, False)
"""A number that a choice adds to scores to hide keys; several may be added up."""

_EQUAL, _UNEQUAL = 0, 1
_FROM_RIGHT, _STRICT = {2: False, 3: False, 4: True, 5: True}, (2, 4)
"""The predicates among slt, sle, sgt, sge of arith.cmpi that subtract the right operand; and those that exclude
equality."""


def of_scalars(op: ir.Operation, operands: Sequence[Value | None]) -> Value | None:
    """Returns the value of an operation on scalars, of which some may be unknown; None where it is, too."""
    if op.name == "arith.constant":
        return constant(op.results[0])
    if op.name == "arith.select" and isinstance(operands[0], float):
        return operands[1 if operands[0] else 2]
    known = [each for each in operands if each is not None]
    return _result(op, known) if known and len(known) == len(operands) else None


def constant(value: ir.Value) -> Value | None:
    """Returns the number or truth value that a constant is, or each element of a tensor."""
    attribute = graph.constant(value)
    if isinstance(attribute, ir.FloatAttr):
        return None if math.isnan(attribute.value) else float(attribute.value)
    if isinstance(attribute, ir.IntegerAttr | ir.BoolAttr):
        is_truth = str(attribute.type) == "i1"
        return float(bool(attribute.value)) if is_truth else Sum(int(attribute.value))
    return None


def _result(op: ir.Operation, operands: Sequence[Value]) -> Value | None:
    """Returns the value of an operation on scalars, or None if it is none of these values."""
    if op.name == "arith.select":
        condition, yes, no = operands
        return chosen(condition, yes, no)
    if op.name == "arith.extui" and isinstance(operands[0], float):
        return Sum(int(operands[0]))
    sums = [each for each in operands if isinstance(each, Sum)]
    if sums:
        return _of_sums(op, sums) if len(sums) == len(operands) else None
    if op.name in _TRUTHS:
        one, other = operands
        return _TRUTHS[op.name](one, other) if str(op.results[0].type) == "i1" else None
    choices = [each for each in operands if isinstance(each, Choice)]
    compute = _NUMBERS.get(op.name)
    if op.name == "arith.addf" and [(each.yes, each.no, each.or_for_none) for each in choices] == [_HIDING] * 2:
        return choice(choices[0].conditions | choices[1].conditions, 0.0, -math.inf)
    if compute is None or len({each.question for each in choices}) > 1:
        return None
    branches = [
        [each if isinstance(each, float) else getattr(each, which) for each in operands] for which in ("yes", "no")
    ]
    found = [compute(op, branch) for branch in branches]
    yes, no = (math.nan if each is None else each for each in found)
    if math.isnan(yes) or math.isnan(no):
        return None
    if not choices:
        return yes
    return choice(choices[0].conditions, yes, no, choices[0].or_for_none)


def _of_sums(op: ir.Operation, operands: Sequence[Sum]) -> Value | None:
    one, other = (*operands, *operands)[:2]
    match op.name:
        case "arith.index_cast" | "arith.extsi":
            return one
        case "arith.addi":
            return one.plus(other)
        case "arith.subi":
            return one.plus(other, -1)
        case "arith.muli":
            return next((b.times(a.number) for a, b in ((one, other), (other, one)) if a == Sum(a.number)), None)
        case "arith.cmpi":
            predicate = ir.IntegerAttr(op.attributes["predicate"]).value
            if predicate in (_EQUAL, _UNEQUAL):
                is_equal = frozenset({one.plus(other, -1), other.plus(one, -1)})
                return choice(is_equal, *((1.0, 0.0) if predicate == _EQUAL else (0.0, 1.0)))
            if predicate not in _FROM_RIGHT:
                return None
            difference = one.plus(other, -1) if _FROM_RIGHT[predicate] else other.plus(one, -1)
            return choice(frozenset({difference.plus(Sum(-1 if predicate in _STRICT else 0))}), 1.0, 0.0)
        case "arith.minsi" | "arith.maxsi":
            ordered = next(((a, b) for a, b in ((one, other), (other, one)) if b.plus(a, -1).holds), None)
            return None if ordered is None else ordered[op.name == "arith.maxsi"]
        case "affine.apply":
            return _with_number(op, operands)
    return None


def _with_number(op: ir.Operation, operands: Sequence[Sum]) -> Sum | None:
    """Returns the sum of the only operand and the number that a map adds to it; None for other maps."""
    match list(ir.AffineMapAttr(op.attributes["map"]).value.results), operands:
        case [ir.AffineAddExpr(lhs=ir.AffineDimExpr() | ir.AffineSymbolExpr(), rhs=ir.AffineConstantExpr() as by)], [
            one
        ]:
            return one.plus(Sum(by.value))
    return None


def _exclusive(one: Value, other: Value) -> Value | None:
    for a, b in ((one, other), (other, one)):
        if isinstance(a, float):
            return inverted(b) if a else b
    return None


_TRUTHS: Mapping[str, Callable[[Value, Value], Value | None]] = {
    "arith.andi": _both,
    "arith.ori": _either,
    "arith.xori": _exclusive,
}

_ORDERS: Mapping[int, Callable[[float, float], bool]] = {
    **dict.fromkeys((2, 9), lambda one, other: one > other),
    **dict.fromkeys((3, 10), lambda one, other: one >= other),
    **dict.fromkeys((4, 11), lambda one, other: one < other),
    **dict.fromkeys((5, 12), lambda one, other: one <= other),
}
"""The comparisons of arith.cmpf for two numbers, ordered or not."""


def _compare(op: ir.Operation, numbers: Sequence[float]) -> float | None:
    order = _ORDERS.get(ir.IntegerAttr(op.attributes["predicate"]).value)
    return None if order is None or any(map(math.isnan, numbers)) else float(order(*numbers))


def _rounded(compute: Callable[..., float]) -> Callable[[ir.Operation, Sequence[float]], float | None]:
    def round_(op: ir.Operation, numbers: Sequence[float]) -> float | None:
        type_ = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}.get(str(op.results[0].type))
        with np.errstate(over="ignore", invalid="ignore"):
            return None if type_ is None else float(np.float64(compute(*map(np.float64, numbers))).astype(type_))

    return round_


_NUMBERS: Mapping[str, Callable[[ir.Operation, Sequence[float]], float | None]] = {
    "arith.cmpf": _compare,
    "arith.truncf": _rounded(lambda one: one),
    "arith.addf": _rounded(operator.add),
    "arith.subf": _rounded(operator.sub),
    "arith.mulf": _rounded(operator.mul),
    "arith.extf": lambda op, numbers: numbers[0],
    "arith.uitofp": lambda op, numbers: numbers[0],
    "arith.maximumf": lambda op, numbers: max(numbers),
    "arith.minimumf": lambda op, numbers: min(numbers),
}
