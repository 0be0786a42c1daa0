"""mxcomp-keep-splats: keeps a splat factor of a product as a tensor.

IREE makes it a number, and then fails to distribute the sum.

Before:

    %ones = arith.constant dense<1.0> : tensor<16x64xf32>
    %r = linalg.matmul ins(%x, %ones : tensor<8x16xf32>, tensor<16x64xf32>) outs(%zero : tensor<8x64xf32>)

After:

    %ones = arith.constant dense<1.0> : tensor<16x64xf32>
    %b = util.optimization_barrier %ones : tensor<16x64xf32>
    %r = linalg.matmul ins(%x, %b : tensor<8x16xf32>, tensor<16x64xf32>) outs(%zero : tensor<8x64xf32>)
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.matching.decision import is_recognised
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.linalg_ops import inputs, sums_products
from mxcomp.options import Options
from mxcomp.passes.workarounds import Unshown, Workaround

WORKAROUND = Workaround(
    fault="A product with a factor of one value may fail to be distributed, as that is made a number.",
    stock=Unshown("ones, 1 by 512, times 512 by 40 of bf16; with mxcomp-legalise-few-rows it compiles"),
)


def run(module: ir.Operation, options: Options) -> None:
    """Puts barriers behind such factors below `module`."""
    with module.context:
        for op in [op for op in graph.walk(module, bodies=False) if sums_products(op) and not is_recognised(op)]:
            for index, value in enumerate(inputs(op)):
                if _is_splat(graph.producer(graph.look_through_views(value))) and not is_sub_byte(build.element(value)):
                    with op.location, ir.InsertionPoint(op):
                        op.operands[index] = build.barrier(value)


def _is_splat(op: ir.Operation | None) -> bool:
    """Returns whether an operation makes a splat: a tensor whose elements are all equal."""
    if op is None or op.name != "arith.constant":
        return op is not None and op.name == "linalg.fill"
    value = op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat
