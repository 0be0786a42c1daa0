"""mxcomp-join-norms: puts a norm of rows into one dispatch.

Before:

    %x32 = linalg.generic … ins(%x : tensor<1x4096xbf16>) { arith.extf } -> tensor<1x4096xf32>
    %squares = linalg.generic … ins(%x32) { math.fpowi } -> tensor<1x4096xf32>
    %sum = linalg.generic {iterator_types = ["parallel", "reduction"]} ins(%squares) { arith.addf } -> tensor<1xf32>
    %root = linalg.generic … ins(%sum) { arith.divf, arith.addf, math.rsqrt } -> tensor<1xf32>
    %y = linalg.generic … ins(%x32, %root, %w) { arith.mulf, arith.truncf, arith.mulf } -> tensor<1x4096xbf16>

After:

    %y = flow.dispatch.region -> (tensor<1x4096xbf16>) {
      … the same …
      flow.return %y
    }

IREE would compute rows as f32 by one dispatch, sums by another, and leave the rest to what reads it, which then is
computed from three tensors: too many for a ukernel that quantises. So it is one tensor in the types of the model, and
a dispatch that reads rows once. The order of sums is IREE's, as before. Of columns of a matrix that are divided into
rows (heads of queries or keys, of a joined product) the dispatch reads the matrix: IREE would copy columns apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.matching import norms
from mxcomp.mlir import build, graph, inline, linalg_ops
from mxcomp.options import Options
from mxcomp.packing import standing

OPTIONS = ("reference",)


def run(module: ir.Operation, options: Options) -> None:
    """Puts every norm below `module` into a dispatch of its own."""
    if options.reference or not options.data_tiling:
        return
    ops = list(graph.walk(module, bodies=False))
    for op in ops:
        if op.name == "tensor.dim":
            linalg_ops.ask_init(op)
    sums = [op for op in ops if op.name == "linalg.generic" and norms.is_sum(op)]
    found = list[list[ir.Operation]]()
    for total in sums:
        if not graph.is_in_dispatch(total) and not any(total in ops for ops in found):
            found.append(norms.find(total))
    for ops in filter(None, found):
        _join(ops)


def _join(ops: list[ir.Operation]) -> None:
    result, start = ops[-1].results[0], ops[-1].operands[-1]
    copies = dict[ir.Value, ir.Value]()
    read = {value: whole for op in ops for value in op.operands if (whole := _in_columns(value)) is not None}
    with standing.named(ops[-1], "rows", "norm"), ir.InsertionPoint(ops[-1]):
        sizes = build.dynamic_sizes(start)
        wholes = {value: build.expand(columns.source, columns.sizes, columns.groups) for value, columns in read.items()}
        with build.dispatch_region([ir.RankedTensorType(result.type)], sizes) as region:
            for value, columns in read.items():
                copies[value] = build.part(wholes[value], columns.offsets, _static(value))
            for op in ops:
                _copy(op, copies)
            region.returned = [copies[result]]
    result.replace_all_uses_with(region.results[0])
    for op in reversed(ops):
        graph.erase_dead(op)


@dataclass(frozen=True)
class _Columns:
    """Columns of a matrix, in rows: those of the matrix in `sizes`, by `groups` of its dimensions, from offsets on."""

    source: ir.Value
    sizes: Sequence[int]
    groups: Sequence[Sequence[int]]
    offsets: Sequence[int]


def _in_columns(value: ir.Value) -> _Columns | None:
    """Returns the columns of several rows of a matrix that a tensor is, each divided into rows."""
    expand = graph.producer(value, "tensor.expand_shape")
    cut = graph.producer(expand.operands[0], "tensor.extract_slice") if expand is not None else None
    if expand is None or cut is None:
        return None
    groups, (offsets, taken, strides) = linalg_ops.reassociation(expand), graph.slicing(cut)
    sizes, (rows, *columns) = (_static(each) for each in (value, cut.operands[0]))
    if 0 in (rows, *columns, *sizes) or len(columns) != 1 or len(groups) != 1 + len(columns) or {*strides} != {1}:
        return None
    (above, first), row, heads = offsets, sizes[-1], len(sizes) - 2
    is_divided = len(groups[1]) > 1 and all(sizes[i] == 1 for i in groups[1][:-2])
    if above or taken[0] != rows or rows == 1 or not is_divided or columns[0] % row or first < 0 or first % row:
        return None
    sizes[heads] = columns[0] // row
    return _Columns(cut.operands[0], sizes, groups, [first // row if i == heads else 0 for i in range(len(sizes))])


def _static(value: ir.Value) -> list[int]:
    """Returns sizes, 0 for dynamic ones."""
    return [size or 0 for size in build.static_sizes(value)]


def _copy(op: ir.Operation, copies: dict[ir.Value, ir.Value]) -> None:
    """Copies an operation to the insertion point, with its init tensors, on copies of its operands."""
    for operand in op.operands:
        made = graph.producer(operand)
        if operand not in copies and made is not None and made.name in ("tensor.empty", "linalg.fill"):
            _copy(made, copies)
    inline.copy([op], copies)
