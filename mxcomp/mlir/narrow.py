"""Tensors of elements of less than a byte as tensors of bytes, and what passes values from one place to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir

from mxcomp.mlir import build, graph

_BITCAST = "iree_tensor_ext.bitcast"
Retype = Callable[[ir.Type], ir.Type]
"""The type of the bytes that are passed in the place of a tensor of some type; that type itself where it stays."""


def byte_type(kind: ir.Type) -> ir.Type:
    """Returns the type of a tensor's bytes, if its elements are smaller and fill whole bytes; others unchanged."""
    if not isinstance(kind, ir.RankedTensorType) or not build.is_sub_byte(ir.RankedTensorType(kind).element_type):
        return kind
    kind = ir.RankedTensorType(kind)
    *outer, last = kind.shape or [1]
    bits = last * kind.element_type.width
    if last == build.DYNAMIC or bits % 8:
        return kind
    return ir.RankedTensorType.get([*outer, bits // 8], ir.IntegerType.get_signless(8))


def bytes_of(value: ir.Value) -> ir.Value:
    """Returns the bytes of a narrow tensor: those that it is a bitcast of, if they have the same rows."""
    wanted = byte_type(value.type)
    op = graph.producer(value, _BITCAST)
    return op.operands[0] if op is not None and op.operands[0].type == wanted else build.bitcast(value, wanted)


def pass_operands(op: ir.Operation, retype: Retype) -> None:
    """Gives an operation the bytes of its operands."""
    with op.location, ir.InsertionPoint(op):
        for i, value in enumerate(op.operands):
            if retype(value.type) != value.type:
                op.operands[i] = bytes_of(value)


def take_results(op: ir.Operation, retype: Retype) -> None:
    """Makes results of an operation bytes, which are bitcast behind it."""
    with op.location:
        _take(op.results, retype, ir.InsertionPoint.after(op))


def take_arguments(block: ir.Block, location: ir.Location, retype: Retype) -> None:
    """Makes arguments of a block bytes, which are bitcast at its beginning."""
    with location:
        _take(block.arguments, retype, ir.InsertionPoint.at_block_begin(block))


def take_function(function: ir.Operation, retype: Retype) -> None:
    """Makes arguments and results of a function bytes."""
    kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
    with function.location:
        inputs, results = list(map(retype, kind.inputs)), list(map(retype, kind.results))
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    take_arguments(function.regions[0].blocks[0], function.location, retype)
    for end in [op for op in graph.walk(function, bodies=False) if op.name == "util.return"]:
        pass_operands(end, retype)


def _take(values: Sequence[ir.Value], retype: Retype, where: ir.InsertionPoint) -> None:
    for value in values:
        narrow = value.type
        if retype(narrow) == narrow:
            continue
        value.set_type(retype(narrow))
        with where:
            sizes = build.dynamic_sizes(value)
            read = build.bitcast(value, narrow, sizes)
        value.replace_all_uses_except(read, [each.owner.operation for each in (read, *sizes)])
