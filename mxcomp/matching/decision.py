"""What every scaled matmul says of itself: one record, which its operation carries from pass to pass.

    linalg.generic {…, mxcomp.scaled_matmul = {index = 0, plan = "data_tiled", layout = {…}, ukernel = "mx_…", …}}

mxcomp-recognise marks matmuls with an empty record, or with the reason why they are left to IREE; mxcomp-encode puts
a plan there (`mxcomp.plans`), which has entries of its own; what comes later reads, and decides nothing again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from iree.compiler import ir

from mxcomp.layout import DataTiledLayout, layout_entries
from mxcomp.mlir import attributes, graph

SCALED_MATMUL = "mxcomp.scaled_matmul"
"""The attribute that marks every scaled matmul and holds the entries of its `Decision`."""

VERSIONS = "mxcomp.versions"
"""On what chooses among results of versions, each in a dispatch, of which only the chosen one need run."""

PLAIN, DATA_TILED, ROW_MAJOR = "plain", "data_tiled", "row_major"
"""How a kernel takes its operands: as IREE pleases, packed into a layout of ours, or as they are stored."""


@dataclass(frozen=True)
class Decision:
    """What is decided on one scaled matmul, whatever its plan; entries with their defaults have no meaning here.

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
        """The entries that differ from their defaults, in the current context."""
        return ir.DictAttr(attributes.from_python(self.entries()))

    def entries(self) -> dict[str, Any]:
        """Those of the attribute."""
        nothing = type(self)(plan="")
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: _entry(value) for name, value in found.items() if value != getattr(nothing, name)}


def _entry(value: Any) -> Any:
    """An entry as attributes have it."""
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
    """What an operation carries, without what its plan alone knows; None if it is no scaled matmul."""
    if SCALED_MATMUL not in op.attributes:
        return None
    entries = attributes.to_python(op.attributes[SCALED_MATMUL])
    return Decision(**{each.name: entries[each.name] for each in fields(Decision) if each.name in entries})


def left_to_iree(module: ir.Operation) -> list[tuple[ir.Operation, Decision]]:
    """The scaled matmuls below `module` of which IREE builds the dispatches."""
    decisions = [(op, decision_of(op)) for op in graph.walk(module, bodies=False)]
    return [(op, decision) for op, decision in decisions if decision is not None and not decision.is_ours]


def is_recognised(op: ir.Operation) -> bool:
    """Whether recognition gave an operation the canonical form, and nothing has been decided on it yet."""
    return decision_of(op) == Decision()


def decide(op: ir.Operation, decision: Decision) -> None:
    """Marks an operation as a scaled matmul of which this was decided."""
    with op.context:
        op.attributes[SCALED_MATMUL] = decision.to_attr()
