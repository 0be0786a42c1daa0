"""The two factors of a contraction, whatever is multiplied first.

An element and its scale are multiplied in any order: in (a · b) · (a's scale · b's scale), the loops of the result say
what belongs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from iree.compiler import ir

from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import loops, yielded

MULTIPLY = "arith.mulf"
Factor = tuple[ir.Value, ...]
"""Scalars in the body of a contraction whose product is multiplied with that of the other factor."""


def find(op: ir.Operation, maps: list[ir.AffineMap]) -> tuple[Factor, Factor] | None:
    """Returns the factors of a linalg op with these maps that adds products up; None of another."""
    values, parallel = _multiplied(op), {*loops(maps[-1])}
    return _grouped(op, values, [loops_of(op, maps, value) & parallel for value in values]) if len(values) > 1 else None


def _multiplied(op: ir.Operation) -> list[ir.Value]:
    """Returns what is multiplied in `accumulator + x * y * …`, whatever the order; nothing for another body."""
    *_, accumulator = op.regions[0].blocks[0].arguments
    add = graph.producer(yielded(op), "arith.addf", "math.fma")
    if add is None:
        return []
    if add.name == "math.fma":
        *factors, addend = add.operands
        return _parts(factors) if addend == accumulator else []
    terms = [operand for operand in add.operands if operand != accumulator]
    product = graph.producer(terms[0]) if len(terms) == 1 else None
    if product is not None and product.name in ("arith.extf", "arith.truncf"):
        product = graph.producer(product.operands[0])
    return _parts(list(product.operands)) if product is not None and product.name == MULTIPLY else []


_MOST_FACTORS = 6


def _parts(values: list[ir.Value]) -> list[ir.Value]:
    """Returns factors of which none is a product; of many, the products that they are."""
    parts = values
    while products := [value for value in parts if graph.producer(value, MULTIPLY) is not None]:
        parts = [part for value in parts for part in (_operands(value) if value in products else [value])]
        if len(parts) > _MOST_FACTORS:
            return values
    return parts


def _operands(value: ir.Value) -> list[ir.Value]:
    return list(value.owner.operands)


def _grouped(op: ir.Operation, values: list[ir.Value], parallel: Sequence[set[int]]) -> tuple[Factor, Factor]:
    """Returns values in two groups that share as few loops of the result as they can, `parallel` of each value."""
    first, *others = range(len(values))
    groups = [{first, *more} for n in range(len(others)) for more in combinations(others, n)]
    scales = [_is_scale(op, value) for value in values]

    def cost(group: set[int]) -> tuple[int, int, int]:
        rest = {*others} - group
        used = [set().union(*(parallel[i] for i in part)) for part in (group, rest)]
        elements = [sum(not scales[i] for i in part) for part in (group, rest)]
        return len(used[0] & used[1]), abs(elements[0] - elements[1]), abs(len(group) - len(rest))

    chosen = min(groups, key=cost)
    left, right = ([value for i, value in enumerate(values) if (i in chosen) == side] for side in (True, False))
    return tuple(left), tuple(right)


def _is_scale(op: ir.Operation, value: ir.Value) -> bool:
    """Returns whether a scalar in the body of a linalg op is computed from tensors of scales only."""
    kinds = {str(build.element(op.operands[i])) for i in _arguments(op, value)}
    return kinds == {SCALE_TYPE}


def loops_of(op: ir.Operation, maps: list[ir.AffineMap], value: ir.Value) -> set[int]:
    """Returns the loops that index what a scalar in the body of a linalg op is computed from."""
    return {d for i in _arguments(op, value) for d in _dims(maps[i])}


def _arguments(op: ir.Operation, value: ir.Value) -> set[int]:
    """Returns the inputs of a linalg op that a scalar in its body is computed from."""
    block, pending = op.regions[0].blocks[0], [value]
    seen, found = set[ir.Operation](), set[int]()
    while pending:
        value = pending.pop()
        if isinstance(value, ir.BlockArgument):
            if ir.BlockArgument(value).owner == block:
                found.add(ir.BlockArgument(value).arg_number)
        elif (below := value.owner.operation) not in seen:  # it may be used many times
            seen.add(below)
            pending += below.operands
    return found


def _dims(affine_map: ir.AffineMap) -> set[int]:
    """Returns the loops that an indexing map uses."""
    return {d for expr in affine_map.results for d in _expr_dims(expr)}


def _expr_dims(expr: ir.AffineExpr) -> set[int]:
    match expr:
        case ir.AffineDimExpr():
            return {expr.position}
        case ir.AffineBinaryExpr():
            return _expr_dims(expr.lhs) | _expr_dims(expr.rhs)
    return set()
