"""mxcomp-keep-transposes-behind: computes readers of a batch in another order behind a product that is left to IREE.

IREE contracts to that order, and may fail.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b) outs(%zero : tensor<2x16x64xf32>) …
    %t = linalg.generic {indexing_maps = [(b, m, n) -> (m, b, n), (b, m, n) -> (b, m, n)], …} ins(%r) …

After:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b) outs(%zero : tensor<2x16x64xf32>) …
    %k = util.optimization_barrier %r : tensor<2x16x64xf32>
    %t = linalg.generic {indexing_maps = [(b, m, n) -> (m, b, n), (b, m, n) -> (b, m, n)], …} ins(%k) …
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.matching.decision import left_to_iree
from mxcomp.mlir import build
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise

_MATRIX = 2


def run(module: ir.Operation) -> None:
    """Puts barriers behind scaled matmuls below `module` that are left to IREE."""
    for op, _ in left_to_iree(module):
        _keep_transposes_behind(op)


def _keep_transposes_behind(op: ir.Operation) -> None:
    turned = list(filter(_is_in_another_order, op.results[0].uses))
    if ir.RankedTensorType(op.results[0].type).rank > _MATRIX and turned:
        build.hide(op.results[0], turned)


def _is_in_another_order(use: ir.OpOperand) -> bool:
    """Returns whether an elementwise operation reads a value in another order than that of its result."""
    user = use.owner.operation
    maps = indexing_maps(user) or []
    return is_elementwise(user) and maps[use.operand_number] != maps[-1]
