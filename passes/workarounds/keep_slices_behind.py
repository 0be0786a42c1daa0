"""mxcomp-keep-slices-behind: keeps slices of values computed from a matmul that is left to IREE behind it.

IREE moves them in front of the product, behind the dequantisation of its operands, and fails.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b) outs(%zero) …
    %s = tensor.extract_slice %r[0, 5] [64, 17] [1, 1] : tensor<64x128xf32> to tensor<64x17xf32>

After:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b) outs(%zero) …
    %k = util.optimization_barrier %r : tensor<64x128xf32>
    %s = tensor.extract_slice %k[0, 5] [64, 17] [1, 1] : tensor<64x128xf32> to tensor<64x17xf32>
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.matching.decision import decision_of, left_to_iree
from mxcomp.matching.elements import RESHAPES
from mxcomp.mlir import build
from mxcomp.mlir.linalg_ops import is_elementwise


def run(module: ir.Operation) -> None:
    """Puts barriers behind scaled matmuls below `module` that are left to IREE."""
    for op, _ in left_to_iree(module):
        _keep_slices_behind(op)


def _keep_slices_behind(op: ir.Operation) -> None:
    for user in list(dict.fromkeys(use.owner.operation for use in op.results[0].uses)):
        if user.name == "tensor.extract_slice":
            if user.operands[0] == op.results[0]:
                with user.location, ir.InsertionPoint(user):
                    user.operands[0] = build.barrier(op.results[0])
        elif user.name in RESHAPES or (is_elementwise(user) and decision_of(user) is None):
            _keep_slices_behind(user)
