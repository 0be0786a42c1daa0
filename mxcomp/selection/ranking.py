"""The ukernels that fit a problem, by the time that each is modelled to take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean

from mxcomp.matching.decision import DATA_TILED
from mxcomp.options import Options
from mxcomp.problem import Problem
from mxcomp.selection import times
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.ukernels import Registry, Ukernel

DYNAMIC_M = (1, 16, 64, 256, 1024, 4096)
"""What M is taken to be where it is known at run time only: from a decoder's step to a prompt."""

_LAYERS = 64
"""Different problems of a model; layers repeat them."""


@dataclass(frozen=True)
class Candidate:
    """A ukernel that fits, its times, and the modelled µs of the problem with it."""

    ukernel: Ukernel
    times: times.KernelTimes
    us: float

    @property
    def interval(self) -> tuple[float, float]:
        """µs between which 80 % of measurements of such an estimate lay."""
        return mi355x().interval(self.us)


@lru_cache(maxsize=_LAYERS)
def fastest(problem: Problem, registry: Registry, options: Options, result_bytes: int = 4) -> tuple[Candidate, ...]:
    """All of which the times are known, the fastest first; none where N or K is dynamic.

    Where M is, their µs are geometric means over `DYNAMIC_M`: nobody is much slower than need be, at any M.
    A ukernel of the user's own that fits leaves nothing to choose: it is there to be taken.
    """
    n, k = problem.n, problem.k
    if n is None or k is None:
        return ()
    sizes = [{"m": m, "n": n, "k": k} for m in (DYNAMIC_M if problem.m is None else (problem.m,))]
    found: list[Candidate] = []
    for ukernel in registry.ukernels.values():
        if ukernel.operands != DATA_TILED or ukernel.mismatch(options.target.arch, problem):
            continue
        if registry.is_foreign(ukernel):
            return ()
        known = times.of(ukernel)
        if known is not None:
            us = geometric_mean(times.modelled(known, ukernel.tile, problem, each, result_bytes) for each in sizes)
            found.append(Candidate(ukernel, known, us))
    return tuple(sorted(found, key=lambda candidate: candidate.us))
