"""Pairs of matmuls of one LHS whose results meet in elementwise calculations: gate and up of a gated MLP.

%g = matmul(%x, %gate)    %u = matmul(%x, %up)    %h = silu(%g) * %u
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from iree.compiler import ir

from mxcomp.layout import LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import Decision
from mxcomp.matching.symmetry import are_alike
from mxcomp.mlir import graph
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise


def find(recognised: Sequence[ir.Operation]) -> dict[int, int]:
    """The number of the other one of each matmul in a pair, by its own, among those in canonical form.

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
    """Whether two matmuls of one LHS have its scales in common, two matrices of one shape and type, and a consumer."""
    if op.operands[LHS_SCALE] != other.operands[LHS_SCALE] or op.block != other.block:
        return False
    if any(are_alike(op.operands[side], other.operands[side]) for side in (RHS, RHS_SCALE)):
        return False
    behind = list(_consumers(op))
    return problem_of(op) == problem_of(other) and any(user in behind for user in _consumers(other))


def _consumers(op: ir.Operation) -> Iterator[ir.Operation]:
    """Elementwise operations on a result, one behind the other, as long as nothing else reads what is between."""
    value = op.results[0]
    while True:
        users = {use.owner.operation for use in value.uses}
        if len(users) != 1 or not is_elementwise(user := next(iter(users))) or len(user.results) != 1:
            return
        yield user
        value = user.results[0]


@dataclass(frozen=True)
class Fused:
    """A pair whose results meet in the consumers that were fused behind one of them, which read `met` of the other.

    `first` and `second` are their numbers.
    """

    first: int
    second: int
    met: ir.Value


def fused(matmuls: Sequence[tuple[ir.Operation, Decision]], epilogue: str) -> dict[int, Fused]:
    """The pairs of encoded matmuls, by both numbers, that were decided on where fused consumers allow it.

    Those have the attribute `epilogue`.
    """
    found: dict[int, Fused] = {}
    by_index = {decision.index: (op, decision) for op, decision in matmuls if decision.paired is not None}
    for index, (op, decision) in by_index.items():
        other, partner = by_index.get(decision.paired_with, (None, None))
        if other is None or partner is None or (partner.paired, partner.paired_with) != (decision.paired, index):
            continue
        if (met := _met(op, other, epilogue)) is not None:
            pair = Fused(index or 0, partner.index or 0, met)
            found |= {pair.first: pair, pair.second: pair}
    return found


def _met(op: ir.Operation, other: ir.Operation, epilogue: str) -> ir.Value | None:
    """The result of `other` if all that reads it is what is fused behind `op`, at the same place."""
    behind, result = graph.only_user(op), graph.only_user(other)
    if result is not None and epilogue in result.attributes:
        result = graph.only_user(result)
    if behind is None or result is None or epilogue not in behind.attributes:
        return None
    *maps, identity = indexing_maps(behind) or []
    value = result.results[0]
    uses = [(use.owner.operation, use.operand_number) for use in value.uses]
    if not uses or any(user != behind or maps[position] != identity for user, position in uses):
        return None
    return value
