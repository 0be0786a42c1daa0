"""The plan of experts whose hidden activations are quantised in the tile of gate and up, for the product behind them.

Like `requantised`, for a batch of blocks whose columns alternate between gate and up, so that a tile has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mxcomp.layout import LHS, RHS
from mxcomp.matching import gates
from mxcomp.options import AUTO, FASTEST
from mxcomp.plans import by_id
from mxcomp.plans.context import Context, Site
from mxcomp.plans.plan import Choice
from mxcomp.plans.requantised import Requantised, is_asked_for
from mxcomp.selection.layers import better, us_of, ways
from mxcomp.ukernels import gating
from mxcomp.ukernels.family import Tile

_NOTE = "gate and up are quantised in their tile"


@dataclass(frozen=True)
class GroupedExperts(Requantised):
    """The product of gate and up, or the product behind it, which has no `requantised_for`."""

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
        """Returns plans of both; or why not, which includes a longer time with `--ukernels=fastest`."""
        options, note, pair = context.options, _NOTE, None
        if options.ukernels == FASTEST and options.fuse_quantisers == AUTO:
            pair, outside = ways(consumer.stored, context.registry)
            if pair is None:
                return "the times of that are not known"
            us = f"modelled {us_of(pair):.1f} µs with down"
            us += "" if outside is None else f", apart {us_of(outside):.1f}"
            if better(pair, outside) is outside:
                return us
            note = f"{_NOTE}: {us}"
        tiles = gating.GATED, gating.down(consumer.problem.types[LHS])
        plans = []
        for i, each in enumerate((site, consumer)):
            kinds = each.problem.types[RHS], each.problem.types[LHS]
            fitting = gating.instance(_fitting(tiles[i], site.problem.m or 0), kinds).name
            name = pair[i].ukernel.name if pair else fitting
            if name not in context.registry.ukernels:
                return f"there is no {name}"
            plan = cls.transposing(each.stored, name, context, gated=each is site)
            if not isinstance(plan, GroupedExperts):
                return plan.reason or ""
            plans.append(replace(plan, order=pair[i].order) if pair else plan)
        return [replace(plans[0], note=note, requantised_for=consumer.index), plans[1]]


def _fitting(tiles: Sequence[Tile], rows: int) -> Tile:
    """Returns the smallest tile that holds so many rows, or else the largest."""
    return next((tile for tile in tiles if rows <= tile.layout.tile[1]), tiles[-1])
