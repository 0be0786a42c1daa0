"""Rematerialises values of the host before an earlier operation."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph

_CHEAP = ("arith.", "affine.apply", "util.assume.int", "tensor.dim")
"""Operations that can be computed again: they are cheap and have no side effects."""


class Rematerialiser:
    """The values that are available before an operation in its block, or can be recomputed there."""

    def __init__(self, before: ir.Operation) -> None:
        ops = (view.operation for view in before.block.operations)
        self._available = set[ir.Operation]()
        for op in ops:
            if op == before:
                break
            self._available.add(op)
        self._before, self._made = before, dict[ir.Operation, ir.Operation]()

    def can_get(self, value: ir.Value) -> bool:
        """Returns whether `get` can provide the value."""
        op = graph.producer(value)
        if op is None or op in self._available:
            return True
        return op.name.startswith(_CHEAP) and all(map(self.can_get, op.operands))

    def get(self, value: ir.Value) -> ir.Value:
        """Returns the value, recomputed before the operation if needed."""
        op = graph.producer(value)
        if op is None or op in self._available:
            return value
        if op not in self._made:
            operands = [self.get(operand) for operand in op.operands]
            with op.location, ir.InsertionPoint(self._before):
                self._made[op] = graph.copied(op, operands)
        return self._made[op].results[ir.OpResult(value).result_number]
