"""The one form that recognition gives every scaled matmul, and that the passes after it start from.

    linalg.generic {indexing_maps = [(m, n, ko, kb) -> (m, ko, kb), (n, ko, kb), (m, ko), (n, ko), (m, n)],
                    iterator_types = ["parallel", "parallel", "reduction", "reduction"], mxcomp.scaled_matmul = {…}}
        ins(%lhs, %rhs, %lhs_scale, %rhs_scale) outs(%zero)

with shapes [M, K/32, 32], [N, K/32, 32], [M, K/32], [N, K/32] and [M, N].
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp import build
from mxcomp.passes.trace import indexing_maps
from mxcomp.ukernels import Sizes

ATTRIBUTE = "mxcomp.scaled_matmul"
"""Marks every scaled matmul; a dictionary that later passes add to and the report is read from."""

CANONICAL_ITERATORS = ("parallel", "parallel", "reduction", "reduction")


def canonical_maps() -> list[ir.AffineMap]:
    """Indexing maps of LHS, RHS, LHS scales, RHS scales and result over (m, n, ko, kb)."""
    m, n, ko, kb = (ir.AffineExpr.get_dim(i) for i in range(4))
    return [ir.AffineMap.get(4, 0, list(dims)) for dims in ((m, ko, kb), (n, ko, kb), (m, ko), (n, ko), (m, n))]


def scaled_product(a: ir.Value, b: ir.Value, a_scale: ir.Value, b_scale: ir.Value, acc: ir.Value) -> ir.Value:
    """Body of the canonical form: acc + (a * a_scale) * (b * b_scale), in f32."""
    f32 = ir.F32Type.get()
    lhs = arith.ScalingExtFOp(f32, a, a_scale).result
    rhs = arith.ScalingExtFOp(f32, b, b_scale).result
    return product(lhs, rhs, acc)


def product(lhs: ir.Value, rhs: ir.Value, acc: ir.Value) -> ir.Value:
    """acc + lhs * rhs, of dequantised values."""
    return arith.AddFOp(acc, arith.MulFOp(lhs, rhs).result).result


def is_canonical(op: ir.Operation) -> bool:
    """Whether an operation indexes its operands as the canonical form does; types and sizes may be others."""
    with op.context:
        return indexing_maps(op) == canonical_maps()


def is_recognised(op: ir.Operation) -> bool:
    """Whether an operation is marked and has no entries yet: recognition gave it the canonical form."""
    return ATTRIBUTE in op.attributes and len(ir.DictAttr(op.attributes[ATTRIBUTE])) == 0


def problem(op: ir.Operation) -> tuple[Sizes, list[str]]:
    """M, N, K in elements and the five element types of a scaled matmul with canonical indexing."""
    (m, blocks, block), (n, *_) = build.static_sizes(op.operands[0]), build.static_sizes(op.operands[1])
    types = [str(ir.RankedTensorType(operand.type).element_type) for operand in op.operands]
    return {"m": m, "n": n, "k": None if blocks is None or block is None else blocks * block}, types
