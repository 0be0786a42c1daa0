"""Copies bodies of linalg ops to where a pass computes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.mlir import graph

ASSERT = "cf.assert"
"""An operation of bodies that is not copied: a GPU cannot stop a program."""

Rewrite: TypeAlias = Callable[[ir.Operation, list[ir.Value]], ir.Value | None]
"""Maps an operation of a body and its new operands to the replacement of its result; None: the operation is copied."""


def inline(op: ir.Operation, arguments: Sequence[ir.Value], rewrite: Rewrite = lambda op, operands: None) -> ir.Value:
    """Copies the body of a linalg op to the insertion point, and returns the first value it yields. Constants from
    outside are copied along."""
    return inlined(op, arguments, rewrite)[0]


def inlined(
    op: ir.Operation, arguments: Sequence[ir.Value], rewrite: Rewrite = lambda op, operands: None
) -> list[ir.Value]:
    """Returns all values that the body of a linalg op yields, as `inline` does the first."""
    block = op.regions[0].blocks[0]
    known = dict(zip(block.arguments, arguments, strict=False))

    def new(value: ir.Value) -> ir.Value:
        if value not in known:
            known[value] = constant(value)
        return known[value]

    *body, last = block.operations
    for inner in (view.operation for view in body if view.operation.name != ASSERT):
        operands = [new(operand) for operand in inner.operands]
        if (value := rewrite(inner, operands)) is not None:
            known[inner.results[0]] = value
        else:
            known |= zip(inner.results, graph.copied(inner, operands).results, strict=True)
    return [new(value) for value in last.operands]


def copy(ops: Iterable[ir.Operation], known: dict[ir.Value, ir.Value]) -> None:
    """Copies operations to the insertion point, in order.

    Their operands are those known for the original ones, if any; their results become known.
    """
    for op in ops:
        known |= zip(op.results, graph.copied(op, [known.get(each, each) for each in op.operands]).results, strict=True)


def insert(kernel: ir.Operation, *texts: str) -> ir.Operation:
    """Returns a kernel with the bodies of functions of modules, given as text, in place of its calls."""
    modules = [ir.Module.parse(text) for text in texts]
    functions = [view.operation for module in modules for view in module.body.operations]
    blocks = {graph.symbol_name(op): op.regions[0].blocks[0] for op in functions}
    for call in [op for op in graph.walk(kernel) if op.name == "func.call"]:
        block = blocks[graph.callee(call)]
        known = dict(zip(block.arguments, call.operands, strict=True))
        *body, end = (view.operation for view in block.operations)
        with ir.InsertionPoint(call):
            copy(body, known)
        graph.replace(call, *(known[operand] for operand in end.operands))
    return kernel


def constant(value: ir.Value) -> ir.Value:
    """Returns a copy of a constant at the insertion point, so that no region captures it; other values as they are."""
    op = value.owner.operation if isinstance(value.owner, ir.Operation | ir.OpView) else None
    return op.clone().results[0] if op is not None and op.name == "arith.constant" else value
