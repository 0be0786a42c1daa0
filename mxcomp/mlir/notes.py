"""What passes note on the module, and the report takes from there: why something was left unfused, what became of
attention, and what users ought to know of their files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iree.compiler import ir

from mxcomp.mlir import graph
from mxcomp.mlir.attributes import from_python, to_python

UNFUSED = "mxcomp.unfused"
"""On the module while passes run: reasons, by the index of the matmul."""

WARNINGS = "mxcomp.warnings"
"""On the module while passes run: lines for users, about no matmul in particular."""

ATTENTIONS = "mxcomp.attentions"
"""On the module while passes run: what became of each attention."""


def attend(module: ir.Operation, entries: Sequence[Mapping[str, Any]]) -> None:
    """Puts on a module what became of each attention."""
    if entries:
        with module.context:
            module.attributes[ATTENTIONS] = from_python([dict(each) for each in entries])


def take_attentions(module: ir.Operation) -> list[dict[str, Any]]:
    """What became of each attention, which is then gone from the module."""
    if ATTENTIONS not in module.attributes:
        return []
    entries: list[dict[str, Any]] = to_python(module.attributes[ATTENTIONS])
    del module.attributes[ATTENTIONS]
    return entries


def warn(module: ir.Operation, lines: Sequence[str]) -> None:
    """Puts warnings on a module."""
    if lines:
        module.attributes[WARNINGS] = ir.ArrayAttr.get([ir.StringAttr.get(line) for line in lines], module.context)


def take_warnings(module: ir.Operation) -> list[str]:
    """The warnings, which are then gone from the module."""
    if WARNINGS not in module.attributes:
        return []
    lines = [ir.StringAttr(line).value for line in ir.ArrayAttr(module.attributes[WARNINGS])]
    del module.attributes[WARNINGS]
    return lines


def note(op: ir.Operation, index: int, reason: str) -> None:
    """Adds a reason for a matmul to the module around `op`, once."""
    root = graph.root(op)
    noted = _noted(root)
    reasons = noted.setdefault(str(index), [])
    if reason not in reasons:
        reasons.append(reason)
    _put(root, noted)


def drop(op: ir.Operation, index: int) -> None:
    """Takes back what was noted for a matmul."""
    root = graph.root(op)
    _put(root, {key: reasons for key, reasons in _noted(root).items() if key != str(index)})


def take(module: ir.Operation) -> dict[int, list[str]]:
    """The reasons by matmul, which are then gone from the module."""
    noted = _noted(module)
    if UNFUSED in module.attributes:
        del module.attributes[UNFUSED]
    return {int(key): value for key, value in noted.items()}


def _put(root: ir.Operation, noted: dict[str, list[str]]) -> None:
    with root.context:
        entries = {key: ir.ArrayAttr.get([ir.StringAttr.get(r) for r in value]) for key, value in noted.items()}
        root.attributes[UNFUSED] = ir.DictAttr.get(entries)


def _noted(root: ir.Operation) -> dict[str, list[str]]:
    if UNFUSED not in root.attributes:
        return {}
    entries = ir.DictAttr(root.attributes[UNFUSED])
    return {named.name: [ir.StringAttr(r).value for r in ir.ArrayAttr(named.attr)] for named in entries}
