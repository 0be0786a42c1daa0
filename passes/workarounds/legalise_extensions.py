"""mxcomp-legalise-extensions: extends f8 elements to f16 by way of f32.

What is computed of constants alone IREE evaluates on the CPU as it compiles, and has no conversion of f8 to f16 there.
f32 represents all f8, and f16 all of these types that are extended to it.

Before:

    %y = arith.extf %x : f8E5M2 to f16

After:

    %w = arith.extf %x : f8E5M2 to f32
    %y = arith.truncf %w : f32 to f16
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import graph

_BITS = 8


def run(module: ir.Operation) -> None:
    """Rewrites extensions of scalars below `module`."""
    f16, f32 = ir.F16Type.get(), ir.F32Type.get()
    for op in [op for op in graph.walk(module) if op.name == "arith.extf" and op.results[0].type == f16]:
        if ir.FloatType(op.operands[0].type).width == _BITS:
            with op.location, ir.InsertionPoint(op):
                wide = arith.ExtFOp(f32, op.operands[0]).result
                graph.replace(op, arith.TruncFOp(f16, wide).result)
