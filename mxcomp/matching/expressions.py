"""Traces one element of a tensor back to an expression over the tensors it is computed from.

Exported models spell a dequantised operand in many ways: scales broadcast by `linalg.broadcast` or by an indexing map,
blocks as a third dimension or behind a `collapse_shape`, casts apart or together. Following a single element back
through pure data movement and elementwise arithmetic makes them all look alike:

    mulf(extf(%elements[m, k // 32, k % 32]), extf(%scales[m, k // 32]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from iree.compiler import ir

from mxcomp.matching.elements import RESHAPES, Element, Index
from mxcomp.matching.following import DEEPEST, Following
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import inputs, is_elementwise


@dataclass(frozen=True)
class Leaf:
    """A tensor element. `accesses` are equal elements of other tensors on the way, the nearest to the user first."""

    accesses: tuple[Element, ...]

    @property
    def value(self) -> ir.Value:
        """The first tensor, nearest to where it is stored."""
        return self.accesses[-1].value

    @property
    def type(self) -> ir.Type:
        return build.element(self.value)


@dataclass(frozen=True)
class Apply:
    """An operation of the arith dialect on scalars, by name, with its result type.

    `size` is the number of operations, each counted as often as it is used.
    """

    name: str
    operands: tuple[Expr, ...]
    type: ir.Type
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(each.size for each in self.operands if isinstance(each, Apply)))


@dataclass(frozen=True)
class Opaque:
    """Any other scalar, which this analysis does not look into."""

    type: ir.Type


Expr = Leaf | Apply | Opaque


_MOST_OPERATIONS = 256
"""The largest number of operations of an expression. No dequantisation has as many, but repeated use of values may give
2⁶⁰."""


class Tracer(Following[Expr]):
    """Traces elements; one that is computed in an unknown or too long way is itself what is found."""

    def place(self, value: ir.Value, indices: Sequence[Index]) -> Element:
        return Element(value, tuple(indices))

    def of_element(self, place: Element, found: Expr | None) -> Expr:
        here = Leaf((place,))
        if found is None or isinstance(found, Opaque):
            return here
        if build.is_narrow(here.type) and not _is_same_bits(found):
            return here  # quantised here: what is computed is an element or scale in its own right
        # Pure movement: the same element of an earlier tensor.
        return Leaf((place, *found.accesses)) if isinstance(found, Leaf) else found

    def outside(self, value: ir.Value) -> Expr:
        return Opaque(value.type)

    def scalar(self, op: ir.Operation, operands: Sequence[Expr | None], loops: Sequence[Index]) -> Expr:
        """Returns the expression of an operation on scalars, or on each element of tensors; opaque if it is long."""
        apply = Apply(op.name, tuple(filter(None, operands)), build.element(op.results[0]))
        return apply if _is_arith(op) and apply.size < _MOST_OPERATIONS else Opaque(apply.type)

    def other(self, op: ir.Operation, place: Element) -> Expr | None:
        operands = [self.element(each, place.indices) for each in op.operands] if _is_arith(op) else []
        return self.scalar(op, operands, ()) if operands else None


class _Moves(Tracer):
    """Follows elements through operations that only move them."""

    def of_element(self, place: Element, found: Expr | None) -> Leaf:
        expr = super().of_element(place, found)
        return expr if isinstance(expr, Leaf) else Leaf((place,))


def moved(place: Element) -> Sequence[Element]:
    """Returns an element, and those of other tensors that operations only move there, the nearest first."""
    found = _Moves().element(place.value, place.indices)
    assert isinstance(found, Leaf)
    return found.accesses


def passed(values: Sequence[ir.Value], leaves: Sequence[Leaf]) -> list[ir.Operation]:
    """Returns the operations between `values` and the stored tensors that their elements come from, producers first."""
    stored, seen, ops = {leaf.value for leaf in leaves}, set[ir.Operation](), list[ir.Operation]()

    def visit(value: ir.Value, depth: int = 0) -> None:
        op = graph.producer(value)
        if depth > DEEPEST or value in stored or op is None:
            return
        if op not in seen and (operands := _followed(op)):
            seen.add(op)
            for operand in operands:
                visit(operand, depth + 1)
            ops.append(op)

    for value in values:
        visit(value)
    return ops


def _followed(op: ir.Operation) -> list[ir.Value]:
    """Returns the operands that an element of the result is computed from; none where that is not known."""
    if is_elementwise(op):
        return inputs(op)
    return list(op.operands) if op.name in RESHAPES or _is_arith(op) else []


def _is_arith(op: ir.Operation) -> bool:
    return op.name.startswith("arith.") and len(op.results) == 1 and bool(op.operands)


def _is_same_bits(expr: Expr) -> bool:
    if isinstance(expr, Apply) and expr.name == "arith.bitcast":
        expr = expr.operands[0]
    return isinstance(expr, Leaf)
