"""mxcomp-unmask-rows: results are stored without asking for each element whether its row is padding.

Before (a function of an executable, as IREE has configured it):

    %r = iree_linalg_ext.map_store %tiles into %empty {
    ^bb0(…):
      %row = affine.linearize_index … by (3, 20, 4, 4)      %column = affine.linearize_index … by (2, 16, 16)
      %is_row = arith.cmpi ult, %row, %c700                 %is_column = arith.cmpi ult, %column, %c500
      %is_real = arith.andi %is_row, %is_column
      iree_linalg_ext.yield %row, %column, %is_real
    } : tensor<3x2x20x16x4x16x4xf32> into tensor<700x500xf32>
    iree_codegen.store_to_buffer %r, %buffer : … into memref<700x500xf32, #amdgpu.address_space<fat_raw_buffer>>

After:

      iree_linalg_ext.yield %row, %column, %is_column

Rows behind the last are behind the buffer's end, where the hardware stores nothing. So lanes need no mask, and store four
neighbours of a row at once where they have them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build, graph
from mxcomp.options import Options

_MAP_STORE, _STORE = "iree_linalg_ext.map_store", "iree_codegen.store_to_buffer"
_RAW_BUFFER = "#amdgpu.address_space<fat_raw_buffer>"
_MOST_BYTES = 2**32
"""Behind which 32 bits of an offset begin again at the buffer's start."""


def run(module: ir.Operation, options: Options) -> None:
    """Unmasks the rows of every result below `module` of which that can be done."""
    with module.context:
        for op in [op for op in graph.walk(module) if op.name == _MAP_STORE]:
            if _ends_with_rows(op):
                _unmask(op)


def _ends_with_rows(op: ir.Operation) -> bool:
    """Whether what is stored behind the last row is behind the end of a buffer of the hardware's."""
    uses = [use.owner.operation for use in op.results[0].uses]
    if len(uses) != 1 or uses[0].name != _STORE:
        return False
    buffer, tiles = ir.MemRefType(uses[0].operands[1].type), build.static_sizes(op.operands[0])
    if str(buffer.memory_space) != _RAW_BUFFER or buffer.rank != 2 or not buffer.has_static_shape or None in tiles:
        return False
    elements = math.prod(size or 1 for size in tiles)
    whole = [buffer.shape[1], 1]
    return buffer.get_strides_and_offset()[0] == whole and elements * _bytes(buffer.element_type) < _MOST_BYTES


def _bytes(element: ir.Type) -> int:
    """Of an element, at least."""
    kind = ir.IntegerType(element) if isinstance(element, ir.IntegerType) else ir.FloatType(element)
    return -(-kind.width // 8)


def _unmask(op: ir.Operation) -> None:
    """Takes out of the mask that is yielded what is true of all rows of the result, and of all tiles."""
    last = list(op.regions[0].blocks[0].operations)[-1]
    row, column, mask = last.operands
    rows, tiles = build.static_sizes(op.results[0])[0] or 0, build.static_sizes(op.operands[0])
    kept = [each for each in _terms(mask) if not _is_needless(each, row, rows, tiles)]
    with op.location, ir.InsertionPoint(last):
        real = kept[0] if kept else arith.ConstantOp(ir.IntegerType.get_signless(1), 1).result
        for other in kept[1:]:
            real = arith.AndIOp(real, other).result
        last.operands[1] = _straight(column, tiles)
    last.operands[2] = real
    if (dead := graph.producer(mask)) is not None:
        graph.erase_dead(dead)


def _terms(mask: ir.Value) -> list[ir.Value]:
    """What has to be true for a mask to be."""
    op = graph.producer(mask)
    if op is None or op.name != "arith.andi":
        return [mask]
    return [term for operand in op.operands for term in _terms(operand)]


def _is_needless(condition: ir.Value, row: ir.Value, rows: int, tiles: Sequence[int | None]) -> bool:
    """Whether a condition is that a row is none of the padding, or that an index is below what it never reaches."""
    op = graph.producer(condition)
    if op is None or op.name != "arith.cmpi":
        return False
    limit, is_less = graph.producer(op.operands[1]), int(arith.CmpIPredicate.ult)
    if ir.IntegerAttr(op.attributes["predicate"]).value != is_less or limit is None or limit.name != "arith.constant":
        return False
    most = int(ir.IntegerAttr(limit.attributes["value"]).value)
    return (op.operands[0] == row and most == rows) or 0 < _extent(op.operands[0], tiles) <= most


def _extent(index: ir.Value, tiles: Sequence[int | None]) -> int:
    """What an index that is made of places in `tiles` is below; 0 where that is not known."""
    basis = _basis(index, tiles)
    return math.prod(basis) if basis else 0


def _basis(index: ir.Value, tiles: Sequence[int | None]) -> list[int]:
    """The sizes of the dimensions of `tiles` that an index is made of; none where that is not known."""
    op = graph.producer(index)
    if op is None or op.name != "affine.linearize_index":
        return []
    sizes = [tiles[each.arg_number] if isinstance(each, ir.BlockArgument) else None for each in op.operands]
    basis = list(ir.DenseI64ArrayAttr(op.attributes["static_basis"]))
    return basis if basis == sizes else []


def _straight(index: ir.Value, tiles: Sequence[int | None]) -> ir.Value:
    """An index as an affine function of places, of which IREE sees whether neighbours stay neighbours."""
    basis = _basis(index, tiles)
    if not basis or (op := graph.producer(index)) is None:
        return index
    terms = (ir.AffineExpr.get_dim(i) * math.prod(basis[i + 1 :]) for i in range(len(basis)))
    return build.apply(sum(terms, ir.AffineExpr.get_constant(0)), list(op.operands))
