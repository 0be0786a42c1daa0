"""mxcomp-keep-from-one-scale: materialises what a scaled conversion with a single scale reads.

IREE fails if it can make one operation of the conversion and of one that gathers: it leaves an
"builtin.unrealized_conversion_cast".

Before:

    %x = linalg.generic … { tensor.extract … } -> tensor<1x32xf32>
    %r = linalg.generic … ins(%x, %scale : tensor<1x32xf32>, tensor<1xf8E8M0FNU>) … (arith.scaling_truncf)

After:

    %x = linalg.generic … { tensor.extract … } -> tensor<1x32xf32>
    %h = util.optimization_barrier %x : tensor<1x32xf32>
    %r = linalg.generic … ins(%h, %scale : tensor<1x32xf32>, tensor<1xf8E8M0FNU>) … (arith.scaling_truncf)
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import is_elementwise
from mxcomp.options import Options
from mxcomp.passes.workarounds import Unshown, Workaround

WORKAROUND = Workaround(
    fault="A scaled conversion with one scale for all fails together with a gather.",
    stock=Unshown("one block of a gathered row, of a quantiser in front of an expert's matmul; alone it compiles"),
)


def run(module: ir.Operation, options: Options) -> None:
    """Puts barriers in front of conversions outside of dispatches below `module`."""
    with module.context:
        for op in [op for op in graph.walk(module, bodies=False) if op.name == "linalg.generic" and is_elementwise(op)]:
            if not graph.is_in_dispatch(op):
                with op.location, ir.InsertionPoint(op):
                    _keep(op)


def _keep(op: ir.Operation) -> None:
    """Puts a barrier behind the results of linalg operations that a scaled conversion with a single scale reads."""
    body = op.regions[0].blocks[0]
    if not any(inner.operation.name.startswith("arith.scaling_") for inner in body.operations):
        return
    inputs = list(op.operands)[:-1]
    if any(_is_single(value) for value in inputs):
        for position, value in enumerate(inputs):
            source = graph.producer(graph.look_through_views(value))
            if not _is_single(value) and source is not None and source.name.startswith("linalg."):
                op.operands[position] = build.barrier(value)


def _is_single(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and set(build.static_sizes(value)) <= {1}
