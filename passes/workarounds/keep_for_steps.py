"""mxcomp-keep-for-steps: keeps values that iterations of a loop use again from being overwritten by earlier iterations.

IREE copies what an operation writes over if something reads it later. It overlooks the next step of a loop: what comes
from outside of a loop, and has one use in it, is written over in the first step (`isSafeToElideCOW` asks for the number
of users, `isSafeToElideCloneOp` likewise). A use behind the loop is a reader that it sees.

Before:

    %r = scf.for … {
      %s = flow.dispatch @sort::@sort(%x) : (tensor<64xf32>) -> %x
      …
    }

After:

    %r = scf.for … {
      %s = flow.dispatch @sort::@sort(%x) : (tensor<64xf32>) -> %x
      …
    }
    %k = util.optimization_barrier %x : tensor<64xf32>

It stands at the end of IREE's phase `flow`, where dispatches have got the operands that they write over, and in front
of mxcomp-place-results, which counts the uses.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import overwriting

_LOOPS = ("scf.for", "scf.while")


def run(module: ir.Operation) -> None:
    """Adds uses of values below `module` that are overwritten in loops."""
    for value, writers in overwriting.written_over(module):
        _keep_for_later_steps(value, writers)


def _keep_for_later_steps(value: ir.Value, writers: list[ir.Operation]) -> None:
    """Adds a use behind loops whose iterations may overwrite a value from outside."""
    owner = value.owner
    scope = owner.owner if isinstance(owner, ir.Block) else owner.parent
    for outermost in {outer for writer in writers if (outer := _around_loops(writer, scope)) is not None}:
        with outermost.location, ir.InsertionPoint.after(outermost):
            overwriting.barrier(value)


def _around_loops(op: ir.Operation, scope: ir.Operation) -> ir.Operation | None:
    """Returns the ancestor of an operation directly inside `scope`; None if no loop is in between."""
    has_loop = False
    while op.parent != scope:
        op = op.parent.operation
        has_loop |= op.name in _LOOPS
    return op if has_loop else None
