"""mxcomp-extend-scales: extends scales on their own bit by bit.

IREE takes code 0, which is 2^-127, for 0.

Before, in a body; of tensors likewise:

    %f = arith.extf %s : f8E8M0FNU to f32

After:

    %b = arith.bitcast %s : f8E8M0FNU to i8
    %w = arith.extui %b : i8 to i32
    …                                                   (shifted to the exponent; a number below the normal ones for 0)
    %f = arith.bitcast %i : i32 to f32
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.codes.decode import scale_value
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.mlir import build, graph


def run(module: ir.Operation) -> None:
    """Rewrites extensions of scales below `module`, of single ones and of tensors."""
    graph.rewrite(
        module, _extends_scale, lambda op: graph.replace(op, _extended(op.operands[0], op.results[0].type)), bodies=True
    )


def _extends_scale(op: ir.Operation) -> bool:
    return op.name == "arith.extf" and str(build.element(op.operands[0])) == SCALE_TYPE


def _extended(scale: ir.Value, kind: ir.Type) -> ir.Value:
    if not isinstance(kind, ir.RankedTensorType):
        return build.cast(scale_value(scale), kind)
    element = ir.RankedTensorType(kind).element_type
    return build.elementwise(ir.RankedTensorType(kind), [scale], lambda x: build.cast(scale_value(x), element))
