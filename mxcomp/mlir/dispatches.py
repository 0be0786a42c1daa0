"""Dispatches of IREE's flow dialect: the functions that they call, and calls with more operands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from iree.compiler import ir

from mxcomp.mlir import graph

DISPATCH = "flow.dispatch"
SEGMENTS = "operandSegmentSizes"
TIED = "tied_operands"


class EntryPoint(NamedTuple):
    """The symbols of an executable of this module, or of one that links into it, and of a function in it."""

    executable: str
    function: str


def entry_points(dispatch: ir.Operation) -> list[EntryPoint]:
    """Returns the functions that it may call: one, unless the choice is made later."""
    symbols = (ir.SymbolRefAttr(symbol).value for symbol in ir.ArrayAttr(dispatch.attributes["entry_points"]))
    return [EntryPoint(path[0], path[-1]) for path in symbols]


def entry_point(dispatch: ir.Operation) -> EntryPoint:
    """Returns the function that it calls."""
    (found,) = entry_points(dispatch)
    return found


def workload(dispatch: ir.Operation) -> list[ir.Value]:
    """Returns the operands from which the number of workgroups is computed."""
    return list(dispatch.operands)[: ir.DenseI32ArrayAttr(dispatch.attributes[SEGMENTS])[0]]


def arguments(dispatch: ir.Operation) -> int:
    """Returns the number of operands that the function gets, without workload and sizes of tensors."""
    count: int = ir.DenseI32ArrayAttr(dispatch.attributes[SEGMENTS])[1]
    return count


def result_dims(dispatch: ir.Operation) -> list[ir.Value]:
    """Returns the dynamic sizes of its results."""
    *others, _ = ir.DenseI32ArrayAttr(dispatch.attributes[SEGMENTS])
    return list(dispatch.operands)[sum(others) :]


def written_over(dispatch: ir.Operation) -> set[int]:
    """Returns the numbers of the operands that its results are written over (tied operands)."""
    start = len(workload(dispatch))
    tied = ir.ArrayAttr(dispatch.attributes[TIED]) if TIED in dispatch.attributes else ()
    numbers = [ir.IntegerAttr(number).value for number in tied]
    return {start + number for number in numbers if number >= 0}


def tied(arguments: Iterable[int]) -> ir.ArrayAttr:
    """Returns the attribute that says of each result which argument it is tied to."""
    return ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), number) for number in arguments])


def with_workload(dispatch: ir.Operation, workload: Sequence[ir.Value]) -> ir.Operation:
    """Returns a copy of the dispatch at the insertion point, whose workgroups are computed from these operands."""
    count, *others = ir.DenseI32ArrayAttr(dispatch.attributes[SEGMENTS])
    return _copied(dispatch, [*workload, *list(dispatch.operands)[count:]], [len(workload), *others])


def with_operands(
    dispatch: ir.Operation,
    workload: Sequence[ir.Value] = (),
    arguments: Sequence[ir.Value] = (),
    argument_dims: Sequence[ir.Value] = (),
    **others: ir.Attribute,
) -> ir.Operation:
    """Returns a copy of the dispatch at the insertion point, with more operands of each kind, and other attributes."""
    segments = list(ir.DenseI32ArrayAttr(dispatch.attributes[SEGMENTS]))
    rest, operands = iter(list(dispatch.operands)), list[ir.Value]()
    added: tuple[Sequence[ir.Value], ...] = (workload, arguments, argument_dims, ())
    for count, more in zip(segments, added, strict=True):
        operands += [*(next(rest) for _ in range(count)), *more]
    sizes = [count + len(more) for count, more in zip(segments, added, strict=True)]
    return _copied(dispatch, operands, sizes, **others)


def _copied(
    dispatch: ir.Operation, operands: Sequence[ir.Value], segments: Sequence[int], **others: ir.Attribute
) -> ir.Operation:
    return graph.remade(dispatch, operands, **{SEGMENTS: ir.DenseI32ArrayAttr.get(segments)}, **others)
