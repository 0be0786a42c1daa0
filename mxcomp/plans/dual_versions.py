"""The plan of gate and up as one product of a dynamic number of rows: kernels of both for ranges of it.

    %last = flow.dispatch.region { … mx_dual_… }       %few = flow.dispatch.region { … mx_fused_quant16_dual_… }
    %c = arith.cmpi ule, %m, %c16                      %h = arith.select %c, %few, %last {mxcomp.versions}

Ranges are those of `multi_m` and `few_rows`, and operands are packed once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import geometric_mean
from typing import ClassVar

from iree.compiler import ir

from mxcomp.layout import RHS
from mxcomp.layout.problem import Problem
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.dual import Dual
from mxcomp.plans.dual_packed import DualPacked, takes
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.joint import Joint, Pair
from mxcomp.plans.multi_m import MultiM
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection.quantising import takes as takes_rows
from mxcomp.selection.ranking import candidate
from mxcomp.selection.times import UNKNOWN
from mxcomp.selection.versions import COLUMNS, RANGES
from mxcomp.ukernels import dual_packed, quantising
from mxcomp.ukernels.waves import BEYOND


@dataclass(frozen=True)
class DualVersions(Joint, MultiM):
    """Each version computes both matmuls."""

    plan: str = "dual_versions"

    least_gain: ClassVar[float] = 0.0

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        if site.partner is None or not isinstance(best, MultiM) or not context.may_pack:
            return ""
        size = min(each.result_bytes for each in (site, context.sites[site.partner]))  # both choose the same
        ends = {max_m or BEYOND for max_m in (*dict(best.versions), *(rows.max_m for rows in RANGES))}
        plans, together, apart = list[tuple[int | None, Tiled]](), list[float](), list[float]()
        for first, last in pairwise([0, *sorted(ends)]):
            plan, points = best.at(last), [m for rows in RANGES for m in rows.points if first < m <= last]
            alone = [best.at(m).cost(replace(site.problem, m=m), size, context.registry) for m in points]
            both, each = _fastest(plan, site, points, size, context.registry)
            if UNKNOWN in (*each, *alone):
                return ""
            if plans and plans[-1][1].kernel == both.kernel:
                plans.pop()
            plans.append((None if last == BEYOND else last, both))
            together += each
            apart += [2 * us for us in alone]
        us, instead = geometric_mean(together), geometric_mean(apart)
        names = [f"{each.kernel}{'' if max_m is None else f' up to M = {max_m}'}" for max_m, each in plans]
        note = f"{', '.join(names)}: matmul {site.partner} as well, modelled {us:.1f} µs for both, a geometric mean"
        made = cls.of_versions(plans, partner=site.partner, instead=best, note=f"{note}, against {instead:.1f}")
        return Proposal(made.bounded(site.problem, context.options), us, instead)

    @property
    def unfused(self) -> Tiled:
        return self.apart.unfused if any(isinstance(plan, FusedQuant) for _, plan in self.versions) else self

    def of_bits(self, bits: int) -> Tiled:
        found = super().of_bits(bits)
        is_joint = isinstance(found, MultiM) and all(isinstance(plan, Joint) for _, plan in found.versions)
        return found if is_joint else self.apart.of_bits(bits)

    def together(self, pair: Pair, joined: ir.Value) -> ir.Value:
        matmul, another, other = pair
        assert isinstance(another, DualVersions)

        def dispatch(number: int, padding: ir.Location | None) -> ir.Value:
            plan, theirs = (each.versions[number][1] for each in (self, another))
            assert isinstance(plan, Joint) and isinstance(theirs, Joint)
            taken = self.taken(matmul, number, padding), theirs, another.taken(other, number, None)
            return plan.together(taken, joined)

        return self.cast(matmul, self.chosen(matmul, dispatch, other.op))


def _fastest(
    plan: Tiled, site: Site, points: Sequence[int], size: int, registry: Registry
) -> tuple[Joint, list[float]]:
    """Returns the fastest plan of both in place of a version, with its modelled µs at some numbers of rows."""
    assert site.partner is not None
    problems = [replace(site.problem, m=m) for m in points]
    others = _fused(plan, problems, registry) if isinstance(plan, FusedQuant) else _packed(plan, site, size, registry)
    alike = [replace(each, partner=site.partner) for each in others if is_packed_alike(each, plan)]
    timed = [(each, [each.cost(problem, size, registry) for problem in problems]) for each in alike]
    return min(timed, key=lambda each: geometric_mean(each[1]), default=(Joint(), [UNKNOWN]))


def _fused(plan: FusedQuant, problems: Sequence[Problem], registry: Registry) -> Sequence[Joint]:
    bits = next(each.bits for each in quantising.SINGLES if each.name == plan.fused)
    takes_all = [each for each in quantising.PAIRS if all(takes_rows(each, problem, bits) for problem in problems)]
    return [Dual.of(plan).with_instance(each, registry) for each in registry.runnable(takes_all)]


def _packed(plan: Tiled, site: Site, size: int, registry: Registry) -> Sequence[Joint]:
    instances = [each for each in registry.runnable(dual_packed.INSTANCES) if takes(each, site.problem)]
    both = replace(site.problem, n=2 * (site.problem.n or 0))
    ranked = [(each, candidate(registry[each.plain.name], both, size)) for each in instances]
    plan_of_both = DualPacked(instead=DataTiled.of(plan))
    return [plan_of_both.by(registry[each.name], timed.order) for each, timed in ranked if timed is not None]


def is_packed_alike(one: Tiled, other: Tiled) -> bool:
    """Returns whether both take operands that are packed once, in groups of as many inner tiles as each takes."""
    layouts = one.layout.packed((1, 1)), other.layout.packed((1, 1))
    steps = {layout.workgroup_tile[2] for layout in layouts}
    return layouts[0] == layouts[1] and len(steps) == 1 and COLUMNS % (one.layout.inner_tiles or (1, 1))[RHS] == 0
