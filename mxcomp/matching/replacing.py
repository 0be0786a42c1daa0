"""The rule for all fusions: when a value computed elsewhere may replace a tensor.

A fusion may replace a value only if its type, its shape, the subscripts at which it is read and every use of it are
checked. A fusion describes what it reads as readings; `objection` compares that with the IR. A case that is not covered
stays unfused, with the objection as the reason in the report.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.matching.elements import Index
from mxcomp.mlir import build, graph


@dataclass(frozen=True)
class Reading:
    """An operand of an operation that a fusion moves along, and the element that is read per element of its result.

    `subscripts` are None where the fusion found none that it can express.
    """

    user: ir.Operation
    operand: int
    subscripts: tuple[Index, ...] | None


def objection(
    value: ir.Value,
    readings: Collection[Reading],
    becomes: ir.Type | None = None,
    at: Sequence[Index] | None = None,
    sizes_known: bool = False,
) -> str:
    """Returns why `value` may not be replaced; "" if it may.

    Args:
        value: A ranked tensor that will not be computed any more.
        readings: The uses that the fusion takes care of.
        becomes: The type of what is computed in its place.
        at: The subscripts at which that is known; None where readings are computed anew at any.
        sizes_known: Whether the fusion answers questions for dynamic sizes.
    """
    if becomes is not None and value.type != becomes:
        return f"it is a {value.type}, not a {becomes}"
    sizes = build.static_sizes(value)
    for use in value.uses:
        user = use.owner.operation
        if user.name == "tensor.dim" and (sizes_known or None not in sizes):
            continue
        known = [r.subscripts for r in readings if r.user == user and r.operand == use.operand_number]
        if not known:
            return f"{_text(value)} is also used by {_text(user)}"
        if at is not None and any(subscripts != tuple(at) for subscripts in known):
            return f"{_text(user)} reads {_text(value)} in another order or only in part"
    return ""


def _text(what: ir.Value | ir.Operation) -> str:
    """Returns the name of a value or operation in messages: its operation, and the location."""
    op = what if isinstance(what, ir.Operation) else graph.producer(what)
    return "an argument" if op is None else f"the {op.name} at {graph.location_text(op.location)}"
