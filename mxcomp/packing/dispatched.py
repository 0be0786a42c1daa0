"""Dispatches that multiply packed operands: inner tiles, what is fused behind them, and unpacking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.formats import BLOCK_SIZE
from mxcomp.layout import ACC, LHS, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.matching.activations import Activations
from mxcomp.matching.decision import VERSIONS, Decision, Version
from mxcomp.mlir import build
from mxcomp.packing import (
    block_dequantiser,
    block_quantiser,
    expert_tiles,
    paired_matmul,
    quantising_matmul,
    reference_tiles,
    result_tiles,
    rows_operand,
    split_product,
    stored_operand,
)
from mxcomp.packing.packer import Packer, part_location
from mxcomp.packing.requantised_result import Plan
from mxcomp.packing.result_tiles import ALONE, UNROLL, ResultTiles
from mxcomp.packing.runtime_sizes import RuntimeSizes, TileCounts, is_for
from mxcomp.problem import Problem, flipped


@dataclass(frozen=True)
class Matmul:
    """A matmul as it is multiplied, on packed operands. `epilogue` are fused consumers, which make an `element`.

    Operands in `ids` are packed for all experts, of which each matrix of the batch takes that of its id. `activations`
    are what a ukernel takes that quantises the LHS itself, its own or that of a version; if its own `quantises`, only
    operands of the RHS are packed, and activations may be `in_tiles` along M.
    """

    decision: Decision
    sizes: RuntimeSizes
    packed: list[ir.Value]
    ids: Mapping[int, ir.Value]
    epilogue: ir.Operation | None
    element: str
    activations: Activations | None = None
    in_tiles: bool = False

    @property
    def quantises(self) -> bool:
        return self.decision.quantising is not None

    @property
    def layout(self) -> DataTiledLayout:
        assert self.decision.layout is not None
        return self.decision.layout

    @property
    def problem(self) -> Problem:
        return self.sizes.problem

    @property
    def brings(self) -> str:
        """What is put into a ukernel that takes activations."""
        found, blocks = self.activations, (self.problem.k or 0) // BLOCK_SIZE
        assert found is not None
        if found.producer is None:
            return block_dequantiser.text(self.problem.types[RHS], blocks)
        return block_quantiser.text(found, blocks)

    @property
    def tiles(self) -> ResultTiles:
        if self.quantises:
            columns = build.static_sizes(self.packed[RHS])[bool(self.problem.batch)]
            return quantising_matmul.result(self.problem, self.layout, columns, self.in_tiles)
        columns = None if self.layout.units is None else build.static_sizes(self.packed[RHS])[len(self.problem.batch)]
        return ResultTiles(self.problem, self.layout, self.decision.transposed, columns)


def in_place(matmul: Matmul) -> ir.Value:
    """The result by the mathematical meaning of tiles, not in a dispatch of its own: for other targets."""
    tiles, limits = matmul.tiles, matmul.sizes.rows_and_columns
    counts = TileCounts(matmul.sizes, matmul.layout)
    acc = tiles.zeros(counts.of(ACC))
    tiled = reference_tiles.inner_tiles(matmul.packed, acc, matmul.problem, matmul.layout, counts)
    tiled = _finished(matmul, tiled, counts)
    return _cast(matmul, result_tiles.unpack(tiled, tiles, counts.of(ACC), limits))


def by_rows(matmul: Matmul, op: ir.Operation) -> ir.Value:
    """The result of the version that takes a dynamic M, each in a dispatch of its own."""
    rows, (*others, last) = matmul.sizes.values["m"], matmul.decision.versions
    padding = part_location(matmul.decision, "pad_lhs", op) if matmul.quantises else None
    result = _alone(_version(matmul, last, padding))
    for version in reversed(others):
        with part_location(matmul.decision, f"matmul_up_to_{version.max_m}", op):
            made = _alone(_version(matmul, version))
        choice = arith.SelectOp(is_for(version, rows), made, result)
        choice.operation.attributes[VERSIONS] = ir.UnitAttr.get()
        result = choice.result
    return _cast(matmul, result)


def _version(matmul: Matmul, version: Version, padding: ir.Location | None = None) -> Matmul:
    """A matmul by the kernel of one version, its operands in as many units; with `padding` activations are in tiles."""
    decision = matmul.decision.of(version)
    counts = TileCounts(matmul.sizes, version.layout)
    places = (RHS, RHS_SCALE) if matmul.quantises else range(ACC)  # all versions take activations, or some
    packed = {
        i: stored_operand.regrouped(value, version.units[i % 2], counts.of(i))
        for i, value in zip(places, matmul.packed, strict=True)
    }
    if version.quantising is None:
        return replace(matmul, decision=decision, packed=list(packed.values()))
    assert matmul.activations is not None
    weights, rows = [packed[RHS], packed[RHS_SCALE]], matmul.sizes.values["m"]
    taken = quantising_matmul.operands(matmul.activations, weights, matmul.problem, version.layout, rows, padding)
    return replace(matmul, decision=decision, packed=taken, in_tiles=padding is not None)


def alone(matmul: Matmul) -> ir.Value:
    """The result of a dispatch of its own: [(batch,) M, N]."""
    return _cast(matmul, _alone(matmul))


def in_parts(matmul: Matmul, op: ir.Operation) -> ir.Value:
    """The sum of parts of K, which a dispatch has multiplied: f32 [M, N]."""
    problem = split_product.problem_of_parts(matmul.problem, matmul.decision.parts)
    tiles = replace(matmul.tiles, problem=problem)
    with build.dispatch_region([tiles.type("f32")], []) as region:
        elements = [stored_operand.elements(value, problem.types[i], []) for i, value in enumerate(matmul.packed)]
        packed = split_product.operands(elements, matmul.decision.parts)
        tiled = result_tiles.accumulate(packed, tiles.zeros([]), problem, matmul.decision, {})
        region.returned = [result_tiles.unpack(tiled, tiles, [], [None, None])]
    with part_location(matmul.decision, "sum", op):
        return split_product.summed(region.results[0])


def _alone(matmul: Matmul) -> ir.Value:
    """The dispatch of inner tiles, epilogue and unpacking: [(batch,) M, N], sizes perhaps hidden."""
    limits = _limits(matmul)
    known = [limit for limit in limits if limit is not None]
    if matmul.layout.pairs:
        counts = TileCounts(matmul.sizes, matmul.layout)
        each = enumerate(matmul.packed)
        packed = [stored_operand.in_pairs(value, matmul.layout, i, counts.of(i)) for i, value in each]
        matmul = replace(matmul, packed=packed)
    with build.dispatch_region([matmul.tiles.type(matmul.element, limits)], known) as region:
        has_all_rows = matmul.quantises and not matmul.in_tiles
        counts = TileCounts(matmul.sizes, matmul.layout, has_all_rows)
        tiled = _tiled(matmul, counts, UNROLL if matmul.epilogue is not None else {})
        region.returned = [result_tiles.unpack(tiled, matmul.tiles, counts.of(ACC), limits)]
    return region.results[0]


def _limits(matmul: Matmul) -> list[ir.Value | None]:
    """M and N of a result where they are values: its dispatch begins with loops if it quantises or reads rows."""
    plain_loops = matmul.quantises or matmul.decision.lhs_in_rows
    return result_tiles.hidden_limits(matmul.tiles, matmul.sizes, plain_loops)


def pair(matmul: Matmul, other: Matmul, met: ir.Value) -> ir.Value:
    """One dispatch of two matmuls of the same activations; what is fused behind the first reads `met` of the other."""
    limits = _limits(matmul)
    known = [limit for limit in limits if limit is not None]
    with build.dispatch_region([matmul.tiles.type(matmul.element, limits)], known) as region:
        counts = TileCounts(matmul.sizes, matmul.layout)
        decision = replace(matmul.decision, ukernel=matmul.decision.paired)
        kind, packed = matmul.tiles.accumulators, (matmul.packed, other.packed)
        tiled, beside = paired_matmul.accumulate(*packed, matmul.brings, kind, matmul.problem, decision, UNROLL)
        tiled = _finished(matmul, tiled, counts, {met: _finished(other, beside, counts)})
        region.returned = [result_tiles.unpack(tiled, matmul.tiles, counts.of(ACC), limits)]
    return _cast(matmul, region.results[0])


def requantised(matmul: Matmul, plan: Plan, packer: Packer) -> tuple[ir.Value, ...]:
    """The dispatch of inner tiles, epilogue and quantiser; returns what nothing computes any more."""
    with build.dispatch_region(plan.types, []) as region:
        counts = TileCounts(matmul.sizes, matmul.layout)
        tiled = _tiled(matmul, counts, ALONE if matmul.layout.intrinsics_n > 1 else UNROLL)
        region.returned = plan.compute(tiled)
    if plan.layout is None:
        plan.replace_sources(*region.results)
        return plan.sources
    ready = plan.packed(*region.results)
    packer.provide(plan.consumer, (RHS, RHS_SCALE), flipped(plan.sources), plan.layout, ready)
    return ()


def _tiled(matmul: Matmul, counts: TileCounts, llvm_func_attrs: dict[str, str]) -> ir.Value:
    """Accumulator tiles of the hardware behind the epilogue, in the region of a dispatch."""
    if matmul.quantises:
        kind = matmul.tiles.accumulators
        decision = replace(matmul.decision, ukernel=matmul.decision.quantising)
        operands = [
            expert_tiles.gathered(value, matmul.ids[i]) if i in matmul.ids else value
            for i, value in zip((LHS, RHS, RHS_SCALE), matmul.packed, strict=True)
        ]
        tiles = counts.of(ACC) if matmul.in_tiles else None
        tiled = quantising_matmul.accumulate(
            operands, matmul.brings, kind, matmul.problem, decision, llvm_func_attrs, tiles
        )
        return _finished(matmul, tiled, counts)
    elements = [
        rows_operand.units(value, matmul.problem, matmul.layout)
        if i == LHS and matmul.decision.lhs_in_rows
        else stored_operand.elements(value, matmul.problem.types[i], counts.of(i))
        for i, value in enumerate(matmul.packed)
    ]
    for index, ids in matmul.ids.items():
        elements[index] = expert_tiles.gathered(elements[index], ids)
    acc = matmul.tiles.zeros(counts.of(ACC))
    tiled = result_tiles.accumulate(elements, acc, matmul.problem, matmul.decision, llvm_func_attrs)
    return _finished(matmul, tiled, counts)


def _finished(
    matmul: Matmul, tiled: ir.Value, counts: TileCounts, beside: Mapping[ir.Value, ir.Value] | None = None
) -> ir.Value:
    """Accumulator tiles behind the epilogue, if there is one, which may read tiles `beside` them."""
    if matmul.epilogue is None:
        return tiled
    return result_tiles.with_epilogue(tiled, matmul.epilogue, matmul.tiles, matmul.sizes, counts.of(ACC), beside or {})


def _cast(matmul: Matmul, value: ir.Value) -> ir.Value:
    """A result with sizes that were hidden from IREE, as its users know it."""
    plain = matmul.tiles.type(matmul.element)
    return value if value.type == plain else tensor.CastOp(plain, value).result
