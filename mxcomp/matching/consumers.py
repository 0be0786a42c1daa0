"""Finds the consumers of a scaled matmul's result."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph
from mxcomp.mlir.linalg_ops import is_elementwise

_ELEMENTWISE = ("arith.", "math.")
"""Operations on tensors that are elementwise."""
STORED_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
"""The element types that a kernel of a matmul may store, with their bytes."""


def stored_type(op: ir.Operation) -> str:
    """Returns the type in which a recognised matmul's result is stored, after its elementwise consumers.

    These become part of its kernel as a rule, so that this is what the kernel stores; what it does store is known
    only when they have been fused (mxcomp-fuse-consumers).
    """
    value, found = op.results[0], "f32"
    while True:
        kind = str(ir.RankedTensorType(value.type).element_type)
        found = kind if kind in STORED_BYTES else found
        users = {use.owner.operation for use in value.uses}
        if len(users) != 1:
            return found
        (user,) = users
        if not (is_elementwise(user) or user.name in graph.RESHAPES or user.name.startswith(_ELEMENTWISE)):
            return found
        value = user.results[0]
