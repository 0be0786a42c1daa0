"""Finds pairs of matmuls of one LHS whose results are combined elementwise: gate and up of a gated MLP.

%g = matmul(%x, %gate)    %u = matmul(%x, %up)    %h = silu(%g) * %u
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from iree.compiler import ir

from mxcomp.layout import LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.symmetry import are_alike
from mxcomp.mlir import graph
from mxcomp.mlir.linalg_ops import is_elementwise


def find(recognised: Sequence[ir.Operation]) -> dict[int, int]:
    """Returns the indices in `recognised` of matmuls that form a pair, each with that of its partner.

    Whether they are fused is known only when their consumers are (mxcomp-fuse-consumers).
    """
    of_lhs: dict[ir.Value, list[int]] = defaultdict(list)
    for i, op in enumerate(recognised):
        of_lhs[op.operands[LHS]].append(i)
    found: dict[int, int] = {}
    for i, j in (pair for together in of_lhs.values() for pair in combinations(together, 2)):
        if i not in found and j not in found and _is_pair(recognised[i], recognised[j]):
            found |= {i: j, j: i}
    return found


def _is_pair(op: ir.Operation, other: ir.Operation) -> bool:
    """Returns whether two matmuls share LHS and its scales, have RHS of one type, and a common consumer."""
    if op.operands[LHS_SCALE] != other.operands[LHS_SCALE] or op.block != other.block:
        return False
    if any(are_alike(op.operands[side], other.operands[side]) for side in (RHS, RHS_SCALE)):
        return False
    behind, of_other = (graph.chain_behind(each, _is_consumer) for each in (op, other))
    return problem_of(op) == problem_of(other) and not set(behind).isdisjoint(of_other)


def _is_consumer(op: ir.Operation) -> bool:
    """Returns whether an operation is elementwise, or expands a result in front of such."""
    return op.name == "tensor.expand_shape" or is_elementwise(op)
