"""mxcomp-group-experts: rewrites a sum over all experts, of which a token's top-k count, as matmuls grouped by expert.

Before, what exporters write: all experts for all tokens, times a matrix that is zero but for the top-k.

    %xe = linalg.generic … ins(%x : tensor<64x2880xf32>) -> tensor<32x64x2880xf32>          (a copy for each expert)
    …  quantised, multiplied with [32, 2880, 90, 32], biased, activated …     %y : tensor<32x64x2880xf32>
    %p = linalg.generic … ins(%y, %r : …, tensor<32x64xf32>) { arith.mulf }
    %s = linalg.generic … ins(%p) outs(%zero) { arith.addf } -> tensor<64x2880xf32>           (over experts)

After, for routing to blocks of 16 rows, each of one expert (`mxcomp.routing`):

    %xb = linalg.generic … ins(%slots : tensor<46x16xi32>) { tensor.extract %x[…] } -> tensor<46x16x2880xf32>
    …  the same for tensor<46x16x…>, weights and biases by the expert of each block …   %y : tensor<46x16x2880xf32>
    %s = linalg.generic … ins(%positions, %weights : tensor<64x4xi32>, tensor<64x4xf32>) outs(%zero) {
      tensor.extract %y[…]  arith.mulf  arith.addf
    } -> tensor<64x2880xf32>

Sums over experts are in the order of a token's choices. What an expert makes of tokens that are not its own is not
computed: where that is infinite or NaN, the sum over all is NaN, and this is not.

Done where fewer rows are multiplied so, and a matmul among them has MX operands; sizes are static. Not in plugins: a
stock iree-compile cannot read matrices through ids.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp import routing
from mxcomp.errors import InputError
from mxcomp.matching import dense_experts
from mxcomp.matching.dense_experts import Dense
from mxcomp.mlir import build, graph, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps, iterators
from mxcomp.mlir.loops import tabled
from mxcomp.moe.grouping import Blocks, NotGroupedError
from mxcomp.options import Options
from mxcomp.routing import Extent, Routing

_UNIT = 16
"""The least number of rows that a matmul multiplies."""


def run(module: ir.Operation, options: Options) -> None:
    """Groups every such sum below `module`."""
    if options.reference or not options.reads_in_place:
        return
    for op in [op for op in graph.walk(module, bodies=False) if op.name.startswith("linalg.")]:
        dense = dense_experts.find(op)
        extent = None if dense is None else _extent(dense)
        if dense is not None and extent is not None:
            with op.location, ir.InsertionPoint(op):
                _group(dense, extent)


def _extent(dense: Dense) -> Extent | None:
    """Returns the sizes of routing; None where grouping is impossible, or not worth it."""
    (tokens, top_k), (experts, *_) = static_sizes(dense.ids), static_sizes(dense.experts)
    if tokens is None or top_k is None or experts is None or top_k >= experts:
        return None
    extent = Extent(tokens, experts, top_k, routing.block_m(tokens, experts, top_k))
    try:
        extent.check()
    except InputError:
        return None
    return extent if extent.rows < experts * -(-tokens // _UNIT) * _UNIT else None


def _group(dense: Dense, extent: Extent) -> None:
    """Replaces a sum by grouped matmuls, unless something on the way cannot be grouped."""
    before = {view.operation for view in dense.sum.block.operations}
    shape = (extent.tokens, extent.top_k)
    at = ["te", "et"][not dense.by_token]
    ids = tabled("tj", shape, "i32", [("tj", dense.ids)], lambda id_, _: _as_i32(id_))
    kind = str(build.element(dense.weights))

    def weight(id_: ir.Value, _: ir.Value) -> ir.Value:
        position = {"t": linalg.IndexOp(0).result, "e": s.subscript(id_)}
        return tensor.ExtractOp(dense.weights, [position[letter] for letter in at]).result

    weights = tabled("tj", shape, kind, [("tj", ids)], weight)
    as_f32 = weights if kind == "f32" else tabled("tj", shape, "f32", [("tj", weights)], lambda x, _: s.widened(x))
    blocks = Blocks(routing.given(ids, as_f32, extent.experts, extent.block_m), extent)
    try:
        rows = blocks.value(dense.experts, 0, 1)
    except NotGroupedError:
        rows = None
    if rows is None or not blocks.has_mx:
        for view in reversed(list(dense.sum.block.operations)):
            if view.operation not in before:
                view.operation.erase()
        return
    result = _added_up(dense, rows, weights, blocks.routing)
    dense.sum.results[0].replace_all_uses_with(result)
    graph.erase_unused([dense.sum.results[0]])


def _as_i32(id_: ir.Value) -> ir.Value:
    i32 = ir.IntegerType.get_signless(32)
    if id_.type == i32:
        return id_
    cast = arith.IndexCastOp if isinstance(id_.type, ir.IndexType) else arith.TruncIOp
    return cast(i32, id_).result


def _added_up(dense: Dense, rows: ir.Value, weights: ir.Value, routing_: Routing) -> ir.Value:
    """Returns the sum of rows [B, BM, …] over the choices of a token instead of experts."""
    op, flat = dense.sum, build.collapse(rows, [[0, 1], *([i + 2] for i in range(len(dense.rest)))])
    *_, kept = indexing_maps(op) or []
    kinds = iterators(op)
    choice = kinds.index("reduction")
    of_token = ir.AffineMap.get(kept.n_dims, 0, [ir.AffineExpr.get_dim(i) for i in (dense.token, choice)])
    last = (static_sizes(flat)[0] or 1) - 1
    factor = dense.weighted or op

    def body(position: ir.Value, weight: ir.Value, acc: ir.Value) -> ir.Value:
        position = [s.subscript(s.clamped(position, last)), *(linalg.IndexOp(i).result for i in dense.rest)]
        given = {dense.experts: tensor.ExtractOp(flat, position).result, dense.weights: weight}
        factors = [given[operand] for operand in list(factor.operands)[:-1]]
        return inline(op, [inline(factor, factors), acc] if factor != op else [*factors, acc])

    init = op.operands[len(op.operands) - 1]
    inputs = [routing_.positions, weights]
    return build.generic(
        ir.RankedTensorType(op.results[0].type), inputs, init, [of_token, of_token, kept], kinds, body
    ).results[0]
