"""mxcomp-legalise-overwriting: makes operations overwrite a copy if they also read the tensor by another operand.

What an operation reads and writes over at once, as in x[:, 1:3] = x[:, 0:2], IREE takes for one buffer: elements that
are written are read again, or the kernel cannot be compiled. It writes over a copy instead.

Before:

    %s = tensor.extract_slice %x[0, 0] [64, 2] [1, 1] : tensor<64x4xf32> to tensor<64x2xf32>
    %r = tensor.insert_slice %s into %x[0, 1] [64, 2] [1, 1] : tensor<64x2xf32> into tensor<64x4xf32>

After:

    %c = flow.dispatch.region -> (tensor<64x4xf32>) { (an elementwise linalg.generic that yields its operand %x) }
    %r = tensor.insert_slice %s into %c[0, 1] [64, 2] [1, 1] : tensor<64x2xf32> into tensor<64x4xf32>

Operands that are computed alike are made one first, as IREE does it later (CSE).
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from mxcomp.matching.symmetry import are_alike
from mxcomp.mlir import build, graph

PIPELINE = "any(cse)"
_SCATTER, _GATHER = "iree_linalg_ext.scatter", "iree_linalg_ext.gather"
SLICES = ("tensor.extract_slice", "tensor.expand_shape", "tensor.collapse_shape", "tensor.cast")
_WRITTEN = {
    _SCATTER: [-1],
    "iree_linalg_ext.map_store": [1],
    "iree_linalg_ext.scan": [-2, -1],
    "iree_linalg_ext.fft": [-2, -1],
    "tensor.insert_slice": [1],
}
"""The operands that operations overwrite."""


def places_written(op: ir.Operation) -> list[int]:
    """Returns the indices of the operands that an operation overwrites."""
    count = len(op.operands)
    return list(range(count)) if op.name == graph.SORT else [i % count for i in _WRITTEN.get(op.name, ())]


def written(op: ir.Operation) -> list[ir.Value]:
    """Returns the values that an operation overwrites."""
    return [op.operands[i] for i in places_written(op)]


def repeats(op: ir.Operation) -> bool:
    """Returns whether an operation reads an overwritten value by another operand, or overwrites it twice."""
    roots = _roots(op)
    return any(roots.count(roots[i]) > 1 for i in places_written(op))


def _roots(op: ir.Operation) -> list[ir.Value]:
    """Returns the tensors of which the operands are, or are parts of."""
    return [graph.look_through(value, SLICES) for value in op.operands]


def may_be_one(op: ir.Operation) -> bool:
    """Returns whether CSE may merge an overwritten operand with another one, or the sources of both."""
    sides = [list(op.operands), _roots(op)] if places_written(op) else []
    pairs = ((side[i], other) for side in sides for i in places_written(op) for other in side[:i])
    return any(a != b and a.type == b.type and are_alike(a, b) for a, b in pairs)


def run(module: ir.Operation) -> None:
    """Rewrites operations outside of dispatches below `module`."""
    for function in [view.operation for view in graph.module_block(module).operations]:
        if any(may_be_one(op) for op in graph.walk(function, bodies=False)):
            PassManager.parse(PIPELINE).run(function)
    graph.rewrite(module, _WRITTEN, _write_over_copies, outside=True)


def _write_over_copies(op: ir.Operation) -> None:
    """Gives an operation a copy to overwrite if another operand is the same tensor, or a part of it."""
    for written in places_written(op):
        roots = _roots(op)
        if roots.count(roots[written]) > 1:
            op.operands[written] = copy(op.operands[written])


def _apart(value: ir.Value) -> ir.Value:
    """Returns a value that IREE computes in a separate kernel; it repeats gathers in the kernels that read them."""
    op = graph.producer(graph.look_through_views(value))
    return build.barrier(value) if op is not None and op.name == _GATHER else value


def copy(value: ir.Value) -> ir.Value:
    """Returns a copy in a separate dispatch, at the insertion point."""
    value = _apart(value)
    kind, sizes = ir.RankedTensorType(value.type), build.dynamic_sizes(value)
    with build.dispatch_region([kind], sizes) as region:
        region.returned = [build.elementwise(kind, [value], lambda x: x, sizes)]
    return region.results[0]
