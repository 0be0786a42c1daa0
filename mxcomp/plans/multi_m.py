"""The plan of kernels for ranges of a dynamic M (multiversioning), as one for a few rows is slow for thousands.

    %last = flow.dispatch.region { … }       %few = flow.dispatch.region { … }
    %c = arith.cmpi ule, %m, %c16            %r = arith.select %c, %few, %last {mxcomp.versions}

Operands are packed once for all versions; rows are padded to the tile of the kernel that runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from iree.compiler import ir

from mxcomp.layout import LHS, RHS, RHS_SCALE
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import VERSIONS
from mxcomp.mlir import build, graph
from mxcomp.options import FASTEST, Options
from mxcomp.packing import stored_operand
from mxcomp.packing.packer import Packing, part_location
from mxcomp.packing.runtime_sizes import RuntimeSizes, TileCounts, padded_inner_tiles
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
    """Plans by the most rows that they are for, ascending; the last, for all others, has this plan's own entries.

    LHS is padded to multiples of so many inner tiles of rows as `steps` says of each; by default of what its kernel
    takes.
    """

    plan: str = "multi_m"
    versions: tuple[tuple[int | None, Tiled], ...] = ()
    steps: tuple[int, ...] = ()

    least_gain: ClassVar[float] = 0.1  # several kernels are not worth compiling for less

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        options, problem, size = context.options, site.problem, site.result_bytes
        if type(best) is not DataTiled or site.is_symmetric or options.ukernels != FASTEST:
            return ""
        ranked = fastest(problem, context.registry, size) if options.versions and context.may_pack else ()
        if not ranked or best.ukernel != ranked[0].ukernel.name:
            return ""
        others = [versions.Ranked(other, fastest(other, context.registry, of), of) for other, of in site.siblings]
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
        most = max(step for _, step in self._padding)
        return super().bounded(problem, options, padding or (m * most, n, k))

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float:
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
        return super().from_entries(entries | {"versions": of, "steps": tuple(entries.get("steps", ()))})

    @property
    def by_rows(self) -> Sequence[tuple[int | None, Tiled]]:
        return self.versions

    @property
    def packs(self) -> Sequence[int]:
        return (RHS, RHS_SCALE) if self._is_fused else super().packs

    @property
    def packing(self) -> Packing:
        """RHS has a multiple of each version's columns, rows are in single inner tiles; the padding differs."""
        columns = math.lcm(*((each.layout.inner_tiles or (1, 1))[RHS] for _, each in self.versions))
        rows = tuple((step, most) for most, step in versions.last_of_runs(self._padding, lambda each: each[1]))
        return Packing(self.index, self.layout.packed((1, columns)), rows=rows)

    @property
    def _padding(self) -> Sequence[tuple[int | None, int]]:
        """The numbers that inner tiles of LHS are multiples of, by the most rows."""
        steps = self.steps or [(each.layout.inner_tiles or (1, 1))[LHS] for _, each in self.versions]
        return [(max_m, step) for (max_m, _), step in zip(self.versions, steps, strict=True)]

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
        return replace(sizes, inner_tiles=padded_inner_tiles(sizes.values["m"], self.layout.tile[0], self._padding))

    def result(self, matmul: Matmul) -> ir.Value:
        def dispatch(number: int, padding: ir.Location | None) -> ir.Value:
            return self.versions[number][1].dispatch(self.taken(matmul, number, padding))

        return self.cast(matmul, self.chosen(matmul, dispatch))

    def chosen(
        self, matmul: Matmul, dispatch: Callable[[int, ir.Location | None], ir.Value], *others: ir.Operation
    ) -> ir.Value:
        """Returns the result of the version that runs, of `dispatch` by their numbers, for a matmul and others.

        Where all take activations, the last one's are padded, at a location.
        """
        *before, last = range(len(self.versions))
        padding = part_location(self.index, "pad_lhs", matmul.op) if self._is_fused else None
        made: list[tuple[int | None, ir.Value]] = [(None, dispatch(last, padding))]
        for number in reversed(before):
            max_m, _ = self.versions[number]
            with part_location(self.index, f"matmul_up_to_{max_m}", matmul.op, *others):
                made.append((max_m, dispatch(number, None)))
        return build.for_at_most(made[::-1], matmul.sizes.values["m"], VERSIONS)

    def taken(self, matmul: Matmul, number: int, padding: ir.Location | None) -> Matmul:
        """Returns a matmul as a version takes it, in its inner tiles.

        With `padding` activations are in tiles.
        """
        max_m, plan = self.versions[number]
        counts, inner_tiles = TileCounts(matmul.sizes, plan.layout), plan.layout.inner_tiles or (1, 1)
        packed = {
            i: stored_operand.regrouped(_made_for(value, max_m), inner_tiles[i % 2], counts.of(i))
            for i, value in zip(self.packs, matmul.packed, strict=True)
        }
        if isinstance(plan, FusedQuant):
            matmul = replace(matmul, packed=[packed[RHS], packed[RHS_SCALE]])
            return plan.quantising(matmul, matmul.sizes.values["m"], padding)
        return plan.taking(replace(matmul, packed=list(packed.values())), [])


OF_VERSIONS = "mxcomp.of_versions"
"""The attribute of selections among operands that are made for so many rows each; a version takes that for its rows."""


def _made_for(value: ir.Value, max_m: int | None) -> ir.Value:
    """Returns the operand that is made for a version, where there are several."""
    while (choice := graph.producer(value, "arith.select")) is not None and OF_VERSIONS in choice.attributes:
        most = graph.number(choice.operands[0].owner.operands[1])
        is_first = max_m is not None and most is not None and max_m <= most
        value = choice.operands[1 if is_first else 2]
    return value
