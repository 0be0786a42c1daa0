"""mxcomp-double-keys: gives attention of a single key the same key twice, as IREE's compiler crashes on one.

Before:

    %r = iree_linalg_ext.attention … ins(%q, %k, %v, %scale : tensor<?x33x16xf32>, tensor<?x1x16xf32>, …)

After (and so of values, and of a mask):

    %kk = tensor.concat dim(1) %k, %k : (tensor<?x1x16xf32>, tensor<?x1x16xf32>) -> tensor<?x2x16xf32>
    %k2 = util.optimization_barrier %kk
    %r = iree_linalg_ext.attention … ins(%q, %k2, %v2, %scale : tensor<?x33x16xf32>, tensor<?x2x16xf32>, …)

Both have the same weight, whatever the score is, and half of twice a value is that value.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import loops

_ATTENTION = "iree_linalg_ext.attention"


def run(module: ir.Operation) -> None:
    """Rewrites each attention below `module` all of whose dimensions of keys are of size 1."""
    for op in [op for op in graph.walk(module, bodies=False) if has_single_key(op)]:
        loop, *_ = _keys(op)
        with op.location, ir.InsertionPoint(op):
            for number, each in enumerate(_operands(op)):
                if loop in each:
                    op.operands[number] = build.barrier(_twice(op.operands[number], each.index(loop)))


def has_single_key(op: ir.Operation) -> bool:
    """Returns whether an operation is an attention of a single key."""
    return op.name == _ATTENTION and {*_keys(op).values()} == {1}


def _operands(op: ir.Operation) -> list[list[int]]:
    """Returns the loops along the dimensions of each operand."""
    return [loops(ir.AffineMapAttr(each).value) for each in ir.ArrayAttr(op.attributes["indexing_maps"])]


def _keys(op: ir.Operation) -> dict[int, int | None]:
    """Returns the loops over keys, and their sizes."""
    query, key, value, *_ = _operands(op)
    sizes = zip(key, build.static_sizes(op.operands[1]), strict=True)
    return {loop: size for loop, size in sizes if loop in value and loop not in query}


def _twice(value: ir.Value, dim: int) -> ir.Value:
    """Returns a tensor and itself behind it along a dimension of size 1."""
    shape = build.static_sizes(value)
    result = build.tensor_type([*shape[:dim], 2, *shape[dim + 1 :]], build.element(value))
    along = {"dim": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dim)}
    return ir.Operation.create("tensor.concat", [result], [value, value], along).result
