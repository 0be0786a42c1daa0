"""mxcomp-unmask-stores: stores a result's padding behind the buffer's end, instead of masking it.

Before (a function of an executable, as IREE has configured it):

    %r = iree_linalg_ext.map_store %tiles into %empty {
    ^bb0(…, %v: index):
      %row = affine.linearize_index … by (3, 20, 16)
      %column = affine.linearize_index [%a, %b, %c, %v] by (2, 16, 4, 4)
      %is_row = arith.cmpi ult, %row, %c700      %is_column = arith.cmpi ult, %column, %c500
      %is_real = arith.andi %is_row, %is_column
      iree_linalg_ext.yield %row, %column, %is_real
    } : tensor<3x2x20x16x4x16x4xf32> into tensor<700x500xf32>
    iree_codegen.store_to_buffer %r, %buffer : … into memref<700x500xf32, #amdgpu.address_space<fat_raw_buffer>>

After:

      %first = affine.apply … (%a, %b, %c)                %is_real = arith.cmpi ult, %first, %c500
      %away = arith.select %is_real, %c0, %c536870912
      %place = affine.apply (a * 256 + b * 16 + c * 4 + v + away + row * 500)(%a, %b, %c, %v, %away, %row)
      iree_linalg_ext.yield %place, %true
    } : tensor<3x2x20x16x4x16x4xf32> into tensor<350000xf32>

The hardware checks each offset against the buffer's size. Rows behind the last are behind the end by themselves, where
no matrix follows; all else that is padding is moved there. So nothing branches around a store, and neighbours of a row
that a lane has are stored in one piece, as IREE sees that they stay neighbours. Whether they are real is asked of as
many at a time as the limit is a multiple of: of all that are stored in one piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith, memref

from mxcomp.mlir import buffers, build, graph
from mxcomp.mlir.attributes import UKERNEL

_MAP_STORE = "iree_linalg_ext.map_store"
_RAW_BUFFER = "#amdgpu.address_space<fat_raw_buffer>"
_BEYOND = 2**31
"""A number of bytes that no buffer of ours exceeds, padding included; twice as many fit into 32 bits of an offset.

mxcomp-encode sees to it, and for dynamic sizes what mxcomp-materialise asserts.
"""


def run(module: ir.Operation) -> None:
    """Unmasks stores of ukernels' results below `module`."""
    for function in [op for op in graph.walk(module) if op.name == "func.func"]:
        ops = list(graph.walk(function))
        if any(UKERNEL in op.attributes for op in ops):
            for op in [op for op in ops if op.name == _MAP_STORE]:
                if (buffer := _buffer(op)) is not None:
                    _unmask(op, buffer)


def _buffer(op: ir.Operation) -> ir.MemRefType | None:
    """Returns the contiguous buffer, checked by the hardware, that a map_store stores to, or None."""
    uses = [use.owner.operation for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != buffers.STORE:
        return None
    buffer, tiles = ir.MemRefType(uses[0].operands[1].type), build.static_sizes(op.operands[0])
    if str(buffer.memory_space) != _RAW_BUFFER or buffer.rank < 2 or not _bytes(buffer):
        return None
    if None not in tiles and math.prod(size or 1 for size in tiles) * _bytes(buffer) > _BEYOND:
        return None
    with op.location:
        dense = ir.MemRefType.get(buffer.shape, buffer.element_type, memory_space=buffer.memory_space)
    if buffer == dense:
        return buffer
    strides, offset = buffer.get_strides_and_offset()
    if not buffer.has_static_shape and (offset or any(map(buffer.is_dynamic_dim, range(1, buffer.rank)))):
        return None
    return buffer if strides == buffers.dense_strides(buffer.shape) else None


def _bytes(buffer: ir.MemRefType) -> int:
    """Returns the bytes of an element; 0 where it has none, or not whole ones."""
    kind = buffer.element_type
    is_number = isinstance(kind, ir.IntegerType | ir.FloatType)
    return kind.width // 8 if is_number and kind.width % 8 == 0 else 0


@dataclass(frozen=True)
class _Target:
    """The row and column at which an element is stored, in `tiles`.

    Attributes:
        inner: The innermost place in tiles.
        in_pieces: Whether those that differ in `inner` alone are neighbours in a row.
    """

    row: ir.Value
    column: ir.Value
    tiles: list[int | None]
    inner: ir.Value
    in_pieces: bool


_Terms: TypeAlias = list[tuple[ir.Value, int]]
"""The summands of an index: values, and what each is multiplied by."""


def _unmask(op: ir.Operation, buffer: ir.MemRefType) -> None:
    """Removes the mask that is yielded: what is padding is stored beyond the buffer.

    Where its rows are of a known size the buffer is stored to as a single row: else IREE would compute each element's
    row and column by divisions. And LLVM sees that what is stored to neighbours may be stored in one piece, if an index
    is a single sum, in which the row is last.
    """
    last = list(op.regions[0].blocks[0].operations)[-1]
    *places, column, mask = last.operands
    _, *others = build.static_sizes(op.results[0])
    is_flat = None not in others and not buffer.get_strides_and_offset()[1]
    with op.location, ir.InsertionPoint(last):
        target, is_last = _target(op, places[-1], column), set(buffer.shape[:-2]) <= {1}
        needed = [each for each in _terms(mask) if not _is_needless(each, target, op, is_last)]
        apart = [found for each in needed if (found := _of_first(each, target)) is not None]
        is_in_pieces = target.in_pieces and len(apart) == len(needed)
        away = _away(apart if is_in_pieces else needed, buffer)
        parts = _summands(*_parts(column, target.tiles)) if is_in_pieces else [(column, 1)]
        terms = [*parts, *((each, 1) for each in away)]
        true = arith.ConstantOp(ir.IntegerType.get_signless(1), 1).result
        if is_flat:
            strides = (math.prod(size or 1 for size in others[i:]) for i in range(len(places)))
            places = [_sum([*terms, *zip(places, strides, strict=True)])]
        else:
            places.append(_sum(terms))
        ir.Operation.create(last.name, operands=[*places, true])
    last.erase()
    if (dead := graph.producer(mask)) is not None:
        graph.erase_dead(dead)
    if is_flat:
        _flatten(op, buffer, math.prod(size or 1 for size in others))


def _flatten(op: ir.Operation, buffer: ir.MemRefType, inner: int) -> None:
    """Makes a store to rows of so many elements one to a single row, of which it yields the places already."""
    rows, *_ = build.static_sizes(op.results[0])
    (store,) = [use.owner.operation for use in op.results[0].uses]
    with op.location, ir.InsertionPoint(op):
        sizes = [] if rows is not None else [build.times(build.dim(op.operands[1], 0), inner)]
        kind = ir.RankedTensorType(build.tensor_type([None if rows is None else rows * inner], buffer.element_type))
        flat = ir.Operation.create(op.name, [kind], [op.operands[0], build.empty(kind, sizes)], regions=1)
        op.regions[0].blocks[0].append_to(flat.regions[0])
    with store.location, ir.InsertionPoint(store):
        one = ir.MemRefType.get(kind.shape, buffer.element_type, memory_space=buffer.memory_space)
        row = memref.ReinterpretCastOp(one, store.operands[1], [], sizes, [], [0], kind.shape, [1]).result
        ir.Operation.create(store.name, operands=[flat.results[0], row])
    store.erase()
    op.erase()


def _away(conditions: Sequence[ir.Value], buffer: ir.MemRefType) -> list[ir.Value]:
    """Returns offsets that lead beyond the buffer where a condition is false."""
    if not conditions:
        return []
    real = conditions[0]
    for other in conditions[1:]:
        real = arith.AndIOp(real, other).result
    return [arith.SelectOp(real, *map(build.constant_index, (0, _BEYOND // _bytes(buffer)))).result]


def _sum(terms: _Terms) -> ir.Value:
    values = [value for value, _ in terms]
    each = (ir.AffineExpr.get_dim(i) * times for i, (_, times) in enumerate(terms))
    return build.apply(sum(each, ir.AffineExpr.get_constant(0)), values)


def _summands(parts: Sequence[ir.Value], basis: Sequence[int]) -> _Terms:
    return [(part, math.prod(basis[i + 1 :])) for i, part in enumerate(parts)]


def _target(op: ir.Operation, row: ir.Value, column: ir.Value) -> _Target:
    """Returns the target of a store, at the insertion point."""
    tiles, inner = build.static_sizes(op.operands[0]), op.regions[0].blocks[0].arguments[-1]
    parts, _ = _parts(column, tiles)
    return _Target(row, column, tiles, inner, bool(parts) and parts[-1] == inner)


def _parts(index: ir.Value, tiles: Sequence[int | None]) -> tuple[list[ir.Value], list[int]]:
    """Returns the positions in `tiles` that an index is made of, and their sizes; none where that is not known."""
    if (op := graph.producer(index, "affine.linearize_index")) is None:
        return [], []
    basis, parts = list(ir.DenseI64ArrayAttr(op.attributes["static_basis"])), list(op.operands)
    sizes = [tiles[each.arg_number] if isinstance(each, ir.BlockArgument) else None for each in parts]
    return (parts, basis) if basis == sizes else ([], [])


def _terms(mask: ir.Value) -> list[ir.Value]:
    """Returns the conditions whose conjunction a mask is."""
    if (op := graph.producer(mask, "arith.andi")) is not None:
        return [term for operand in op.operands for term in _terms(operand)]
    return [] if graph.number(mask) else [mask]


def _limit(condition: ir.Value) -> tuple[ir.Value, ir.Value, int | None] | None:
    """Returns an index and the limit below which it must be, as a number if it is constant. None for other
    conditions."""
    if (op := graph.producer(condition, "arith.cmpi")) is None:
        return None
    if ir.IntegerAttr(op.attributes["predicate"]).value != int(arith.CmpIPredicate.ult):
        return None
    index, limit = op.operands
    return index, limit, graph.number(limit)


def _is_needless(condition: ir.Value, target: _Target, op: ir.Operation, is_last: bool) -> bool:
    """Returns whether a condition is true for all tiles; or that a row is no padding, if the matrix is the last."""
    found = _limit(condition)
    if found is None:
        return False
    index, limit, number = found
    if is_last and index == target.row:
        return number == build.static_sizes(op.results[0])[-2] if number is not None else _is_size(limit, op)
    _, basis = _parts(index, target.tiles)
    return number is not None and bool(basis) and math.prod(basis) <= number


def _is_size(limit: ir.Value, op: ir.Operation) -> bool:
    """Returns whether a limit is the number of rows, the first dynamic size, of the destination."""
    empty = graph.producer(op.operands[1])
    is_dynamic = build.static_sizes(op.results[0])[-2] is None
    return is_dynamic and empty is not None and empty.name == "tensor.empty" and empty.operands[0] == limit


def _of_first(condition: ir.Value, target: _Target) -> ir.Value | None:
    """Returns a condition for the first of several neighbours that holds for all or none of them, or None."""
    found = _limit(condition)
    if found is None or not target.in_pieces:
        return None
    index, limit, number = found
    if index != target.column:
        parts, _ = _parts(index, target.tiles)
        return condition if parts and target.inner not in parts else None
    parts, basis = _parts(target.column, target.tiles)
    fitting = [inner for inner in range(1, len(basis)) if number and number % math.prod(basis[-inner:]) == 0]
    if not fitting:
        return None
    first = _sum(_summands(parts, basis)[: -fitting[-1]])
    return arith.CmpIOp(arith.CmpIPredicate.ult, first, limit).result
