"""The record of what was decided about a scaled matmul, an attribute of its operation.

    linalg.generic {…, mxcomp.scaled_matmul = {index = 0, plan = "data_tiled", layout = {…}, ukernel = "mx_…", …}}

mxcomp-recognise marks matmuls with an empty record, or with the reason why they are left to IREE; mxcomp-encode adds a
plan (`mxcomp.plans`), which has entries of its own. Later passes read it, and decide nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from iree.compiler import ir

from mxcomp.layout import DataTiledLayout, layout_entries
from mxcomp.mlir import attributes, graph

SCALED_MATMUL = "mxcomp.scaled_matmul"
"""The attribute that marks every scaled matmul, with the entries of its `Decision`."""

VERSIONS = "mxcomp.versions"
"""The attribute of an operation that selects the result of one of several dispatches, of which only that one need
run."""

PLAIN, DATA_TILED, ROW_MAJOR = "plain", "data_tiled", "row_major"
"""The forms in which a kernel takes its operands: IREE's own, packed into a layout of ours, or as they are stored."""


@dataclass(frozen=True)
class Decision:
    """The decisions on one scaled matmul that are common to all plans; entries with default values are omitted.

    Attributes:
        index: Its number among the recognised matmuls of the module; None where it was not recognised.
        plan: The name of the plan that computes it; "": IREE does.
        note: How a choice was made.
        reason: Why something was not done.
        warning: What users ought to know.
    """

    index: int | None = None
    plan: str = ""
    note: str | None = None
    reason: str | None = None
    warning: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether passes of ours build its dispatch."""
        return bool(self.plan)

    def to_attr(self) -> ir.DictAttr:
        """Returns the attribute with the entries that differ from their defaults, in the current context."""
        return ir.DictAttr(attributes.from_python(self.entries()))

    def entries(self) -> dict[str, Any]:
        """Returns the entries of the attribute."""
        nothing = type(self)(plan="")
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _entry(value) for name, value in found.items() if value != getattr(nothing, name)}


def _entry(value: Any) -> Any:
    """Returns an entry in the form that attributes have."""
    if isinstance(value, Decision):
        return value.entries()
    if isinstance(value, DataTiledLayout):
        return layout_entries(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _entry(getattr(value, name)) for name in asdict(value) if getattr(value, name) is not None}
    if isinstance(value, tuple):
        return [_entry(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def decision_of(op: ir.Operation) -> Decision | None:
    """Returns the decision of an operation, without the entries of its plan; None if it is no scaled matmul."""
    if SCALED_MATMUL not in op.attributes:
        return None
    entries = attributes.to_python(op.attributes[SCALED_MATMUL])
    return Decision(**{each.name: entries[each.name] for each in fields(Decision) if each.name in entries})


def left_to_iree(module: ir.Operation) -> list[tuple[ir.Operation, Decision]]:
    """Yields the scaled matmuls below `module` whose dispatches IREE builds."""
    decisions = [(op, decision_of(op)) for op in graph.walk(module, bodies=False)]
    return [(op, decision) for op, decision in decisions if decision is not None and not decision.is_ours]


def unrecognised(module: ir.Operation) -> list[tuple[ir.Operation, Decision]]:
    """Returns the contractions below `module` that look like scaled matmuls, and are none of ours."""
    found = left_to_iree(module)
    return [(op, each) for op, each in found if each.reason is not None and each.index is None]


def is_recognised(op: ir.Operation) -> bool:
    """Returns whether an operation is a scaled matmul in canonical form without a decision."""
    return decision_of(op) == Decision()


def decide(op: ir.Operation, decision: Decision) -> None:
    """Marks an operation as a scaled matmul with this decision."""
    with op.context:
        op.attributes[SCALED_MATMUL] = decision.to_attr()
