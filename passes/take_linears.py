"""mxcomp-take-linears: computes products of a few rows with 16-bit weights by kernels of ours.

Before:

    %t = linalg.transpose ins(%w : tensor<5120x2880xbf16>) … permutation = [1, 0]
    %p = linalg.matmul ins(%x, %t : tensor<16x2880xbf16>, …) outs(%zero) -> tensor<16x5120xf32>
    %s = linalg.generic … ins(%p, %bias : …) (added) -> tensor<16x5120xf32>
    %r = linalg.generic … ins(%s) (truncated) -> tensor<16x5120xbf16>

After:

    %d = flow.dispatch.region -> (tensor<16x320x16xbf16>) {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_linear_…">}
          ins(%x, %w, %bias) …
    }
    %r = tensor.collapse_shape %d [[0], [1, 2]] … into tensor<16x5120xbf16>

These are attention projections, routers and heads of models that have them unquantised. Of more than 32 rows
and many columns IREE's own kernels are faster: those stay with IREE.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching import linears
from mxcomp.matching.linears import Product
from mxcomp.mlir import build, graph
from mxcomp.options import Options
from mxcomp.packing import standing
from mxcomp.ukernels.linear import Linear

OPTIONS = ("ukernels", "reference")


def run(module: ir.Operation, options: Options) -> None:
    """Replaces every such product below `module`."""
    if not options.has_kernels:
        return
    with module.context:
        for op in [op for op in graph.walk(module, bodies=False) if op.name == linears.MATMUL]:
            found = linears.find(op)
            kernel = None if found is None else found.kernel.spread(options.target.cus)
            if found is not None and kernel is not None and not options.target.lacks_short_products(kernel.element):
                _replace(found, kernel)


def _replace(found: Product, kernel: Linear) -> None:
    last = found.last
    with last.context, ir.InsertionPoint(last), standing.named(found.op, "linear", "linear"):
        x, weights, *bias = found.operands
        row = build.collapse(x, [[0, 1]]) if kernel.rows == 1 else x
        result = kernel.result_type(kernel.workgroups)
        (tiles,) = standing.dispatch(kernel, [row, weights, *bias], [result], kernel.threads, along=kernel.along)
        groups = [[0], [1, 2]] if kernel.along else [[0, 1]]
        made = build.collapse(tiles, groups)
        if kernel.rows == 1:
            made = tensor.ExpandShapeOp(last.results[0].type, made, [[0, 1]], [], [1, kernel.columns]).result
    last.results[0].replace_all_uses_with(made)
    graph.erase_unused([last.results[0]])
