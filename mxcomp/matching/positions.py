"""Masks that a model computes from the numbers of queries and keys alone: what such a mask says, without computing it.

    %mask = linalg.generic … outs(%empty : tensor<8x64x64xbf16>) {
      %t = linalg.index 1 : index
      %l = linalg.index 2 : index
      %seen = arith.cmpi sge, %t, %l : index
      %0 = arith.select %seen, %zero, %minus_infinity : bf16
      …

An element is followed back through views, transposes and elementwise operations, as an expression of its subscripts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import ml_dtypes
import numpy as np
from iree.compiler import ir

from mxcomp.matching.elements import RESHAPES, ZERO, Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, yielded


@dataclass(frozen=True)
class Sum:
    """A number, and axes, and integers that the program computes, each times another."""

    number: int
    axes: tuple[tuple[str, int], ...] = ()
    computed: tuple[tuple[ir.Value, int], ...] = ()

    def plus(self, other: Sum, times: int = 1) -> Sum:
        axes, computed = dict(self.axes), dict(self.computed)
        for axis, factor in other.axes:
            axes[axis] = axes.get(axis, 0) + times * factor
        for value, factor in other.computed:
            computed[value] = computed.get(value, 0) + times * factor
        return Sum(
            self.number + times * other.number,
            tuple(sorted((axis, factor) for axis, factor in axes.items() if factor)),
            tuple((value, factor) for value, factor in computed.items() if factor),
        )


@dataclass(frozen=True)
class Choice:
    """One number where sums are all at least 0, and another elsewhere."""

    sums: frozenset[Sum]
    yes: float
    no: float


@dataclass(frozen=True)
class Causal:
    """A mask by which a query sees the keys of its own number and `ahead` more, and as many more as `position` says.

    Attributes:
        position: A tensor of one integer; None: nothing that the program computes.
        blind_sees_all: A query that sees no key has all of them count alike: what hides a key is a finite number.
    """

    ahead: int
    position: ir.Value | None
    blind_sees_all: bool


Value: TypeAlias = Sum | Choice | float

_FROM_RIGHT, _STRICT = {2: False, 3: False, 4: True, 5: True}, (2, 4)
"""For slt, sle, sgt, sge of arith.cmpi, whether the right operand is subtracted; and which do not hold for equals."""

_DEEPEST = 60
_HIDES = -1e30
"""Added to a score, this or less leaves nothing of its power."""


def causal(mask: ir.Value, axes: Sequence[Index]) -> Causal | None:
    """What a mask says, if it is that alone; None for any other."""
    found = _element(mask, tuple(ZERO if axis.extent == 1 else axis for axis in axes), 0)
    if not isinstance(found, Choice) or len(found.sums) != 1:
        return None
    (condition,) = found.sums
    queries = () if axes[1].extent == 1 else (("t", 1),)
    if condition.axes != (("l", -1), *queries) or [factor for _, factor in condition.computed] not in ([], [1]):
        return None
    is_boolean = isinstance(build.element(mask), ir.IntegerType)
    if (found.yes, found.no) != (1.0, 0.0) if is_boolean else found.yes != 0.0 or not found.no <= _HIDES:
        return None
    position = condition.computed[0][0] if condition.computed else None
    if position is None and condition.number < 0:
        return None
    return Causal(condition.number, position, not is_boolean and math.isfinite(found.no))


def largest(op: ir.Operation) -> float | None:
    """The largest element of each row that a reduction finds, where all elements are the same number; else None."""
    if op.name != "linalg.generic" or len(op.operands) != 1 + len(op.results):
        return None
    result = graph.producer(yielded(op))
    block, reads = op.regions[0].blocks[0], (indexing_maps(op) or [None])[0]
    if result is None or result.name != "arith.maximumf" or reads is None or not reads.is_permutation:
        return None
    if set(result.operands) != {block.arguments[0], block.arguments[1]} or 0 in build.static_sizes(op.operands[0]):
        return None
    if not all(isinstance(each, int) for each in build.static_sizes(op.operands[0])):
        return None
    start = graph.producer(op.operands[1])
    if start is None or start.name != "linalg.fill":
        return None
    before = _outside(start.operands[0])
    sizes = build.static_sizes(op.operands[0])
    axes = tuple(ZERO if size == 1 else Index(f"axis {i}", 1, size) for i, size in enumerate(sizes))
    found = _element(op.operands[0], axes, 0)
    if isinstance(found, Choice) and found.yes == found.no:
        found = found.yes
    return max(found, before) if isinstance(found, float) and isinstance(before, float) else None


def _element(value: ir.Value, indices: tuple[Index, ...], depth: int) -> Value | None:
    found = _computed(value, indices, depth)
    is_integer = str(build.element(value)) in ("i32", "i64")
    if found is None and is_integer and all(size == 1 for size in build.static_sizes(value)):
        return Sum(0, (), ((value, 1),))
    return found


def _computed(value: ir.Value, indices: tuple[Index, ...], depth: int) -> Value | None:
    op = graph.producer(value)
    if op is None or depth > _DEEPEST:
        return None
    try:
        if op.name in RESHAPES:
            return _element(op.operands[0], RESHAPES[op.name](op, indices), depth + 1)
        if op.name == "arith.constant":
            return _constant(op)
        if not is_elementwise(op):
            return None
        loops = loop_subscripts(op, indices)
        places = [apply_map(each, loops) for each in (indexing_maps(op) or [])[:-1]]
    except UntraceableError:
        return None
    block = op.regions[0].blocks[0]
    known: dict[ir.Value, Value | None] = {}
    for argument, operand, place in zip(block.arguments, list(op.operands)[:-1], places, strict=False):
        scalar = not isinstance(operand.type, ir.RankedTensorType)
        known[argument] = _outside(operand) if scalar else _element(operand, place, depth + 1)
    for inner in (each.operation for each in block.operations):
        if len(inner.results) == 1:
            known[inner.results[0]] = _scalar(inner, known, loops)
    result = yielded(op)
    return known[result] if result in known else _outside(result)


def _outside(value: ir.Value) -> Value | None:
    """A scalar from outside of a body."""
    return _scalar(graph.producer(value), {}, [])


def _constant(op: ir.Operation) -> Value | None:
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    if isinstance(attribute, ir.IntegerAttr | ir.BoolAttr):
        is_truth = str(attribute.type) == "i1"
        return float(bool(attribute.value)) if is_truth else Sum(int(attribute.value))
    return None


def _scalar(op: ir.Operation | None, known: Mapping[ir.Value, Value | None], loops: Sequence[Index]) -> Value | None:
    if op is None:
        return None
    if op.name == "linalg.index":
        index = loops[ir.IntegerAttr(op.attributes["dim"]).value]
        if not index.axis:
            return Sum(0)
        return Sum(0, ((index.axis, 1),)) if index.stride == 1 else None
    if op.name == "arith.constant":
        return _constant(op)
    operands = [known[value] if value in known else _outside(value) for value in op.operands]
    if None in operands:
        return None
    if all(isinstance(each, Sum) for each in operands):
        return _of_sums(op, operands)
    return _of_choices(op, operands)


def _of_sums(op: ir.Operation, operands: list[Value | None]) -> Value | None:
    one, other = (operands * 2)[:2]
    assert isinstance(one, Sum) and isinstance(other, Sum)
    match op.name:
        case "arith.index_cast" | "arith.extsi":
            return one
        case "arith.addi":
            return one.plus(other)
        case "arith.subi":
            return one.plus(other, -1)
        case "arith.cmpi":
            predicate = ir.IntegerAttr(op.attributes["predicate"]).value
            if predicate not in _FROM_RIGHT:
                return None
            difference = one.plus(other, -1) if _FROM_RIGHT[predicate] else other.plus(one, -1)
            difference = replace(difference, number=difference.number - (predicate in _STRICT))
            return Choice(frozenset({difference}), 1.0, 0.0)
    return None


def _of_choices(op: ir.Operation, operands: list[Value | None]) -> Value | None:
    """The result of an operation on numbers and on choices by the same sums; or whether two conditions hold."""
    choices = [each for each in operands if isinstance(each, Choice)]
    if op.name == "arith.andi" and len(choices) == 2 and all((each.yes, each.no) == (1.0, 0.0) for each in choices):
        return Choice(choices[0].sums | choices[1].sums, 1.0, 0.0)
    compute = _NUMBERS.get(op.name)
    if compute is None or any(isinstance(each, Sum) for each in operands) or len({each.sums for each in choices}) > 1:
        return None
    branches = [
        [each if isinstance(each, float) else getattr(each, which) for each in operands] for which in ("yes", "no")
    ]
    found = [compute(op, branch) for branch in branches]
    if not choices:
        return found[0]
    yes, no = found
    return None if yes is None or no is None else Choice(choices[0].sums, yes, no)


_ORDERS: Mapping[int, Callable[[float, float], bool]] = {
    **dict.fromkeys((2, 9), lambda one, other: one > other),
    **dict.fromkeys((3, 10), lambda one, other: one >= other),
    **dict.fromkeys((4, 11), lambda one, other: one < other),
    **dict.fromkeys((5, 12), lambda one, other: one <= other),
}
"""What predicates of arith.cmpf say of two numbers, ordered or not."""


def _compare(op: ir.Operation, numbers: Sequence[float]) -> float | None:
    order = _ORDERS.get(ir.IntegerAttr(op.attributes["predicate"]).value)
    return None if order is None or any(map(math.isnan, numbers)) else float(order(*numbers))


def _round(op: ir.Operation, numbers: Sequence[float]) -> float | None:
    type_ = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}.get(str(op.results[0].type))
    with np.errstate(over="ignore"):
        return None if type_ is None else float(np.float64(numbers[0]).astype(type_))


_NUMBERS: Mapping[str, Callable[[ir.Operation, Sequence[float]], float | None]] = {
    "arith.cmpf": _compare,
    "arith.truncf": _round,
    "arith.extf": lambda op, numbers: numbers[0],
    "arith.uitofp": lambda op, numbers: numbers[0],
    "arith.select": lambda op, numbers: numbers[1] if numbers[0] else numbers[2],
    "arith.maximumf": lambda op, numbers: max(numbers),
    "arith.minimumf": lambda op, numbers: min(numbers),
}
