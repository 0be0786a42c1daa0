"""Finds norms of rows: RMSNorm, LayerNorm, and others that divide rows by a root of one of their sums.

%x32 = extf %x    %s = sum of %x32² along a row    %r = rsqrt(%s / K + ε)    %y = truncf(%x32 · %r) · %w

All operations are elementwise, on rows or on a number of each row, except for sums along rows. There is a single
result; nothing else reads the intermediates.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iree.compiler import ir

from mxcomp.formats import MX_BLOCK
from mxcomp.matching.quantiser import Compute, Node, Read
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
    reader = _Reader(build.static_sizes(value))
    try:
        for op in filter(is_sum, ops):  # of rows, which are so the first operand
            reader.node(op.results[0])
        result = reader.node(end.operands[0])
    except _UnknownError:
        return None
    return Norm(tuple(reader.operands), result, tuple(reader.sums)) if isinstance(result, Compute) else None


class _UnknownError(Exception):
    """Raised where something is computed otherwise."""


@dataclass
class _Reader:
    """Reads the calculation of elements of rows of so many."""

    rows: list[int | None]
    operands: list[ir.Value] = field(default_factory=list)
    sums: list[Compute] = field(default_factory=list)
    _known: dict[ir.Value, Node] = field(default_factory=dict)

    def node(self, value: ir.Value) -> Node:
        """Returns the node of a value that is computed in the dispatch. Raises _UnknownError."""
        if value not in self._known:
            self._known[value] = self._computed(value)
        return self._known[value]

    def _computed(self, value: ir.Value) -> Node:
        op = graph.producer(value)
        if op is not None and op.name in graph.RESHAPES:
            return self.node(op.operands[0])
        if op is None or not graph.is_in_dispatch(op) or graph.captures(op):
            raise _UnknownError
        if is_sum(op):
            start = graph.producer(op.operands[1], "linalg.fill")
            if start is None or str(build.element(value)) != "f32" or str(graph.real(start.operands[0])) != "0.0":
                raise _UnknownError
            found = Compute(op, (self._operand(op, 0),), False, start)
            self.sums.append(found)
            return found
        if not _is_plain(op) or reads_init(op):
            raise _UnknownError
        operands = tuple(self._operand(op, i) for i in range(len(op.operands) - 1))
        return Compute(op, operands, build.static_sizes(value)[-1:] == self.rows[-1:])

    def _operand(self, op: ir.Operation, position: int) -> Node:
        value, loops = op.operands[position], (indexing_maps(op) or [])[position]
        source = graph.producer(value)
        if source is not None and graph.is_in_dispatch(source):
            return self.node(value)
        sizes = _squeezed(build.static_sizes(value)) if isinstance(value.type, ir.RankedTensorType) else []
        is_inside = any(str(each) == f"d{loops.n_dims - 1}" for each in loops.results)
        is_vector = bool(self.operands) and value != self.operands[0]
        if not is_inside or sizes != _squeezed(self.rows[-1:] if is_vector else self.rows):
            raise _UnknownError
        if value not in self.operands:
            self.operands.append(value)
        return Read(value, (), True)
