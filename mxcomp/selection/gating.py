"""How gate and up of experts are computed, and the product behind them: hidden activations are quantised in a tile of
the first, or by the ukernel of the second, or in a dispatch between them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from mxcomp.layout import LHS, RHS
from mxcomp.layout.order import Order
from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import AUTO, FASTEST, ON, Options
from mxcomp.problem import Problem
from mxcomp.selection import quantising
from mxcomp.selection.choice import choose_transposed
from mxcomp.selection.grouped import Blocks
from mxcomp.selection.layers import Pair, Sizes, apart, better, in_tiles, quantising_down, us_of
from mxcomp.selection.ranking import LAYERS
from mxcomp.ukernels import Registry, gating, swiglu
from mxcomp.ukernels.family import Tile


def choose(product: Problem, consumer: Problem, registry: Registry, options: Options) -> list[Decision] | str:
    """Decisions on both, or why not: with `--ukernels=fastest` where that would take longer, too."""
    is_compared = options.ukernels == FASTEST and options.fuse_quantisers == AUTO
    found = _timed(consumer, registry) if is_compared else _Found((), _NOTE)
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
def _timed(consumer: Problem, registry: Registry) -> _Found | str:
    """The ukernels that take the least time, if all blocks have as many rows as they can; or what takes less."""
    inside, outside = _ways(consumer, registry)
    if inside is None:
        return "the times of that are not known"
    us = f"modelled {us_of(inside):.1f} µs with down" + ("" if outside is None else f", apart {us_of(outside):.1f}")
    if better(inside, outside) is outside:
        return us
    return _Found(tuple((each.ukernel.name, each.order) for each in inside), f"{_NOTE}: {us}")


def _ways(consumer: Problem, registry: Registry, itself: bool = False) -> tuple[Pair | None, Pair | None]:
    """Gate and up and the product behind them, in tiles and apart: the rows of all blocks are those of tokens.

    `itself`: apart, the product behind them quantises if it can.
    """
    count, rows, (hidden_type, weights, *_) = consumer.matrices, consumer.m or 0, consumer.types
    experts = min(count, consumer.stored[RHS] or count)
    blocks = Blocks(count, experts, count * rows)
    sizes = Sizes(blocks.slots, consumer.n or 0, consumer.k or 0, experts, 1, hidden_type, weights)
    inside, outside = (way(sizes, blocks, rows, registry.ukernels) for way in (in_tiles, apart))
    down = quantising_down(sizes, blocks, rows, registry.ukernels) if itself else None
    return inside, outside if outside is None or down is None else (replace(outside[0], beside=()), down)


def choose_quantising(chosen: Decision, problem: Problem, registry: Registry, options: Options) -> Decision | str:
    """A decision on a product of hidden activations, made one of a ukernel that computes these itself; or why not.

    The reason is "" where that is not asked for.
    """
    named = next((each for each in swiglu.INSTANCES if each.name == options.ukernels), None)
    if not options.data_tiling or options.reference or not (named or options.ukernels == FASTEST):
        return ""
    found = _named(named, problem) if named else _fastest(problem, registry, options.fuse_quantisers == ON)
    if isinstance(found, str):
        return found
    entries = quantising.entries(found.instance, found.instance, registry)
    return replace(chosen, operands=DATA_TILED, note=found.note, reason=None, **entries)


@dataclass(frozen=True)
class _Quantising:
    instance: swiglu.Instance
    note: str


def _named(instance: swiglu.Instance, problem: Problem) -> _Quantising | str:
    if not quantising.takes(instance, problem, swiglu.BITS):
        return f"{instance.name} is not for {'x'.join(str(problem.sizes[axis]) for axis in 'mnk')}"
    return _Quantising(instance, f"LHS is computed and quantised by {instance.name}")


@lru_cache(maxsize=LAYERS)
def _fastest(problem: Problem, registry: Registry, itself: bool) -> _Quantising | str:
    """The ukernel that quantises, if that is modelled to be faster, or if `itself` asks for it."""
    _, outside = _ways(problem, registry, itself)
    if outside is None:
        return "the times of none are known"
    us, instance = f"modelled {us_of(outside):.1f} µs with gate and up", outside[1].ukernel.instance
    if not isinstance(instance, swiglu.Instance):
        return f"in a dispatch of its own it takes no longer, {us}"
    return _Quantising(instance, f"LHS is computed and quantised by {instance.name}, {us}")


def _name(tile: Tile, problem: Problem) -> str:
    return gating.Instance(tile, (problem.types[RHS], problem.types[LHS])).name
