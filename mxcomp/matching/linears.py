"""Finds products of a few rows of bf16 or f16 with stored weights of the same type, with their bias and residual.

    %t = linalg.transpose ins(%w : tensor<5120x2880xbf16>) … permutation = [1, 0]
    %p = linalg.matmul ins(%x, %t : tensor<16x2880xbf16>, …) outs(%zero) -> tensor<16x5120xf32>
    %s = linalg.generic … ins(%p, %bias : …, tensor<5120xbf16>) (extended, and added) -> tensor<16x5120xf32>
    %r = linalg.generic … ins(%s) (truncated) -> tensor<16x5120xbf16>

IREE's importer extends operands of a single row first. Weights must be inputs of the program, as IREE fuses computed
ones into the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import (
    EXTENDS,
    extended_from,
    indexing_maps,
    inputs,
    is_elementwise,
    is_rounding,
    is_zero,
    yielded,
)
from mxcomp.ukernels.linear import Linear

MATMUL = "linalg.matmul"
_ELEMENTS = ("bf16", "f16")
_STORED = ("util.global.load", "hal.tensor.import", "arith.constant", "util.optimization_barrier")


@dataclass(frozen=True)
class Product:
    """A product that a kernel computes, up to `last`, whose result it is."""

    op: ir.Operation
    last: ir.Operation
    operands: Sequence[ir.Value]
    kernel: Linear


def find(op: ir.Operation) -> Product | None:
    """Returns the product of a matmul, with the elementwise operations that the kernel fuses; None if there is none."""
    if op.name != MATMUL or not is_zero(op.operands[2]) or str(build.element(op.results[0])) != "f32":
        return None
    weights = _weights(op)
    x = extended_from(op.operands[0])
    if weights is None or (indexing_maps(op) or [])[0] != ir.AffineMap.get(3, 0, _dims(0, 2)):
        return None
    (rows, depth), (columns, _) = build.static_sizes(x), build.static_sizes(weights)
    kind = str(build.element(weights))
    if rows is None or depth is None or columns is None or kind not in _ELEMENTS or str(build.element(x)) != kind:
        return None
    kernel = Linear(rows, columns, depth, kind, "f32")
    return None if kernel.objection else _with_what_follows(Product(op, op, (x, weights), kernel))


def _dims(*places: int) -> list[ir.AffineExpr]:
    return [ir.AffineExpr.get_dim(place) for place in places]


def _weights(op: ir.Operation) -> ir.Value | None:
    """Returns the stored matrix [N, K] that is the right factor."""
    value, map_ = extended_from(op.operands[1]), (indexing_maps(op) or [])[1]
    if map_ == ir.AffineMap.get(3, 0, _dims(2, 1)):
        if (made := graph.producer(value, "linalg.transpose")) is None:
            return None
        value = extended_from(made.operands[0])
    elif map_ != ir.AffineMap.get(3, 0, _dims(1, 2)):
        return None
    source = graph.producer(graph.look_through_views(value))
    return value if source is None or source.name in _STORED else None


def _with_what_follows(found: Product) -> Product:
    """Adds a bias and the rounding of the result, where nothing else reads the intermediates."""
    if (biased := _biased(found)) is not None:
        found = biased
    user = _reader(found.last)
    if user is None or not is_rounding(user) or (kind := str(build.element(user.results[0]))) not in _ELEMENTS:
        return found
    return _with_residual(replace(found, last=user, kernel=replace(found.kernel, result=kind)))


def _reader(op: ir.Operation) -> ir.Operation | None:
    """Returns the operation that alone reads a result, unless it is in another dispatch, as a norm's."""
    user = graph.only_user(op)
    return user if user is not None and user.block == op.block else None


def _with_residual(found: Product) -> Product:
    """Adds a tensor of the result's type that is added to it, whatever dimensions its rows have."""
    value = found.last.results[0]
    while (user := _reader(value.owner.operation)) is not None and user.name in graph.RESHAPES:
        value = user.results[0]
    *_, columns = build.static_sizes(value)
    added = None if user is None or columns != found.kernel.columns else _added(user, value)
    if user is None or added is None or added.type != value.type:
        return found
    return replace(found, last=user, operands=(*found.operands, added), kernel=replace(found.kernel, residual=True))


def _added(user: ir.Operation, value: ir.Value, *dims: int) -> ir.Value | None:
    """Returns what an operation adds to a tensor, element by element: at the same place, or by these dimensions."""
    if not is_elementwise(user) or len(inputs(user)) != 2 or user.results[0].type != value.type:
        return None
    at, maps = inputs(user).index(value), indexing_maps(user) or []
    whole, other = ir.AffineMap.get_identity(maps[-1].n_dims), inputs(user)[1 - at]
    part = ir.AffineMap.get(maps[-1].n_dims, 0, _dims(*dims)) if dims else whole
    if [maps[at], maps[1 - at], maps[-1]] != [whole, part, whole] or other == value:
        return None
    summed, arguments = graph.producer(yielded(user), "arith.addf"), list(user.regions[0].blocks[0].arguments)[:2]
    terms = [] if summed is None else [graph.look_through(each, (EXTENDS,)) for each in summed.operands]
    return other if {*terms} == {*arguments} else None


def joined(products: Sequence[Product]) -> Product:
    """Returns products of the same rows as one, the columns of whose result are theirs in order."""
    first = products[0]
    x, *_ = first.operands
    columns = tuple(each.kernel.columns for each in products)
    kernel = replace(first.kernel, columns=sum(columns), parts=columns)
    operands = (each.operands[number] for number in range(1, len(first.operands)) for each in products)
    return replace(first, operands=(x, *operands), kernel=kernel)


def join(one: Product, other: Product) -> bool:
    """Returns whether products of the same rows differ in their weights, biases and columns only."""
    same = one.operands[0] == other.operands[0] and one.op.block == other.op.block and one.op != other.op
    return same and not one.kernel.residual and replace(one.kernel, columns=other.kernel.columns) == other.kernel


def _biased(found: Product) -> Product | None:
    user, value = _reader(found.last), found.last.results[0]
    added = None if user is None else _added(user, value, 1)
    if user is None or added is None:
        return None
    bias = extended_from(added)
    kind = str(build.element(bias))
    if kind not in (*_ELEMENTS, "f32"):
        return None
    return replace(found, last=user, operands=(*found.operands, bias), kernel=replace(found.kernel, bias=kind))
