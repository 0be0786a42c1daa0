"""mxcomp-sum-in-f32: sums products in f32, and rounds the sum, where a contraction rounds each product to 16 bits.

IREE cannot distribute the former to threads. Recognised matmuls sum so as well.

Before (of what looks like a scaled matmul, and is none of ours):

    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b) outs(%zero : tensor<16x2x16xbf16>) {
      %0 = arith.mulf %x, %y : f32
      %1 = arith.truncf %0 : f32 to bf16
      %2 = arith.addf %acc, %1 : bf16

After:

    %s = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b) outs(%zeros : tensor<16x2x16xf32>) {
      %0 = arith.mulf %x, %y : f32
      %1 = arith.addf %acc, %0 : f32
    %r = linalg.generic ins(%s : tensor<16x2x16xf32>) { arith.truncf } -> tensor<16x2x16xbf16>
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.matching.canonical import claimed
from mxcomp.matching.decision import Decision, decide, unrecognised
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps


def run(module: ir.Operation) -> None:
    """Rewrites contractions below `module` that look like scaled matmuls, and were not recognised."""
    for op, decision in unrecognised(module):
        if not claimed(op):
            _sum_in_f32(op, decision)


def _sum_in_f32(op: ir.Operation, decision: Decision) -> None:
    """Replaces a contraction that rounds each product by one that adds f32 products."""
    accumulator = list(op.regions[0].blocks[0].arguments)[-1]
    if (add := graph.producer(linalg_ops.yielded(op), "arith.addf")) is None or len(list(accumulator.uses)) != 1:
        return
    rounding = next((term for term in map(graph.producer, add.operands) if term and term.name == "arith.truncf"), None)
    if rounding is None or accumulator not in add.operands or str(rounding.operands[0].type) != "f32":
        return
    *inputs, init = op.operands
    with op.location, ir.InsertionPoint(op):
        wide = build.tensor_type(build.static_sizes(init), "f32")

        def rewrite(inner: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
            if inner == rounding:
                return operands[0]
            return arith.AddFOp(*operands).result if inner == add else None

        start = build.cast(init, wide.element_type)
        maps, loops = indexing_maps(op) or [], linalg_ops.iterators(op)
        new = build.generic(wide, inputs, start, maps, loops, lambda *given: inline(op, given, rewrite))
        decide(new, decision)
        rounded = build.cast(new.results[0], build.element(op.results[0]))
    graph.replace(op, rounded)
