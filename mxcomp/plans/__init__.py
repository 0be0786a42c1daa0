"""Plans: the ways of computing a scaled matmul, each of them a class in a file of its own.

Recognised matmuls are offered all of them in the order of `PLANS`, each beside the best one so far; the cheapest stays.
It becomes the attribute of its operation (`encode`), builds dispatches of it (`materialise`), and says to the report
why it was chosen. A new plan is a file here, and its name in `PLANS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iree.compiler import ir

from mxcomp.matching.decision import SCALED_MATMUL
from mxcomp.mlir import attributes, graph
from mxcomp.plans.context import Choice, Context
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.dual import Dual
from mxcomp.plans.few_rows import FewRows
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.fused_swiglu import FusedSwiglu
from mxcomp.plans.grouped_experts import GroupedExperts
from mxcomp.plans.multi_m import MultiM
from mxcomp.plans.plan import Plan
from mxcomp.plans.requantised import Requantised
from mxcomp.plans.row_major import RowMajor
from mxcomp.plans.row_operand import RowOperand
from mxcomp.plans.split_k import SplitK
from mxcomp.plans.weight_only import WeightOnly

__all__ = ["PLANS", "Plan", "choose", "from_entries", "plan_of", "plans_below"]

PLANS: tuple[type[Plan], ...] = (
    Requantised,
    GroupedExperts,
    WeightOnly,
    RowMajor,
    DataTiled,
    FusedQuant,
    FusedSwiglu,
    RowOperand,
    Dual,
    SplitK,
    MultiM,
    FewRows,
)
"""In the order in which they are proposed: each knows what those before have come to."""

_BY_NAME = {"": Plan} | {kind.plan: kind for kind in PLANS}


def choose(context: Context) -> Sequence[Plan]:
    """The plans of a module's matmuls, in their order."""
    choice = Choice(context)
    for kind in PLANS:
        kind.offer(choice)
    return choice.decided()


def from_entries(entries: dict[str, Any]) -> Plan:
    """A plan from the entries of its attribute. Raises KeyError, TypeError and ValueError for what is none."""
    return _BY_NAME[entries.get("plan", "")].from_entries(entries)


def plan_of(op: ir.Operation) -> Plan | None:
    """The plan that an operation carries; None if it is no scaled matmul."""
    if SCALED_MATMUL not in op.attributes:
        return None
    return from_entries(attributes.to_python(op.attributes[SCALED_MATMUL]))


def plans_below(module: ir.Operation) -> list[tuple[ir.Operation, Plan]]:
    """All scaled matmuls below a module, and their plans."""
    found = ((op, plan_of(op)) for op in graph.walk(module, bodies=False))
    return [(op, plan) for op, plan in found if plan is not None]
