"""Finds batches whose matrices are ignored where their id is negative: blocks of a grouped matmul without tokens.

    %y = linalg.generic {indexing_maps = [(b, m, n) -> (b, m, n), (b, m, n) -> (b), …]} ins(%product, %ids, …) {
    ^bb0(%p: f32, %id: i32, …):
      %has = arith.cmpi sge, %id, %c0 : i32
      %q = arith.select %has, %p, %zero : f32   // or anything else for %zero
      … nothing else uses %p

A kernel need not compute such a product.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise

_AT_LEAST = 5
"""The predicate `sge` of arith.cmpi."""


def are_hidden(product: ir.Value, ids: ir.Value) -> bool:
    """Returns whether every reader of a batch of matrices replaces those with a negative id."""
    uses = [(use.owner.operation, use.operand_number) for use in product.uses]
    return bool(uses) and all(_hides(op, number, ids) for op, number in uses)


def _hides(op: ir.Operation, number: int, ids: ir.Value) -> bool:
    maps = indexing_maps(op)
    if maps is None or not is_elementwise(op) or number == len(op.operands) - 1:
        return False
    arguments = list(op.regions[0].blocks[0].arguments)
    batch = ir.AffineMap.get(maps[number].n_dims, 0, [maps[number].results[0]])
    of_id = [arguments[i] for i, value in enumerate(list(op.operands)[:-1]) if value == ids and maps[i] == batch]
    users = [(use.owner.operation, use.operand_number) for use in arguments[number].uses]
    return all(user.name == "arith.select" and at == 1 and _chooses(user, of_id) for user, at in users)


def _chooses(select: ir.Operation, ids: list[ir.Value]) -> bool:
    """Returns whether an `arith.select` takes its last operand where an id is negative."""
    if (compare := graph.producer(select.operands[0], "arith.cmpi")) is None:
        return False
    predicate = ir.IntegerAttr(compare.attributes["predicate"]).value
    return predicate == _AT_LEAST and compare.operands[0] in ids and graph.number(compare.operands[1]) == 0
