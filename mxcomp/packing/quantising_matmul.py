"""Builds a matmul whose ukernel quantises its LHS in registers: activations in, accumulator tiles out, in one dispatch.

    %x = iree_tensor_ext.bitcast %activations : tensor<4x512xbf16> -> tensor<64x16xi32>
    %t = linalg.generic {iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_fused_quant16_…", tensor>,
                         mxcomp.quantiser = "…func.func @quantise…"}
        ins(%x, %rhs, %rhs_scales : tensor<64x16xi32>, tensor<8x2x4x1024xi8>, tensor<8x2x256xi8>)
        outs(%zero : tensor<8x4x16x4xf32>)

No operation has such operands, so a generic is a placeholder for it: IREE sees its loops over inner tiles of the
result, for each of which it needs all of the activations, and one inner tile of the RHS. The ukernel replaces it before
its body is compiled. IREE drops loops with a single iteration, and with them the tiling of the others; there are none,
as the number of K tiles is not visible to it.

With a norm in front rows come as they are before it, and what they are multiplied by, and the like, behind them.

A batch is an additional first loop; its matrices of the RHS may be selected by expert ids. All may share a row of
activations, which has no such loop. With more rows than a
workgroup takes, tiles of rows are the first loop of activations and of the result, and activations are first padded to
whole tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.layout import ACC, LHS, RHS, DataTiledLayout
from mxcomp.layout.inner_tiles import BLOCK, LANES
from mxcomp.layout.problem import Problem
from mxcomp.matching.activations import Activations
from mxcomp.matching.norms import Norm
from mxcomp.mlir import build
from mxcomp.mlir.assumptions import Range, assume, hidden_one
from mxcomp.mlir.attributes import KERNEL
from mxcomp.packing import block_quantiser, result_tiles, standing
from mxcomp.packing.result_tiles import Launch, ResultTiles
from mxcomp.ukernels.quantising import fragment


def operands(
    activations: Activations,
    packed: list[ir.Value],
    problem: Problem,
    layout: DataTiledLayout,
    rows: ir.Value | None = None,
    padding: ir.Location | None = None,
) -> list[ir.Value]:
    """Returns activations, and packed elements and scales of the RHS, as the ukernel takes them. `rows` are M where
    dynamic.

    In front of the dispatch, where IREE makes nothing of a change of type; inside it could not compile those of ranks.
    Of a dynamic M it is to know that no more rows are read than the kernel has: with more it has no workgroups. With
    `padding`, the location of a dispatch for that, activations are in tiles along M instead.
    """
    count = -(-(problem.k or 0) // layout.workgroup_tile[2])
    k_tiles, known = (count, []) if count > 1 else (None, [hidden_one()])
    lane_bytes = layout.shape.lane_bytes(problem.types[RHS])
    *stored, groups, each = build.static_sizes(packed[0])[: 2 + bool(problem.batch)]
    columns, blocks = (groups or 0) * (each or 1), (problem.k or 0) // problem.block
    most = blocks * layout.workgroup_tile[0]
    batch, m = ((), 1) if activations.shared else (problem.batch, problem.m or 0)
    if padding is not None:
        with padding:
            outer, source, counts = _padded(activations, problem, layout.workgroup_tile[0], rows)
        taken = (*outer, most)
    else:
        source, taken = activations.source, (None if rows is not None else m * blocks,)
        counts = [] if rows is None else [assume(build.times(rows, blocks), Range(blocks, most))]
        kind = build.tensor_type(activations.sizes, str(activations.type))
        source = source if source.type == kind else tensor.CastOp(kind, source).result
    shapes = (
        (*batch, *taken, activations.bits),
        (*stored, columns, k_tiles, layout.intrinsics_k, LANES * lane_bytes),
        (*stored, columns, k_tiles, layout.intrinsics_k * LANES),
    )
    dims, values = (counts, known, known), (source, *packed)
    return [
        build.bitcast(value, build.tensor_type(shape, element), None, dynamic)
        for value, shape, element, dynamic in zip(values, shapes, ("i32", "i8", "i8"), dims, strict=True)
    ]


def vectors(norm: Norm) -> list[ir.Value]:
    """Returns what a norm takes besides rows as the ukernel does: words by blocks."""
    bits = ((value, build.element(value).width) for value in norm.operands[1:])
    return [
        build.bitcast(value, build.tensor_type((_size(value) // BLOCK, BLOCK * size // (8 * _WORD_BYTES)), "i32"))
        for value, size in bits
    ]


def _size(value: ir.Value) -> int:
    return math.prod(size or 0 for size in build.static_sizes(value))


def _padded(
    activations: Activations, problem: Problem, tile_m: int, rows: ir.Value | None
) -> tuple[list[int | None], ir.Value, list[ir.Value]]:
    """Returns the number of tiles, activations padded to them by a separate dispatch, and that number as a value.

    Behind the last row there it is again, in words. What is there in whole tiles is taken as it is.
    """
    m, source = problem.m, activations.source
    words = (problem.k or 0) * activations.bits // (8 * _WORD_BYTES)
    outer = None if m is None else -(-m // tile_m)
    if m is not None and m % tile_m == 0:
        return [outer], source, []
    counts = [] if rows is None else [build.ceildiv(rows, tile_m)]
    view = build.bitcast(source, build.tensor_type((m, words), "i32"), None, [] if rows is None else [rows])
    whole = build.tensor_type((outer, tile_m, words), "i32")

    def word(loops: list[ir.Value]) -> ir.Value:
        tile, row, at = loops
        expr = ir.AffineExpr.get_dim(0) * tile_m + ir.AffineExpr.get_dim(1)
        clamped = build.clamp(build.apply(expr, [tile, row]), m if rows is None else rows)
        return tensor.ExtractOp(view, [clamped, at]).result

    with build.dispatch_region([whole], counts) as region:
        region.returned = [build.generate(whole, word, counts)]
    return [outer], region.results[0], counts


def accumulate(
    inputs: list[ir.Value],
    quantiser: str,
    tiled: ir.RankedTensorType,
    problem: Problem,
    layout: DataTiledLayout,
    launch: Launch,
    llvm_func_attrs: dict[str, str],
    tiles: list[ir.Value] | None = None,
    count: int = 1,
    of_norm: Sequence[ir.Value] = (),
    own: ir.Operation | None = None,
) -> list[ir.Value]:
    """Returns accumulator tiles, of type `tiled`, of a problem, from `operands` and the text of a `block_quantiser`.

    `tiles` are the dynamic sizes of them where activations are in tiles along M; None where they are not. Of so many
    problems alike as `count` says, `inputs` are activations, and operands of each RHS. `of_norm` are `vectors` for a
    kernel of its `own`.
    """
    is_shared = problem.batch and tiles is None and len(build.static_sizes(inputs[LHS])) == _RANK
    inner_m, of_workgroup = layout.inner_tiles or (1, 1)
    in_tiles, batch, inner = tiles is not None, len(problem.batch), fragment(inner_m)
    outer = build.static_sizes(inputs[LHS])[:1] if in_tiles else list(problem.batch)
    kind = build.tensor_type((*outer, build.static_sizes(inputs[RHS])[batch], *inner), problem.types[ACC])
    accs = [build.zero_filled(kind, tiles or ()) for _ in range(count)]
    inner_tile, parallel = len(outer), len(outer) + 1 + len(inner)
    first, of_weights = list(range(inner_tile)), list(range(batch))
    block, activation, k, step, byte, scale = range(parallel, parallel + 6)
    of_vectors = ([parallel + 6 + 2 * i + j for j in range(2)] for i in range(len(of_norm)))
    weights = [*of_weights, inner_tile, k, step, byte], [*of_weights, inner_tile, k, scale]
    dims = [
        [*([] if is_shared else first), block, activation],
        *of_vectors,
        *weights * count,
        *[list(range(parallel))] * count,
    ]
    x, *each_rhs = inputs
    workgroup = [1] * len(outer) + [of_workgroup] + [0] * (len(inner) + 6 + 2 * len(of_norm))
    op, workgroup = standing.generic([kind] * count, [x, *of_norm, *each_rhs], accs, dims, parallel, workgroup)
    of_batch = result_tiles.SHARED if is_shared else result_tiles.BATCHED * batch
    suffix = result_tiles.TILED if in_tiles else of_batch
    result_tiles.annotate(op, launch, workgroup, False, llvm_func_attrs, suffix=suffix)
    op.attributes[block_quantiser.QUANTISER] = ir.StringAttr.get(quantiser)
    if own is not None:  # it is in no registry, from which the linker would take it
        op.attributes[KERNEL] = ir.StringAttr.get(block_quantiser.completed_text(own, quantiser))
    # [(batch,) tiles along M or 1, inner tiles along N and M, 1, groups, lanes, values]
    outer_groups = [[0], [1], [2, 3]] if in_tiles else [[0, 1, 2, 3]] if inner_m == 1 else [[0, 1], [2, 3]]
    of_tile = ([batch + i for i in group] for group in (*outer_groups, [4], [5], [6]))
    groups, sizes = [*([i] for i in range(batch)), *of_tile], list(tiled.shape)
    return [tensor.ExpandShapeOp(tiled, value, groups, tiles or [], sizes).result for value in op.results]


_RANK, _WORD_BYTES = 2, 4


def result(problem: Problem, layout: DataTiledLayout, columns: int | None, in_tiles: bool = False) -> ResultTiles:
    """Returns the result by inner tiles along N, `columns`, as nothing could be fused behind tiles of workgroups."""
    inner_m, _ = layout.inner_tiles or (1, 1)
    layout, rows = replace(layout, inner_tiles=(inner_m, 1)), None if in_tiles else 1
    return ResultTiles(problem, layout, transposed=False, columns=columns, rows=rows)
