"""The plan of gate and up of a dynamic M whose hidden activations are packed in their tile, by ranges of it.

    %few:2 = flow.dispatch.region { … @activate, @quantise … }      %many:2 = flow.dispatch.region { … }
    %r = arith.select %c, %down_of_few, %down_of_many {mxcomp.versions}

Each version packs hidden activations for those of the matmul behind that are for the same rows, which alone read its
results: so it runs only if one of them does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import geometric_mean

from iree.compiler import ir

from mxcomp.layout import LHS
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build
from mxcomp.packing.packer import part_location
from mxcomp.plans.building import Building
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.dual_versions import is_packed_alike
from mxcomp.plans.joint import Pair
from mxcomp.plans.multi_m import OF_VERSIONS, MultiM
from mxcomp.plans.packed_hidden import Found, Match, PackedHidden, is_plain, modelled_us
from mxcomp.plans.plan import Choice
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection import versions
from mxcomp.selection.ranking import fastest
from mxcomp.selection.times import UNKNOWN
from mxcomp.selection.versions import RANGES, Range, last_of_runs
from mxcomp.ukernels import hidden


@dataclass(frozen=True)
class HiddenVersions(PackedHidden, MultiM):
    """Each version computes both matmuls, and packs."""

    plan: str = "hidden_versions"

    @classmethod
    def _found(cls, behind: Site, pair: tuple[Site, Site], choice: Choice) -> Found | None:
        context, gate = choice.context, pair[0]
        following = _following(behind, context) if context.options.versions and behind.problem.dynamic else None
        kernels = [] if following is None else [_fastest(rows, gate.problem, following, context) for rows in RANGES]
        made = [each for each in kernels if each is not None]
        if following is None or len(made) < len(kernels) or not all(is_packed_alike(each, made[0]) for each in made):
            return None
        before = choice.plans[gate.index], choice.plans[behind.index]
        both = [((plan, following), rows.points) for rows, plan in zip(RANGES, made, strict=True)]
        us = [modelled_us(m, behind, pair, plans, context) for plans, points in both for m in points]
        instead = [modelled_us(m, behind, pair, before, context) for _, points in both for m in points]
        if UNKNOWN in (*us, *instead):
            return None
        ranges = [(rows.max_m, plan, following.at(rows.points[-1])) for rows, plan in zip(RANGES, made, strict=True)]
        own = last_of_runs(((max_m, plan) for max_m, plan, _ in ranges), lambda each: each[1].ukernel)
        theirs = last_of_runs(ranges, lambda each: (each[1].ukernel, each[2].ukernel))
        steps = tuple(_inner_tiles(plan) for _, plan, _ in theirs)
        others = MultiM.of_versions([(max_m, plan) for max_m, _, plan in theirs], steps=steps)
        packing = cls.of_versions(own, packs_for=behind.index).bounded(gate.problem, context.options)
        taking = others.bounded(behind.problem, context.options)
        if not isinstance(packing, HiddenVersions) or not isinstance(taking, MultiM):
            return None
        return Found(packing, taking, geometric_mean(us), geometric_mean(instead))

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        return MultiM.cost(self, problem, result_bytes, registry)

    def packed(self, pair: Pair, found: Match, building: Building) -> tuple[ir.Value, ir.Value]:
        matmul, another, other = pair
        assert isinstance(another, HiddenVersions)
        made = list[tuple[int | None, tuple[ir.Value, ir.Value]]]()
        for number, (max_m, plan) in enumerate(self.versions):
            name = "matmul" if max_m is None else f"matmul_up_to_{max_m}"
            with part_location(self.index, name, matmul.op, other.op):
                taken = self.taken(matmul, number, None), another.taken(other, number, None)
                assert isinstance(plan, PackedHidden)
                made.append((max_m, plan.of_hidden(*taken, found)))
        rows = matmul.sizes.values["m"]
        elements, scales = (
            build.for_at_most([(max_m, each[i]) for max_m, each in made], rows, OF_VERSIONS) for i in range(2)
        )
        building.sources += [elements, scales]
        return elements, scales


def _following(behind: Site, context: Context) -> MultiM | None:
    """Returns kernels of the matmul behind by ranges, whose inner tiles of rows are parts of those that are packed."""
    problem, size = behind.problem, behind.result_bytes
    ranked = fastest(problem, context.registry, size)
    plain = [each for each in ranked if each.ukernel.layout is not None and is_plain(each.ukernel.layout)]
    found = versions.choose(
        versions.Ranked(problem, [each for each in plain if _inner_tiles(each.ukernel) in _PARTS], size)
    )
    if found is None:
        return None
    return MultiM.of_versions([(max_m, DataTiled().by(each.ukernel, each.order)) for max_m, each in found.kernels])


_PARTS = (1, 2, 4, 8, 16)
"""Inner tiles of rows of which whole numbers are those of a larger tile."""


def _inner_tiles(of: Tiled | Ukernel) -> int:
    return ((of.layout and of.layout.inner_tiles) or (1, 1))[LHS]


def _fastest(rows: Range, problem: Problem, following: MultiM, context: Context) -> PackedHidden | None:
    """Returns the fastest plan of gate and up for a range."""
    at, least = [replace(problem, m=m) for m in rows.points], _inner_tiles(following.at(rows.points[-1]))
    found = list[tuple[float, PackedHidden]]()
    for instance in hidden.INSTANCES:
        is_known = instance.plain.name in context.registry.ukernels and instance.tile.inner_tiles[LHS] % least == 0
        if is_known and all(map(instance.covers, at)):
            plan = PackedHidden.by_instance(instance)
            found.append((geometric_mean(plan.cost(each, 1, context.registry) for each in at), plan))
    us, plan = min(found, key=lambda each: each[0], default=(UNKNOWN, PackedHidden()))
    return None if us == UNKNOWN else plan
