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

from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.errors import InternalError
from mxcomp.layout import ACC, LHS, LHS_SCALE
from mxcomp.matching import activations, gathers, pairs
from mxcomp.matching.activations import Activations
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import DATA_TILED, ROW_MAJOR, SCALED_MATMUL, Decision, decision_of
from mxcomp.mlir import build, graph, notes
from mxcomp.options import Options
from mxcomp.packing import dispatched, quantising_matmul, requantised_result, result_tiles, rows_operand
from mxcomp.packing.dispatched import Matmul
from mxcomp.packing.packer import Packer, part_location
from mxcomp.packing.requantised_result import Plan
from mxcomp.packing.runtime_sizes import guarded, padded_units
from mxcomp.passes.fuse_consumers import EPILOGUE
from mxcomp.problem import Problem, flipped
from mxcomp.ukernels import dual, quantising

OPTIONS = ("reference", "packed-parameters")


def run(module: ir.Operation, options: Options) -> None:
    """Materialises every encoded or row-major scaled matmul below `module`."""
    packer, sources, waiting = Packer(options), list[ir.Value](), dict[int, _Prepared]()
    matmuls = [(op, decision) for op in graph.walk(module, bodies=False) if (decision := decision_of(op)) is not None]
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
class _Prepared:
    """A matmul whose operands are packed; `dead` is what it is to be instead of, `sources` what was packed."""

    op: ir.Operation
    matmul: Matmul
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
        decision, found = _quantised_inside(op, sources, problem, decision, options)
        if decision.versions and decision.quantising is None and not options.reference:
            sizes = replace(sizes, units=padded_units(sizes.values["m"], decision.versions))
        stored = [read_through[i].stored(source) if i in read_through else source for i, source in enumerate(sources)]
        others = (LHS, LHS_SCALE) if decision.quantising is not None else (LHS,) if decision.lhs_in_rows else ()
        wanted = [index for index in range(ACC) if index not in others]
        packed = packer.operands(op, stored, decision, sizes, wanted)
        if decision.lhs_in_rows:
            packed = [rows_operand.rows(stored[LHS], problem), *packed]
        padding = None
        if (
            decision.quantising is not None
            and not decision.versions
            and found is not None
            and decision.layout is not None
        ):
            if not problem.batch and (problem.m or 0) > decision.layout.workgroup_tile[0]:
                padding = part_location(decision, "pad_lhs", op)
            packed = quantising_matmul.operands(found, packed, problem, decision.layout, padding=padding)
    element = str(build.element(unset.results[0]))
    ids = {index: gather.ids for index, gather in read_through.items()}
    matmul = Matmul(decision, sizes, packed, ids, epilogue, element, found, in_tiles=padding is not None)
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
            result = dispatched.in_place(matmul)
        elif plan is None:
            result = _plain(matmul, op)
        else:
            replaced = dispatched.requantised(matmul, plan, packer)
            result = _gone(unset)
    unset.results[0].replace_all_uses_with(result)
    graph.erase_unused(replaced)
    prepared.erase()


def _plain(matmul: Matmul, op: ir.Operation) -> ir.Value:
    """The result by dispatches of its own, as many as were decided."""
    if matmul.decision.versions:
        return dispatched.by_rows(matmul, op)
    return dispatched.in_parts(matmul, op) if matmul.decision.parts > 1 else dispatched.alone(matmul)


def _finish_pair(first: _Prepared, second: _Prepared, met: ir.Value, packer: Packer, options: Options) -> None:
    """Puts one dispatch in the place of two matmuls of the same activations; or one for each, if it cannot be.

    What is fused behind the first reads `met` of the second.
    """
    matmul = first.matmul
    if not (matmul.quantises and second.matmul.quantises):
        for each in (second, first):
            _finish(each, packer, options)
        return
    op = first.op
    with op.context, part_location(matmul.decision, "matmul", op, second.op), ir.InsertionPoint(first.unset):
        result = dispatched.pair(matmul, second.matmul, met)
        notes.drop(op, second.matmul.decision.index or 0)  # what is behind it is fused, with the first
    first.unset.results[0].replace_all_uses_with(result)
    first.erase()
    second.erase()


def _quantised_inside(
    op: ir.Operation, sources: list[ir.Value], problem: Problem, decision: Decision, options: Options
) -> tuple[Decision, Activations | None]:
    """The decision, and what quantises the LHS if the ukernel, or that of a version, is to do it.

    If it cannot after all, why is noted, and the decision is one without.
    """
    versions = tuple(replace(each, quantising=None) for each in decision.versions)
    without = replace(decision, quantising=None, versions=versions)
    if options.reference or not _quantising(decision):
        return without, None
    found = activations.find(sources[LHS], sources[LHS_SCALE], problem)
    if not isinstance(found, str):
        narrowed = _of_bits(decision, found.bits)
        if names := _quantising(narrowed):
            if narrowed != decision:
                notes.note(op, decision.index or 0, f"fused, activations are {found.type}: {names[0]}")
            return narrowed, found
        found = f"none of its size takes {found.type}"
    notes.note(op, decision.index or 0, f"LHS is not quantised by the ukernel: {found}")
    return without, None


def _quantising(decision: Decision) -> list[str]:
    """The ukernels of a decision that quantise the LHS."""
    names = (decision.quantising, *(version.quantising for version in decision.versions))
    return [name for name in names if name is not None]


def _of_bits(decision: Decision, bits: int) -> Decision:
    """A decision with ukernels for activations of so many bits, which fusion may have changed; None where none is."""
    known = {each.name: each for each in (*quantising.INSTANCES, *dual.INSTANCES)}

    def name(ukernel: str | None) -> str | None:
        other = None if ukernel not in known else replace(known[ukernel], bits=bits).name
        return ukernel if ukernel not in known else other if other in known else None

    versions = tuple(replace(each, quantising=name(each.quantising)) for each in decision.versions)
    return replace(decision, quantising=name(decision.quantising), paired=name(decision.paired), versions=versions)


def _user(op: ir.Operation) -> ir.Operation:
    """The only operation that uses a result."""
    return next(iter(op.results[0].uses)).owner.operation


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
    """Raises InternalError if anything is still computed from a result that is re-quantised in its tile."""
    for op in [op for op in graph.walk(module, bodies=False) if _GONE in op.attributes]:
        if users := [use.owner.operation for use in op.results[0].uses]:
            where = f"{users[0].name} at {graph.location_text(users[0].location)}"
            raise InternalError(f"{where} reads a result that is re-quantised in its tile")
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
