"""Weights of several matmuls as those of one, one behind the other along N: as bytes, and packed.

    %w = tensor.concat dim(0) %w0, %w1 : (tensor<4096x2048xi8>, tensor<1024x2048xi8>) -> tensor<5120x2048xi8>
    %b = iree_tensor_ext.bitcast %w : tensor<5120x2048xi8> -> tensor<5120x128x32xf4E2M1FN>

Each is packed as it would be alone, so that parameters are read packed. What is packed is as many whole tiles, which
are put together when the program is loaded: a copy that stays beside the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.layout import DataTiledLayout
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph, variables
from mxcomp.packing import stored_operand

COLUMNS = 64
"""The number that the columns of each matrix are a multiple of: whole tiles of the layouts for few rows."""

_CONCAT = "tensor.concat"


def is_stored(value: ir.Value) -> bool:
    """Returns whether an operand is the bytes of a constant or of a global that nobody writes."""
    if (op := graph.producer(value, "iree_tensor_ext.bitcast")) is None or len(op.operands) != 1:
        return False
    stored = graph.producer(op.operands[0])
    is_matrix = len(build.static_sizes(op.operands[0])) == 2 and str(build.element(op.operands[0])) == "i8"
    if stored is None or not is_matrix:
        return False
    return stored.name == "arith.constant" or (stored.name == variables.LOAD and not _is_written(stored))


def _is_written(load: ir.Operation) -> bool:
    found = variables.of(load)
    return found is None or variables.is_mutable(found)


def joined(values: Sequence[ir.Value]) -> ir.Value:
    """Builds one operand of those of several matmuls, all stored, at the insertion point."""
    copies = []
    for value in values:
        bitcast = value.owner.operation
        copies.append(bitcast.operands[0].owner.operation.clone().results[0])
    rows = [build.static_sizes(copy)[0] or 0 for copy in copies]
    kind = build.tensor_type([sum(rows), build.static_sizes(copies[0])[1]], "i8")
    whole = tensor.ConcatOp(kind, 0, copies).result
    _, *inner = build.static_sizes(values[0])
    return build.bitcast(whole, build.tensor_type([sum(rows), *inner], build.element(values[0])))


def parts(value: ir.Value, layout: DataTiledLayout) -> tuple[list[ir.Value], DataTiledLayout]:
    """Builds the operands that one is made of, if all of them are whole tiles, else none; and the layout of each.

    Over inner tiles, that is the one of the most inner tiles that each of them is a multiple of.
    """
    bitcast = graph.producer(value)
    op = None if bitcast is None or bitcast.name not in BITCASTS else graph.producer(bitcast.operands[0])
    if op is None or op.name != _CONCAT or ir.IntegerAttr(op.attributes["dim"]).value != 0:
        return [], layout
    all_rows, *inner = build.static_sizes(value)
    rows, own = [build.static_sizes(operand)[0] or 0 for operand in op.operands], layout
    if layout.inner_tiles is not None:
        inner_m, inner_n = layout.inner_tiles
        own = layout.packed((inner_m, gcd(inner_n, *(count // layout.tile[1] for count in rows))))
    is_whole = all(rows) and not any(count % own.workgroup_tile[1] for count in rows)
    if sum(rows) != all_rows or all_rows % layout.workgroup_tile[1] or not is_whole:
        return [], layout
    kinds = [build.tensor_type([count, *inner], build.element(value)) for count in rows]
    return [build.bitcast(operand, kind) for operand, kind in zip(op.operands, kinds, strict=True)], own


def packed(values: Sequence[ir.Value], layout: DataTiledLayout) -> ir.Value:
    """Builds the packed operand of all of these; the first dimension is tiles of rows, with their inner tiles."""
    shapes = [build.static_sizes(value) for value in values]
    kind = build.tensor_type([sum(shape[0] or 0 for shape in shapes), *shapes[0][1:]], build.element(values[0]))
    whole = tensor.ConcatOp(kind, 0, list(values)).result
    return whole if layout.inner_tiles is None else stored_operand.regrouped(whole, layout.inner_tiles[1], [])
