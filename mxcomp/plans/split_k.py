"""The split-K plan: K is split over workgroups, as a batch of parts of the same packed operands, and their sum.

    %r = flow.dispatch.region {
      %a = iree_linalg_ext.gather dimension_map = [0]
             ins(%lhs, %parts : tensor<1x8x16x24x…>, tensor<4xi32>) -> tensor<4x8x16x24x…>
      %t = iree_codegen.inner_tiled ins(%a, %b, …) {mxcomp.in_parts}
      … unpacked: tensor<4x2048x512xf32>
    }
    %s = linalg.generic ins(%r, %r, %r, %r) … ((%0 + %1) + %2) + %3 -> tensor<2048x512xf32>

mxcomp-fold-gathers gives part p the p-th of equal slices of K. IREE fuses elementwise consumers with the sum. Parts are
added in order, so results are the same in every run. Split-K pays where a product has fewer tiles than the chip has
compute units, and K is long.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import ClassVar

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.mlir import build
from mxcomp.options import FASTEST, Options
from mxcomp.packing import expert_tiles, result_tiles, stored_operand
from mxcomp.packing.packer import part_location
from mxcomp.packing.result_tiles import IN_PARTS
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection.ranking import Candidate, candidate
from mxcomp.selection.streaming import streaming_us
from mxcomp.target import Target

SPLITS = (2, 3, 4, 6, 8)
"""The numbers of parts of K that are considered."""

_LEAST_GAIN = 0.05
"""The least gain, as a fraction of the modelled time, that is worth another dispatch."""

_LEAST_TILES = 4
"""The least number of K tiles of a part: with fewer, a workgroup's prologue and epilogue dominate."""

_PART_BYTES = 4
"""The bytes of an element of a part's result, which is f32."""


@dataclass(frozen=True)
class SplitK(Tiled):
    """`parts` of K, each multiplied by separate workgroups."""

    plan: str = "split_k"
    parts: int = 1

    fuses_consumers: ClassVar[bool] = False  # they are fused into the dispatch that sums parts
    is_open: ClassVar[bool] = False

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        entry, _ = context.entry(site)
        if entry is not None:
            is_split = isinstance(best, Tiled) and best.ukernel == entry.ukernel.name and entry.line.split_k > 1
            plan = cls.of(best, parts=entry.line.split_k, note=entry.note, reason=None)
            return Proposal(plan.by(entry.ukernel, plan.order)) if is_split else ""
        if site.partner is not None or site.is_symmetric or context.options.ukernels != FASTEST:
            return ""
        if not is_possible(context.options) or type(best) is not DataTiled or best.ukernel is None or best.gathered:
            return ""
        problem, registry, size = site.problem, context.registry, site.result_bytes
        whole = candidate(registry[best.ukernel], problem, size)
        found = None if whole is None else faster(problem, whole, registry, context.options, size)
        if whole is None or found is None:
            return ""
        note = f"K in {found.parts} parts, modelled {found.us:.1f} µs with their sum, {whole.us:.1f} by {best.ukernel}"
        plan = cls.of(best, parts=found.parts, note=note, reason=None)
        return Proposal(plan.by(found.candidate.ukernel, found.candidate.order))

    def cost(self, problem: Problem, result_bytes: int, registry: Registry) -> float | None:
        assert self.ukernel is not None
        each = part(problem, registry[self.ukernel], self.parts)
        us = super().cost(each, _PART_BYTES, registry)
        return None if us is None else us + sum_us(registry.target, problem, self.parts, result_bytes)

    @property
    def marks(self) -> tuple[str, ...]:
        return (*super().marks, IN_PARTS)

    def result(self, matmul: Matmul) -> ir.Value:
        problem = replace(matmul.problem, batch=(self.parts,))
        tiles = replace(self.tiles(matmul), problem=problem)
        with build.dispatch_region([tiles.type("f32")], []) as region:
            elements = [stored_operand.elements(value, problem.types[i], []) for i, value in enumerate(matmul.packed)]
            pieces = _pieces(elements, self.parts)
            tiled = result_tiles.accumulate(pieces, tiles.zeros([]), problem, self.layout, self, {})
            region.returned = [result_tiles.unpack(tiled, tiles, [], [None, None])]
        with part_location(self.index, "sum", matmul.op):
            return _summed(region.results[0])


def _pieces(elements: list[ir.Value], parts: int) -> list[ir.Value]:
    """Returns packed operands with a matrix for each part, in the region of a dispatch."""
    numbers = ir.DenseElementsAttr.get(np.arange(parts, dtype=np.int32))
    ids = arith.ConstantOp(ir.RankedTensorType.get([parts], ir.IntegerType.get_signless(32)), numbers).result
    in_front = (build.split(value, 0, (1, build.static_sizes(value)[0])) for value in elements)
    return [expert_tiles.gathered(value, ids) for value in in_front]


def _summed(parts: ir.Value) -> ir.Value:
    """Returns [M, N] from [parts, M, N], added in order."""
    count, *sizes = build.static_sizes(parts)
    kind = build.tensor_type(sizes, build.element(parts))
    dims = [ir.AffineExpr.get_dim(i) for i in range(len(sizes))]
    maps = [
        *(ir.AffineMap.get(2, 0, [ir.AffineExpr.get_constant(i), *dims]) for i in range(count or 1)),
        ir.AffineMap.get(2, 0, dims),
    ]

    def body(*values: ir.Value) -> ir.Value:
        return reduce(lambda a, b: arith.AddFOp(a, b).result, values[:-1])

    inputs = [parts] * (count or 1)
    return build.generic(kind, inputs, build.empty(kind), maps, ["parallel"] * 2, body).results[0]


@dataclass(frozen=True)
class Split:
    """A ukernel for so many parts of K, and µs including the dispatch that sums them."""

    candidate: Candidate
    parts: int
    us: float

    @property
    def kernel(self) -> str:
        return self.candidate.ukernel.name


def is_possible(options: Options) -> bool:
    """Returns whether compilation reaches mxcomp-fold-gathers, which finds parts in packed operands."""
    return options.reads_in_place and not options.reference


def misfit(problem: Problem, ukernel: Ukernel, parts: int, target: Target) -> str:
    """Returns why K of a problem cannot be split in so many parts for a ukernel; "" if it can."""
    if problem.dynamic or problem.batch:
        return "K is split for static sizes without a batch"
    if min(problem.m or 0, problem.n or 0) < 2:
        return "K is not split for a single row or column"
    if ukernel.operands != DATA_TILED or ukernel.layout is None or ukernel.layout.inner_tiles is None:
        return f"{ukernel.name} takes no part of K: it is not over inner tiles"
    if parts * _PART_BYTES * _elements(problem) > target.max_buffer_bytes:
        return f"results of {parts} parts exceed {target.max_buffer_bytes} bytes"
    tiles = _k_tiles(problem, ukernel)
    return f"K has {tiles} tiles of {ukernel.tile[2]}, which are not {parts} equal parts" if tiles % parts else ""


def best(problem: Problem, ukernels: Iterable[Ukernel], target: Target, result_bytes: int) -> Split | None:
    """Returns the fastest split K; None if there is none."""
    found: list[Split] = []
    for ukernel in ukernels:
        if ukernel.types[:2] != problem.types[:2]:
            continue
        for parts in SPLITS:
            if misfit(problem, ukernel, parts, target) or _k_tiles(problem, ukernel) < parts * _LEAST_TILES:
                continue
            each = part(problem, ukernel, parts)
            if ukernel.mismatch(each) or (timed := candidate(ukernel, each, _PART_BYTES)) is None:
                continue
            found.append(Split(timed, parts, timed.us + sum_us(target, problem, parts, result_bytes)))
    return min(found, key=lambda each: each.us, default=None)


def sum_us(target: Target, problem: Problem, parts: int, result_bytes: int) -> float:
    """Returns modelled µs of the dispatch that sums parts."""
    return streaming_us(target, _elements(problem) * (parts * _PART_BYTES + result_bytes))


def is_worth_asking(problem: Problem, chosen: Candidate) -> bool:
    """Returns whether a product leaves compute units idle, and has K enough for parts."""
    if problem.dynamic or problem.batch:
        return False
    rows, columns, k_tiles = (
        -(-(size or 0) // step) for size, step in zip(problem.sizes.values(), chosen.ukernel.tile, strict=True)
    )
    tiles, cus = rows * columns, chosen.ukernel.target.cus
    return tiles < 2 * cus and tiles != cus and k_tiles >= 2 * _LEAST_TILES


def faster(problem: Problem, whole: Candidate, registry: Registry, options: Options, result_bytes: int) -> Split | None:
    """Returns the fastest split K, if it is clearly faster than a whole K."""
    if not is_worth_asking(problem, whole):
        return None
    found = best(problem, registry.ukernels.values(), options.target, result_bytes)
    return None if found is None or found.us > (1 - _LEAST_GAIN) * whole.us else found


def _elements(problem: Problem) -> int:
    """Returns the number of elements of the result."""
    return (problem.m or 0) * (problem.n or 0)


def _k_tiles(problem: Problem, ukernel: Ukernel) -> int:
    return -(-(problem.k or 0) // ukernel.tile[2])


def part(problem: Problem, ukernel: Ukernel, parts: int) -> Problem:
    """Returns the problem of a batch of parts; with one part the problem itself."""
    if parts == 1:
        return problem
    return replace(problem, k=_k_tiles(problem, ukernel) // parts * ukernel.tile[2], batch=(parts,))
