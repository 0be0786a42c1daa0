"""mxcomp-extend-scales: scales that are extended on their own are so bit by bit.

IREE takes code 0, which is 2^-127, for 0.

Before (in a body):

    %f = arith.extf %s : f8E8M0FNU to f32

After:

    %b = arith.bitcast %s : f8E8M0FNU to i8
    %w = arith.extui %b : i8 to i32
    …                                                   (shifted to the exponent; a number below the normal ones for 0)
    %f = arith.bitcast %i : i32 to f32
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.codes import six_bit
from mxcomp.codes.decode import scale_value
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.mlir import graph
from mxcomp.options import Options


def run(module: ir.Operation, options: Options) -> None:
    """Rewrites extensions of scales below `module`."""
    for op in [op for op in graph.walk(module) if _extends_scale(op)]:
        with op.context, op.location, ir.InsertionPoint(op):
            op.results[0].replace_all_uses_with(six_bit.cast(scale_value(op.operands[0]), op.results[0].type))
        op.erase()


def _extends_scale(op: ir.Operation) -> bool:
    """Whether it is an extension of a scale in a body of which code 0, 2^-127, would become 0."""
    return op.name == "arith.extf" and str(op.operands[0].type) == SCALE_TYPE
