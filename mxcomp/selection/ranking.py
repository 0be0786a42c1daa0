"""The ukernels that fit a problem, by the time that each is modelled to take."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.matching.decision import DATA_TILED
from mxcomp.options import Options
from mxcomp.problem import Problem
from mxcomp.selection import times
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.ukernels import Registry, Ukernel


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


def fastest(problem: Problem, registry: Registry, options: Options, result_bytes: int = 4) -> list[Candidate]:
    """All of which the times are known, the fastest first; none where a size is dynamic.

    A ukernel of the user's own that fits leaves nothing to choose: it is there to be taken.
    """
    sizes = {axis: size for axis, size in problem.sizes.items() if size is not None}
    if len(sizes) < len(problem.sizes):
        return []
    found: list[Candidate] = []
    for ukernel in registry.ukernels.values():
        if ukernel.operands != DATA_TILED or ukernel.mismatch(options.target.arch, problem):
            continue
        if registry.is_foreign(ukernel):
            return []
        known = times.of(ukernel)
        if known is not None:
            us = times.modelled(known, ukernel.tile, problem, sizes, result_bytes)
            found.append(Candidate(ukernel, known, us))
    return sorted(found, key=lambda candidate: candidate.us)
