"""What a model does with the result of a scaled matmul."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir.linalg_ops import is_elementwise

_ELEMENTWISE = ("arith.", "math.")
"""Operations that are so on tensors."""
_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")
STORED_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
"""Element types that a kernel of a matmul may store, with their bytes."""


def stored_type(op: ir.Operation) -> str:
    """The element type of a recognised matmul's result behind the elementwise operations that alone use it.

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
        if not (is_elementwise(user) or user.name in _RESHAPES or user.name.startswith(_ELEMENTWISE)):
            return found
        value = user.results[0]
