"""Finds the consumers of a scaled matmul's result."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph
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
    return _stored_type(op, most_read=None)


def own_type(op: ir.Operation) -> str:
    """Returns the same, after operations that read nothing else of its shape: of two joined results, one is stored with
    this type."""
    return _stored_type(op, most_read=1)


def _stored_type(op: ir.Operation, most_read: int | None) -> str:
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
        inputs = list(user.operands)[: -1 if is_elementwise(user) else None]
        if most_read is not None and _alike(inputs, value) > most_read:
            return found
        value = user.results[0]


def _alike(inputs: list[ir.Value], value: ir.Value) -> int:
    """Returns how many of an operation's inputs have a value's shape."""
    return sum(build.static_sizes(each) == build.static_sizes(value) for each in inputs)
