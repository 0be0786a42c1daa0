"""mxcomp-legalise-few-rows: rewrites products of 1 to 8 rows of 16-bit floats, on which IREE's compiler crashes.

It divides by zero when it chooses a tile, where K is a known multiple of 128: for a router or a head that is not
quantised, with a few sequences at once, for example. Rows are those of the first factor; the factors change places. Of
products with one row only named operations are hit: generic ones lose their unit loop first.

Before:

    %r = linalg.generic {indexing_maps = [(m, n, k) -> (m, k), (n, k), (m, n)], …}
        ins(%x, %w : tensor<4x2048xbf16>, tensor<32x2048xbf16>) outs(%zero : tensor<4x32xf32>) …

After:

    %r = linalg.generic {indexing_maps = [(m, n, k) -> (n, k), (m, k), (m, n)], …}
        ins(%w, %x : tensor<32x2048xbf16>, tensor<4x2048xbf16>) outs(%zero : tensor<4x32xf32>) …

If neither has more rows, both are made f32, in a dispatch of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from iree.compiler import ir

from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, loop_sizes

_FEW = range(2, 9)
_STEP_K = 128
_NARROW = ("bf16", "f16")


class _Rows(NamedTuple):
    """The numbers of rows of a product's factors; None where dynamic."""

    first: int | None
    second: int | None


def run(module: ir.Operation) -> None:
    """Rewrites products below `module`."""
    for op, rows in [(op, rows) for op in graph.walk(module, bodies=False) if (rows := _rows(op)) is not None]:
        with op.location, ir.InsertionPoint(op):
            _widen(op) if rows.first in _FEW and rows.second in _FEW else _exchange(op)


def is_fatal(op: ir.Operation) -> bool:
    """Returns whether IREE's compiler crashes on an operation."""
    return _rows(op) is not None


def _rows(op: ir.Operation) -> _Rows | None:
    """Returns the rows of a product of 16-bit floats that IREE fails on; None for all others."""
    maps = indexing_maps(op)
    if maps is None or len(maps) != 3 or not all(each.is_projected_permutation for each in maps) or not _is_product(op):
        return None
    first, second, result = ({*linalg_ops.loops(each)} for each in maps)
    sizes = loop_sizes(op, maps)
    depth = [sizes.get(loop) for loop in (first & second) - result]
    if not depth or None in depth or math.prod(size or 0 for size in depth) % _STEP_K:
        return None
    rows = _Rows(*(_product([sizes.get(loop) for loop in side]) for side in (first - second, second - first)))
    return rows if rows.first in _FEW or (rows.first == 1 and op.name != "linalg.generic") else None


def _product(sizes: list[int | None]) -> int | None:
    return None if None in sizes else math.prod(size or 0 for size in sizes)


def _is_product(op: ir.Operation) -> bool:
    """Returns whether two factors, 16-bit floats or extended from those, are multiplied and summed."""
    if not all(_was_narrow(factor) for factor in list(op.operands)[:2]):
        return False
    names = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    calculations = [name for name in names if name not in ("arith.extf", "arith.truncf")]
    return calculations == ["arith.mulf", "arith.addf", "linalg.yield"]


def _was_narrow(value: ir.Value) -> bool:
    """Returns whether a factor is narrow, or extended; IREE also moves extensions behind transposes."""
    value = graph.look_through_views(value)
    if _is_narrow(value):
        return True
    op = graph.producer(value)
    if op is not None and op.name == "linalg.transpose":
        return _was_narrow(op.operands[0])
    if op is None or not op.name.startswith("linalg.") or not linalg_ops.is_elementwise(op):
        return False
    return any(map(_is_narrow, list(op.operands)[:-1]))


def _is_narrow(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and str(build.element(value)) in _NARROW


def _exchange(op: ir.Operation) -> None:
    """Exchanges the factors. Extensions become part of the operation, as IREE does for named products only."""
    *factors, init = op.operands
    one, other, result = indexing_maps(op) or []
    types = [build.element(factor) for factor in factors]

    def body(b: ir.Value, a: ir.Value, acc: ir.Value) -> ir.Value:
        return inline(op, [*map(build.cast, (a, b), types), acc])

    first, second = map(linalg_ops.extended_from, factors)
    _replace(op, [second, first], init, [other, one, result], body)


def _widen(op: ir.Operation) -> None:
    """Extends the factors to f32, hidden from IREE."""
    *factors, init = op.operands
    wide = [build.barrier(build.cast(factor, ir.F32Type.get())) for factor in factors]
    arguments = list(op.regions[0].blocks[0].arguments)

    def given(argument: ir.Value, value: ir.Value) -> ir.Value:
        is_extended = all(use.owner.operation.name == "arith.extf" for use in argument.uses)
        return value if is_extended else build.cast(value, argument.type)

    def extended(inner: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
        return operands[0] if inner.name == "arith.extf" and operands[0].type == inner.results[0].type else None

    def body(*values: ir.Value) -> ir.Value:
        return inline(op, list(map(given, arguments, values)), extended)

    _replace(op, wide, init, indexing_maps(op) or [], body)


def _replace(
    op: ir.Operation, factors: list[ir.Value], init: ir.Value, maps: list[ir.AffineMap], body: Callable[..., ir.Value]
) -> None:
    result = ir.RankedTensorType(op.results[0].type)
    new = build.generic(result, factors, init, maps, linalg_ops.iterators(op), body)
    graph.replace(op, new.results[0])
