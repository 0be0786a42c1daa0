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
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.matching.elements import RESHAPES, Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.mlir import graph
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, yielded


@dataclass(frozen=True)
class Sum:
    """A number, and axes each times another."""

    number: int
    axes: tuple[tuple[str, int], ...] = ()

    def plus(self, other: Sum, times: int = 1) -> Sum:
        factors = dict(self.axes)
        for axis, factor in other.axes:
            factors[axis] = factors.get(axis, 0) + times * factor
        return Sum(self.number + times * other.number, tuple(sorted((a, f) for a, f in factors.items() if f)))


@dataclass(frozen=True)
class Choice:
    """One number where sums are all at least 0, and another elsewhere."""

    sums: frozenset[Sum]
    yes: float
    no: float


Value: TypeAlias = Sum | Choice | float
_Operation: TypeAlias = Callable[[ir.Operation, list["Value | None"]], "Value | None"]

_FROM_RIGHT, _STRICT = {2: False, 3: False, 4: True, 5: True}, (2, 4)
"""Of slt, sle, sgt and sge of arith.cmpi: whether the right operand is subtracted, and those that are not of equals."""

_DEEPEST = 40


def ahead(mask: ir.Value, axes: Sequence[Index]) -> int | None:
    """How many keys beyond its own number a query sees, if that is all that a mask says, and each query sees one."""
    found = _element(mask, tuple(axes), 0)
    if not isinstance(found, Choice) or len(found.sums) != 1:
        return None
    seen, hidden = (1.0, 0.0) if _is_boolean(mask) else (0.0, -math.inf)
    (condition,) = found.sums
    sees_keys = condition.axes == (("l", -1), ("t", 1)) and condition.number >= 0
    return condition.number if sees_keys and (found.yes, found.no) == (seen, hidden) else None


def _is_boolean(value: ir.Value) -> bool:
    return isinstance(ir.RankedTensorType(value.type).element_type, ir.IntegerType)


def _element(value: ir.Value, indices: tuple[Index, ...], depth: int) -> Value | None:
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
        maps = (indexing_maps(op) or [])[:-1]
        places = [apply_map(each, loops) for each in maps]
    except UntraceableError:
        return None
    inputs = list(op.operands)[:-1]
    block = op.regions[0].blocks[0]
    known: dict[ir.Value, Value | None] = {}
    for argument, operand, place in zip(block.arguments, inputs, places, strict=False):
        known[argument] = _element(operand, place, depth + 1)
    for inner in (each.operation for each in block.operations):
        if len(inner.results) == 1:
            known[inner.results[0]] = _scalar(inner, known, loops)
    result = yielded(op)
    return known[result] if result in known else _outside(result)


def _outside(value: ir.Value) -> Value | None:
    """A scalar from outside of a body."""
    op = graph.producer(value)
    return _constant(op) if op is not None and op.name == "arith.constant" else None


def _constant(op: ir.Operation) -> Value | None:
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    if isinstance(attribute, ir.IntegerAttr):
        is_truth = str(attribute.type) == "i1"
        return float(bool(attribute.value)) if is_truth else Sum(attribute.value)
    return None


def _scalar(op: ir.Operation, known: Mapping[ir.Value, Value | None], loops: Sequence[Index]) -> Value | None:
    if op.name == "linalg.index":
        index = loops[ir.IntegerAttr(op.attributes["dim"]).value]
        whole = index.stride == 1
        return Sum(0, ((index.axis, 1),)) if index.axis and whole else Sum(0) if not index.axis else None
    if op.name == "arith.constant":
        return _constant(op)
    operands = [known[value] if value in known else _outside(value) for value in op.operands]
    compute = _OPERATIONS.get(op.name)
    return compute(op, operands) if compute is not None and None not in operands else None


def _same(_op: ir.Operation, operands: list[Value | None]) -> Value | None:
    return operands[0]


def _sum(times: int) -> _Operation:
    def compute(_op: ir.Operation, operands: list[Value | None]) -> Value | None:
        one, other = operands
        return one.plus(other, times) if isinstance(one, Sum) and isinstance(other, Sum) else None

    return compute


def _compare(op: ir.Operation, operands: list[Value | None]) -> Value | None:
    predicate, (one, other) = ir.IntegerAttr(op.attributes["predicate"]).value, operands
    if predicate not in _FROM_RIGHT or not isinstance(one, Sum) or not isinstance(other, Sum):
        return None
    difference = one.plus(other, -1) if _FROM_RIGHT[predicate] else other.plus(one, -1)
    return Choice(frozenset({difference.plus(Sum(-1)) if predicate in _STRICT else difference}), 1.0, 0.0)


def _select(_op: ir.Operation, operands: list[Value | None]) -> Value | None:
    condition, yes, no = operands
    if not isinstance(condition, Choice) or not isinstance(yes, float) or not isinstance(no, float):
        return None
    return Choice(condition.sums, *(yes if each else no for each in (condition.yes, condition.no)))


def _both(_op: ir.Operation, operands: list[Value | None]) -> Value | None:
    conditions = [each for each in operands if isinstance(each, Choice) and (each.yes, each.no) == (1.0, 0.0)]
    return Choice(frozenset().union(*(each.sums for each in conditions)), 1.0, 0.0) if len(conditions) == 2 else None


_OPERATIONS: Mapping[str, _Operation] = {
    **dict.fromkeys(("arith.index_cast", "arith.extsi", "arith.extf", "arith.truncf"), _same),
    "arith.addi": _sum(1),
    "arith.subi": _sum(-1),
    "arith.cmpi": _compare,
    "arith.select": _select,
    "arith.andi": _both,
}
