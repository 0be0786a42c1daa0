"""The plan of kernels for ranges of a dynamic M of which that for few rows quantises the LHS itself: nothing is packed
for it.

A plan with a single kernel for all rows gets a second version. Matmuls of one LHS quantise it up to the same number of
rows, or not at all: once packed for one of them, it is there for the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.layout.inner_tiles import INNER_ROWS
from mxcomp.layout.problem import Problem
from mxcomp.matching.activations import Activations
from mxcomp.options import FASTEST, OFF, ON
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.multi_m import MultiM
from mxcomp.plans.plan import Choice, Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.selection.quantising import separate_us, takes, times
from mxcomp.selection.times import UNKNOWN
from mxcomp.ukernels import quantising

_LIMITS = (quantising.MOST_ROWS, 8, 4, 2, 1)
"""The numbers of rows up to which a version may quantise; the work that every workgroup repeats grows with them."""


@dataclass(frozen=True)
class FewRows(MultiM):
    """The first version quantises."""

    plan: str = "few_rows"

    @classmethod
    def offer(cls, choice: Choice) -> None:
        options = choice.context.options
        if not options.versions or options.ukernels != FASTEST or not choice.context.may_pack:
            return
        by_lhs: dict[ir.Value, list[_Candidate | None]] = {}
        for site in choice.sites(cls) if options.fuse_quantisers != OFF else ():
            if versions := _versions(choice.plans[site.index], site.problem):
                candidate = _candidate(site, versions[0][1], choice.context)
                if isinstance(candidate, str):
                    choice.take(site, cls, candidate and f"LHS is not quantised by the ukernel: {candidate}")
                lhs = choice.context.ops[site.index].operands[LHS]
                by_lhs.setdefault(lhs, []).append(None if isinstance(candidate, str) else candidate)
        for found in by_lhs.values():
            together = [each for each in found if each is not None]
            if len(together) == len(found):
                always = options.fuse_quantisers == ON
                limit = next((rows for rows in _LIMITS if always or gains(together, rows)), 0)
                for each in together:
                    choice.take(each.site, cls, _proposed(each, choice.plans[each.site.index], limit))


@dataclass(frozen=True)
class _Candidate:
    """A matmul that may get a first version that quantises. Modelled µs by rows of that one, and of the first with a
    dispatch that quantises, of which all matmuls of an LHS need one."""

    site: Site
    plan: FusedQuant
    us: Mapping[int, float]
    packed_us: Mapping[int, float]
    separate_us: Mapping[int, float]


def gains(together: Sequence[_Candidate], most: int) -> bool:
    """Returns whether matmuls of one LHS take less time if each quantises up to so many rows."""
    return all(sum(e.us[m] for e in together) < _packed_us(together, m) for m in _LIMITS if m <= most)


def _packed_us(together: Sequence[_Candidate], rows: int) -> float:
    return sum(each.packed_us[rows] for each in together) + together[0].separate_us[rows]


def _versions(plan: Plan, problem: Problem) -> Sequence[tuple[int | None, Tiled]]:
    """Returns the versions of a plan for a dynamic M that pack LHS. A single kernel becomes one for few rows and one
    for more."""
    if isinstance(plan, MultiM):
        return () if isinstance(plan.versions[0][1], FusedQuant) else plan.versions
    if type(plan) is not DataTiled or plan.ukernel is None or problem.m is not None or problem.batch:
        return ()
    if plan.layout.inner_tiles is None or plan.layout.shape.m != INNER_ROWS:
        return ()
    alone = replace(plan, note=None, limits={})
    return (quantising.MOST_ROWS, alone), (None, alone)


def _candidate(site: Site, first: Tiled, context: Context) -> _Candidate | str:
    """Returns the version that may precede or replace a matmul's first. Or why there is none, "" where its LHS is
    stored."""
    problem, size, registry = site.problem, site.result_bytes, context.registry
    found = context.activations(site)
    if isinstance(found, str):
        return found
    if problem.m is None and context.is_made_by_head(site):
        return "what makes activations quantises them"
    at = [replace(problem, m=rows) for rows in _LIMITS]
    fitting = [each for each in quantising.SINGLES if _fits(each, found, at, first)]
    timed = [times(fitting, each, registry, size) for each in at]
    packed = [first.cost(each, size, registry) for each in at]
    best = min(timed[0], key=lambda each: geometric_mean(of[each] for of in timed), default=None)
    if best is None or UNKNOWN in (*packed, *(of[best] for of in timed)):
        return f"none quantises {found.type} to {problem.types[LHS]} for {problem.types[RHS]} and these N and K"
    us, apart = [of[best] for of in timed], [separate_us(registry.target, each, found.bits) for each in at]
    by_rows = (dict(zip(_LIMITS, each, strict=True)) for each in (us, packed, apart))
    return _Candidate(site, FusedQuant().with_instance(best, registry), *by_rows)


def _fits(instance: quantising.Instance, found: Activations, at: Iterable[Problem], first: Tiled) -> bool:
    """Returns whether an instance takes such activations, and the RHS in inner tiles of the other versions."""
    element, layouts = instance.elements[RHS], (instance.layout, first.layout)
    mine, theirs = (layout.packed((1, 1)).packing(RHS, element) for layout in layouts)
    inner_tiles = sorted((layout.inner_tiles or (1, 1))[RHS] for layout in layouts)
    fits_inner_tiles = mine == theirs and inner_tiles[1] % inner_tiles[0] == 0
    fits_inner_tiles &= instance.layout.workgroup_tile[2] == first.layout.workgroup_tile[2]
    return fits_inner_tiles and all(takes(instance, each, found.bits) for each in at)


def _proposed(candidate: _Candidate, plan: Plan, limit: int) -> Proposal | str:
    """Returns a version for up to `limit` rows before those of a matmul, or instead of the first; 0: why there is
    none."""
    if not limit:
        us, packed_us = candidate.us[1], _packed_us([candidate], 1)
        return f"LHS is not quantised by the ukernel: 1 row would take {us:.1f} µs, modelled, apart {packed_us:.1f}"
    first, *others = _versions(plan, candidate.site.problem)
    versions = others if limit == first[0] or not plan.by_rows else [first, *others]
    rows = f"{limit} row{'s' * (limit > 1)}"
    note = f"up to {rows} LHS is quantised by {candidate.plan.fused}, modelled {candidate.us[limit]:.1f} µs"
    note = "; ".join(filter(None, (plan.note, note)))
    limits = plan.limits if isinstance(plan, Tiled) else {}
    return Proposal(FewRows.of_versions([(limit, candidate.plan), *versions], note=note, limits=limits))
