"""The plan of gate and up whose hidden activations are quantised, and packed for the product behind, in their tile.

    %q:2 = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "… @activate, @quantise"} ins(%x, %x_scale, %gate, %gate_scale, %up, %up_scale)
    }                                                packed elements and scales of the LHS of the product behind

It is a plan for three matmuls, whose LHS are packed. It saves a dispatch that quantises, and for few rows what each
workgroup of a kernel does that quantises its LHS itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, DataTiledLayout
from mxcomp.layout.inner_tiles import BLOCK, BLOCKS, INNER_ROWS, STEPS
from mxcomp.layout.problem import Problem
from mxcomp.matching import activations, replacing, requantise_chains
from mxcomp.matching.activations import Activations
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.quantiser import Compute, Read
from mxcomp.matching.replacing import Reading
from mxcomp.mlir import build, graph, notes
from mxcomp.mlir.assumptions import Range, assume, assumed
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import is_elementwise
from mxcomp.options import FASTEST, OFF, ON
from mxcomp.packing import block_quantiser, quantised_operand, standing
from mxcomp.packing.packer import Packing
from mxcomp.packing.result_tiles import EPILOGUE
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans.building import Building, Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.fused_quant import PAIRS, SINGLES, FusedQuant, fused_norm_us, own_norm_us
from mxcomp.plans.joint import Joint, Pair, joined_in, operands
from mxcomp.plans.plan import Choice, Plan
from mxcomp.plans.split_k import SplitK
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection import times
from mxcomp.selection.quantising import separate_us
from mxcomp.selection.ranking import fastest
from mxcomp.selection.times import UNKNOWN
from mxcomp.ukernels import dual_packed, hidden

_NOT = "hidden activations are not quantised in the tile of gate and up: "


@dataclass(frozen=True)
class PackedHidden(Joint):
    """`packs_for` is the index of the matmul whose LHS it packs."""

    plan: str = "packed_hidden"
    packs_for: int = -1

    @classmethod
    def offer(cls, choice: Choice) -> None:
        context, options = choice.context, choice.context.options
        is_asked_for = options.fuse_quantisers != OFF and options.ukernels == FASTEST and options.reads_in_place
        sites = list(choice.sites(cls)) if is_asked_for and context.may_pack else []
        for behind in sites:
            pair = _gate_and_up(behind, context)
            if pair is None or not all(site in sites for site in pair):
                continue
            if (found := cls._found(behind, pair, choice)) is None:
                continue
            us = f"modelled {found.us:.1f} µs with what is in front and behind, apart {found.instead_us:.1f}"
            if options.fuse_quantisers != ON and found.us >= found.instead_us:
                context.note(pair[0], f"{_NOT}{us}")
                continue
            for site, other in (pair, pair[::-1]):
                kernel, instead = found.plan.joint_kernel, choice.plans[site.index]
                note = f"{kernel} computes matmul {other.index} as well, and packs for matmul {behind.index}, {us}"
                choice.join(site, replace(found.plan, partner=other.index, instead=instead, note=note))
                notes.drop(context.ops[site.index], site.index)  # what is fused otherwise
            choice.join(behind, found.following)

    @classmethod
    def _found(cls, behind: Site, pair: tuple[Site, Site], choice: Choice) -> Found | None:
        """Returns the fastest plans of gate and up and of the matmul behind, if times are known."""
        return None if behind.problem.dynamic else _fastest(behind, pair, choice)

    @classmethod
    def by_instance(cls, instance: hidden.Instance) -> Self:
        """Returns the plan with the entries of an instance."""
        tile, size = instance.tile, (instance.tile.threads, 1, 1)
        attrs = tile.llvm_func_attrs
        return cls(layout=instance.layout, ukernel=instance.name, workgroup_size=size, llvm_func_attrs=attrs)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        """Returns modelled µs of both."""
        return _us(_INSTANCES[self.joint_kernel], problem, registry)

    def build(self, op: ir.Operation, building: Building) -> None:
        """Builds both when the second one is reached, if that is still possible, else each as it would be instead."""
        both = self.index or 0, self.partner
        is_first = not building.waiting.keys() & set(both) and building.plans[both[0]][1] == self
        if is_first and (reason := self._objection(building)):
            notes.note(op, both[0], f"{_NOT}{reason}")
            for index in both:
                each, plan = building.plans[index]
                assert isinstance(plan, PackedHidden)
                building.plans[index] = each, replace(plan.instead, index=index)
        if building.plans[both[0]][1] == self:
            super().build(op, building)
        else:
            self.build_instead(op, building)

    def _objection(self, building: Building) -> str:
        pair = joined_in(self.index or 0, self, building)
        if pair is None:
            return "what is fused behind does not read both"
        first, joined = pair
        second = self.partner if first == self.index else self.index
        op, other = (building.plans[each or 0][0] for each in (first, second))
        with op.context, op.location:
            found = self._match(op, other, joined, building)
        return found if isinstance(found, str) else ""

    def _match(self, op: ir.Operation, other: ir.Operation, joined: ir.Value, building: Building) -> Match | str:
        """Returns what the matmul behind is quantised from; or why not."""
        behind, plan = building.plans.get(self.packs_for, (None, None))
        if behind is None or not isinstance(plan, Tiled):
            return "nothing behind is packed"
        encodings = [operand.owner.operation for operand in list(behind.operands)[:ACC]]
        sources = [encoding.operands[0] for encoding in encodings]
        problem, epilogue = problem_of(behind), graph.only_user(op)
        assert epilogue is not None
        unset = graph.only_user(epilogue)
        found = activations.find(sources[LHS], sources[LHS_SCALE], problem)
        if isinstance(found, str) or found.producer is None or unset is None or found.source != unset.results[0]:
            return "the LHS behind is not quantised from them alone"
        ends = [Reading(encodings[index], 0, None) for index in (LHS, LHS_SCALE)]
        reason = requantise_chains.objection(found.producer, [found.source], problem, ends, True, sizes_known=True)
        computed = _computed(epilogue, op.results[0], joined, other)
        if reason or computed is None or activations.captures([computed]):
            return reason or "they are computed from something else as well"
        return Match(behind, sources, found, computed, plan.packing)

    def replacement(self, pair: Pair, joined: ir.Value, building: Building) -> ir.Value:
        matmul, _, other = pair
        found = self._match(matmul.op, other.op, joined, building)
        assert isinstance(found, Match)
        ready = self.packed(pair, found, building)
        building.packer.provide(found.behind, (LHS, LHS_SCALE), found.sources, found.packing, ready)
        result, rows = matmul.unset.results[0], [rows for rows in matmul.sizes.rows_and_columns if rows is not None]
        for dim in [use.owner.operation for use in result.uses if use.owner.name == "tensor.dim"]:
            graph.replace(dim, *rows)
        return building.gone(result, rows)

    def packed(self, pair: Pair, found: Match, building: Building) -> tuple[ir.Value, ir.Value]:
        """Returns elements and scales that are packed for the matmul behind."""
        matmul, _, other = pair
        return self.of_hidden(matmul, other, found)

    def of_hidden(self, matmul: Matmul, other: Matmul, found: Match) -> tuple[ir.Value, ir.Value]:
        """Returns the same by a dispatch of the kernel."""
        tiles = TileCounts(matmul.sizes, self.layout).of(LHS)
        sizes = [static_sizes(matmul.packed[side]) for side in (LHS, RHS)]
        rows, columns, k_tiles = sizes[LHS][0], sizes[RHS][0] or 0, sizes[LHS][2] or 0
        problem = problem_of(found.behind)
        of_both = matmul.op.results[0], other.op.results[0]
        spec = hidden.Hidden(
            _INSTANCES[self.joint_kernel], matmul.target, (rows, columns), k_tiles, (problem.k or 0) // BLOCK,
            problem.types[LHS], found.activations.bits,
            block_quantiser.hidden_text(found.activations, found.computed, of_both),
        )  # fmt: skip
        taken = [_flat(value, kind, tiles) for value, kind in zip(operands(matmul, other), spec.inputs, strict=True)]
        packed = standing.dispatch(spec, taken, sizes=tiles)
        inner_tiles = None if tiles else _inner_tiles(matmul.problem, self.layout)
        outer = inner_tiles, -(-spec.blocks // (STEPS * BLOCKS))
        counts = [matmul.sizes.inner_tiles] if matmul.sizes.inner_tiles else []
        elements, scales = packed
        layout = found.packing.layout
        return quantised_operand.as_packed(elements, scales, layout, LHS, spec.element, outer, tiles, counts)


def _flat(value: ir.Value, kind: ir.RankedTensorType, tiles: Sequence[ir.Value]) -> ir.Value:
    """Returns an operand in one dimension, of a number of bytes that is known to fit into a buffer."""
    if kind.has_static_shape:
        return build.bitcast(value, kind)
    size, known = math.prod(size or 1 for size in static_sizes(value)), assumed(tiles[0])
    assert known is not None
    count = assume(build.times(tiles[0], size), Range(0, known.high * size))
    return build.bitcast(value, kind, tiles, [count])


@dataclass(frozen=True)
class Match:
    """Says what is packed.

    Attributes:
        behind: The matmul whose LHS it is.
        sources: What its operands are packed from.
        activations: What its LHS is quantised from.
        computed: How that is computed of both results.
        packing: Where its operands lie.
    """

    behind: ir.Operation
    sources: Sequence[ir.Value]
    activations: Activations
    computed: Compute
    packing: Packing


def _computed(epilogue: ir.Operation, own: ir.Value, joined: ir.Value, other: ir.Operation) -> Compute | None:
    """Returns how an epilogue computes what it does of two results, element by element, and of nothing else."""
    second = Read(other.results[0], (), True)
    of_other = graph.only_user(other)
    if of_other is None:
        return None
    node: Compute | Read = second
    if EPILOGUE in of_other.attributes:
        if set(list(of_other.operands)[:-1]) != {second.value}:
            return None
        node = Compute(of_other, (second,) * (len(of_other.operands) - 1), True)
    given = {own: Read(own, (), True), joined: node}
    operands = list(epilogue.operands)[:-1]
    if set(operands) != set(given):
        return None
    return Compute(epilogue, tuple(given[each] for each in operands), True)


# The decision


_INSTANCES = {each.name: each for each in hidden.INSTANCES}


_DYNAMIC = (), ("m",)
"""The sizes of products that may be dynamic."""


def _gate_and_up(behind: Site, context: Context) -> tuple[Site, Site] | None:
    """Returns the matmuls of whose results alone, element by element, an LHS is quantised."""
    found, op = context.activations(behind), context.ops[behind.index]
    if isinstance(found, str) or found.producer is None or behind.problem.batch:
        return None
    if behind.problem.dynamic not in _DYNAMIC:
        return None
    readings = [*found.producer.readings, *(Reading(op, index, None) for index in (LHS, LHS_SCALE))]
    values = found.source, *(reading.user.results[0] for reading in found.producer.readings)
    if any(replacing.objection(value, readings, sizes_known=True) for value in values):
        return None
    sites = list(dict.fromkeys(_sites(found.source, context)))
    if len(sites) != len(dual_packed.BOTH) or None in sites:
        return None
    gate, up = (site for site in sites if site is not None)
    is_pair = gate.partner == up.index and not gate.problem.batch and not gate.is_symmetric and len(gate.siblings) == 1
    return (gate, up) if is_pair and gate.problem.dynamic == behind.problem.dynamic else None


def _sites(value: ir.Value, context: Context) -> Iterator[Site | None]:
    """Yields the matmuls that a value is computed from; None for anything else."""
    op = graph.producer(graph.look_through_views(value))
    if op in context.site_of:
        yield context.site_of[op]
    elif op is None or not is_elementwise(op):
        yield None
    else:
        for operand in list(op.operands)[:-1]:
            yield from _sites(operand, context)


@dataclass(frozen=True)
class Found:
    """A plan of gate and up, that of the matmul behind, and µs of all with them, and as they are."""

    plan: PackedHidden
    following: Tiled
    us: float
    instead_us: float = 0.0


def _fastest(behind: Site, pair: tuple[Site, Site], choice: Choice) -> Found | None:
    """Returns the fastest plans, if times are known."""
    found = [each for instance in hidden.INSTANCES if (each := _by(instance, behind, pair, choice)) is not None]
    best = min(found, key=lambda each: each.us, default=None)
    before = choice.plans[pair[0].index], choice.plans[behind.index]
    instead_us = modelled_us(behind.problem.m or 0, behind, pair, before, choice.context)
    return None if best is None or UNKNOWN in (best.us, instead_us) else replace(best, instead_us=instead_us)


def _by(instance: hidden.Instance, behind: Site, pair: tuple[Site, Site], choice: Choice) -> Found | None:
    """Returns the plans with an instance for gate and up."""
    context, problem = choice.context, pair[0].problem
    following = _following(behind, _inner_tiles(problem, instance.layout), choice)
    if not instance.covers(problem) or instance.plain.name not in context.registry.ukernels or following is None:
        return None
    plan = replace(PackedHidden.by_instance(instance), packs_for=behind.index).bounded(problem, context.options)
    us = modelled_us(problem.m or 0, behind, pair, (plan, following), context)
    return Found(plan, following, us) if isinstance(plan, PackedHidden) else None


def modelled_us(m: int, behind: Site, pair: tuple[Site, Site], plans: tuple[Plan, Plan], context: Context) -> float:
    """Returns modelled µs of all three matmuls of `m` rows with plans, and of what quantises their LHS.

    Rows of the last one are padded to those that are packed for it.
    """
    own, last = (plan.at(m) for plan in plans)
    step = own.layout.workgroup_tile[LHS] if isinstance(own, PackedHidden) else 1
    gates = pair[: 1 if isinstance(own, Joint) else None]
    each = [*((site, own, m) for site in gates), (behind, last, -(-m // step) * step)]
    us = sum(plan.cost(replace(of.problem, m=rows), of.result_bytes, context.registry) for of, plan, rows in each)
    quantised = [(pair[0], own), *([] if isinstance(own, PackedHidden) else [(behind, last)])]
    return us + sum(_in_front_us(m, site, plan, context) for site, plan in quantised)


def _in_front_us(m: int, site: Site, plan: Plan, context: Context) -> float:
    """Returns µs in front of a matmul: of a dispatch that quantises its LHS, or of a norm in front of it."""
    found = context.activations(site)
    if isinstance(found, str):
        return UNKNOWN if site.problem.dynamic else 0.0
    if not isinstance(plan, FusedQuant) or (
        found.norm is not None and site.problem.dynamic
    ):  # about as long as the norm
        return separate_us(context.options.target, replace(site.problem, m=m), found.bits)
    if found.norm is None:
        return 0.0
    instance = next((each for each in (*SINGLES, *PAIRS) if each.name == plan.kernel and plan.norm), None)
    fused_us = 0.0 if instance is None else fused_norm_us(found, instance, context, 1)
    return own_norm_us(found, context) + fused_us


def _following(behind: Site, inner_tiles: int, choice: Choice) -> Tiled | None:
    """Returns the plan of the matmul behind whose LHS is packed in so many inner tiles: the one it has, or the
    fastest."""
    context, problem = choice.context, behind.problem

    def fits(layout: DataTiledLayout) -> bool:
        return is_plain(layout) and _inner_tiles(problem, layout) == inner_tiles

    before = choice.plans[behind.index]
    if type(before) in (DataTiled, SplitK) and isinstance(before, Tiled) and fits(before.layout):
        return before
    for each in fastest(problem, context.registry, behind.result_bytes):
        if each.ukernel.layout is not None and fits(each.ukernel.layout):
            plan = DataTiled().by(each.ukernel, each.order).bounded(problem, context.options)
            return plan if isinstance(plan, Tiled) else None
    return None


def is_plain(layout: DataTiledLayout) -> bool:
    """Returns whether elements of an LHS lie as they are packed here."""
    return layout.inner_tiles is not None and layout.intrinsics_k == STEPS and not layout.lhs_row_lines


def _inner_tiles(problem: Problem, layout: DataTiledLayout) -> int:
    """Returns the inner tiles along M of a packed LHS."""
    inner_m, _ = layout.inner_tiles or (1, 1)
    return -(-(problem.m or 0) // (inner_m * INNER_ROWS)) * inner_m


def _us(instance: hidden.Instance, problem: Problem, registry: Registry) -> float:
    """Returns modelled µs of both matmuls by an instance: those of one with all columns, and a byte for two of them."""
    both, ukernel = replace(problem, n=2 * (problem.n or 0)), registry[instance.plain.name]
    known = times.of(ukernel)
    return UNKNOWN if known is None else times.modelled(known, ukernel.tile, times.Matmul(both, 1))
