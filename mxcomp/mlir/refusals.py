"""Names the PyTorch operators that IREE cannot import: its own error may name another operation, or no line.

Each operator is lowered separately, in a function of its own, with the constants and lists that it takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir, passmanager
from iree.compiler.dialects import func

from mxcomp.mlir import graph

_TO_IREE = "builtin.module(torch-to-iree)"
_OPERATORS = ("torch.aten.", "torch.prims.", "torch.operator")
_COPIED = ("torch.constant.", "torch.prim.ListConstruct")
"""Operations that are copied with an operator to test it: constants, and values that no function argument can have."""


def refused(module: ir.Module) -> list[str]:
    """Returns operators that cannot be lowered, with their types, modules of torch and source lines, each kind once."""
    return [f"{_name(op)}, {op.location}" for op in _kinds(module) if not _is_lowered(op)]


def _kinds(module: ir.Module) -> Iterator[ir.Operation]:
    known = set()
    for op in graph.walk(module.operation, bodies=False):
        if op.name.startswith(_OPERATORS):
            kind = _name(op), tuple(str(value.type) for value in op.operands)
            if kind not in known:
                known.add(kind)
                yield op


def _name(op: ir.Operation) -> str:
    name = ir.StringAttr(op.attributes["name"]).value if op.name == "torch.operator" else op.name
    return name.removeprefix("torch.")


def _is_lowered(op: ir.Operation) -> bool:
    with op.context, ir.Location.unknown():
        alone = ir.Module.create()
        given = list(dict.fromkeys(_given(op)))
        with ir.InsertionPoint(alone.body):
            kinds = [value.type for value in given], [result.type for result in op.results]
            function = func.FuncOp("main", kinds)
            values = dict(zip(given, function.add_entry_block().arguments, strict=True))
        with ir.InsertionPoint(function.entry_block):
            func.ReturnOp(list(_copied(op, values).results))
        try:
            passmanager.PassManager.parse(_TO_IREE).run(alone.operation)
        except ir.MLIRError:
            return False
    return True


def _given(op: ir.Operation) -> Iterator[ir.Value]:
    """Returns the outside values that a copied operation uses."""
    for value in op.operands:
        producer = graph.producer(value)
        if producer is not None and producer.name.startswith(_COPIED):
            yield from _given(producer)
        else:
            yield value


def _copied(op: ir.Operation, values: dict[ir.Value, ir.Value]) -> ir.Operation:
    """Copies the operation here, behind the constants and lists that it uses."""
    for value in op.operands:
        producer = graph.producer(value)
        if value not in values and producer is not None:
            values[value] = _copied(producer, values).results[0]
    return graph.copied(op, [values[value] for value in op.operands])
