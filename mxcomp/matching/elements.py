"""Elements of tensors by their subscripts, and those that they equal in front of operations that only move them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from iree.compiler import ir

from mxcomp.mlir import linalg_ops
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import indexing_maps, reassociation


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
class Element:
    """An element of a tensor."""

    value: ir.Value
    indices: tuple[Index, ...]


def loop_subscripts(op: ir.Operation, indices: Sequence[Index]) -> list[Index]:
    """Returns the loop indices of an elementwise op for an element of its result."""
    order = linalg_ops.loops((indexing_maps(op) or [])[-1])
    return [indices[order.index(loop)] for loop in range(len(order))]


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
    match expr:
        case ir.AffineDimExpr():
            return indices[expr.position]
        case ir.AffineConstantExpr(value=0):
            return ZERO
        case ir.AffineFloorDivExpr(rhs=ir.AffineConstantExpr(value=step)):
            inner = apply_expr(expr.lhs, indices)
            extent = None if inner.extent is None else -(-inner.extent // step)
            return Index(inner.axis, inner.stride * step, extent)
        case ir.AffineModExpr(rhs=ir.AffineConstantExpr(value=step)):
            inner = apply_expr(expr.lhs, indices)
            return Index(inner.axis, inner.stride, step)
    raise UntraceableError
