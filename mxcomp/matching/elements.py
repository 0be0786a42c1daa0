"""Traces one element of a tensor back to an expression over the tensors it is computed from.

Exported models spell a dequantised operand in many ways: scales broadcast by `linalg.broadcast` or by an indexing map,
blocks as a third dimension or behind a `collapse_shape`, casts apart or together. Following a single element back
through pure data movement and elementwise arithmetic makes them all look alike:

    mulf(extf(%elements[m, k // 32, k % 32]), extf(%scales[m, k // 32]))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from iree.compiler import ir

from mxcomp.mlir import linalg_ops
from mxcomp.mlir.build import is_narrow, static_sizes
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, reassociation, yielded


@dataclass(frozen=True)
class Index:
    """The subscript `(axis // stride) % extent`; extent None is a dynamic size, axis "" the constant 0."""

    axis: str
    stride: int
    extent: int | None

    def split(self, sizes: Sequence[int | None]) -> list[Index]:
        """Returns row-major parts of this subscript, one per size. At most the first size that is not 1 may be
        dynamic."""
        if None in sizes[1:] and sizes[0] == 1:
            return [ZERO, *self.split(sizes[1:])]
        parts, stride = [], self.stride
        for size in reversed(sizes[1:]):
            if size is None:
                raise UntraceableError
            parts.append(Index(self.axis if size > 1 else "", stride, size))
            stride *= size
        parts.append(Index(self.axis if sizes[0] != 1 else "", stride, sizes[0]))
        return parts[::-1]

    @staticmethod
    def join(parts: Sequence[Index]) -> Index:
        """Inverts `split`; raises UntraceableError where the parts are not of one axis."""
        parts = [part for part in parts if part.axis]
        if not parts:
            return ZERO
        first, last = parts[0], parts[-1]
        for outer, inner in pairwise(parts):
            if inner.extent is None or (outer.axis, outer.stride) != (inner.axis, inner.stride * inner.extent):
                raise UntraceableError
        extents = [part.extent for part in parts]
        return Index(first.axis, last.stride, None if None in extents else math.prod(e for e in extents if e))

    @staticmethod
    def join_runs(parts: Sequence[Index]) -> list[Index]:
        """Returns `parts` without those of size 1, and adjacent ones joined where they are parts of one subscript."""
        runs: list[Index] = []
        for part in parts:
            if part.extent == 1 or not part.axis:
                continue
            try:
                joined = Index.join([*runs[-1:], part])
            except UntraceableError:
                runs.append(part)
            else:
                runs[-1:] = [joined]
        return runs


ZERO = Index("", 1, 1)


class UntraceableError(Exception):
    """A subscript is not of the form `Index`."""


@dataclass(frozen=True)
class Leaf:
    """A tensor element. `accesses` are equal elements of other tensors on the way, the nearest to the user first."""

    accesses: tuple[tuple[ir.Value, tuple[Index, ...]], ...]

    @property
    def value(self) -> ir.Value:
        """The first tensor, nearest to where it is stored."""
        return self.accesses[-1][0]

    @property
    def type(self) -> ir.Type:
        return ir.RankedTensorType(self.value.type).element_type


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

_DEEPEST = 100
"""The largest number of operations on tensors that are followed back one after the other."""


class Tracer:
    """Traces elements, each once however often it is used."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Value, tuple[Index, ...]], Expr] = {}
        self._depth = 0

    def element(self, value: ir.Value, indices: tuple[Index, ...]) -> Expr:
        """Returns the expression of `value[indices]`. The element itself where it is computed in an unknown or too long
        way."""
        if not isinstance(value.type, ir.RankedTensorType):
            return Opaque(value.type)
        if (value, indices) not in self._known:
            self._depth += 1
            self._known[value, indices] = self._element(value, indices)
            self._depth -= 1
        return self._known[value, indices]

    def _element(self, value: ir.Value, indices: tuple[Index, ...]) -> Expr:
        here, op = Leaf(((value, indices),)), value.owner
        if not isinstance(op, ir.Operation | ir.OpView) or self._depth > _DEEPEST:
            return here
        try:
            expr = self._through(op.operation, indices)
        except UntraceableError:
            return here
        if isinstance(expr, Opaque):
            return here
        if is_narrow(here.type) and not _is_same_bits(expr):
            return here  # quantised here: what is computed is an element or scale in its own right
        # Pure movement: the same element of an earlier tensor.
        return Leaf((*here.accesses, *expr.accesses)) if isinstance(expr, Leaf) else expr

    def _through(self, op: ir.Operation, indices: tuple[Index, ...]) -> Expr:
        if op.name in RESHAPES:
            return self.element(op.operands[0], RESHAPES[op.name](op, indices))
        if is_elementwise(op):
            maps = (indexing_maps(op) or [])[:-1]
            body, loops = op.regions[0].blocks[0], loop_subscripts(op, indices)
            operands = [
                self.element(operand, apply_map(affine_map, loops))
                for operand, affine_map in zip(_followed(op), maps, strict=True)
            ]
            return scalar(yielded(op), body, operands)
        if _is_arith(op):
            return _applied(op, [self.element(operand, indices) for operand in _followed(op)])
        return Opaque(op.results[0].type)


def passed(values: Sequence[ir.Value], leaves: Sequence[Leaf]) -> list[ir.Operation]:
    """Returns the operations between `values` and the stored tensors that their elements come from, producers first."""
    stored, seen, ops = {leaf.value for leaf in leaves}, set[ir.Operation](), list[ir.Operation]()

    def visit(value: ir.Value, depth: int = 0) -> None:
        if depth > _DEEPEST or value in stored or not isinstance(value.owner, ir.Operation | ir.OpView):
            return
        op = value.owner.operation
        if op not in seen and (operands := _followed(op)):
            seen.add(op)
            for operand in operands:
                visit(operand, depth + 1)
            ops.append(op)

    for value in values:
        visit(value)
    return ops


def scalar(value: ir.Value, body: ir.Block, arguments: Sequence[Expr]) -> Expr:
    """Returns the expression of a scalar in a linalg body, given those of the first block arguments. Opaque if it is
    long."""
    known: dict[ir.Value, Expr] = dict(zip(body.arguments, arguments, strict=False))
    for op in (each.operation for each in body.operations):
        if _is_arith(op):
            known[op.result] = _applied(op, [known.get(operand, Opaque(operand.type)) for operand in op.operands])
    return known.get(value, Opaque(value.type))


def _followed(op: ir.Operation) -> list[ir.Value]:
    """Returns the operands that an element of the result is computed from; none where that is not known."""
    if is_elementwise(op):
        return list(op.operands)[:-1]
    return list(op.operands) if op.name in RESHAPES or _is_arith(op) else []


def _is_arith(op: ir.Operation) -> bool:
    return op.name.startswith("arith.") and len(op.results) == 1 and bool(op.operands)


def _applied(op: ir.Operation, operands: Sequence[Expr]) -> Expr:
    """Returns the expression of an operation on scalars, or on each element of tensors; opaque if it is long."""
    kind = op.result.type
    element_type = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind
    apply = Apply(op.name, tuple(operands), element_type)
    return apply if apply.size < _MOST_OPERATIONS else Opaque(element_type)


def loop_subscripts(op: ir.Operation, indices: Sequence[Index]) -> list[Index]:
    """Returns the loop indices of an elementwise op for an element of its result."""
    order = linalg_ops.loops((indexing_maps(op) or [])[-1])
    return [indices[order.index(loop)] for loop in range(len(order))]


def _is_same_bits(expr: Expr) -> bool:
    if isinstance(expr, Apply) and expr.name == "arith.bitcast":
        expr = expr.operands[0]
    return isinstance(expr, Leaf)


def _collapse(op: ir.Operation, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    sizes = static_sizes(op.operands[0])
    if not indices:  # only sizes of 1, which are in no group
        return (ZERO,) * len(sizes)
    groups = zip(indices, reassociation(op), strict=True)
    return tuple(part for index, group in groups for part in index.split([sizes[i] for i in group]))


def _expand(op: ir.Operation, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    return tuple(Index.join([indices[i] for i in group]) for group in reassociation(op))


def _cast(op: ir.Operation, indices: tuple[Index, ...]) -> tuple[Index, ...]:
    """Returns the same subscripts; a size is known if either side knows it."""
    pairs = zip(indices, static_sizes(op.operands[0]), strict=True)
    return tuple(replace(index, extent=size) if index.extent is None else index for index, size in pairs)


RESHAPES = {"tensor.collapse_shape": _collapse, "tensor.expand_shape": _expand, "tensor.cast": _cast}


def apply_map(affine_map: ir.AffineMap, indices: Sequence[Index]) -> tuple[Index, ...]:
    return tuple(apply_expr(expr, indices) for expr in affine_map.results)


def apply_expr(expr: ir.AffineExpr, indices: Sequence[Index]) -> Index:
    if isinstance(expr, ir.AffineDimExpr):
        return indices[ir.AffineDimExpr(expr).position]
    if isinstance(expr, ir.AffineConstantExpr) and ir.AffineConstantExpr(expr).value == 0:
        return ZERO
    for kind, floor in ((ir.AffineFloorDivExpr, True), (ir.AffineModExpr, False)):
        if isinstance(expr, kind):
            binary = ir.AffineBinaryExpr(expr)
            inner = apply_expr(binary.lhs, indices)
            if not isinstance(binary.rhs, ir.AffineConstantExpr):
                break
            step = ir.AffineConstantExpr(binary.rhs).value
            if floor:
                extent = None if inner.extent is None else -(-inner.extent // step)
                return Index(inner.axis, inner.stride * step, extent)
            return Index(inner.axis, inner.stride, step)
    raise UntraceableError
