"""Plans: the ways of computing a scaled matmul, each a class in a file of its own.

All plans are proposed for each recognised matmul in order, each against the best one so far; the cheapest stays. It
becomes the attribute of its operation (`encode`), builds its dispatches (`materialise`), and tells the report why it
was chosen. A new plan is a file here, and its name in `_ORDER`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from iree.compiler import ir

from mxcomp.matching.decision import SCALED_MATMUL
from mxcomp.mlir import attributes, graph
from mxcomp.plans.context import Context
from mxcomp.plans.plan import Choice, Plan

__all__ = ["PLANS", "Plan", "choose", "from_entries", "plan_of", "plans_below"]

_ORDER = (
    "requantised",
    "grouped_experts",
    "weight_only",
    "row_major",
    "data_tiled",
    "fused_quant",
    "fused_swiglu",
    "row_operand",
    "dual",
    "split_k",
    "dual_packed",
    "multi_m",
    "few_rows",
    "packed_hidden",
    "token_experts",
    "dual_versions",
    "hidden_versions",
)
"""The names of plans, which are those of their files, in the order in which they are proposed: each sees the results of
those before."""


def _plan_in(name: str) -> type[Plan]:
    module = import_module(f"mxcomp.plans.{name}")
    classes = (each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Plan))
    return next(each for each in classes if each.__module__ == module.__name__)


PLANS = tuple(map(_plan_in, _ORDER))
_BY_NAME = {"": Plan} | {kind.plan: kind for kind in PLANS}


def choose(context: Context) -> Sequence[Plan]:
    """Returns the plans of a module's matmuls, in order."""
    choice = Choice(context)
    for kind in PLANS:
        kind.offer(choice)
    return choice.decided()


def from_entries(entries: dict[str, Any]) -> Plan:
    """Returns a plan from the entries of its attribute. Raises KeyError, TypeError and ValueError for invalid ones."""
    kind = _BY_NAME[entries.get("plan", "")]
    return kind.from_entries(entries | {name: from_entries(dict(entries.get(name, {}))) for name in kind.nested})


def plan_of(op: ir.Operation) -> Plan | None:
    """Returns the plan of an operation, or None if it is no scaled matmul."""
    if SCALED_MATMUL not in op.attributes:
        return None
    return from_entries(attributes.to_python(op.attributes[SCALED_MATMUL]))


def plans_below(module: ir.Operation) -> list[tuple[ir.Operation, Plan]]:
    """Yields all scaled matmuls below a module, with their plans."""
    found = ((op, plan_of(op)) for op in graph.walk(module, bodies=False))
    return [(op, plan) for op, plan in found if plan is not None]
