"""mxcomp-materialise: turns encodings into packed tensors, and encoded matmuls into dispatches.

Before:

    %ae = iree_encoding.set_encoding %a : tensor<1024x32x32xf4E2M1FN> -> tensor<1024x32x32xf4E2M1FN, #lhs>  (and others)
    %re = linalg.generic {…, mxcomp.scaled_matmul = {operands = "data_tiled", layout = {…}, ukernel = "mx_…"}} …
    %r = iree_encoding.unset_encoding %re

After, one dispatch per operand and one for matmul and unpacking:

    %w = iree_tensor_ext.bitcast %a : tensor<1024x32x32xf4E2M1FN> -> tensor<1024x32x4xi32>
    %p = flow.dispatch.region { linalg.generic … tensor.extract %w[…] } -> tensor<8x4x2x4x2x4x16x4xi32>
    %pb = iree_tensor_ext.bitcast %p : … -> tensor<8x4x1x2x4x2x4x16x16xi8>
    %r = flow.dispatch.region {
      %ap = iree_tensor_ext.bitcast %pb : … -> tensor<8x4x1x2x4x2x4x16x32xf4E2M1FN>
      iree_codegen.inner_tiled … {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_…", tensor>}
      linalg.transpose, tensor.collapse_shape, tensor.extract_slice
    }

Fused consumers (mxcomp-fuse-consumers) work on the packed tiles, between inner_tiled and the transpose.

A constant operand is packed outside a region, where IREE evaluates it at compile time. With packed parameters an
operand that is a parameter is read in its layout (`mxcomp.packing.parameter_operand`). A row-major ukernel keeps its
`linalg.generic`, in a region and with the ukernel's descriptor. Dynamic sizes are guarded by `cf.assert`. A batch is
one more dimension, the first, of all packed tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.errors import CompileError
from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.matching import activations, gathers, pairs
from mxcomp.matching.activations import Activations
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import DATA_TILED, ROW_MAJOR, SCALED_MATMUL, VERSIONS, Decision, Version, decision_of
from mxcomp.mlir import build, graph, notes
from mxcomp.options import Options
from mxcomp.packing import (
    block_dequantiser,
    block_quantiser,
    expert_tiles,
    paired_matmul,
    quantising_matmul,
    reference_tiles,
    requantised_result,
    result_tiles,
    stored_operand,
)
from mxcomp.packing.packer import Packer, part_location
from mxcomp.packing.requantised_result import Plan
from mxcomp.packing.result_tiles import ALONE, UNROLL, ResultTiles
from mxcomp.packing.runtime_sizes import RuntimeSizes, TileCounts, guarded, is_for, padded_units
from mxcomp.passes.fuse_consumers import EPILOGUE
from mxcomp.problem import Problem, flipped

OPTIONS = ("reference", "packed-parameters")


def run(module: ir.Operation, options: Options) -> None:
    """Materialises every encoded or row-major scaled matmul below `module`."""
    packer, sources, waiting = Packer(options), list[ir.Value](), dict[int, _Prepared]()
    matmuls = [(op, decision) for op in graph.walk(module) if (decision := decision_of(op)) is not None]
    together = {} if options.reference else pairs.fused(matmuls, EPILOGUE)
    for op, decision in matmuls:
        del op.attributes[SCALED_MATMUL]
        if decision.operands == DATA_TILED:
            prepared = _prepared(op, decision, packer, options)
            sources += prepared.sources
            index = -1 if decision.index is None else decision.index
            if (pair := together.get(index)) is None:
                _finish(prepared, packer, options)
                continue
            waiting[index] = prepared
            if pair.first in waiting and pair.second in waiting:
                _finish_pair(waiting[pair.first], waiting[pair.second], pair.met, packer, options)
        elif decision.operands == ROW_MAJOR and not options.reference:
            _row_major(op, decision)
    graph.erase_unused(sources)  # not before: the packer knows operands by them
    _check_gone(module)


@dataclass(frozen=True)
class _Matmul:
    """A matmul as it is multiplied, on packed operands. `epilogue` are fused consumers, which make an `element`.

    Operands in `ids` are packed for all experts, of which each matrix of the batch takes that of its id. With
    `activations`, its ukernel quantises the LHS itself, and only operands of the RHS are packed.
    """

    decision: Decision
    sizes: RuntimeSizes
    packed: list[ir.Value]
    ids: Mapping[int, ir.Value]
    epilogue: ir.Operation | None
    element: str
    activations: Activations | None = None

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
        found, rows = self.activations, self.problem.m or 0
        assert found is not None
        if found.producer is None:
            return block_dequantiser.text(self.problem.types[RHS], rows)
        return block_quantiser.text(found.producer, found.type, found.bits, rows)

    @property
    def tiles(self) -> ResultTiles:
        if self.activations is not None:
            return quantising_matmul.result(self.problem, self.layout)
        columns = None if self.layout.units is None else build.static_sizes(self.packed[RHS])[len(self.problem.batch)]
        return ResultTiles(self.problem, self.layout, self.decision.transposed, columns)


@dataclass(frozen=True)
class _Prepared:
    """A matmul whose operands are packed; `dead` is what it is to be instead of, `sources` what was packed."""

    op: ir.Operation
    matmul: _Matmul
    dead: list[ir.Operation]
    sources: list[ir.Value]

    @property
    def unset(self) -> ir.Operation:
        return self.dead[0]

    def erase(self) -> None:
        for dead in self.dead:
            graph.erase_dead(dead)


def _prepared(op: ir.Operation, decision: Decision, packer: Packer, options: Options) -> _Prepared:
    """Packs the operands of a data-tiled matmul."""
    problem, epilogue, unset = problem_of(op), None, _user(op)
    if EPILOGUE in unset.attributes:
        epilogue, unset = unset, _user(unset)
    encodings = [operand.owner.operation for operand in op.operands]
    sources = [encoding.operands[0] for encoding in encodings]
    read_through = {
        decision.place(index): gather
        for index in decision.gathered
        if (gather := gathers.find(sources[index])) is not None
    }
    if decision.transposed:
        problem, sources = problem.flipped, list(flipped(sources))
    with op.context, op.location, ir.InsertionPoint(op):
        sizes = guarded(sources, problem, decision)
        if decision.versions and not options.reference:
            sizes = replace(sizes, units=padded_units(sizes.values["m"], decision.versions))
        stored = [read_through[i].stored(source) if i in read_through else source for i, source in enumerate(sources)]
        quantised = _quantised_inside(op, sources, problem, decision, options)
        wanted = range(ACC) if quantised is None else (RHS, RHS_SCALE)
        packed = packer.operands(op, stored, decision, sizes, wanted)
        if quantised is not None and decision.layout is not None:
            packed = quantising_matmul.operands(quantised, packed, problem, decision.layout)
    element = str(build.element(unset.results[0]))
    ids = {index: gather.ids for index, gather in read_through.items()}
    matmul = _Matmul(decision, sizes, packed, ids, epilogue, element, quantised)
    return _Prepared(op, matmul, [unset, *([epilogue] if epilogue else []), op, *encodings], [*sources, *stored])


def _finish(prepared: _Prepared, packer: Packer, options: Options) -> None:
    """Puts the dispatch of a matmul in its place."""
    op, matmul, unset = prepared.op, prepared.matmul, prepared.unset
    decision = matmul.decision
    if decision.paired is not None and not options.reference:
        reason = f"not in one dispatch with matmul {decision.paired_with}: what is fused behind does not read both"
        notes.note(op, decision.index or 0, reason)
    with op.context, part_location(decision, "matmul", op), ir.InsertionPoint(unset):
        plan = _plan(unset, decision, options)
        replaced: tuple[ir.Value, ...] = ()
        if options.reference:
            result = _in_place(matmul)
        elif plan is None:
            result = _by_rows(matmul, op) if decision.versions else _cast(matmul, _dispatched(matmul))
        else:
            replaced = _requantised(matmul, plan, packer)
            result = _gone(unset)
    unset.results[0].replace_all_uses_with(result)
    graph.erase_unused(replaced)
    prepared.erase()


def _finish_pair(first: _Prepared, second: _Prepared, met: ir.Value, packer: Packer, options: Options) -> None:
    """Puts one dispatch in the place of two matmuls of the same activations; or one for each, if it cannot be.

    What is fused behind the first reads `met` of the second.
    """
    matmul = first.matmul
    if matmul.activations is None or second.matmul.activations is None:
        for each in (second, first):
            _finish(each, packer, options)
        return
    op = first.op
    with op.context, part_location(matmul.decision, "matmul", op), ir.InsertionPoint(first.unset):
        limits = result_tiles.hidden_limits(matmul.tiles, matmul.sizes, plain_loops=True)
        known = [limit for limit in limits if limit is not None]
        with build.dispatch_region([matmul.tiles.type(matmul.element, limits)], known) as region:
            counts = TileCounts(matmul.sizes, matmul.layout)
            decision = replace(matmul.decision, ukernel=matmul.decision.paired)
            kind, packed = matmul.tiles.accumulators, (matmul.packed, second.matmul.packed)
            tiled, other = paired_matmul.accumulate(*packed, matmul.brings, kind, matmul.problem, decision, UNROLL)
            beside = {met: _finished(second.matmul, other, counts)}
            region.returned = [
                result_tiles.unpack(_finished(matmul, tiled, counts, beside), matmul.tiles, counts.of(ACC), limits)
            ]
        result = _cast(matmul, region.results[0])
    first.unset.results[0].replace_all_uses_with(result)
    first.erase()
    second.erase()


def _quantised_inside(
    op: ir.Operation, sources: list[ir.Value], problem: Problem, decision: Decision, options: Options
) -> Activations | None:
    """What quantises the LHS, if the ukernel is to do it; if it cannot after all, why is noted."""
    if decision.quantising is None or options.reference:
        return None
    found = activations.find(sources[LHS], sources[LHS_SCALE], problem)
    if not isinstance(found, str):
        return found
    notes.note(op, decision.index or 0, f"LHS is not quantised by the ukernel: {found}")
    return None


def _user(op: ir.Operation) -> ir.Operation:
    """The only operation that uses a result."""
    return next(iter(op.results[0].uses)).owner.operation


def _in_place(matmul: _Matmul) -> ir.Value:
    """The result by the mathematical meaning of tiles, not in a dispatch of its own: for other targets."""
    tiles, limits = matmul.tiles, matmul.sizes.rows_and_columns
    counts = TileCounts(matmul.sizes, matmul.layout)
    acc = tiles.zeros(counts.of(ACC))
    tiled = reference_tiles.inner_tiles(matmul.packed, acc, matmul.problem, matmul.layout, counts)
    tiled = _finished(matmul, tiled, counts)
    return _cast(matmul, result_tiles.unpack(tiled, tiles, counts.of(ACC), limits))


def _by_rows(matmul: _Matmul, op: ir.Operation) -> ir.Value:
    """The result of the version that takes a dynamic M, each in a dispatch of its own."""
    rows, (*others, last) = matmul.sizes.values["m"], matmul.decision.versions
    result = _dispatched(_version(matmul, last))
    for version in reversed(others):
        with part_location(matmul.decision, f"matmul_up_to_{version.max_m}", op):
            made = _dispatched(_version(matmul, version))
        choice = arith.SelectOp(is_for(version, rows), made, result)
        choice.operation.attributes[VERSIONS] = ir.UnitAttr.get()
        result = choice.result
    return _cast(matmul, result)


def _version(matmul: _Matmul, version: Version) -> _Matmul:
    """A matmul by the kernel of one version, its operands in as many units."""
    decision = matmul.decision.of(version)
    counts = TileCounts(matmul.sizes, version.layout)
    packed = [
        stored_operand.regrouped(value, version.units[i % 2], counts.of(i)) for i, value in enumerate(matmul.packed)
    ]
    return replace(matmul, decision=decision, packed=packed)


def _dispatched(matmul: _Matmul) -> ir.Value:
    """The dispatch of inner tiles, epilogue and unpacking: [(batch,) M, N], sizes perhaps hidden."""
    limits = result_tiles.hidden_limits(matmul.tiles, matmul.sizes, plain_loops=matmul.activations is not None)
    known = [limit for limit in limits if limit is not None]
    with build.dispatch_region([matmul.tiles.type(matmul.element, limits)], known) as region:
        counts = TileCounts(matmul.sizes, matmul.layout)
        tiled = _tiled(matmul, counts, UNROLL if matmul.epilogue is not None else {})
        region.returned = [result_tiles.unpack(tiled, matmul.tiles, counts.of(ACC), limits)]
    return region.results[0]


def _requantised(matmul: _Matmul, plan: Plan, packer: Packer) -> tuple[ir.Value, ...]:
    """The dispatch of inner tiles, epilogue and quantiser; returns what nothing computes any more."""
    with build.dispatch_region(plan.types, []) as region:
        counts = TileCounts(matmul.sizes, matmul.layout)
        tiled = _tiled(matmul, counts, ALONE)
        region.returned = plan.compute(tiled)
    if plan.layout is None:
        plan.replace_sources(*region.results)
        return plan.sources
    ready = plan.packed(*region.results)
    packer.provide(plan.consumer, (RHS, RHS_SCALE), flipped(plan.sources), plan.layout, ready)
    return ()


def _tiled(matmul: _Matmul, counts: TileCounts, llvm_func_attrs: dict[str, str]) -> ir.Value:
    """Accumulator tiles of the hardware behind the epilogue, in the region of a dispatch."""
    if matmul.activations is not None:
        kind = matmul.tiles.accumulators
        decision = replace(matmul.decision, ukernel=matmul.decision.quantising)
        tiled = quantising_matmul.accumulate(
            matmul.packed, matmul.brings, kind, matmul.problem, decision, llvm_func_attrs
        )
        return _finished(matmul, tiled, counts)
    elements = [
        stored_operand.elements(value, matmul.problem.types[i], counts.of(i)) for i, value in enumerate(matmul.packed)
    ]
    for index, ids in matmul.ids.items():
        elements[index] = expert_tiles.gathered(elements[index], ids)
    acc = matmul.tiles.zeros(counts.of(ACC))
    tiled = result_tiles.accumulate(elements, acc, matmul.problem, matmul.decision, llvm_func_attrs)
    return _finished(matmul, tiled, counts)


def _finished(
    matmul: _Matmul, tiled: ir.Value, counts: TileCounts, beside: Mapping[ir.Value, ir.Value] | None = None
) -> ir.Value:
    """Accumulator tiles behind the epilogue, if there is one, which may read tiles `beside` them."""
    if matmul.epilogue is None:
        return tiled
    return result_tiles.with_epilogue(tiled, matmul.epilogue, matmul.tiles, matmul.sizes, counts.of(ACC), beside or {})


def _cast(matmul: _Matmul, value: ir.Value) -> ir.Value:
    """A result with sizes that were hidden from IREE, as its users know it."""
    plain = matmul.tiles.type(matmul.element)
    return value if value.type == plain else tensor.CastOp(plain, value).result


def _plan(unset: ir.Operation, decision: Decision, options: Options) -> Plan | None:
    """How to re-quantise a result in its tile, if that was decided; if it cannot be done after all, why is noted."""
    if options.reference or decision.requantised_for is None or decision.layout is None:
        return None
    plan = requantised_result.plan(unset.results[0], decision.layout, decision.requantised_for)
    if isinstance(plan, Plan):
        return plan
    if plan and decision.index is not None:
        notes.note(unset, decision.index, f"not re-quantised in its tile: {plan}")
    return None


_GONE = "mxcomp.gone"
"""On what stands for a re-quantised result until all that was computed from it is gone."""


def _gone(unset: ir.Operation) -> ir.Value:
    """What operations read that are dead with a plan, until they are erased."""
    placeholder = build.empty(ir.RankedTensorType(unset.results[0].type))
    placeholder.owner.attributes[_GONE] = ir.UnitAttr.get()
    return placeholder


def _check_gone(module: ir.Operation) -> None:
    """Raises CompileError if anything is still computed from a result that is re-quantised in its tile."""
    for op in [op for op in graph.walk(module) if _GONE in op.attributes]:
        if users := [use.owner.operation for use in op.results[0].uses]:
            where = f"{users[0].name} at {graph.location_text(users[0].location)}"
            raise CompileError(f"{where} reads a result that is re-quantised in its tile: this is a bug in mxcomp")
        op.erase()


def _row_major(op: ir.Operation, decision: Decision) -> None:
    """Puts the matmul into a dispatch of its own, for a ukernel on row-major operands."""
    problem = problem_of(op)
    with op.context, part_location(decision, "matmul", op), ir.InsertionPoint(op):
        result = build.tensor_type((problem.m, problem.n), problem.types[ACC])
        rows = list(guarded(list(op.operands), problem, decision).values.values())
        for index in (LHS, LHS_SCALE) if rows else ():
            op.operands[index] = build.tie_shape(op.operands[index], rows)
        tile_m, tile_n, _ = decision.tile
        reorder = _can_reorder(problem, tile_m, tile_n)
        result_tiles.annotate(op, decision, [tile_m, tile_n, 0, 0], reorder)
        with build.dispatch_region([result], rows) as region:
            acc = build.zero_filled(result, rows)
            inner = op.clone()
            inner.operands[ACC] = acc
            region.returned = [inner.results[0]]
    op.results[0].replace_all_uses_with(region.results[0])
    op.erase()


def _can_reorder(problem: Problem, tile_m: int, tile_n: int) -> bool:
    """Whether IREE may reorder the workgroups of row-major tiles: it forgets the smaller tiles at the border."""
    m, n = problem.m or 0, problem.n or 0
    return m > tile_m and n > tile_n and m % tile_m == n % tile_n == 0
