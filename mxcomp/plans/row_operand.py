"""The plan of a ukernel that reads LHS, or RHS in its place, row-major as it is stored, while all else is packed.

In the dispatch of the matmul, inner tiles of LHS as they would be packed, for which IREE tiles:

    %a = iree_tensor_ext.bitcast %rows : tensor<10000x8192xi8> -> tensor<10000x16384xf4E2M1FN>
    %u = linalg.generic … tensor.extract %a[%row, %k] -> tensor<40x16x32x1x4x4x16x32xf4E2M1FN>
    %r = iree_codegen.inner_tiled ins(%u, …) {mxcomp.lhs_row_major}

mxcomp-fold-rows gives workgroups the rows themselves, so that this is never computed, and no dispatch packs them. For
RHS the matmul is computed transposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.formats import element_format
from mxcomp.layout import ACC, LHS, OPERAND_NAMES, RHS
from mxcomp.layout.problem import Problem
from mxcomp.matching import gathers
from mxcomp.matching.storage import storage
from mxcomp.mlir import build
from mxcomp.options import FASTEST, Options
from mxcomp.packing import stored_operand
from mxcomp.packing.result_tiles import LHS_ROW_MAJOR
from mxcomp.packing.runtime_sizes import TileCounts
from mxcomp.plans.building import Matmul
from mxcomp.plans.context import Context, Site
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.plan import Plan, Proposal
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection.limits import limits
from mxcomp.selection.ranking import Candidate, candidate
from mxcomp.sim.timing.parameters import parameters_of
from mxcomp.target import Target
from mxcomp.ukernels import family

SIDES = (LHS, RHS)
"""The operands that may be read row-major."""


@dataclass(frozen=True)
class RowOperand(Tiled):
    """The operand that is multiplied as LHS is not packed."""

    plan: str = "row_operand"

    loops_in_front: ClassVar[bool] = True

    @classmethod
    def propose(cls, site: Site, context: Context, best: Plan) -> Proposal | str:
        if not context.may_pack:
            return ""
        objections = {side: _objection(side, site, context) for side in SIDES}
        return choose(best, site.problem, objections, context.registry, context.options, site.result_bytes)

    @property
    def packs(self) -> Sequence[int]:
        return range(1, ACC)

    @property
    def marks(self) -> tuple[str, ...]:
        return (*super().marks, LHS_ROW_MAJOR)

    def taking(self, matmul: Matmul, stored: list[ir.Value]) -> Matmul:
        """Returns the matmul with the bytes [M, K·bits/8] of LHS, where they are stored."""
        problem = matmul.problem
        bits = element_format(problem.types[LHS]).bits
        kind = build.tensor_type((problem.m, (problem.k or 0) * bits // 8), "i8")
        return replace(matmul, packed=[build.bitcast(storage(stored[LHS]), kind), *matmul.packed])

    def elements(self, matmul: Matmul, counts: TileCounts) -> list[ir.Value]:
        first, *others = matmul.packed
        inner_tiles = self._inner_tiles(first, matmul.problem)
        each = enumerate(others, start=1)
        return [
            inner_tiles,
            *(stored_operand.elements(value, matmul.problem.types[i], counts.of(i)) for i, value in each),
        ]

    def _inner_tiles(self, stored: ir.Value, problem: Problem) -> ir.Value:
        """Returns inner tiles of LHS from its bytes, in the region of a dispatch; rows of padding repeat the last."""
        swizzle, element = self.layout.packing(LHS), problem.types[LHS]
        outer = [swizzle.tiles(dim, size) for dim, size in enumerate((problem.m, (problem.k or 0) // problem.block))]
        shape = self.layout.multiplied_shape(LHS, self.layout.packed_shape(LHS, outer))
        _, of_tile, _, _, steps, blocks, of_inner_tile, inner = (size or 1 for size in shape)
        elements = build.bitcast(stored, build.tensor_type((problem.m, problem.k), element))
        tile, inner_tile, k_tile, _, step, block, row, within = (ir.AffineExpr.get_dim(i) for i in range(len(shape)))
        row = (tile * of_tile + inner_tile) * of_inner_tile + row
        column = ((k_tile * steps + step) * blocks + block) * inner + within

        def body(loops: list[ir.Value]) -> ir.Value:
            position = [build.clamp(build.apply(row, loops), problem.m or 1), build.apply(column, loops)]
            return tensor.ExtractOp(elements, position).result

        return build.generate(build.tensor_type(shape, element), body)


def choose(
    best: Plan, problem: Problem, objections: Mapping[int, str], registry: Registry, options: Options, size: int
) -> Proposal | str:
    """Returns the fastest ukernel for a side without an objection, or that of the name that is asked for.

    `size` are the bytes of an element of the result.
    """
    named = registry.ukernels.get(options.ukernels)
    if named is not None and named.operands in family.ROW_MAJOR_SIDES:
        side = family.ROW_MAJOR_SIDES.index(named.operands)
        reason = objections[side] or _misfit(named, _multiplied(problem, side), options)
        if reason:
            return Proposal(replace(best, reason=f"{named.name}: {reason}"))
        return Proposal(_plan(best, named, candidate(named, _multiplied(problem, side), size), side, None))
    if options.ukernels != FASTEST or best.kernel is None or isinstance(best, FusedQuant):
        return ""
    ways = [
        (timed.us - packing_us(options.target, problem, side), timed, side)
        for side in SIDES
        if not objections[side]
        for timed in candidates(problem, side, registry, options, size)
    ]
    packed = candidate(registry[best.kernel], problem, size) if ways else None
    if packed is None:
        return ""
    us, timed, side = min(ways, key=lambda way: way[0])
    return Proposal(
        _plan(best, timed.ukernel, timed, side, packed.us + packing_us(options.target, problem, side)), us, packed.us
    )


def candidates(problem: Problem, side: int, registry: Registry, options: Options, size: int) -> Iterator[Candidate]:
    """Returns the ukernels that read LHS or RHS of a problem as it is stored, and their times."""
    multiplied = _multiplied(problem, side)
    for each in registry.ukernels.values():
        if each.operands == family.ROW_MAJOR_SIDES[side] and not _misfit(each, multiplied, options):
            timed = candidate(each, multiplied, size)
            if timed is not None:
                yield timed


def packing_us(target: Target, problem: Problem, side: int = LHS) -> float:
    """Returns modelled µs of a dispatch that packs LHS or RHS: it reads and writes all of it, bound by HBM."""
    p, bits = parameters_of(target), element_format(problem.types[side]).bits
    moved = 2 * ((problem.m, problem.n)[side] or 0) * (problem.k or 0) * bits / 8
    return p.launch_us + moved / (p.hbm_terabytes * 1e6)


def _multiplied(problem: Problem, side: int) -> Problem:
    """Returns the problem with the operand that is read row-major as LHS."""
    return problem if side == LHS else problem.flipped


def _objection(side: int, site: Site, context: Context) -> str:
    """Returns why LHS or RHS cannot be read as it is stored; "" if it can."""
    name = OPERAND_NAMES[side].upper()
    if not context.options.reads_in_place:
        return f"a stock iree-compile cannot read {name} as it is stored"
    if not gathers.are_given(context.ops[site.index].operands[side]):
        return f"{name} is no argument of the program, row-major"
    return ""


def _misfit(ukernel: Ukernel, problem: Problem, options: Options) -> str:
    """Returns why a ukernel cannot read the LHS of a problem as it is stored; "" if it can."""
    if problem.batch or problem.m is None or problem.n is None:
        return "it takes static sizes without a batch"
    if limits(problem, ukernel.tile, options.target.max_buffer_bytes) is None:
        return f"an operand or the result exceeds {options.target.max_buffer_bytes} bytes"
    return ukernel.mismatch(problem)


def _plan(best: Plan, ukernel: Ukernel, timed: Candidate | None, side: int, packed_us: float | None) -> RowOperand:
    name = OPERAND_NAMES[side].upper()
    note = f"{name} is read as it is stored, by {ukernel.name}"
    note += "" if timed is None else f", modelled {timed.us:.1f} µs"
    note += "" if packed_us is None else f", with {name} packed {packed_us:.1f}"
    plan = RowOperand.of(best, transposed=side == RHS, note=note, reason=None)
    return plan.by(ukernel, plan.order if timed is None else timed.order)
