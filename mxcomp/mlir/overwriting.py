"""Which values may be written over at IREE's flow phase, and by what."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from iree.compiler import ir

from mxcomp.mlir import dispatches, graph
from mxcomp.mlir.dispatches import DISPATCH

BARRIER = "util.optimization_barrier"
VIEWS = ("flow.tensor.reshape", "flow.tensor.bitcast", "flow.tensor.clone")
_READERS = ("flow.tensor.load", "flow.tensor.slice", "hal.tensor.export", "hal.tensor.barrier", BARRIER)


def is_view(value: ir.Value) -> bool:
    """Whether a value is another one, seen in another shape."""
    op = graph.producer(value)
    return op is not None and op.name in VIEWS


def uses(value: ir.Value, views: Collection[str] = VIEWS) -> Iterator[ir.OpOperand]:
    """The uses of a value and of its views."""
    for use in value.uses:
        owner = use.owner.operation
        if owner.name in views:
            yield from uses(owner.results[0], views)
        else:
            yield use


def writers(value: ir.Value, views: Collection[str] = VIEWS) -> list[ir.Operation]:
    """The operations that may write over a value: all that are not known to only read it."""
    return [use.owner.operation for use in uses(value, views) if not _only_reads(use)]


def _only_reads(use: ir.OpOperand) -> bool:
    owner = use.owner.operation
    if owner.name == DISPATCH:
        return use.operand_number not in dispatches.written_over(owner)
    return owner.name in _READERS
