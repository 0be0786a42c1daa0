"""mxcomp-keep-sorted: adds readers for all results of a sort.

Of a result that nothing reads, as the keys of an argsort, the dispatch is not to return what was sorted. What it would
be written over is copied, by IREE, into memory that all threads of a workgroup share, where each sorts a row of its
own; unless it is of less than 32 elements. Nor can it be copied where there are more at dynamic sizes.

Before:

    %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : …) { … }        (of which %r#1 alone is used)

After:

    %r:2 = iree_linalg_ext.sort dimension(1) outs(%x, %i : …) { … }
    %k = util.optimization_barrier %r#0
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph

_SIZE = "tensor.dim"
_PURE = ("linalg.", "tensor.", "iree_linalg_ext.", "iree_tensor_ext.", "arith.")


def run(module: ir.Operation) -> None:
    """Puts barriers behind sorts outside of dispatches below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if unread(op) and not graph.is_in_dispatch(op)]:
        with op.location, ir.InsertionPoint.after(op):
            for value in unread(op):
                ir.Operation.create("util.optimization_barrier", results=[value.type], operands=[value])


def unread(op: ir.Operation) -> list[ir.Value]:
    """Returns the unread results of a sort that has other, read results."""
    found = [result for result in op.results if _is_unread(result)] if op.name == graph.SORT else []
    return found if len(found) < len(op.results) else []


def _is_unread(value: ir.Value) -> bool:
    """Returns whether a value's elements have no readers: sizes alone are queried, or by dead operations."""
    seen: set[ir.Operation] = set()
    pending = [value]
    while pending:
        users = {_around(use.owner.operation) for use in pending.pop().uses} - seen
        seen |= users
        if any(not user.name.startswith(_PURE) for user in users):
            return False
        pending += [result for user in users if user.name != _SIZE for result in user.results]
    return True


def _around(op: ir.Operation) -> ir.Operation:
    """Returns the operation itself, or the one whose body it is in."""
    while op.parent is not None and op.parent.name.startswith(_PURE):
        op = op.parent.operation
    return op
