"""How gate and up of experts, quantised again in their tile, and the product behind them are computed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from mxcomp.layout import GATE_AND_UP, LHS, RHS
from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import FASTEST, Options
from mxcomp.order import Order
from mxcomp.problem import Problem
from mxcomp.selection.choice import choose_transposed
from mxcomp.selection.grouped import Blocks
from mxcomp.selection.layers import Sizes, apart, better, in_tiles, us_of
from mxcomp.selection.ranking import LAYERS
from mxcomp.ukernels import Registry, gating
from mxcomp.ukernels.family import Instance, Tile


def choose(product: Problem, consumer: Problem, registry: Registry, options: Options) -> list[Decision] | str:
    """Decisions on both, or why not: with `--ukernels=fastest` where that would take longer, too."""
    found = _timed(product, consumer, registry) if options.ukernels == FASTEST else _Found((), _NOTE)
    if isinstance(found, str):
        return found
    ukernels = found.ukernels or [
        (_name(gating.fitting(tiles, product.m or 0), problem), None)
        for tiles, problem in ((gating.GATED, product), (gating.down(consumer.types[LHS]), consumer))
    ]
    decisions = []
    for problem, (name, order), gated in zip((product, consumer), ukernels, (True, False), strict=True):
        if name not in registry.ukernels:
            return f"there is no {name}"
        decision = choose_transposed(problem, name, registry, options, gated)
        if decision.operands != DATA_TILED:
            return decision.reason or ""
        note = found.note if gated else None
        decisions.append(replace(decision, note=note, order=decision.order if order is None else order))
    return decisions


_NOTE = "gate and up are quantised in their tile"


@dataclass(frozen=True)
class _Found:
    """Ukernels for both and orders of their workgroups, if their times are known."""

    ukernels: tuple[tuple[str, Order | None], ...]
    note: str


@lru_cache(maxsize=LAYERS)
def _timed(product: Problem, consumer: Problem, registry: Registry) -> _Found | str:
    """The ukernels that take the least time, if all blocks have as many rows as they can; or what takes less."""
    block_count, rows, model, both = product.matrices, product.m or 0, product.k or 0, product.n or 0
    experts = min(block_count, product.stored[RHS] or block_count)
    blocks = Blocks(block_count, experts, block_count * rows)
    hidden, weights, *_ = consumer.types
    sizes = Sizes(blocks.slots, model, both // len(GATE_AND_UP), experts, 1, hidden, weights)
    inside, outside = (way(sizes, blocks, rows, registry.ukernels) for way in (in_tiles, apart))
    if inside is None:
        return _Found((), _NOTE)
    us = f"modelled {us_of(inside):.1f} µs with down" + ("" if outside is None else f", apart {us_of(outside):.1f}")
    if better(inside, outside) is outside:
        return us
    return _Found(tuple((each.ukernel.name, each.order) for each in inside), f"{_NOTE}: {us}")


def _name(tile: Tile, problem: Problem) -> str:
    return Instance(tile, (problem.types[RHS], problem.types[LHS])).name
