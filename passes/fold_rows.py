"""mxcomp-fold-rows: makes workgroups read a row-major LHS directly, for ukernels that take it so.

Before (in the loop over workgroups, which IREE's own pass makes):

    %a = iree_codegen.load_from_buffer %buffer : memref<640x2048xf4E2M1FN, …> -> tensor<640x2048xf4E2M1FN>
    %u = linalg.generic … tensor.extract %a[%row, %k] -> tensor<1x16x4x1x4x4x16x32xf4E2M1FN>
    %s = tensor.extract_slice %scales[%i, 0, …] …
    %r = iree_codegen.inner_tiled ins(%u, %rhs, %s, %rhs_scales) … {mxcomp.lhs_row_major}

After:

    %v = memref.reinterpret_cast %bytes to offset: [%i · 262144], sizes: [1, 16, 4, 1, 4, 4, 16, 16],
           strides: [262144, 16384, 256, 256, 64, 16, 1024, 1]
    %b = iree_codegen.load_from_buffer %v
    %u = iree_tensor_ext.bitcast %b : tensor<1x16x4x1x4x4x16x16xi8> -> tensor<1x16x4x1x4x4x16x32xf4E2M1FN>
    %r = iree_codegen.inner_tiled ins(%u, %rhs, %s, %rhs_scales) …

So nothing is packed. Rows behind the last are behind the buffer's end, where loads bring zeros.
"""

from __future__ import annotations

import math

from iree.compiler import ir
from iree.compiler.dialects import memref

from mxcomp.errors import InternalError
from mxcomp.formats import element_format
from mxcomp.layout import LHS, LHS_SCALE
from mxcomp.mlir import buffers, build, graph
from mxcomp.packing.result_tiles import LHS_ROW_MAJOR
from mxcomp.passes import order_workgroups


def run(module: ir.Operation) -> None:
    """Folds the LHS of every marked matmul below `module`. Raises InternalError."""
    for function in [op for op in graph.walk(module) if op.name == "func.func"]:
        if any(LHS_ROW_MAJOR in op.attributes for op in graph.walk(function)):
            order_workgroups.distribute(function)
            for matmul in [op for op in graph.walk(function) if LHS_ROW_MAJOR in op.attributes]:
                _fold(matmul)


def _fold(matmul: ir.Operation) -> None:
    """Gives a matmul of a workgroup the rows of its inner tiles, as strided views of the bytes."""
    inner_tiles = graph.producer(matmul.operands[LHS])
    rows = None if inner_tiles is None else _rows(inner_tiles)
    if inner_tiles is None or rows is None:
        raise InternalError(f"{matmul.location}: LHS is read from no buffer in rows")
    kind = ir.RankedTensorType(matmul.operands[LHS].type)
    _, of_tile, k_tiles, _, steps, blocks, of_inner_tile, inner = kind.shape
    size = inner * element_format(str(kind.element_type)).bits // 8
    _, row_bytes = ir.MemRefType(rows.type).shape
    sizes = [1, of_tile, k_tiles, 1, steps, blocks, of_inner_tile, size]
    inner_tile, block, k_tile = of_inner_tile * row_bytes, blocks * size, steps * blocks * size
    strides = [of_tile * inner_tile, inner_tile, k_tile, k_tile, block, size, row_bytes, 1]
    with matmul.location, ir.InsertionPoint(matmul):
        offset = build.times(_tile(matmul.operands[LHS_SCALE]), of_tile * inner_tile)
        view = _view(rows, offset, sizes, strides)
        loaded = ir.Operation.create(buffers.LOAD, results=[build.tensor_type(sizes, "i8")], operands=[view]).result
        matmul.operands[LHS] = build.bitcast(loaded, kind)
    del matmul.attributes[LHS_ROW_MAJOR]
    graph.erase_dead(inner_tiles)


def _rows(inner_tiles: ir.Operation) -> ir.Value | None:
    """Returns the bytes [rows, bytes of a row] of the buffer that inner tiles are made of."""
    extracts = [op for op in graph.walk(inner_tiles) if op.name == "tensor.extract"]
    load = graph.producer(extracts[0].operands[0]) if len(extracts) == 1 else None
    if load is None or load.name != buffers.LOAD:
        return None
    kind = ir.RankedTensorType(load.results[0].type)
    *rows, columns = kind.shape  # IREE drops the dimension of a single row
    with load.location, ir.InsertionPoint(load):
        shape = math.prod(rows), columns * element_format(str(kind.element_type)).bits // 8
        return buffers.rebind(load.operands[0], shape, ir.IntegerType.get_signless(8))


def _tile(scales: ir.Value) -> ir.Value:
    """Returns the tile of rows of a workgroup, which is that of its scales. At the insertion point."""
    if (op := graph.producer(scales, "tensor.extract_slice")) is None:
        return build.constant_index(0)
    first, *_ = list(ir.DenseI64ArrayAttr(op.attributes["static_offsets"]))
    return op.operands[1] if first == build.DYNAMIC else build.constant_index(first)


def _view(buffer: ir.Value, offset: ir.Value, sizes: list[int], strides: list[int]) -> ir.Value:
    """Returns a buffer of these sizes and strides in bytes, from `offset` on."""
    given = ir.MemRefType(buffer.type)
    layout = ir.StridedLayoutAttr.get(build.DYNAMIC, strides)
    kind = ir.MemRefType.get(sizes, given.element_type, layout, given.memory_space)
    return memref.ReinterpretCastOp(kind, buffer, [offset], [], [], [build.DYNAMIC], sizes, strides).result
