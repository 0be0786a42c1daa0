"""mxcomp-inline-calls: inlines calls of private functions, as IREE does later.

What a matmul's operand is made of, and whether that is constant, is then seen across functions: IREE would otherwise
find constants behind calls after operands were packed, and fail to evaluate what it finds.

Before:

    util.func private @quantise(%x: tensor<64x256xf32>) -> (tensor<64x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>) { … }
    …
    %a, %as = util.call @quantise(%x) : (tensor<64x256xf32>) -> (tensor<64x8x32xf4E2M1FN>, tensor<64x8xf8E8M0FNU>)

After:

    (the body of @quantise, its results in place of %a and %as)
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.mlir import graph

PIPELINE = "builtin.module(inline{default-pipeline=})"
"""MLIR's inliner, without the canonicalisation that it does by default."""

_CALLS = ("func.call", "util.call")


def run(module: ir.Operation) -> None:
    """Inlines calls below `module`, where there are any."""
    if any(op.name in _CALLS for op in graph.walk(module, bodies=False)):
        PassManager.parse(PIPELINE).run(module)
