"""Values of the host, as they can be had before an operation that is in front of them."""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph

_AGAIN = ("arith.", "affine.apply", "util.assume.int", "tensor.dim")
"""What can be computed once more: nothing that takes time, or that anything else notices."""


class Earlier:
    """What is there before an operation in its block, or is computed of that once more."""

    def __init__(self, before: ir.Operation) -> None:
        ops = (view.operation for view in before.block.operations)
        self._there = set[ir.Operation]()
        for op in ops:
            if op == before:
                break
            self._there.add(op)
        self._before, self._made = before, dict[ir.Operation, ir.Operation]()

    def has(self, value: ir.Value) -> bool:
        """Whether `get` can give it."""
        op = graph.producer(value)
        if op is None or op in self._there:
            return True
        return op.name.startswith(_AGAIN) and all(map(self.has, op.operands))

    def get(self, value: ir.Value) -> ir.Value:
        """The same value before the operation."""
        op = graph.producer(value)
        if op is None or op in self._there:
            return value
        if op not in self._made:
            operands = [self.get(operand) for operand in op.operands]
            with op.location, ir.InsertionPoint(self._before):
                made = op.clone()
            for i, operand in enumerate(operands):
                made.operands[i] = operand
            self._made[op] = made
        return self._made[op].results[ir.OpResult(value).result_number]
