"""Finds values that may be overwritten in place at IREE's flow phase, and by which operations."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from iree.compiler import ir

from mxcomp.mlir import build, dispatches, graph
from mxcomp.mlir.dispatches import DISPATCH

BARRIER = "util.optimization_barrier"
VIEWS = ("flow.tensor.reshape", "flow.tensor.bitcast", "flow.tensor.clone")
_EXECUTABLE = "flow.executable"
_READERS = ("flow.tensor.load", "flow.tensor.slice", "hal.tensor.export", "hal.tensor.barrier", BARRIER)


def is_view(value: ir.Value) -> bool:
    """Returns whether a value is a view of another one, in another shape."""
    return graph.producer(value, *VIEWS) is not None


def writers(value: ir.Value, views: Collection[str] = VIEWS) -> list[ir.Operation]:
    """Returns the operations that may write over a value: all that are not known to only read it."""
    return [use.owner.operation for use in graph.uses(value, views) if not _only_reads(use)]


def _only_reads(use: ir.OpOperand) -> bool:
    owner = use.owner.operation
    if owner.name == DISPATCH:
        return use.operand_number not in dispatches.written_over(owner)
    return owner.name in _READERS


def functions(module: ir.Operation) -> list[ir.Operation]:
    """Returns the operations of a module, without executables."""
    found = [view.operation for view in graph.module_block(module).operations]
    return [op for op in found if op.name != _EXECUTABLE]


def written_over(module: ir.Operation) -> Iterator[tuple[ir.Value, list[ir.Operation]]]:
    """Yields the tensors below `module` that something may write over, with the writers. Safe against uses that are
    added."""
    for function in functions(module):
        for value in list(_tensors(function)):
            if not is_view(value) and (found := writers(value)):
                yield value, found


def _tensors(function: ir.Operation) -> Iterator[ir.Value]:
    """Yields all tensors of a function, arguments of its blocks included."""
    for op in (function, *graph.walk(function)):
        blocks = [block for region in op.regions for block in region.blocks]
        for value in (*op.results, *(argument for block in blocks for argument in block.arguments)):
            if build.is_tensor(value):
                yield value


def barrier(value: ir.Value) -> ir.Value:
    """Returns the value behind an optimisation barrier."""
    return ir.Operation.create(BARRIER, results=[value.type], operands=[value]).result
