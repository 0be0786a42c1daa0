"""mxcomp-fall-back: multiplies dequantised values where IREE's own lowering of a scaled matmul would be wrong.

IREE 3.13 lays 8-bit operands out wrongly for scaled MFMA: results are wrong where scales differ. A matmul with such
operands that got no layout of ours is taken apart.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {index = 0, reason = "…"}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %d = linalg.generic … ins(%a, %as) { arith.scaling_extf } -> tensor<64x8x32xf32>
    %e = linalg.generic … ins(%b, %bs) { arith.scaling_extf } -> tensor<128x8x32xf32>
    %r = linalg.generic {…, mxcomp.scaled_matmul = {index = 0, reason = "…"}} ins(%d, %e) outs(%zero) {
      arith.mulf … arith.addf
    }

IREE makes one dispatch of them, with f32 matrix instructions: slower than scaled MFMA by far, and right.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp import build
from mxcomp.formats import element_format
from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE
from mxcomp.options import Options
from mxcomp.passes.canonical import ATTRIBUTE, CANONICAL_ITERATORS, canonical_maps, problem, product

_WIDTH = 8


def run(module: ir.Operation, options: Options) -> None:
    """Takes apart every recognised matmul below `module` that was left to IREE and has 8-bit elements."""
    for op in [op for op in build.walk(module) if ATTRIBUTE in op.attributes]:
        entries = ir.DictAttr(op.attributes[ATTRIBUTE])
        if "index" in entries and "operands" not in entries:  # of those that encode had, left to IREE
            _, types = problem(op)
            if any(element_format(kind).bits == _WIDTH for kind in types[:2]):
                _take_apart(op)


def _take_apart(op: ir.Operation) -> None:
    with op.context, op.location, ir.InsertionPoint(op):
        lhs_map, rhs_map, _, _, acc_map = canonical_maps()
        values = [_dequantised(op.operands[e], op.operands[s]) for e, s in ((LHS, LHS_SCALE), (RHS, RHS_SCALE))]
        result = ir.RankedTensorType(op.results[0].type)
        maps = [lhs_map, rhs_map, acc_map]
        new = build.generic(result, values, op.operands[ACC], maps, CANONICAL_ITERATORS, product)
        new.attributes[ATTRIBUTE] = op.attributes[ATTRIBUTE]
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def _dequantised(elements: ir.Value, scales: ir.Value) -> ir.Value:
    """f32 values [rows, K/32, 32]."""
    result = build.tensor_type(build.static_sizes(elements), "f32")
    rows, blocks, inner = (ir.AffineExpr.get_dim(i) for i in range(3))
    whole, per_block = (ir.AffineMap.get(3, 0, dims) for dims in ([rows, blocks, inner], [rows, blocks]))

    def body(element: ir.Value, scale: ir.Value, _: ir.Value) -> ir.Value:
        return arith.ScalingExtFOp(ir.F32Type.get(), element, scale).result

    init = build.empty(result, build.dynamic_sizes(elements))
    maps = [whole, per_block, whole]
    return build.generic(result, [elements, scales], init, maps, ["parallel"] * 3, body).results[0]
