"""Whether a matmul's operands may come to be one tensor, as in x · xᵀ."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.matching import gathers
from mxcomp.matching.storage import storage
from mxcomp.mlir import graph


def is_symmetric(op: ir.Operation) -> bool:
    """Whether LHS and RHS of a recognised matmul may be read from one tensor, as they are or packed alike.

    IREE 3.13 does not compile a dispatch that bitcasts what it loads twice, as ukernels over units and row-major ones
    do (test/hip/test_units.py), nor its own code generation for some of them, 17 × 64 for example: "expected
    swizzle_hint operand to be defined by a memref.alloc".
    """
    lhs, rhs = (storage(op.operands[side]) for side in (LHS, RHS))
    return lhs == rhs or bool(_sources(lhs) & _sources(rhs))


def _sources(value: ir.Value) -> set[ir.Value | ir.Attribute]:
    """What a value is computed from: arguments, and the attributes of constants and of globals that are loaded."""
    found: set[ir.Value | ir.Attribute] = set()
    seen: set[ir.Value] = set()
    left = [value]
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        op, gather = graph.producer(value), gathers.find(value)
        if gather is not None:  # ids only say which parts
            left.append(gather.source)
            continue
        operands = [] if op is None else [each for each in op.operands if isinstance(each.type, ir.RankedTensorType)]
        if not operands and (op is None or op.name != "tensor.empty"):
            names = () if op is None else [name for name in ("value", "global") if name in op.attributes]
            found.add(value if op is None or not names else op.attributes[names[0]])
        left += operands
    return found
