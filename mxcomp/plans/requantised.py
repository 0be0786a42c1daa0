"""The plan of a result that is quantised in the tile it is computed in, for the next matmul.

    %t:2 = flow.dispatch.region {
      %acc = iree_codegen.inner_tiled …       %amax = linalg.generic {… 2 reductions} ins(%acc)
      … elements and scales of blocks, which are the packed LHS and LHS scales of the next matmul
    }

It is computed transposed by the ukernel for that (`ukernels.data_tiled`), and so is the next matmul, if its operand is
packed there. The alternative is the fastest plan of each, and a dispatch in between that quantises and packs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import LHS, RHS, RHS_SCALE
from mxcomp.layout.problem import Problem, flipped
from mxcomp.matching import requantise_chains
from mxcomp.matching.decision import DATA_TILED
from mxcomp.matching.requantise_chains import Chain
from mxcomp.mlir import build, graph, notes
from mxcomp.options import AUTO, BENEFIT, FASTEST, OFF, Options
from mxcomp.packing import requantised_result
from mxcomp.packing.packer import Packing, part_location
from mxcomp.packing.requantised_result import Requantisation
from mxcomp.packing.result_tiles import ONE_WAVE_PER_EU, UNROLL
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans.building import Building, Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import order_of
from mxcomp.plans.plan import Choice, Plan, left_to_iree
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection import split_k, streaming, times
from mxcomp.selection.quantising import separate_us
from mxcomp.selection.ranking import fastest
from mxcomp.selection.times import RESULT, TRANSPOSED, UNKNOWN
from mxcomp.target import Target
from mxcomp.ukernels.data_tiled import REQUANTISING, DataTiled
from mxcomp.ukernels.family import Instance

_NOT = "not re-quantised in its tile: "


@dataclass(frozen=True)
class Requantised(Tiled):
    """A matmul of a chain, transposed. `requantised_for` is the index of the matmul whose LHS is quantised from its
    result.

    The last of a chain has none: it takes what is packed there.
    """

    plan: str = "requantised"
    transposed: bool = True
    requantised_for: int | None = None

    @classmethod
    def offer(cls, choice: Choice) -> None:
        context = choice.context
        if not is_asked_for(context.options):
            return
        for chain in requantise_chains.find(list(context.ops), watched=context.options.reference):
            sites = [context.site_of[op] for op in chain.ops]
            first, consumer = context.site_of[chain.result], context.site_of[chain.consumer].index
            if chain.objection:
                context.note(first, f"{_NOT}{chain.objection}")
                continue
            plans = [cls.transposing(each.problem, _ukernel(each.problem), context) for each in sites]
            transposed = [plan for plan in plans if isinstance(plan, Requantised)]
            if len(transposed) < len(plans):
                continue
            reason, note = _objection(chain, choice)
            if reason:
                context.note(first, f"{_NOT}{reason}")
                continue
            for site, plan in zip(sites, transposed, strict=True):
                before = choice.plans[site.index]
                goes_on = before.requantised_for if isinstance(before, Requantised) else None
                to = goes_on if site.index == consumer else consumer
                choice.join(site, replace(plan, requantised_for=to, note=note if site is first else None))

    @classmethod
    def transposing(cls, problem: Problem, name: str, context: Context, gated: bool = False) -> Plan:
        """Returns a problem computed transposed by a ukernel, with blocks of results in lanes; or left to IREE.

        `gated`: of gate and up, of which each tile has as much.
        """
        problem, options = problem.flipped, context.options
        ukernel, reason = context.registry.select(DATA_TILED, problem, name)
        if ukernel is None or ukernel.layout is None:
            return left_to_iree(reason, problem)
        layout = replace(ukernel.layout, lane_rows=True, gated=gated)
        plan = cls().by(ukernel, order_of(problem, ukernel), layout=layout)
        return plan.bounded(problem, options, ukernel.layout.workgroup_tile)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        return in_tile_us(registry, problem, result_bytes, TRANSPOSED if self.requantised_for is None else RESULT)

    def finish(self, matmul: Matmul, building: Building) -> None:
        """Builds the dispatch of inner tiles, epilogue and quantiser, if that is still possible."""
        with matmul.op.context, part_location(self.index, "matmul", matmul.op), ir.InsertionPoint(matmul.unset):
            found = self._requantisation(matmul, building)
            if found is not None:
                dead = self._requantised(matmul, found, building)
                matmul.unset.results[0].replace_all_uses_with(building.gone(matmul.unset.results[0]))
        if found is None:
            super().finish(matmul, building)
        else:
            graph.erase_unused(dead)
            matmul.erase()

    def _requantisation(self, matmul: Matmul, building: Building) -> Requantisation | None:
        """Returns how to quantise the result; if that is not possible any more, notes why."""
        if building.options.reference or self.requantised_for is None:
            return None
        _, consumer = building.plans.get(self.requantised_for, (None, None))
        following = consumer.layout if isinstance(consumer, Tiled) and consumer.transposed else None
        result = matmul.unset.results[0]
        found = requantised_result.find(result, self.layout, self.requantised_for, following)
        if isinstance(found, Requantisation):
            return found
        if found and self.index is not None:
            notes.note(matmul.unset, self.index, f"{_NOT}{found}")
        return None

    def _requantised(self, matmul: Matmul, found: Requantisation, building: Building) -> tuple[ir.Value, ...]:
        """Gives the next matmul the dispatch's results; returns the values that nothing computes any more."""
        with build.dispatch_region(found.types, []) as region:
            counts = TileCounts(matmul.sizes, self.layout)
            tiled = self.accumulated(matmul, counts, ONE_WAVE_PER_EU if self.layout.intrinsics_n > 1 else UNROLL)
            region.returned = found.compute(self.finished(matmul, tiled, counts))
        if found.layout is None:
            found.replace_sources(*region.results)
            return found.sources
        ready = found.packed(*region.results)
        building.packer.provide(
            found.consumer, (RHS, RHS_SCALE), flipped(found.sources), Packing(None, found.layout), ready
        )
        return ()


def is_asked_for(options: Options) -> bool:
    """Returns whether results may be quantised in tiles: not with a ukernel of another name."""
    return options.data_tiling and options.fuse_quantisers != OFF and options.ukernels in (FASTEST, BENEFIT)


def instance_of(types: Sequence[str]) -> Instance:
    """Returns the ukernel whose results are quantised in their tile, for elements of a problem as it is multiplied."""
    lhs, rhs, *_ = types
    return Instance(REQUANTISING, (lhs, rhs), DataTiled)


def _ukernel(problem: Problem) -> str:
    return instance_of(problem.flipped.types).name


# Modelled times.


def _objection(chain: Chain, choice: Choice) -> tuple[str, str | None]:
    """Returns why a result is not to be quantised in its tile, or "", and a note with what decided.

    What chains before have planned stays.
    """
    context, registry, target = choice.context, choice.context.registry, choice.context.options.target
    if context.options.fuse_quantisers != AUTO or context.options.ukernels != FASTEST:
        return "", None
    first, consumer = (context.site_of[op] for op in (chain.result, chain.consumer))
    alone = [_alone(site, choice) for site in (first, consumer)]
    in_all = in_tile_us(registry, first.problem, first.result_bytes, RESULT)
    if chain.packed:
        in_all += in_tile_us(registry, consumer.problem, consumer.result_bytes, TRANSPOSED)
    else:
        in_all += packing_us(target, consumer.problem) + alone[-1]
    apart = sum(alone) + separate_us(target, consumer.problem, 8 * first.result_bytes)
    if UNKNOWN in (in_all, apart):
        return "times of both ways are not known", None
    us = f"modelled {in_all:.1f} µs in the tile with what is behind, apart {apart:.1f}"
    return (us, None) if in_all >= apart else ("", f"quantised in its tile: {us}")


def in_tile_us(registry: Registry, problem: Problem, size: int, suffix: str) -> float:
    """Returns µs of a product computed transposed, with the epilogue that a suffix stands for. An element of the result
    has `size` bytes."""
    problem = problem.flipped
    instance = instance_of(problem.types)
    known = times.replays(instance, registry.target, suffix)
    if known is None or instance.name not in registry.ukernels:
        return UNKNOWN
    stored = size if suffix == TRANSPOSED else _REPLAYED_BYTES
    return times.ordered(known, instance.layout.workgroup_tile, times.Matmul(problem, stored))[1]


_REPLAYED_BYTES = 4
"""The bytes of a result's element in the replays, which are used for other sizes too."""


def packing_us(target: Target, problem: Problem) -> float:
    """Returns µs of the two dispatches that pack an LHS and its scales that were quantised row by row."""
    elements = (problem.m or 0) * (problem.k or 0)
    parts = float(element_format(problem.types[LHS]).bits), times.SCALE_BITS
    return sum(streaming.streaming_us(target, 2 * elements * bits / 8) for bits in parts)


def _alone(site: Site, choice: Choice) -> float:
    """Returns µs of a product with the ukernel that it gets without fusion."""
    problem, registry, options = site.problem, choice.context.registry, choice.context.options
    if site.index in choice.joined:
        return in_tile_us(registry, problem, site.result_bytes, TRANSPOSED)
    ranked = fastest(problem, registry, site.result_bytes)
    if not ranked:
        return UNKNOWN
    split = split_k.faster(problem, ranked[0], registry, options, site.result_bytes)
    return ranked[0].us if split is None else split.us
