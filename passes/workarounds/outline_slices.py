"""mxcomp-outline-slices: takes slices that a contraction reads in a separate dispatch.

IREE takes them in that of the contraction, and reads other elements of their sources.

Before (of scaled matmuls that are left to IREE):

    %s = tensor.extract_slice %scales[0, 3] [64, 8] [1, 1] : tensor<64x16xf8E8M0FNU> to tensor<64x8xf8E8M0FNU>
    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b, %s, %t) outs(%zero) …

After:

    %s = tensor.extract_slice %scales[0, 3] [64, 8] [1, 1] : tensor<64x16xf8E8M0FNU> to tensor<64x8xf8E8M0FNU>
    %k = util.optimization_barrier %s : tensor<64x8xf8E8M0FNU>
    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b, %k, %t) outs(%zero) …
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.layout import ACC
from mxcomp.matching.canonical import claimed
from mxcomp.matching.decision import left_to_iree
from mxcomp.matching.storage import isolate_slice
from mxcomp.mlir import build
from mxcomp.mlir.build import is_sub_byte
from mxcomp.options import Options
from mxcomp.passes.workarounds import Unshown, Workaround

WORKAROUND = Workaround(
    fault="Slices in the dispatch of a contraction may be read from other elements of their sources.",
    stock=Unshown("scales that are a slice, without data tiling; mxcomp-legalise-lookups mends that, too"),
)


def run(module: ir.Operation, options: Options) -> None:
    """Puts barriers behind slices that scaled matmuls below `module` read, except those already computed as values."""
    for op, decision in left_to_iree(module):
        is_canonical = decision.index is not None and len(op.operands) == ACC + 1
        if decision.reason is not None and (is_canonical or (decision.index is None and not claimed(op))):
            _settle(op)


def _settle(op: ir.Operation) -> None:
    with op.context, op.location, ir.InsertionPoint(op):
        for i, operand in enumerate(list(op.operands)[:-1]):
            if isinstance(operand.type, ir.RankedTensorType) and not is_sub_byte(build.element(operand)):
                op.operands[i] = isolate_slice(operand)
