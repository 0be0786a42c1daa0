"""The weight-only plan: unquantised bf16 activations times MX weights that the ukernel dequantises.

A dynamic M has kernels for ranges of it. Up to `MOST_ROWS` a workgroup has all rows; for more rows it has a tile,
padded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import ClassVar

from mxcomp.layout import LHS, RHS
from mxcomp.layout.problem import Problem
from mxcomp.matching.operands import warning_of
from mxcomp.matching.weight_only import fitting
from mxcomp.plans import by_id
from mxcomp.plans.context import Context, Site
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.multi_m import MultiM
from mxcomp.plans.plan import Plan, Proposal, modelled
from mxcomp.registry import Registry
from mxcomp.selection.quantising import modelled_us
from mxcomp.selection.streaming import streaming_us
from mxcomp.selection.times import UNKNOWN
from mxcomp.selection.versions import Range
from mxcomp.ukernels.weight_only import ACTIVATION_BYTES, ACTIVATIONS, MOST_ROWS, Instance

_RANGES = (Range(16, (1, 16)), Range(32, (24, 32)), Range(MOST_ROWS, (48, MOST_ROWS)), Range(None, (128, 512, 2048)))
"""The ranges of a dynamic M."""


@dataclass(frozen=True)
class WeightOnly(FusedQuant):
    """The ukernel takes activations directly: there is no fallback with packed activations."""

    plan: str = "weight_only"

    is_open: ClassVar[bool] = False

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        if site.problem.types[LHS] != ACTIVATIONS:
            return ""
        return Proposal(by_id.best(site, context, lambda problem: _chosen(problem, site, context)))


def _chosen(problem: Problem, site: Site, context: Context) -> Plan:
    """Returns the fastest, for each range of M; or a plan of IREE's."""
    options, registry, weights = context.options, context.registry, problem.types[RHS]
    is_possible = context.may_pack and (problem.m is not None or options.versions)
    ranges = _RANGES if problem.m is None else (Range(None, (problem.m,)),)
    timed = replace(problem, types=(weights, *problem.types[1:]))
    found = [_best(timed, each, site.result_bytes, context) for each in ranges] if is_possible else []
    best = [(instance, us) for instance, us in filter(None, found)]
    if not best or len(best) < len(ranges):
        missing = "ukernels for that" if problem.m is not None or options.versions else "kernels by ranges of M"
        reasons = (registry.unsupported(_fitting(timed, each)) for each in ranges if is_possible)
        unsupported = next(filter(None, reasons), "")
        reason = f"activations are not quantised, and {unsupported or f'{missing} are not asked for'}"
        return Plan(reason=f"left to IREE: {reason}", warning=warning_of([weights]) or None)
    plans = [(rows.max_m, _plan(each, registry)) for rows, (each, _) in zip(ranges, best, strict=True)]
    *_, (last, us) = best
    padding = MOST_ROWS, 1, 1
    if problem.m is not None:
        note = f"RHS is dequantised by {last.name}{modelled(us)}"
        return replace(plans[0][1], note=note).bounded(problem, options, padding)
    names = [f"{plan.fused} up to M = {max_m}" for max_m, plan in plans[:-1]]
    note = f"RHS is dequantised by {', '.join(names)}, and {last.name}"
    return MultiM.of_versions(plans, note=note).bounded(problem, options, padding)


def _plan(instance: Instance, registry: Registry) -> WeightOnly:
    return WeightOnly().with_instance(instance, registry, ukernel=instance.name)


def _best(problem: Problem, rows: Range, size: int, context: Context) -> tuple[Instance, float] | None:
    """Returns the fastest for a range of M, or that of the name that is asked for, and its modelled µs. None without
    any."""
    problems = [replace(problem, m=m) for m in rows.points]
    asked = context.asked_for(_fitting(problem, rows))
    us = [geometric_mean(in_tiles_us(each, at, context.registry, size) for at in problems) for each in asked]
    best = min(zip(asked, us, strict=True), key=lambda each: each[1], default=None)
    return None if best is None or (context.by_time and best[1] == UNKNOWN) else best


def _fitting(problem: Problem, rows: Range) -> list[Instance]:
    return fitting(problem.types[RHS], max(rows.points), problem.n or 0, problem.k or 0)


def in_tiles_us(instance: Instance, problem: Problem, registry: Registry, size: int) -> float:
    """Returns modelled µs, with the dispatch that pads rows to whole tiles where there are more than one."""
    m, us = problem.m or 0, modelled_us(registry[instance.name], problem, size)
    if m <= instance.most_rows or m % instance.most_rows == 0:
        return us
    return us + streaming_us(registry.target, 2 * m * (problem.k or 0) * ACTIVATION_BYTES)
