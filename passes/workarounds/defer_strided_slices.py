"""mxcomp-defer-strided-slices: takes strided slices of constants at run time.

IREE takes them when it compiles, on the CPU, whose code generation fails over some.

Before:

    %x = arith.constant dense<…> : tensor<3x3xi8>
    %s = tensor.extract_slice %x[0, 0] [2, 2] [2, 2] : tensor<3x3xi8> to tensor<2x2xi8>

After:

    %c = arith.constant dense<…> : tensor<3x3xi8>
    %x = util.optimization_barrier %c : tensor<3x3xi8>
    %s = tensor.extract_slice %x[0, 0] [2, 2] [2, 2] : tensor<3x3xi8> to tensor<2x2xi8>
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph
from mxcomp.options import Options
from mxcomp.passes.defer_constants import defer
from mxcomp.passes.workarounds import Unshown, Workaround

WORKAROUND = Workaround(
    fault="Some slices with steps of constants fail where they are evaluated, on the CPU.",
    stock=Unshown("2 by 2 of 3 by 3 bytes, in a program with quantised operands; alone it compiles"),
)


def run(module: ir.Operation, options: Options) -> None:
    """Puts barriers behind constants below `module` of which strided slices are taken."""
    varying = set[ir.Operation]()
    with module.context:
        for op in [op for op in graph.walk(module, bodies=False) if _has_steps(op)]:
            defer([op], varying)


def _has_steps(op: ir.Operation) -> bool:
    return op.name == "tensor.extract_slice" and set(op.opview.static_strides) != {1}
