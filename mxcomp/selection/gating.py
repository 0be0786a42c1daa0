"""How gate and up of experts, quantised again in their tile, and the product behind them are computed."""

from __future__ import annotations

from dataclasses import replace

from mxcomp.layout import LHS, RHS
from mxcomp.matching.decision import DATA_TILED, Decision
from mxcomp.options import Options
from mxcomp.problem import Problem
from mxcomp.selection.choice import choose_transposed
from mxcomp.ukernels import Registry, gating
from mxcomp.ukernels.family import Instance, Tile


def choose(product: Problem, consumer: Problem, registry: Registry, options: Options) -> list[Decision] | str:
    """Decisions on both, or why not."""
    problems = ((product, gating.GATED, True), (consumer, gating.down(consumer.types[LHS]), False))
    decisions = []
    for problem, tiles, gated in problems:
        name = _name(gating.fitting(tiles, product.m or 0), problem)
        if name not in registry.ukernels:
            return f"there is no {name}"
        decision = choose_transposed(problem, name, registry, options, gated)
        if decision.operands != DATA_TILED:
            return decision.reason or ""
        decisions.append(replace(decision, note="gate and up are quantised in their tile" if gated else None))
    return decisions


def _name(tile: Tile, problem: Problem) -> str:
    return Instance(tile, (problem.types[RHS], problem.types[LHS])).name
