"""mxcomp-join-products: products of one LHS with several matrices of weights are one, with all of them.

Before (queries, keys and values of a decoder's layer; matmuls as recognised):

    %b0 = iree_tensor_ext.bitcast %w0 : tensor<4096x2048xi8> -> tensor<4096x128x32xf4E2M1FN>
    %b1 = iree_tensor_ext.bitcast %w1 : tensor<1024x2048xi8> -> tensor<1024x128x32xf4E2M1FN>
    %r0 = linalg.generic {mxcomp.scaled_matmul = {}} ins(%x, %b0, …) -> tensor<1x4096xf32>
    %y0 = linalg.generic ins(%r0) { arith.truncf } -> tensor<1x4096xbf16>
    %r1 = linalg.generic {mxcomp.scaled_matmul = {}} ins(%x, %b1, …) -> tensor<1x1024xf32>
    %y1 = linalg.generic ins(%r1) { arith.truncf } -> tensor<1x1024xbf16>

After:

    %w = tensor.concat dim(0) %w0, %w1 : … -> tensor<5120x2048xi8>
    %b = iree_tensor_ext.bitcast %w : tensor<5120x2048xi8> -> tensor<5120x128x32xf4E2M1FN>
    %r = linalg.generic {mxcomp.scaled_matmul = {}} ins(%x, %b, …) -> tensor<1x5120xf32>
    %y = linalg.generic ins(%r) { arith.truncf } -> tensor<1x5120xbf16>
    %y0 = tensor.extract_slice %y[0, 0] [1, 4096] [1, 1]       %y1 = tensor.extract_slice %y[0, 4096] [1, 1024] [1, 1]

Weights are constants or parameters, so that they are put together once; packed ones are so in whole tiles
(`mxcomp.packing.joined_operand`). Dynamic rows that each result divides into sequences are divided in front of slices:
what reads these then sees one tensor. It is done where the one product is modelled to be faster than all of them, what
cuts its rows into several results included. Gate and up stay two, which one kernel may take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import geometric_mean

from iree.compiler import ir

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.matching import norms, pairs
from mxcomp.matching.canonical import contracted, problem_of
from mxcomp.matching.consumers import STORED_BYTES
from mxcomp.matching.decision import SCALED_MATMUL, is_recognised
from mxcomp.mlir import build, graph
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, only_calculates, reassociation
from mxcomp.options import FASTEST, Options
from mxcomp.packing import joined_operand
from mxcomp.registry import Registry
from mxcomp.selection import ranking
from mxcomp.selection.ranking import DYNAMIC_M
from mxcomp.sim.timing.parameters import parameters_of

OPTIONS = ("ukernels", "reference", "data-tiling")


def run(module: ir.Operation, options: Options) -> None:
    """Joins products below `module`."""
    if options.reference or not options.data_tiling or options.ukernels != FASTEST or options.tuned is not None:
        return
    if options.ukernel_dirs or not options.reads_in_place:
        return
    ops = [op for op in graph.walk(module, bodies=False) if is_recognised(op)]
    paired, by_lhs = pairs.find(ops), defaultdict[tuple[ir.Value, ...], list[ir.Operation]](list)
    for index, op in enumerate(ops):
        if index not in paired and _fits(op):
            by_lhs[op.operands[LHS], op.operands[LHS_SCALE]].append(op)
    if found := [each for each in by_lhs.values() if _are_alike(each)]:
        registry = Registry(options.target)
        for together in found:
            if _is_faster(together, registry, options):
                _join(together)


def _fits(op: ir.Operation) -> bool:
    """Returns whether rows are multiplied with whole tiles of weights, and one operation reads the result alone."""
    problem, behind = problem_of(op), graph.only_user(op)
    if problem.batch or problem.n is None:
        return False
    if problem.n % joined_operand.COLUMNS or not all(map(joined_operand.is_stored, _weights(op))):
        return False
    if behind is None or behind.name != "linalg.generic" or not is_elementwise(behind) or not only_calculates(behind):
        return False
    identity = ir.AffineMap.get_identity(2, op.context)
    is_alone = len(behind.operands) == 2 and (indexing_maps(behind) or []) == [identity, identity]
    return is_alone and str(build.element(behind.results[0])) in STORED_BYTES


def _weights(op: ir.Operation) -> Sequence[ir.Value]:
    return op.operands[RHS], op.operands[RHS_SCALE]


def _are_alike(ops: Sequence[ir.Operation]) -> bool:
    """Returns whether these are several, with weights of one type, whose results become the same, in one block."""
    behind = [each for op in ops if (each := graph.only_user(op)) is not None]
    kinds = {
        (op.block, problem_of(op).types, build.element(user.results[0])) for op, user in zip(ops, behind, strict=True)
    }
    bodies = {str(user.regions[0].blocks[0]) for user in behind}
    return len(ops) > 1 and len(kinds) == len(bodies) == 1


def _is_faster(ops: Sequence[ir.Operation], registry: Registry, options: Options) -> bool:
    """Returns whether one product takes less time, of a dynamic number of rows on average.

    Of several rows each result may be cut out by a dispatch, unless a norm reads it.
    """
    problems, size, p = [problem_of(op) for op in ops], _stored_bytes(ops[0]), parameters_of(options.target)
    columns = sum(each.n or 0 for each in problems)
    together, apart = list[float](), list[float]()
    for m in DYNAMIC_M if problems[0].m is None else [problems[0].m]:
        each = [replace(problem, m=m) for problem in problems]
        ranked = [ranking.fastest(of, registry, size) for of in (replace(each[0], n=columns), *each)]
        if not all(ranked):
            return False
        us, *others = (found[0].us for found in ranked)
        cut = sum(not _is_normalised(op) for op in ops) * p.launch_us + 2 * m * columns * size / (p.hbm_terabytes * 1e6)
        together.append(us + (0.0 if m == 1 else cut))
        apart.append(sum(others))
    return geometric_mean(together) < geometric_mean(apart)


def _is_normalised(op: ir.Operation) -> bool:
    """Returns whether norms read the rows of a result, as of heads, which `mxcomp-join-norms` reads where they are."""
    behind = graph.only_user(op)
    divided = graph.only_user(behind) if behind is not None else None
    if divided is None or divided.name != "tensor.expand_shape":
        return False
    values = [divided.results[0]]
    for each in graph.users_in_order(values):
        if norms.is_sum(each):
            return bool(norms.find(each))
        if is_elementwise(each):
            values += each.results
    return False


def _stored_bytes(op: ir.Operation) -> int:
    behind = graph.only_user(op)
    assert behind is not None
    return STORED_BYTES[str(build.element(behind.results[0]))]


def _join(ops: Sequence[ir.Operation]) -> None:
    first, users = ops[0], [user for op in ops if (user := graph.only_user(op)) is not None]
    columns, rows = [problem_of(op).n or 0 for op in ops], problem_of(first).m
    with ir.Location.fused([op.location for op in ops]), ir.InsertionPoint(first):
        operands = list(first.operands)[:ACC]
        for index in (RHS, RHS_SCALE):
            operands[index] = joined_operand.joined([op.operands[index] for op in ops])
        kind, stored = (
            build.tensor_type([rows, sum(columns)], build.element(op.results[0])) for op in (first, users[0])
        )
        dynamic = [build.dim(first.operands[LHS], 0)] if rows is None else []
        product = contracted(operands, build.zero_filled(kind, dynamic))
        product.attributes[SCALED_MATMUL] = first.attributes[SCALED_MATMUL]
        behind = build.elementwise(stored, [product.results[0]], lambda x: inline(users[0], [x]))
        for user, count, end in zip(users, columns, accumulate(columns), strict=True):
            part = build.sliced(behind, [0, end - count], [*dynamic, count] if rows is None else [rows, count])
            user.results[0].replace_all_uses_with(part)
    for op in (*users, *ops):
        graph.erase_dead(op)
    _divide_rows(behind)


def _divide_rows(joined: ir.Value) -> None:
    """Divides dynamic rows into sequences in front of slices of columns, which are views of one tensor then."""
    slices = [use.owner.operation for use in joined.uses if use.owner.operation.name == "tensor.extract_slice"]
    behind = [graph.only_user(op) for op in slices]
    divisions = [op for op in behind if op is not None and op.name == "tensor.expand_shape"]
    shapes = [[build.static_sizes(op.results[0])[i] for i in reassociation(op)[0]] for op in divisions]
    rows = shapes[0] if len(divisions) == len(slices) and shapes[1:] == shapes[:-1] else []
    if len(rows) < 2 or None not in rows:
        return
    first, count = graph.in_order(divisions)[0], rows.count(None)
    with first.location, ir.InsertionPoint(first):
        together, sizes = list(range(len(rows))), list(first.operands)[1 : 1 + count]
        whole = build.expand(joined, [*rows, build.static_sizes(joined)[1]], [together, [len(rows)]], sizes)
    dynamic = iter(sizes)
    counts = [next(dynamic) if size is None else size for size in rows]
    for op in divisions:
        source, sizes = graph.producer(op.operands[0]), list(op.operands)[1:]
        assert source is not None
        with op.location, ir.InsertionPoint(op):
            offsets, taken, _ = graph.slicing(source)
            part = build.sliced(whole, [*(0 for _ in rows), offsets[1]], [*counts, taken[1]])
            groups = [*([i] for i in together), *reassociation(op)[1:]]
            graph.replace(op, build.expand(part, build.static_sizes(op.results[0]), groups, sizes))
