"""Gathers packed operands: each matrix of a batch takes that of one expert, by its id.

In the dispatch of a grouped matmul, with all packed experts as source and the matrices of the batch as result:

    %g = iree_linalg_ext.gather dimension_map = [0]
           ins(%packed, %ids : tensor<128x23x12x1x2x4x16x4xf4E2M1FN>, tensor<24xi32>)
           outs(%empty) -> tensor<24x23x12x1x2x4x16x4xf4E2M1FN>

mxcomp-fold-gathers makes workgroups read `%packed` directly, so that this is never computed.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.mlir.build import static_sizes

GATHER = "iree_linalg_ext.gather"


def gathered(packed: ir.Value, ids: ir.Value) -> ir.Value:
    """Returns the operand [count, …] whose matrix b is `packed` [experts, …] at ids[b], for i32 `ids` [count]."""
    shape = [*static_sizes(ids), *static_sizes(packed)[1:]]
    result = build.tensor_type(shape, build.element(packed))
    attributes = {"dimension_map": ir.DenseI64ArrayAttr.get([0])}
    operands = [packed, ids, build.empty(result, build.dynamic_sizes(packed))]
    return ir.Operation.create(GATHER, results=[result], operands=operands, attributes=attributes).result
