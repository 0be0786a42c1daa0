"""Ranks the ukernels that fit a problem by modelled time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import geometric_mean

from mxcomp.layout.order import Order
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection import times
from mxcomp.selection.sharing import best_order
from mxcomp.sim.timing.parameters import parameters_of

DYNAMIC_M = (1, 16, 64, 256, 1024, 4096)
"""The value assumed for a dynamic M: from a decoder's step to a prompt."""

LAYERS = 64
"""The number of different problems of a model that are cached; layers repeat them."""


@dataclass(frozen=True)
class Candidate:
    """A ukernel that fits, its times, its best order of workgroups, and the modelled µs of the problem with them."""

    ukernel: Ukernel
    times: times.KernelTimes
    order: Order
    us: float

    @property
    def interval(self) -> tuple[float, float]:
        """The µs between which 80 % of measurements of such an estimate were."""
        return parameters_of(self.ukernel.target).interval(self.us)


@lru_cache(maxsize=LAYERS)
def fastest(problem: Problem, registry: Registry, result_bytes: int = 4) -> tuple[Candidate, ...]:
    """Returns all ukernels of known times, the fastest first; none where N or K is dynamic.

    Where M is, their µs are geometric means over `DYNAMIC_M`: nobody is much slower than need be, at any M.
    A ukernel of the user's own that fits leaves nothing to choose: it is there to be taken.
    """
    found: list[Candidate] = []
    for ukernel in registry.ukernels.values():
        if ukernel.operands != DATA_TILED or ukernel.mismatch(problem):
            continue
        if registry.is_foreign(ukernel):
            return ()
        if (timed := candidate(ukernel, problem, result_bytes)) is not None:
            found.append(timed)
    return tuple(sorted(found, key=lambda each: each.us))


def candidate(ukernel: Ukernel, problem: Problem, result_bytes: int = 4) -> Candidate | None:
    """Returns a ukernel in its best order of workgroups; None where its times, N or K are not known."""
    known, tile = times.of(ukernel), ukernel.tile
    if known is None or problem.n is None or problem.k is None:
        return None
    if problem.m is not None:
        order, us = times.ordered(known, tile, times.Matmul(problem, result_bytes))
        return Candidate(ukernel, known, order, us)
    order = best_order(problem, tile, ukernel.target)
    each = [times.Matmul(replace(problem, m=m), result_bytes) for m in DYNAMIC_M]
    us = geometric_mean(times.modelled(known, tile, work, order) for work in each)
    return Candidate(ukernel, known, order, us)
