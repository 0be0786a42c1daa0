"""Operands of grouped matmuls that kernels read through expert ids, instead of gathering them first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mxcomp.layout import OPERAND_NAMES, RHS, RHS_SCALE
from mxcomp.layout.problem import Problem
from mxcomp.matching import gathers
from mxcomp.packing import parameter_operand
from mxcomp.plans.context import Context, Site
from mxcomp.plans.plan import Plan
from mxcomp.plans.tiled import Tiled


def best(site: Site, context: Context, choose: Callable[[Problem], Plan]) -> Plan:
    """Returns the choice for a problem whose RHS is read through ids. Else for one with as many matrices as the
    batch."""
    plan = choose(site.stored)
    gathered = operands(site, context, plan)
    if isinstance(gathered, str) or not plan.is_ours:
        plan = choose(site.problem)
    return reading(site, context, plan)


def reading(site: Site, context: Context, plan: Plan) -> Plan:
    """Returns a plan that reads operands through ids if it can; if not, the report says why."""
    gathered = operands(site, context, plan)
    if isinstance(gathered, str):
        context.note(site, gathered)
    elif gathered and isinstance(plan, Tiled):
        return replace(plan, gathered=gathered, skips=_skips(site, context, plan, gathered))
    return plan


def operands(site: Site, context: Context, plan: Plan) -> tuple[int, ...] | str:
    """Returns the operands that a plan's kernel reads through expert ids; or why others that are gathered are not."""
    options = context.options
    if not isinstance(plan, Tiled) or options.reference or not site.problem.batch:
        return ()
    op = context.ops[site.index]
    found = {index: gather for index in (RHS, RHS_SCALE) if (gather := gathers.find(op.operands[index])) is not None}
    by_expert = {index: gather for index, gather in found.items() if gather.leading == 1}
    for index, gather in by_expert.items():
        first = f"{OPERAND_NAMES[index]} is gathered by expert first"
        if not options.reads_in_place:
            return f"{first}: a stock iree-compile cannot read it through ids"
        if not gathers.is_clamped(gather):
            return f"{first}: its ids are neither as they are nor clamped to the experts"
        size = gathers.packed_bytes(gather, op.operands[index], plan.layout, plan.multiplied_as(index))
        is_far = size > options.target.max_buffer_bytes
        if is_far and not (plan.reads_far and options.packed_parameters and parameter_operand.is_one(gather.source)):
            return f"{first}: all experts exceed {options.target.max_buffer_bytes} bytes"
    return tuple(by_expert)


def _skips(site: Site, context: Context, plan: Tiled, gathered: tuple[int, ...]) -> bool:
    """Returns whether nothing reads matrices of a batch whose expert id is negative, and our kernel can skip them."""
    if plan.ukernel is None or context.registry.is_foreign(context.registry[plan.ukernel]):
        return False
    op = context.ops[site.index]
    found = [gathers.find(op.operands[index]) for index in gathered]
    return all(each is not None and gathers.are_hidden(op.results[0], each.ids) for each in found)
