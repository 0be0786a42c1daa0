"""The plan of a ukernel that quantises the LHS itself, in registers: for few rows, one dispatch less.

The ukernel takes activations, and packed operands of the RHS alone (`packing.quantising_matmul`). Matmuls of one LHS
all quantise it, or none does: once packed for one of them, it is there for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, RHS, RHS_SCALE
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build
from mxcomp.options import AUTO, FASTEST, OFF, Options
from mxcomp.packing import block_dequantiser, block_quantiser, expert_tiles, quantising_matmul
from mxcomp.packing.packer import part_location
from mxcomp.packing.result_tiles import ResultTiles
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection.quantising import modelled_us, separate_us, takes, times
from mxcomp.selection.ranking import fastest
from mxcomp.ukernels import dual, quantising
from mxcomp.ukernels.quantising import MOST_ROWS, Instance

_NOT = "LHS is not quantised by the ukernel: "


@dataclass(frozen=True)
class FusedQuant(Tiled):
    """`fused` is the name of the ukernel that quantises. `ukernel` is the fallback with the same RHS, and packed
    LHS."""

    plan: str = "fused_quant"
    fused: str = ""

    loops_in_front: ClassVar[bool] = True

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options, problem = context.options, site.problem
        if not cls.is_asked_for(site, context, best):
            return ""
        found = context.activations(site)
        if isinstance(found, str) or found.pair is not None:
            return f"{_NOT}{found}" if found and isinstance(found, str) else ""
        named, registry = _named(options), context.registry
        if not context.may_pack or not (named or options.ukernels == FASTEST):
            return ""
        candidates = [
            each for each in quantising.INSTANCES if takes(each, problem, found.bits) and named in (None, each)
        ]
        known = times(candidates, problem, registry, site.result_bytes)
        if not registry.runnable(candidates):
            sizes = f"{problem.m}x{problem.n}x{problem.k}"
            none = f"none quantises {found.type} to {problem.types[LHS]} for {problem.types[RHS]} and {sizes}"
            return f"{_NOT}{registry.unsupported(candidates) or none}"
        if not known and not named:
            return f"{_NOT}the times of none are known"
        chosen = named or min(known, key=lambda each: known[each])
        us = known.get(chosen)
        note = f"LHS is quantised by {chosen.name}" + (f", modelled {us:.1f} µs" if us is not None else "")
        plan = cls.of(best, note=note, reason=None).with_instance(chosen, registry)
        is_compared = options.fuse_quantisers == AUTO and not named and us is not None
        return _compared(plan, us or 0.0, found.bits, site, context) if is_compared else Proposal(plan)

    @classmethod
    def slower(cls, found: Proposal) -> str:
        return f"{_NOT}it would take {found.us:.1f} µs, modelled, apart {found.instead_us:.1f}"

    @staticmethod
    def is_asked_for(site: Site, context: Context, best: Plan) -> bool:
        """Returns whether there are as few rows as kernels that quantise take, and no other reason against it."""
        is_off = context.options.fuse_quantisers == OFF or isinstance(best, FusedQuant)
        return not is_off and (site.problem.m or 0) in range(1, MOST_ROWS + 1)

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float | None:
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
        other = of_bits(self.fused, bits)
        return self.unfused if other is None else replace(self, fused=other)

    def taking(self, matmul: Matmul, stored: list[ir.Value]) -> Matmul:
        problem, found, padding = matmul.problem, matmul.activations, None
        assert found is not None
        if not problem.batch and (problem.m or 0) > self.layout.workgroup_tile[0]:
            padding = part_location(self.index, "pad_lhs", matmul.op)
        return self.quantising(matmul, padding=padding)

    def quantising(self, matmul: Matmul, rows: ir.Value | None = None, padding: ir.Location | None = None) -> Matmul:
        """Returns the matmul with activations in front of the packed RHS, with a `padding` in tiles along M."""
        assert matmul.activations is not None
        packed = quantising_matmul.operands(
            matmul.activations, matmul.packed, matmul.problem, self.layout, rows, padding
        )
        return replace(matmul, packed=packed, in_tiles=padding is not None)

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
        tiles, fused = counts.of(ACC) if matmul.in_tiles else None, replace(self, ukernel=self.fused)
        (tiled,) = quantising_matmul.accumulate(
            operands, brought(matmul), kind, matmul.problem, self.layout, fused, llvm_func_attrs, tiles
        )
        return tiled


def brought(matmul: Matmul) -> str:
    """Returns the function that is inserted into a ukernel that takes activations."""
    found, blocks = matmul.activations, (matmul.problem.k or 0) // matmul.problem.block
    assert found is not None
    if found.producer is None:
        return block_dequantiser.text(matmul.problem.types[RHS], blocks)
    return block_quantiser.text(found, blocks)


def of_bits(ukernel: str, bits: int) -> str | None:
    """Returns the name of the variant of a ukernel for activations of so many bits; None where there is none."""
    known = {each.name: each for each in (*quantising.INSTANCES, *dual.INSTANCES)}
    other = None if ukernel not in known else replace(known[ukernel], bits=bits).name
    return ukernel if ukernel not in known else other if other in known else None


def _named(options: Options) -> Instance | None:
    """Returns the instance of the name that is asked for, or of one that takes two matrices."""
    pair = next((dual.single(each) for each in dual.INSTANCES if each.name == options.ukernels), None)
    return pair or next((each for each in quantising.INSTANCES if each.name == options.ukernels), None)


def _compared(plan: FusedQuant, us: float, bits: int, site: Site, context: Context) -> Proposal:
    """Compares the times of all matmuls of the LHS, each quantising it, with a dispatch that does so for all."""
    registry, options = context.registry, context.options
    ranked = [
        fastest(each, registry, options, size) for each, size in ((site.problem, site.result_bytes), *site.siblings)
    ]
    if not all(ranked):
        return Proposal(plan)
    apart = [each[0].us for each in ranked]
    fitting = ([e for e in quantising.INSTANCES if takes(e, each, bits)] for each, _ in site.siblings)
    others = [
        min(times(candidates, each, registry, size).values(), default=None)
        for candidates, (each, size) in zip(fitting, site.siblings, strict=True)
    ]
    if None in others:
        return Proposal(plan, us, apart[0])
    return Proposal(plan, us + sum(filter(None, others)), sum(apart) + separate_us(options.target, site.problem, bits))
