"""Decides whether a matmul's operands may become one tensor, as in x · xᵀ."""

from __future__ import annotations

from typing import TypeAlias

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.matching import gathers
from mxcomp.matching.storage import storage
from mxcomp.mlir import graph

Source: TypeAlias = ir.Value | ir.Attribute


class Sources:
    """The values that others are computed from: arguments, and the attributes of constants and of globals that are
    loaded.

    Each value is followed once, so that what is asked for all matmuls of a model takes time in proportion to its size.
    Valid as long as operations are added, and none is erased.
    """

    def __init__(self) -> None:
        self._known: dict[ir.Value, frozenset[Source]] = {}

    def of(self, value: ir.Value) -> frozenset[Source]:
        pending = [value]
        while pending:
            inputs, own = _step(pending[-1])
            unknown = [each for each in inputs if each not in self._known]
            if unknown:
                pending += unknown
            else:
                self._known[pending.pop()] = frozenset(own).union(*(self._known[each] for each in inputs))
        return self._known[value]


def is_symmetric(op: ir.Operation, sources: Sources | None = None) -> bool:
    """Returns whether LHS and RHS of a recognised matmul may be read from one tensor, as they are or packed alike.

    IREE 3.13 does not compile a dispatch that bitcasts what it loads twice, as ukernels over inner tiles and row-major
    ones do (test/ukernels/test_inner_tiles.py), nor its own code generation for some of them, 17 × 64 for example:
    "expected swizzle_hint operand to be defined by a memref.alloc".
    """
    sources = sources or Sources()
    lhs, rhs = (storage(op.operands[side]) for side in (LHS, RHS))
    return lhs == rhs or not sources.of(lhs).isdisjoint(sources.of(rhs))


def are_alike(value: ir.Value, other: ir.Value) -> bool:
    """Returns whether two values are calculated alike from equal values, so that CSE may merge them.

    IREE hands a dispatch that reads one value twice only one of the two, and an ukernel an argument too few.
    """
    op, another = graph.producer(value), graph.producer(other)
    if value == other or op is None or another is None:
        return value == other
    leaves = [leaf for end in (value, other) for leaf in Sources().of(end)]
    if leaves and all(isinstance(leaf, ir.DenseElementsAttr) and leaf.is_splat for leaf in leaves):
        return True
    operands = list(zip(op.operands, another.operands, strict=False))
    return (  # bodies do not matter
        (op.name, dict(op.attributes.items())) == (another.name, dict(another.attributes.items()))
        and len(op.operands) == len(another.operands)
        and all(are_alike(*pair) for pair in operands)
    )


def _step(value: ir.Value) -> tuple[list[ir.Value], list[Source]]:
    """Returns the tensors that a value is computed from in one step, and a description where there are none."""
    op, gather = graph.producer(value), gathers.find(value)
    if gather is not None:  # ids only select parts
        return [gather.source], []
    operands = [] if op is None else [each for each in op.operands if isinstance(each.type, ir.RankedTensorType)]
    if operands or (op is not None and op.name == "tensor.empty"):
        return operands, []
    names = () if op is None else [name for name in ("value", "global") if name in op.attributes]
    return [], [value if op is None or not names else op.attributes[names[0]]]
