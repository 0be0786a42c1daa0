"""mxcomp-encode: chooses layout and ukernel of every recognised scaled matmul, and encodes its operands.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %ae = iree_encoding.set_encoding %a : tensor<64x8x32xf4E2M1FN> -> tensor<64x8x32xf4E2M1FN, #lhs>   (likewise others)
    %re = linalg.generic {…, mxcomp.scaled_matmul = {operands = "data_tiled", layout = {intrinsics_m = 4, …},
                                                     ukernel = "mx_…", workgroup_size = [256, 1, 1]}}
          ins(%ae, %be, %ase, %bse) outs(%ze) …
    %r = iree_encoding.unset_encoding %re : tensor<64x128xf32, #acc> -> tensor<64x128xf32>

Without data tiling nothing is encoded: a matching ukernel on row-major operands is noted (operands = "row_major"), or
the matmul is left to IREE with the reason.
"""

from __future__ import annotations

from dataclasses import replace

from iree.compiler import ir

from mxcomp.formats import BLOCK_SIZE
from mxcomp.layout import ACC, LHS, OPERAND_NAMES, RHS, RHS_SCALE
from mxcomp.matching import gates, gathers, masks, pairs, requantise_chains, rows
from mxcomp.matching.activations import Sought
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.consumers import STORED_BYTES, own_type, stored_type
from mxcomp.matching.decision import DATA_TILED, Decision, decide, is_recognised
from mxcomp.matching.storage import is_gathered
from mxcomp.matching.symmetry import Sources, is_symmetric
from mxcomp.mlir import attributes, build, graph, notes
from mxcomp.mlir.linalg_ops import indexing_maps
from mxcomp.options import BENEFIT, FASTEST, NONE, OFF, Options
from mxcomp.problem import Problem
from mxcomp.selection import gating, in_rows, quantising, requantising, splitting, tuned
from mxcomp.selection.choice import Place, choose, choose_transposed
from mxcomp.selection.few_rows import FewRows
from mxcomp.selection.passing import slots
from mxcomp.ukernels import Registry, requantised
from mxcomp.ukernels.quantising import MOST_ROWS

OPTIONS = ("data-tiling", "ukernels", "ukernel-dir", "reference", "tuned", "versions", "fuse-quantisers")


def run(module: ir.Operation, options: Options) -> None:
    """Encodes the operands of every recognised scaled matmul below `module`. Raises UkernelError and InputError."""
    with module.context, module.location:
        registry = Registry(options.target, options.ukernel_dirs, stock=not options.reads_in_place)
        if options.ukernels not in (FASTEST, BENEFIT, NONE):
            registry[options.ukernels]
        table = tuned.read(options.tuned, registry) if options.tuned else tuned.NOTHING
        notes.warn(module, [str(fault) for fault in table.faults])
        recognised = [op for op in graph.walk(module, bodies=False) if is_recognised(op)]
        together, sources, sought = _requantised(recognised, registry, options), Sources(), Sought()
        alike, few, by_lhs = pairs.find(recognised), FewRows(registry, options, sought), _by_lhs(recognised)
        for index, op in enumerate(recognised):
            place = _place(op, sources, by_lhs[op.operands[LHS]])
            entry, objection = _entry(op, table, place, options, is_joined=op in together)
            chosen = together.get(op) or choose(_stored(op, options), place, registry, options, entry)
            gathered, reason = _gathered(op, chosen, options)
            if op not in together and (reason or not chosen.is_ours):  # then as many are packed as the batch has
                chosen = choose(problem_of(op), place, registry, options, entry)
                gathered, reason = _gathered(op, chosen, options)
            for text in filter(None, (reason,)):
                notes.note(op, index, text)
            chosen = replace(chosen, gathered=gathered)
            chosen = replace(chosen, skips=_skips(op, chosen, registry))
            if entry is not None and chosen.ukernel == entry.ukernel.name and entry.line.split_k > 1:
                chosen = splitting.split(chosen, entry.ukernel, entry.line.split_k, entry.note, None)
            if op not in together and entry is None:
                chosen, kept = _quantising(op, chosen, place, registry, options, sought)
                chosen = _in_rows(op, chosen, place, registry, options)
                if index in alike:
                    chosen = _paired(op, alike[index], chosen, place, registry, options, sought)
                    kept = "" if chosen.paired is not None else kept
                else:
                    chosen = splitting.choose(chosen, problem_of(op), registry, options, place)
                kept = kept or few.add(op, chosen, place.result_bytes)
                objection = "; ".join(filter(None, (objection, kept)))
            decide(op, replace(chosen, index=index, note="; ".join(filter(None, (chosen.note, objection))) or None))
            if chosen.operands == DATA_TILED:
                _encode(op)
        few.decide()


def _entry(
    op: ir.Operation, table: tuned.Table, place: Place, options: Options, is_joined: bool
) -> tuple[tuned.Entry | None, str]:
    """What a tuned table says of a matmul; or why that cannot be done."""
    entry = table.find(problem_of(op), stored_type(op))
    if entry is None:
        return None, ""
    if not entry.line.use:
        objection = "use is 0"
    elif is_joined:
        objection = "results are quantised again in their tile, for which there is one ukernel"
    elif entry.ukernel.layout is not None and entry.ukernel.layout.units is not None and place.is_symmetric:
        objection = "LHS and RHS may be one tensor, which ukernels over units cannot be given"
    elif entry.line.split_k > 1 and not splitting.is_possible(options):
        objection = "a stock iree-compile cannot split K"
    else:
        return entry, ""
    return None, f"{entry.line}, which is not followed: {objection}"


def _stored(op: ir.Operation, options: Options) -> Problem:
    """The problem with all matrices that its RHS is chosen from, if its kernel may read them through ids."""
    problem, gather = problem_of(op), gathers.find(op.operands[RHS])
    by_expert = problem.batch and gather is not None and gather.leading == 1
    if not by_expert or gather is None or options.reference or not options.reads_in_place:
        return problem
    return replace(problem, stored=(None, build.static_sizes(gather.source)[0]))


def _gathered(op: ir.Operation, chosen: Decision, options: Options) -> tuple[tuple[int, ...], str]:
    """Operands of a matmul that its kernel reads through expert ids; and why others that are gathered are not."""
    if chosen.operands != DATA_TILED or chosen.layout is None or options.reference or not problem_of(op).batch:
        return (), ""
    found = {index: gather for index in (RHS, RHS_SCALE) if (gather := gathers.find(op.operands[index])) is not None}
    by_expert = {index: gather for index, gather in found.items() if gather.leading == 1}
    for index, gather in by_expert.items():
        name = OPERAND_NAMES[index]
        if not options.reads_in_place:
            return (), f"{name} is gathered by expert first: a stock iree-compile cannot read it through ids"
        if not gathers.is_clamped(gather):
            return (), f"{name} is gathered by expert first: its ids are neither as they are nor clamped to the experts"
        place = chosen.place(index)
        if gathers.packed_bytes(gather, op.operands[index], chosen.layout, place) > options.target.max_buffer_bytes:
            return (), f"{name} is gathered by expert first: all experts exceed {options.target.max_buffer_bytes} bytes"
    return tuple(by_expert), ""


def _skips(op: ir.Operation, chosen: Decision, registry: Registry) -> bool:
    """Whether nothing reads matrices of a batch whose expert id is negative, and our kernel can leave them out."""
    if chosen.ukernel is None or registry.is_foreign(registry[chosen.ukernel]):
        return False
    found = [gathers.find(op.operands[index]) for index in chosen.gathered]
    return bool(found) and all(each is not None and masks.hide_negative(op.results[0], each.ids) for each in found)


def _quantising(
    op: ir.Operation, chosen: Decision, place: Place, registry: Registry, options: Options, sought: Sought
) -> tuple[Decision, str]:
    """A decision with a ukernel that quantises the LHS itself, if one can; or `chosen`, and why none does."""
    problem = problem_of(op)
    is_off = options.fuse_quantisers == OFF
    if is_off or chosen.quantising is not None or (problem.m or 0) not in range(1, MOST_ROWS + 1):
        return chosen, ""
    found = sought.find(op, problem)
    reason = found
    if not isinstance(found, str):
        if found.pair is None:
            decision = quantising.choose(chosen, problem, found, place.beside, registry, options, place.result_bytes)
        else:
            decision = gating.choose_quantising(chosen, _stored(op, options), registry, options)
        if isinstance(decision, Decision) and _gathered(op, decision, options)[0] == chosen.gathered:
            return decision, ""
        reason = decision if isinstance(decision, str) else "all experts would exceed a buffer"
    return chosen, f"LHS is not quantised by the ukernel: {reason}" if reason else ""


def _in_rows(op: ir.Operation, chosen: Decision, place: Place, registry: Registry, options: Options) -> Decision:
    """A decision with a ukernel that reads LHS or RHS as it is stored, if that can be, and is faster."""
    if not options.data_tiling or options.reference:
        return chosen
    objections = dict.fromkeys(in_rows.SIDES, "")
    for side in in_rows.SIDES:
        name = OPERAND_NAMES[side].upper()
        if not options.reads_in_place:
            objections[side] = f"a stock iree-compile cannot read {name} as it is stored"
        elif not rows.are_given(op.operands[side]):
            objections[side] = f"{name} is no argument of the program, row-major"
    return in_rows.choose(chosen, problem_of(op), objections, registry, options, place.result_bytes)


def _paired(
    op: ir.Operation,
    other: int,
    chosen: Decision,
    place: Place,
    registry: Registry,
    options: Options,
    sought: Sought,
) -> Decision:
    """A decision with a ukernel that multiplies the same activations for the matmul of index `other`, if one can."""
    problem = problem_of(op)
    found = sought.find(op, problem)
    if isinstance(found, str) or options.reference or options.fuse_quantisers == OFF:
        return chosen
    is_alone = len(place.beside) < 2
    return quantising.choose_pair(chosen, other, problem, found.bits, is_alone, registry, options, place.result_bytes)


def _by_lhs(recognised: list[ir.Operation]) -> dict[ir.Value, list[tuple[ir.Operation, Problem]]]:
    """Matmuls by what they have as LHS, before any of them is encoded."""
    found = dict[ir.Value, list[tuple[ir.Operation, Problem]]]()
    for op in recognised:
        found.setdefault(op.operands[LHS], []).append((op, problem_of(op)))
    return found


def _place(op: ir.Operation, sources: Sources, of_lhs: list[tuple[ir.Operation, Problem]]) -> Place:
    gathered = any(map(is_gathered, list(op.operands)[:ACC]))
    beside = tuple((problem, _result_bytes(other)) for other, problem in of_lhs if other != op)
    return Place(gathered, is_symmetric(op, sources), _result_bytes(op), beside)


def _result_bytes(op: ir.Operation) -> int:
    return STORED_BYTES[stored_type(op)]


def _requantised(recognised: list[ir.Operation], registry: Registry, options: Options) -> dict[ir.Operation, Decision]:
    """What is decided on matmuls that are computed transposed, so that results can be quantised where they are."""
    if not options.data_tiling or options.fuse_quantisers == OFF or options.ukernels not in (FASTEST, BENEFIT):
        return {}
    chosen: dict[ir.Operation, Decision] = {}
    for chain in requantise_chains.find(recognised, watched=options.reference):
        if chain.objection:
            for op in chain.results:
                notes.note(op, recognised.index(op), f"not re-quantised in its tile: {chain.objection}")
            continue
        last = chain.results[-1]
        names = {op: requantised.instance_of(problem_of(op).flipped.types).name for op in chain.ops}
        transposed = {op: choose_transposed(problem_of(op), name, registry, options) for op, name in names.items()}
        if not all(decision.transposed for decision in transposed.values()):
            continue
        reason, note = requantising.objection(_timed_chain(chain, chosen), registry, options)
        if reason:
            notes.note(last, recognised.index(last), f"not re-quantised in its tile: {reason}")
            continue
        for op in chain.results:
            transposed[op] = replace(transposed[op], requantised_for=recognised.index(chain.consumer))
        transposed[last] = replace(transposed[last], note=note or None)
        chosen |= {op: _joined(chosen.get(op), decision) for op, decision in transposed.items()}
    return chosen | _gated(recognised, registry, options)


def _timed_chain(chain: requantise_chains.Chain, chosen: dict[ir.Operation, Decision]) -> requantising.Chain:
    """A chain as its ways are timed; what chains before have decided stays."""
    *others, last = chain.results
    stored = {op: STORED_BYTES[own_type(op)] for op in others}
    products = [
        requantising.Product(problem_of(op), _result_bytes(op), stored.get(op, _result_bytes(op)), op in chosen)
        for op in (*others, last, chain.consumer)
    ]
    computed = slots(chain.activations)
    return requantising.Chain(tuple(products[:-1]), products[-1], chain.packed, _result_bytes(last), computed)


def _gated(recognised: list[ir.Operation], registry: Registry, options: Options) -> dict[ir.Operation, Decision]:
    """What is decided on products of gate and up that are quantised in their tile, and on those behind them."""
    chosen: dict[ir.Operation, Decision] = {}
    for chain in gates.find(recognised, watched=options.reference):
        ops = [chain.result, chain.consumer]
        first, second = (_stored(op, options) for op in ops)
        found = chain.objection or gating.choose(first, second, registry, options)
        if isinstance(found, str):
            reason = f"gate and up are not quantised in their tile: {found}"
            notes.note(chain.result, recognised.index(chain.result), reason)
        elif not chosen.keys() & set(ops):
            found[0] = replace(found[0], requantised_for=recognised.index(chain.consumer))
            chosen |= dict(zip(ops, found, strict=True))
    return chosen


def _joined(before: Decision | None, after: Decision) -> Decision:
    """A decision on a matmul in two chains: the last of one is the first of the next."""
    if before is None or after.requantised_for is not None:
        return after
    return replace(after, requantised_for=before.requantised_for)


def _encode(op: ir.Operation) -> None:
    """Gives every operand an encoding that knows the whole problem, and takes the result's away behind."""
    problem, maps = problem_of(op), indexing_maps(op) or []
    blocks = problem.k and problem.k // BLOCK_SIZE
    iteration = [*problem.batch, problem.m, problem.n, blocks, BLOCK_SIZE]
    first = len(problem.batch)
    places = {"m": (LHS, first), "n": (RHS, first), "k": (LHS, first + 1)}
    with op.context, op.location, ir.InsertionPoint(op):
        sizes = {axis: build.dim(op.operands[places[axis][0]], places[axis][1]) for axis in problem.dynamic}
        dims = list(sizes.values())
        for index, operand in enumerate(list(op.operands)):
            encoding = attributes.encoding(index, problem.types, maps, iteration)
            op.operands[index] = build.set_encoding(operand, encoding, dims)
        result = op.results[0]
        plain = ir.RankedTensorType(result.type)
        result.set_type(op.operands[ACC].type)
    with op.context, op.location, ir.InsertionPoint.after(op):
        unset = build.unset_encoding(result, plain, [sizes[axis] for axis in "mn" if axis in sizes], dims)
        result.replace_all_uses_except(unset, [unset.owner.operation])
