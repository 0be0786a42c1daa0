"""The plan of a ukernel that quantises the LHS itself, in registers: for few rows, one dispatch less.

The ukernel takes activations, and packed operands of the RHS alone (`packing.quantising_matmul`). Matmuls of one LHS
all quantise it, or none does: once packed for one of them, it is there for the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, RHS, RHS_SCALE
from mxcomp.layout.problem import Problem
from mxcomp.matching.activations import Activations
from mxcomp.mlir import build
from mxcomp.options import AUTO, OFF, Options
from mxcomp.packing import block_dequantiser, block_quantiser, expert_tiles, quantising_matmul
from mxcomp.packing.packer import part_location
from mxcomp.packing.result_tiles import ResultTiles
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans import by_id
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.plan import Plan, Proposal, modelled
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection.quantising import modelled_us, separate_us, takes, times
from mxcomp.selection.ranking import fastest
from mxcomp.selection.streaming import norm_us, normalising_us
from mxcomp.selection.times import UNKNOWN
from mxcomp.ukernels import once, quantising
from mxcomp.ukernels.quantising import MOST_ROWS, Instance

_NOT = "LHS is not quantised by the ukernel: "


@dataclass(frozen=True)
class FusedQuant(Tiled):
    """`fused` is the name of the ukernel that quantises. `ukernel` is the fallback with the same RHS, and packed
    LHS. With `norm` the ukernel computes that in front of it, too."""

    plan: str = "fused_quant"
    fused: str = ""
    norm: bool = False

    loops_in_front: ClassVar[bool] = True

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options = context.options
        if not cls.is_asked_for(site, context, best):
            return ""
        found = context.activations(site)
        if isinstance(found, str) or found.pair is not None:
            return f"{_NOT}{found}" if found and isinstance(found, str) else ""
        problem = _of_rows(site.problem, found)
        named, registry = _named(options), context.registry
        if not context.may_pack or not (named or context.by_time):
            return ""
        candidates = [each for each in _taking(problem, found) if named in (None, each)]
        if not registry.runnable(candidates):
            sizes = f"{problem.m}x{problem.n}x{problem.k}"
            none = f"none quantises {found.type} to {problem.types[LHS]} for {problem.types[RHS]} and {sizes}"
            return f"{_NOT}{registry.unsupported(candidates) or none}"
        timed = times(candidates, problem, registry, site.result_bytes)
        chosen, norm, us = cheapest(timed, found, context, 1 + len(site.siblings))
        if us == UNKNOWN and not named:
            return f"{_NOT}the times of none are known"
        note = f"LHS is {'normalised and ' * norm}quantised by {chosen.name}{modelled(us)}"
        plan = cls.of(best, note=note, reason=None, norm=norm).with_instance(chosen, registry)
        reads = by_id.operands(site, context, plan)
        if plan.gathered != (() if isinstance(reads, str) else reads):
            return f"{_NOT}all experts would exceed a buffer"
        is_compared = options.fuse_quantisers == AUTO and not named
        return _compared(plan, us, found, site, context) if is_compared else Proposal(plan)

    @classmethod
    def slower(cls, found: Proposal) -> str:
        return f"{_NOT}it would take {found.us:.1f} µs, modelled, apart {found.instead_us:.1f}"

    @staticmethod
    def is_asked_for(site: Site, context: Context, best: Plan) -> bool:
        """Returns whether there are as few rows as kernels that quantise take, and no other reason against it."""
        is_off = context.options.fuse_quantisers == OFF or isinstance(best, FusedQuant)
        return not is_off and (site.problem.m or 0) in range(1, MOST_ROWS + 1)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
        return modelled_us(registry[self.fused], problem, result_bytes)

    def with_instance(self, instance: Instance, registry: Registry, **entries: Any) -> Self:
        """Returns the plan with the entries of an instance's rule."""
        own = {"fused": instance.name, "ukernel": instance.plain.name}
        return replace(self.by(registry[instance.name]), **(own | entries))

    @property
    def kernel(self) -> str | None:
        return self.fused

    @property
    def packs(self) -> Sequence[int]:
        return RHS, RHS_SCALE

    @property
    def unfused(self) -> DataTiled:
        return DataTiled.of(self)

    def of_bits(self, bits: int) -> Tiled:
        other = variant(self.fused, bits=bits)
        return self.unfused if other is None else replace(self, fused=other)

    def taking(self, matmul: Matmul, stored: list[ir.Value]) -> Matmul:
        problem, found, padding = matmul.problem, matmul.activations, None
        assert found is not None
        if not problem.batch and (problem.m or 0) > self.layout.workgroup_tile[0]:
            padding = part_location(self.index, "pad_lhs", matmul.op)
        return self.quantising(matmul, padding=padding)

    def quantising(self, matmul: Matmul, rows: ir.Value | None = None, padding: ir.Location | None = None) -> Matmul:
        """Returns the matmul with activations in front of the packed RHS, with a `padding` in tiles along M."""
        found = matmul.activations
        assert found is not None
        norm = found.norm if self.norm else None
        source = found if norm is None else found.reading(norm.operands[0])
        packed = quantising_matmul.operands(source, matmul.packed, matmul.problem, self.layout, rows, padding)
        of_norm = () if norm is None else quantising_matmul.vectors(norm)
        found = replace(found, norm=norm)
        return replace(matmul, packed=packed, activations=found, of_norm=of_norm, in_tiles=padding is not None)

    def tiles(self, matmul: Matmul) -> ResultTiles:
        columns = build.static_sizes(matmul.packed[RHS])[bool(matmul.problem.batch)]
        return quantising_matmul.result(matmul.problem, self.layout, columns, matmul.in_tiles)

    def counts(self, matmul: Matmul) -> TileCounts:
        return TileCounts(matmul.sizes, self.layout, has_all_rows=not matmul.in_tiles)

    def accumulated(self, matmul: Matmul, counts: TileCounts, llvm_func_attrs: dict[str, str]) -> ir.Value:
        kind = self.tiles(matmul).accumulators
        operands = [
            expert_tiles.gathered(value, matmul.ids[i]) if i in matmul.ids else value
            for i, value in zip((LHS, RHS, RHS_SCALE), matmul.packed, strict=True)
        ]
        tiles = counts.of(ACC) if matmul.in_tiles else None
        return self.by_kernel(self.fused, operands, matmul, kind, llvm_func_attrs, tiles)[0]

    def by_kernel(
        self, name: str, operands: list[ir.Value], matmul: Matmul, kind: ir.RankedTensorType,
        llvm_func_attrs: dict[str, str], tiles: list[ir.Value] | None = None, count: int = 1,
    ) -> list[ir.Value]:  # fmt: skip
        """Returns accumulator tiles by a ukernel that takes activations and `operands` of one matmul or two."""
        found, instance = matmul.activations, _KNOWN.get(name)
        blocks = (matmul.problem.k or 0) // matmul.problem.block
        assert found is not None
        if found.producer is None:
            text = block_dequantiser.text(matmul.problem.types[RHS], blocks)
        else:
            text = block_quantiser.text(found, blocks, instance is None or instance.kernel.in_order)
        own = None
        if found.norm is not None:
            assert isinstance(instance, once.Instance)
            bits = tuple(build.element(value).width for value in found.norm.operands[1:])
            instance = once.normalising(instance, len(found.norm.sums), bits)
            name, own = instance.name, instance.kernel(instance, matmul.target).function()
        return quantising_matmul.accumulate(
            operands, text, kind, matmul.problem, self.layout, replace(self, ukernel=name), llvm_func_attrs, tiles,
            count, matmul.of_norm, own,
        )  # fmt: skip


_KNOWN: Mapping[str, Instance] = {each.name: each for each in (*quantising.INSTANCES, *once.INSTANCES)}
SINGLES, PAIRS = ([each for each in _KNOWN.values() if each.matrices == count] for count in (1, 2))
"""The ukernels that quantise the LHS of one matmul, and for two."""


def variant(ukernel: str, **entries: Any) -> str | None:
    """Returns the name of a ukernel's variant of other bits, or matrices; None where there is none.

    A name that is not known is its own.
    """
    if ukernel not in _KNOWN:
        return ukernel
    other = replace(_KNOWN[ukernel], **entries).name
    return other if other in _KNOWN else None


def cheapest(
    timed: Mapping[Instance, float], found: Activations, context: Context, sharing: int
) -> tuple[Instance, bool, float]:
    """Returns the cheapest of ukernels by their µs, whether a norm is a part of it, and µs.

    Of what a norm takes the dispatch that is saved is taken off: `sharing` matmuls share it.
    """
    fusing = {each: fused_norm_us(found, each, context, sharing) for each in timed}
    us = {each: us + min(fusing[each], 0.0) for each, us in timed.items()}
    chosen = min(us, key=lambda each: us[each])
    return chosen, fusing[chosen] < 0, us[chosen]


def fused_norm_us(found: Activations, instance: Instance, context: Context, sharing: int) -> float:
    """Returns the µs by which a kernel is longer with a norm in front, less its share of the norm's own dispatch.

    0 where there is none, or where the kernel cannot compute it.
    """
    if found.norm is None or not isinstance(instance, once.Instance) or context.options.fuse_quantisers == OFF:
        return 0.0
    rows, *_ = found.norm.operands
    elements = math.prod(filter(None, build.static_sizes(rows))) / instance.tile.threads
    return normalising_us(len(found.norm.sums), elements) - own_norm_us(found, context) / sharing


def own_norm_us(found: Activations, context: Context) -> float:
    """Returns the µs of the dispatch that a norm in front of activations has by itself."""
    assert found.norm is not None
    sizes = [build.static_sizes(value) for value in found.norm.operands]
    moved = sum(math.prod(filter(None, each)) * found.bits / 8 for each in sizes)
    return norm_us(context.options.target, moved)


def _of_rows(problem: Problem, found: Activations) -> Problem:
    """Returns a problem with the rows that a kernel quantises."""
    return replace(problem, m=1) if found.shared else problem


def _taking(problem: Problem, found: Activations) -> list[Instance]:
    """Returns the ukernels that take activations: a single row as several ones those that repeat it."""
    return [
        each for each in SINGLES
        if takes(each, problem, found.bits) and (isinstance(each, once.Instance) or not found.shared)
    ]  # fmt: skip


def _named(options: Options) -> Instance | None:
    """Returns the instance of the name that is asked for, or of one that takes two matrices."""
    found = _KNOWN.get(options.ukernels)
    return found and replace(found, matrices=1)


def _compared(plan: FusedQuant, us: float, found: Activations, site: Site, context: Context) -> Proposal:
    """Compares the times of all matmuls of the LHS, each quantising it, with a dispatch that does so for all."""
    registry, options = context.registry, context.options
    ranked = [fastest(each, registry, size) for each, size in ((site.problem, site.result_bytes), *site.siblings)]
    if not all(ranked):
        return Proposal(plan)
    apart = [each[0].us for each in ranked]
    of_rows = ((_of_rows(each, found), size) for each, size in site.siblings)
    timed = [times(_taking(each, found), each, registry, size) for each, size in of_rows]
    others = [cheapest(each, found, context, 1 + len(site.siblings))[-1] if each else UNKNOWN for each in timed]
    if UNKNOWN in others:
        return Proposal(plan, us, apart[0])
    if found.norm is not None and not plan.norm:  # apart it is a part of what quantises
        us += own_norm_us(found, context)
    apart_us = sum(apart)
    if not found.made or site.problem.m != MOST_ROWS:  # else what makes activations quantises them
        apart_us += separate_us(options.target, site.problem, found.bits)
    return Proposal(plan, us + sum(others), apart_us)
