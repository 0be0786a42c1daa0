"""mxcomp-legalise-bitcasts: moves bitcasts in front of a `tensor.cast` that hides sizes.

Matmuls of such bytes are recognised then, and packed as those of static sizes.

Before:

    %d = tensor.cast %x : tensor<4x32xi8> to tensor<?x32xi8>
    %e = iree_tensor_ext.bitcast %d : tensor<?x32xi8>{%c4} -> tensor<?x2x32xf4E2M1FN>{%c4}

After:

    %b = iree_tensor_ext.bitcast %x : tensor<4x32xi8> -> tensor<4x2x32xf4E2M1FN>
    %e = tensor.cast %b : tensor<4x2x32xf4E2M1FN> to tensor<?x2x32xf4E2M1FN>
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.matching.sizes import Sizes
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph

_BITCASTS = (*BITCASTS, "tensor.bitcast")


def run(module: ir.Operation) -> None:
    """Rewrites bitcasts below `module`."""
    for op in [op for op in graph.walk(module, bodies=False) if op.name in _BITCASTS]:
        _know_sizes(op)


def _know_sizes(op: ir.Operation) -> None:
    """Rewrites a bitcast of a cast tensor as a cast of a bitcast of the tensor itself."""
    source = graph.without_cast(op.operands[0])
    if source == op.operands[0] or not ir.RankedTensorType(source.type).has_static_shape:
        return
    kind, sizes = ir.RankedTensorType(op.results[0].type), Sizes()
    found = [sizes.of(op.results[0], dim) for dim in range(kind.rank)]
    if any(size.roots or size.factor.denominator != 1 for size in found):
        return
    with op.location, ir.InsertionPoint(op):
        known = build.tensor_type([int(each.factor) for each in found], kind.element_type)
        value = build.bitcast(source, known)
        value = value if known == kind else tensor.CastOp(kind, value).result
    graph.replace(op, value)
