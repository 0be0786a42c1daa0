"""The ukernels that fit a problem, by the time that each is modelled to take."""

from __future__ import annotations

from dataclasses import dataclass

from mxcomp.matching.decision import DATA_TILED
from mxcomp.options import Options
from mxcomp.order import Order
from mxcomp.problem import Problem
from mxcomp.selection import times
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.ukernels import Registry, Ukernel


@dataclass(frozen=True)
class Candidate:
    """A ukernel that fits, its times, its best order of workgroups, and the modelled µs of the problem with them."""

    ukernel: Ukernel
    times: times.KernelTimes
    order: Order
    us: float

    @property
    def interval(self) -> tuple[float, float]:
        """µs between which 80 % of measurements of such an estimate lay."""
        return mi355x().interval(self.us)


def fastest(problem: Problem, registry: Registry, options: Options, result_bytes: int = 4) -> list[Candidate]:
    """All of which the times are known, the fastest first; none where a size is dynamic.

    A ukernel of the user's own that fits leaves nothing to choose: it is there to be taken.
    """
    if problem.dynamic:
        return []
    found: list[Candidate] = []
    for ukernel in registry.ukernels.values():
        if ukernel.operands != DATA_TILED or ukernel.mismatch(options.target.arch, problem):
            continue
        if registry.is_foreign(ukernel):
            return []
        found += candidates(ukernel, problem, result_bytes)
    return sorted(found, key=lambda candidate: candidate.us)


def candidates(ukernel: Ukernel, problem: Problem, result_bytes: int = 4) -> list[Candidate]:
    """A ukernel in its best order of workgroups; none where its times are not known, or a size is not."""
    sizes = {axis: size for axis, size in problem.sizes.items() if size is not None}
    known = times.of(ukernel)
    if problem.dynamic or known is None:
        return []
    order, us = times.ordered(known, ukernel.tile, problem, sizes, result_bytes)
    return [Candidate(ukernel, known, order, us)]
