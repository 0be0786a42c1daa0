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
        _keep(module, ATTENTIONS, [*_kept(module, ATTENTIONS, []), *map(dict, entries)])


def outcome(location: ir.Location, found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the outcome of the attention at a location."""
    name = graph.location_name(location)
    return {"location": graph.location_text(location), **({"name": name} if name else {}), **found}


def take_attentions(module: ir.Operation) -> list[dict[str, Any]]:
    """Returns the outcome of each attention, and removes it from the module."""
    return _taken(module, ATTENTIONS, [])


def warn(module: ir.Operation, lines: Sequence[str]) -> None:
    """Adds warnings to a module."""
    if lines:
        _keep(module, WARNINGS, list(lines))


def take_warnings(module: ir.Operation) -> list[str]:
    """Returns the warnings, and removes them from the module."""
    return _taken(module, WARNINGS, [])


def note(op: ir.Operation, index: int, reason: str) -> None:
    """Adds a reason for a matmul to the module around `op`, once."""
    root = graph.root(op)
    noted = _kept(root, UNFUSED, {})
    reasons = noted.setdefault(str(index), [])
    if reason not in reasons:
        reasons.append(reason)
    _keep(root, UNFUSED, noted)


def drop(op: ir.Operation, index: int) -> None:
    """Removes the notes of a matmul."""
    root = graph.root(op)
    _keep(root, UNFUSED, {key: reasons for key, reasons in _kept(root, UNFUSED, {}).items() if key != str(index)})


def take(module: ir.Operation) -> dict[int, list[str]]:
    """Returns the reasons by matmul, and removes them from the module."""
    return {int(key): value for key, value in _taken(module, UNFUSED, {}).items()}


def _keep(module: ir.Operation, name: str, value: Any) -> None:
    with module.context:
        module.attributes[name] = from_python(value)


def _kept(module: ir.Operation, name: str, nothing: Any) -> Any:
    return to_python(module.attributes[name]) if name in module.attributes else nothing


def _taken(module: ir.Operation, name: str, nothing: Any) -> Any:
    """Returns what a module keeps under a name, and removes it."""
    found = _kept(module, name, nothing)
    if name in module.attributes:
        del module.attributes[name]
    return found
