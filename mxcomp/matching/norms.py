"""Finds norms of rows: RMSNorm, LayerNorm, and others that divide rows by a root of one of their sums.

%x32 = extf %x    %s = sum of %x32² along a row    %r = rsqrt(%s / K + ε)    %y = truncf(%x32 · %r) · %w

All operations are elementwise, on rows or on a number of each row, except for sums along rows. There is a single
result; nothing else reads the intermediates.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.formats import MX_BLOCK
from mxcomp.matching.elements import Index, UntraceableError
from mxcomp.matching.quantiser import Compute, Finder, computed, reads
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.build import is_narrow
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, iterators, only_calculates, reads_init, yielded

ROOTS = ("math.rsqrt", "math.sqrt")
LONGEST = 32768
"""The largest number of elements of a row that a workgroup reads more than once."""


def find(total: ir.Operation) -> list[ir.Operation]:
    """Returns the operations of the norm whose first reduction is a sum along rows, in order; none if there is none.

    The last one's result is what they are for.
    """
    if not is_sum(total):
        return []
    rows = build.static_sizes(total.operands[0])
    inside, values, best = [total], [total.results[0]], list[ir.Operation]()
    for op in graph.users_in_order(values):
        if not _fits(op, rows):
            continue
        inside.append(op)
        values.append(op.results[0])
        whole = _with_producers(inside, rows)
        is_whole = build.static_sizes(op.results[0]) == rows and op.name not in graph.RESHAPES
        if is_whole and not _is_factor(op) and _returns(whole, op):
            best = whole
    return best if any(map(_takes_root, best)) else []


def _is_factor(op: ir.Operation) -> bool:
    """Returns whether an operation extends factors of matmuls only, whose kernels take narrow ones."""
    users = [use.owner.operation.name for use in op.results[0].uses]
    return linalg_ops.extended_from(op.results[0]) != op.results[0] and {*users} == {"linalg.matmul"}


def is_sum(op: ir.Operation) -> bool:
    """Returns whether an operation sums the elements of each row, which are more than a block, in floats."""
    if op.name != "linalg.generic" or len(op.results) != 1 or len(op.operands) != 2 or not only_calculates(op):
        return False
    given, result = indexing_maps(op) or [None, None]
    adds, (*_, before) = graph.producer(yielded(op)), op.regions[0].blocks[0].arguments
    if adds is None or adds.name != "arith.addf" or [use.owner.operation for use in before.uses] != [adds]:
        return False
    *outer, last = iterators(op)
    size = build.static_sizes(op.operands[0])[-1] if outer else None
    is_row = given == ir.AffineMap.get_identity(len(outer) + 1, op.context) and {*outer, "parallel"} == {"parallel"}
    is_kept = _is_in_order(result, len(outer))
    return is_row and is_kept and last == "reduction" and size is not None and MX_BLOCK < size <= LONGEST


def _is_in_order(affine_map: ir.AffineMap, loops: int) -> bool:
    """Returns whether a map has these first loops in order, and only zeros else."""
    others = [e for e in affine_map.results if not isinstance(e, ir.AffineDimExpr)]
    return linalg_ops.loops(affine_map) == list(range(loops)) and all(str(each) == "0" for each in others)


def _fits(op: ir.Operation, rows: list[int | None]) -> bool:
    """Returns whether an operation computes rows of that shape, or a number for each, from such."""
    if len(op.results) != 1 or is_narrow(build.element(op.results[0])):
        return False
    sizes = build.static_sizes(op.results[0])
    if op.name in graph.RESHAPES:
        return _squeezed(sizes) == _squeezed(rows[:-1])
    is_whole = sizes == rows or _squeezed(sizes) == _squeezed(rows[:-1])
    return is_whole and (is_sum(op) or (_is_plain(op) and only_calculates(op)))


def _is_plain(op: ir.Operation) -> bool:
    """Returns whether an operation is elementwise, without transposed operands."""
    if op.name == "linalg.fill" or not is_elementwise(op):
        return False
    *maps, result = indexing_maps(op) or []
    dims = map(linalg_ops.loops, maps)
    return result == ir.AffineMap.get_identity(result.n_dims, op.context) and all(each == sorted(each) for each in dims)


def _squeezed(sizes: list[int | None]) -> list[int | None]:
    return [size for size in sizes if size != 1]


def _with_producers(inside: list[ir.Operation], rows: list[int | None]) -> list[ir.Operation]:
    """Returns these operations, and the producers of rows that only they use, in order."""
    found, pending = set(inside), list(inside)
    while pending:
        for operand in pending.pop().operands:
            op = graph.producer(operand)
            if op is None or op in found or op.block != inside[0].block or op.name in graph.RESHAPES:
                continue
            if _fits(op, rows) and all(use.owner.operation in found for use in op.results[0].uses):
                found.add(op)
                pending = list(found)
    return graph.in_order(found)


def _returns(ops: list[ir.Operation], last: ir.Operation) -> bool:
    """Returns whether a single operation's result has readers outside."""
    return ops[-1] == last and all(
        op == last or all(use.owner.operation in ops for use in op.results[0].uses) for op in ops
    )


def _takes_root(op: ir.Operation) -> bool:
    return op.name in ROOTS or any(inner.name in ROOTS for inner in graph.walk(op))


# Norms as a kernel computes them


@dataclass(frozen=True)
class Norm:
    """A norm that is a dispatch, as a calculation of rows.

    Attributes:
        operands: The rows that it takes, and vectors that are the same for all of them.
        result: Each element of its rows.
        sums: Those along rows that it is computed from, in f32, in an order in which they can be computed.
    """

    operands: tuple[ir.Value, ...]
    result: Compute
    sums: tuple[Compute, ...]


def of(value: ir.Value) -> Norm | None:
    """Returns the norm that a dispatch computes; None where it is none, or computed from anything else."""
    if (region := graph.producer(value, "flow.dispatch.region")) is None or len(region.results) != 1:
        return None
    *ops, end = (view.operation for view in region.regions[0].blocks[0].operations)
    *outer, size = rows = build.static_sizes(value)
    place = (*(Index(f"row {i}", 1, each) for i, each in enumerate(outer)), Index("k", 1, size))
    try:
        result = Finder(size or 0, lambda op: not graph.is_in_dispatch(op)).node(end.operands[0], place)
    except UntraceableError:
        return None
    found = {each.op: each for each in computed([result])}
    sums = tuple(found[op] for op in ops if op in found and found[op].start is not None)
    read = reads((*sums, result))
    operands = tuple(dict.fromkeys(each.value for each in read))
    sizes = [_squeezed(build.static_sizes(each)) for each in operands]
    are_known = bool(sizes) and sizes == [_squeezed(rows), *[_squeezed(rows[-1:])] * (len(sizes) - 1)]
    are_given = all(each.inside and not _is_made_inside(each.value) for each in read)
    if not isinstance(result, Compute) or not are_known or not are_given or not all(map(_is_step, found.values())):
        return None
    return Norm(operands, result, sums)


def _is_made_inside(value: ir.Value) -> bool:
    op = graph.producer(value)
    return op is not None and graph.is_in_dispatch(op)


def _is_step(node: Compute) -> bool:
    """Returns whether a kernel computes it: elementwise, or the sum of a row in f32 from 0 on."""
    if graph.captures(node.op):
        return False
    if node.start is None:
        return _is_plain(node.op) and not reads_init(node.op)
    is_f32 = str(build.element(node.op.results[0])) == "f32"
    return is_sum(node.op) and is_f32 and str(graph.real(node.start.operands[0])) == "0.0"
