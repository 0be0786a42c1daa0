"""mxcomp-legalise-filled-scans: fills the input of a scan in a separate kernel.

IREE fills it in that of the scan, if what the scan writes over is there already: one thread fills memory that all of a
workgroup share, and the others read it without waiting.

Before:

    %f = linalg.fill ins(%c : f32) outs(%e : tensor<65x32xf32>) -> tensor<65x32xf32>
    %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%f : tensor<65x32xf32>) outs(%o, %start : …) { … }

After:

    %f = linalg.fill ins(%c : f32) outs(%e : tensor<65x32xf32>) -> tensor<65x32xf32>
    %x = util.optimization_barrier %f : tensor<65x32xf32>
    %r:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%x : tensor<65x32xf32>) outs(%o, %start : …) { … }
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph

_SCAN = "iree_linalg_ext.scan"
_PARTS = ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")


def run(module: ir.Operation) -> None:
    """Rewrites scans below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if is_filled(op)]:
        with op.location, ir.InsertionPoint(op):
            op.operands[0] = build.barrier(op.operands[0])


def is_filled(op: ir.Operation) -> bool:
    """Returns whether an operation is a scan of a tensor of one value, or of a part of it."""
    source = graph.producer(graph.look_through(op.operands[0], _PARTS)) if op.name == _SCAN else None
    return source is not None and source.name == "linalg.fill"
