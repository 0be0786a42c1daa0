"""The plan of kernels for ranges of a dynamic M (multiversioning), as one for a few rows is slow for thousands.

    %last = flow.dispatch.region { … }       %few = flow.dispatch.region { … }
    %c = arith.cmpi ule, %m, %c16            %r = arith.select %c, %few, %last {mxcomp.versions}

Operands are packed once for all versions; rows are padded to the tile of the kernel that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout import RHS, RHS_SCALE
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import VERSIONS
from mxcomp.options import FASTEST, Options
from mxcomp.packing import stored_operand
from mxcomp.packing.packer import Packing, part_location
from mxcomp.packing.runtime_sizes import RuntimeSizes, TileCounts, is_for, padded_units
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection import versions
from mxcomp.selection.ranking import fastest


@dataclass(frozen=True)
class MultiM(Tiled):
    """Plans by the most rows that they are for, ascending; the last, for all others, has this plan's own entries."""

    plan: str = "multi_m"
    versions: tuple[tuple[int | None, Tiled], ...] = ()

    least_gain: ClassVar[float] = 0.1  # several kernels are not worth compiling for less

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options, problem, size = context.options, site.problem, site.result_bytes
        if type(best) is not DataTiled or site.is_symmetric or options.ukernels != FASTEST:
            return ""
        ranked = fastest(problem, context.registry, options, size) if options.versions and context.may_pack else ()
        if not ranked or best.ukernel != ranked[0].ukernel.name:
            return ""
        others = [
            versions.Ranked(other, fastest(other, context.registry, options, of), of) for other, of in site.siblings
        ]
        found = versions.choose(versions.Ranked(problem, ranked, size), others)
        if found is None:
            return ""
        plans = [(max_m, DataTiled().by(each.ukernel, each.order)) for max_m, each in found.kernels]
        names = [f"{each.ukernel} up to M = {max_m}" for max_m, each in plans[:-1]]
        us = f"modelled {found.us:.1f} µs, a geometric mean, against {found.alone_us:.1f} with one"
        plan = cls.of_versions(plans, note=f"{', '.join(names)}; {us}")
        return Proposal(plan.bounded(problem, options), found.us, found.alone_us)

    @classmethod
    def of_versions(cls, plans: Sequence[tuple[int | None, Tiled]], **entries: Any) -> Self:
        """Returns the plan of several versions, with these additional entries."""
        return cls.of(plans[-1][1], versions=tuple(plans), **entries)

    def bounded(self, problem: Problem, options: Options, padding: tuple[int, int, int] | None = None) -> Plan:
        m, n, k = self.packing.layout.workgroup_tile
        most = max((each.layout.units or (1, 1))[0] for _, each in self.versions)
        return super().bounded(problem, options, padding or (m * most, n, k))

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float | None:
        return self.at(problem.m or 0).cost(problem, result_bytes, registry)

    def at(self, rows: int) -> Tiled:
        return next(plan for max_m, plan in self.versions if max_m is None or rows <= max_m)

    def entries(self) -> dict[str, Any]:
        of = [({} if max_m is None else {"max_m": max_m}) | plan.entries() for max_m, plan in self.versions]
        return super().entries() | {"versions": of}

    @classmethod
    def from_entries(cls, entries: dict[str, Any]) -> Self:
        from mxcomp.plans import from_entries

        found = [dict(each) for each in entries["versions"]]
        of = tuple((each.pop("max_m", None), from_entries(each)) for each in found)
        return super().from_entries(entries | {"versions": of})

    @property
    def by_rows(self) -> Sequence[tuple[int | None, Tiled]]:
        return self.versions

    @property
    def packs(self) -> Sequence[int]:
        return (RHS, RHS_SCALE) if self._is_fused else super().packs

    @property
    def packing(self) -> Packing:
        """RHS has a multiple of each version's columns, rows are in single units; the padding differs."""
        units = [(max_m, *(each.layout.units or (1, 1))) for max_m, each in self.versions]
        rows = versions.last_of_runs(((m, max_m) for max_m, m, _ in units), lambda each: each[0])
        return Packing(self.index, self.layout.packed((1, max(n for *_, n in units))), rows=rows)

    @property
    def _is_fused(self) -> bool:
        """Whether all versions take activations."""
        return all(isinstance(plan, FusedQuant) for _, plan in self.versions)

    @property
    def kernel(self) -> str | None:
        return self.versions[0][1].kernel

    def of_bits(self, bits: int) -> Tiled:
        return self._each(lambda plan: plan.of_bits(bits))

    @property
    def unfused(self) -> Tiled:
        return self._each(lambda plan: plan.unfused)

    def _each(self, change: Callable[[FusedQuant], Tiled]) -> Self:
        """Returns the plan with each quantising version replaced."""
        of = [(max_m, change(plan) if isinstance(plan, FusedQuant) else plan) for max_m, plan in self.versions]
        return replace(self, versions=tuple(of))

    def padded(self, sizes: RuntimeSizes) -> RuntimeSizes:
        if self._is_fused:
            return sizes
        layouts = [(max_m, plan.layout) for max_m, plan in self.versions]
        return replace(sizes, units=padded_units(sizes.values["m"], layouts))

    def result(self, matmul: Matmul) -> ir.Value:
        def dispatch(number: int, padding: ir.Location | None) -> ir.Value:
            _, plan = self.versions[number]
            return plan.dispatch(self.taken(matmul, plan, padding))

        return self.cast(matmul, self.chosen(matmul, dispatch))

    def chosen(
        self, matmul: Matmul, dispatch: Callable[[int, ir.Location | None], ir.Value], *others: ir.Operation
    ) -> ir.Value:
        """Returns the result of the version that runs, of `dispatch` by their numbers, for a matmul and others.

        Where all take activations, the last one's are padded, at a location.
        """
        *before, last = range(len(self.versions))
        padding = part_location(self.index, "pad_lhs", matmul.op) if self._is_fused else None
        result = dispatch(last, padding)
        for number in reversed(before):
            max_m, _ = self.versions[number]
            with part_location(self.index, f"matmul_up_to_{max_m}", matmul.op, *others):
                made = dispatch(number, None)
            choice = arith.SelectOp(is_for(max_m, matmul.sizes.values["m"]), made, result)
            choice.operation.attributes[VERSIONS] = ir.UnitAttr.get()
            result = choice.result
        return result

    def taken(self, matmul: Matmul, plan: Tiled, padding: ir.Location | None) -> Matmul:
        """Returns a matmul as a version takes it, in its units.

        With `padding` activations are in tiles.
        """
        counts, units = TileCounts(matmul.sizes, plan.layout), plan.layout.units or (1, 1)
        packed = {
            i: stored_operand.regrouped(value, units[i % 2], counts.of(i))
            for i, value in zip(self.packs, matmul.packed, strict=True)
        }
        if isinstance(plan, FusedQuant):
            matmul = replace(matmul, packed=[packed[RHS], packed[RHS_SCALE]])
            return plan.quantising(matmul, matmul.sizes.values["m"], padding)
        return plan.taking(replace(matmul, packed=list(packed.values())), [])
