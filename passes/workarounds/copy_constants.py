"""mxcomp-copy-constants: copies constants that are overwritten.

Small ones IREE puts into the kernel, as memory that is only read, and then refuses it. It copies those of one value
itself.

Before:

    %c = arith.constant dense<[[1.0, 2.0]]> : tensor<1x2xf32>
    %r = tensor.insert_slice %x into %c[0, 1] [1, 1] [1, 1] : tensor<1x1xf32> into tensor<1x2xf32>

After:

    %b = util.optimization_barrier %c : tensor<1x2xf32>
    %d = flow.dispatch.region -> (tensor<1x2xf32>) { (an elementwise linalg.generic that yields its operand %b) }
    %r = tensor.insert_slice %x into %d[0, 1] [1, 1] [1, 1] : tensor<1x1xf32> into tensor<1x2xf32>
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.passes.workarounds.legalise_overwriting import SLICES, copy, places_written


def run(module: ir.Operation) -> None:
    """Rewrites operations outside of dispatches below `module`."""
    graph.rewrite(module, places_written, _copy_constants, outside=True)


def _copy_constants(op: ir.Operation) -> None:
    for i in places_written(op):
        value = graph.look_through(op.operands[i], SLICES)
        if graph.producer(value, "arith.constant") is not None and graph.constant(value) is None:
            op.operands[i] = copy(build.barrier(op.operands[i]))
