"""The plan of experts whose hidden activations are quantised in a tile of gate and up, for the product behind them.

As `requantised`, of a batch of blocks whose columns are those of gate and up in turns: a tile has both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mxcomp.layout import LHS, RHS
from mxcomp.layout.order import Order
from mxcomp.matching import gates
from mxcomp.options import AUTO, FASTEST
from mxcomp.plans import by_id
from mxcomp.plans.requantised import Requantised, is_asked_for
from mxcomp.problem import Problem
from mxcomp.selection.layers import better, us_of, ways
from mxcomp.ukernels import Registry, gating
from mxcomp.ukernels.family import Tile

if TYPE_CHECKING:
    from mxcomp.plans.context import Choice, Context, Site

_NOTE = "gate and up are quantised in their tile"


@dataclass(frozen=True)
class GroupedExperts(Requantised):
    """Gate and up, or the product behind them, which has no `requantised_for`."""

    plan: str = "grouped_experts"

    @classmethod
    def offer(cls, choice: Choice) -> None:
        context = choice.context
        if not is_asked_for(context.options):
            return
        for chain in gates.find(list(context.ops), watched=context.options.reference):
            site, consumer = (context.site_of[op] for op in (chain.result, chain.consumer))
            found = chain.objection or cls._chosen(site, consumer, context)
            if isinstance(found, str):
                context.note(site, f"gate and up are not quantised in their tile: {found}")
            elif not choice.joined & {site.index, consumer.index}:
                for each, plan in zip((site, consumer), found, strict=True):
                    choice.join(each, by_id.reading(each, context, plan))

    @classmethod
    def _chosen(cls, site: Site, consumer: Site, context: Context) -> list[GroupedExperts] | str:
        """Plans of both; or why not: with `--ukernels=fastest` where that would take longer, too."""
        options, registry = context.options, context.registry
        is_compared = options.ukernels == FASTEST and options.fuse_quantisers == AUTO
        found = _timed(consumer.stored, registry) if is_compared else _Found((), _NOTE)
        if isinstance(found, str):
            return found
        kinds = (gating.GATED, site.stored), (gating.down(consumer.problem.types[LHS]), consumer.stored)
        ukernels = found.ukernels or [
            (_name(gating.fitting(tiles, site.problem.m or 0), problem), None) for tiles, problem in kinds
        ]
        plans = []
        for (_, problem), (name, order), gated in zip(kinds, ukernels, (True, False), strict=True):
            if name not in registry.ukernels:
                return f"there is no {name}"
            plan = cls.transposing(problem, name, context, gated)
            if not isinstance(plan, GroupedExperts):
                return plan.reason or ""
            note, to = (found.note, consumer.index) if gated else (None, None)
            plans.append(replace(plan, note=note, requantised_for=to, order=plan.order if order is None else order))
        return plans


@dataclass(frozen=True)
class _Found:
    """Ukernels for both and orders of their workgroups, if their times are known."""

    ukernels: tuple[tuple[str, Order | None], ...]
    note: str


def _timed(consumer: Problem, registry: Registry) -> _Found | str:
    """The ukernels that take the least time, if all blocks have as many rows as they can; or what takes less."""
    inside, outside = ways(consumer, registry)
    if inside is None:
        return "the times of that are not known"
    us = f"modelled {us_of(inside):.1f} µs with down" + ("" if outside is None else f", apart {us_of(outside):.1f}")
    if better(inside, outside) is outside:
        return us
    return _Found(tuple((each.ukernel.name, each.order) for each in inside), f"{_NOTE}: {us}")


def _name(tile: Tile, problem: Problem) -> str:
    return gating.Instance(tile, (problem.types[RHS], problem.types[LHS])).name
