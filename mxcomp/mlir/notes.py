"""Notes of passes on the module, which the report takes from there: why something was left unfused, how attention was
compiled, and warnings about the user's files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iree.compiler import ir

from mxcomp.mlir import graph
from mxcomp.mlir.attributes import from_python, to_python

UNFUSED = "mxcomp.unfused"
"""The module attribute with reasons, by the index of the matmul, while passes run."""

WARNINGS = "mxcomp.warnings"
"""The module attribute with lines for users about no matmul in particular, while passes run."""

ATTENTIONS = "mxcomp.attentions"
"""The module attribute with the outcome of each attention, while passes run."""


def attend(module: ir.Operation, entries: Sequence[Mapping[str, Any]]) -> None:
    """Adds the outcome of each attention to a module."""
    if entries:
        with module.context:
            module.attributes[ATTENTIONS] = from_python([*_attentions(module), *(dict(each) for each in entries)])


def outcome(location: ir.Location, found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outcome of the attention at a location."""
    name = graph.location_name(location)
    return {"location": graph.location_text(location), **({"name": name} if name else {}), **found}


def _attentions(module: ir.Operation) -> list[dict[str, Any]]:
    return to_python(module.attributes[ATTENTIONS]) if ATTENTIONS in module.attributes else []


def take_attentions(module: ir.Operation) -> list[dict[str, Any]]:
    """Returns the outcome of each attention, and removes it from the module."""
    entries = _attentions(module)
    if not entries:
        return []
    del module.attributes[ATTENTIONS]
    return entries


def warn(module: ir.Operation, lines: Sequence[str]) -> None:
    """Adds warnings to a module."""
    if lines:
        module.attributes[WARNINGS] = ir.ArrayAttr.get([ir.StringAttr.get(line) for line in lines], module.context)


def take_warnings(module: ir.Operation) -> list[str]:
    """Returns the warnings, and removes them from the module."""
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
    """Removes the notes of a matmul."""
    root = graph.root(op)
    _put(root, {key: reasons for key, reasons in _noted(root).items() if key != str(index)})


def take(module: ir.Operation) -> dict[int, list[str]]:
    """Returns the reasons by matmul, and removes them from the module."""
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
