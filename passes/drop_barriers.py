"""mxcomp-drop-barriers: removes barriers whose operand or result is overwritten.

It has done its work by the end of phase `flow`. Nor does IREE see that what comes out of it is what went into it:
a constant of the program perhaps, or read on one side of it and written over on the other.

Before:

    %b = util.optimization_barrier %c : tensor<64xf32>
    %s = flow.dispatch @sort::@sort(%b) : (tensor<64xf32>) -> %b

After:

    %s = flow.dispatch @sort::@sort(%c) : (tensor<64xf32>) -> %c
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph, overwriting

_SAME = (*overwriting.VIEWS, overwriting.BARRIER)


def run(module: ir.Operation) -> None:
    """Drops barriers below `module`."""
    for function in overwriting.functions(module):
        _drop_barriers(function)


def _drop_barriers(function: ir.Operation) -> None:
    """Removes barriers of tensors that are overwritten on either side of them."""
    barriers = [op for op in graph.walk(function) if op.name == overwriting.BARRIER and build.is_tensor(op.results[0])]
    dropped = [op for op in barriers if overwriting.writers(graph.look_through(op.results[0], _SAME), _SAME)]
    for op in dropped:
        graph.replace(op, *op.operands)
