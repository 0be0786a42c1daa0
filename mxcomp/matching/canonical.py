"""The canonical form of a scaled matmul, which recognition produces and all later passes expect.

    linalg.generic {indexing_maps = [(m, n, ko, kb) -> (m, ko, kb), (n, ko, kb), (m, ko), (n, ko), (m, n)],
                    iterator_types = ["parallel", "parallel", "reduction", "reduction"], mxcomp.scaled_matmul = {…}}
        ins(%lhs, %rhs, %lhs_scale, %rhs_scale) outs(%zero)

with shapes [M, K/32, 32], [N, K/32, 32], [M, K/32], [N, K/32] and [M, N], where 32 is the block size. A batch is an
additional first dimension of all of them, and an additional first loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import E8M0, BlockFormat
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps


def objection(fmt: BlockFormat) -> str:
    """Returns why operands of a format have no canonical form; "" if they have one.

    Passes from here on take scales for powers of two, which arith.scaling_extf takes: nothing else says so.
    """
    return "" if fmt.scale == E8M0 else f"{fmt} has scales of {fmt.scale.name}: expected {E8M0.name}"


def canonical_iterators(batch: bool = False) -> tuple[str, ...]:
    """Returns the iterator types of the loops (batch,) m, n, ko and kb."""
    return (*["parallel"] * (2 + batch), "reduction", "reduction")


def canonical_maps(batch: bool = False) -> list[ir.AffineMap]:
    """Returns the indexing maps of LHS, RHS, LHS scales, RHS scales and result over (batch,) m, n, ko, kb."""
    *first, m, n, ko, kb = (ir.AffineExpr.get_dim(i) for i in range(4 + batch))
    operands = ((m, ko, kb), (n, ko, kb), (m, ko), (n, ko), (m, n))
    return [ir.AffineMap.get(4 + batch, 0, [*first, *dims]) for dims in operands]


def inner_tiled_loops(batch: bool, inner_tiles: bool) -> tuple[list[ir.AffineMap], tuple[str, ...]]:
    """Returns the indexing maps and iterator types of `iree_codegen.inner_tiled` on packed operands.

    They are the canonical ones over tiles; with `inner_tiles`, a workgroup's tiles of rows and columns have loops of
    their own behind those: (batch,) m, n, um, un, ko, kb.
    """
    if not inner_tiles:
        return canonical_maps(batch), canonical_iterators(batch)
    *first, m, n, um, un, ko, kb = (ir.AffineExpr.get_dim(i) for i in range(6 + batch))
    operands = ((m, um, ko, kb), (n, un, ko, kb), (m, um, ko), (n, un, ko), (m, n, um, un))
    maps = [ir.AffineMap.get(6 + batch, 0, [*first, *dims]) for dims in operands]
    return maps, (*["parallel"] * (4 + batch), "reduction", "reduction")


def scaled_product(a: ir.Value, b: ir.Value, a_scale: ir.Value, b_scale: ir.Value, acc: ir.Value) -> ir.Value:
    """Returns the body of the canonical form: acc + (a * a_scale) * (b * b_scale), in f32."""
    f32 = ir.F32Type.get()
    lhs = arith.ScalingExtFOp(f32, a, a_scale).result
    rhs = arith.ScalingExtFOp(f32, b, b_scale).result
    return product(lhs, rhs, acc)


def product(lhs: ir.Value, rhs: ir.Value, acc: ir.Value) -> ir.Value:
    """Returns acc + lhs * rhs, of dequantised values."""
    return arith.AddFOp(acc, arith.MulFOp(lhs, rhs).result).result


def scaled_matmul(lhs: ir.Value, rhs: ir.Value, lhs_scale: ir.Value, rhs_scale: ir.Value) -> ir.Value:
    """Returns a scaled matmul in canonical form, f32 [(batch,) M, N] from zero, at the insertion point. M and N may be
    dynamic."""
    *batch, m, _, _ = build.static_sizes(lhs)
    n = build.static_sizes(rhs)[len(batch)]
    result = build.tensor_type((*batch, m, n), "f32")
    rows = [build.dim(side, len(batch)) for side, size in ((lhs, m), (rhs, n)) if size is None]
    return contracted([lhs, rhs, lhs_scale, rhs_scale], build.zero_filled(result, rows)).results[0]


def contracted(
    operands: Sequence[ir.Value], init: ir.Value, body: Callable[..., ir.Value] = scaled_product
) -> ir.Operation:
    """Returns an operation that indexes operands as the canonical form does, from `init` on, at the insertion point."""
    result = ir.RankedTensorType(init.type)
    batch = result.rank > 2
    return build.generic(result, operands, init, canonical_maps(batch), canonical_iterators(batch), body)


def is_canonical(op: ir.Operation) -> bool:
    """Returns whether an operation indexes its operands as the canonical form does; types and sizes may differ."""
    with op.context:
        return indexing_maps(op) in (canonical_maps(), canonical_maps(batch=True))


def claimed(op: ir.Operation) -> str:
    """Returns how the model itself directs the compilation of a matmul; "" if it leaves that to the compiler."""
    for attribute in ("lowering_config", "compilation_info"):
        if attribute in op.attributes:
            return f"it has a {attribute} of its own"
    own = (each.name for each in graph.around(op) if each.name.startswith(("flow.dispatch.", "hal.executable")))
    return next((f"it is in a {name} already" for name in own), "")


def problem_of(op: ir.Operation) -> Problem:
    """Returns the problem of a scaled matmul with canonical indexing, whatever its types."""
    *_, m, blocks, block = build.static_sizes(op.operands[0])
    *_, n, _, _ = build.static_sizes(op.operands[1])
    types = tuple(str(build.element(operand)) for operand in op.operands)
    k = None if blocks is None or block is None else blocks * block
    *batch, _, _ = build.static_sizes(op.results[0])
    return Problem(m, n, k, types, tuple(size for size in batch if size is not None))
