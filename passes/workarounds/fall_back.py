"""mxcomp-fall-back: multiplies dequantised values where IREE's own lowering of a scaled matmul is wrong or slow.

IREE lays 8-bit operands out wrongly for scaled MFMA: results are wrong where scales differ. It cannot load 6-bit
ones. A recognised matmul that got no layout of ours is taken apart, unless its operands are 4-bit, as they are needed
in memory, surely two tensors, and only M is dynamic.

Before:

    %r = linalg.generic {…, mxcomp.scaled_matmul = {index = 0, reason = "…"}} ins(%a, %b, %as, %bs) outs(%zero) …

After:

    %c = tensor.collapse_shape %a [[0], [1, 2]] : tensor<64x8x32xf8E4M3FN> into tensor<64x256xf8E4M3FN>
    %d = linalg.generic … ins(%c) { … tensor.extract %as[%m, %k / 32] … arith.scaling_extf } -> tensor<64x256xf32>
    …                                                                          (%e from %b and %bs in the same way)
    %r = linalg.generic {indexing_maps = [(m, n, k) -> (m, k), (n, k), (m, n)], …,
                         mxcomp.scaled_matmul = {index = 0, reason = "…"}} ins(%d, %e) outs(%zero) {
      arith.mulf … arith.addf
    }

K is one dimension, as IREE miscompiles some f32 contractions over blocks and what is in them, 2×256×13×32 and
1×1024×13×32 for example.

Activations of bf16 that are not quantised are multiplied as they are, by weights that are dequantised to bf16, which is
exact: IREE uses bf16 matrix instructions for these.

Operands with 6 bits, or in another order in memory, are read from their bytes (`mxcomp.codes.decode`). IREE makes one
or a few dispatches of all this, with f32 matrix instructions: slower than scaled MFMA by far, and right.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.codes.decode import dequantised
from mxcomp.layout import ACC, LHS, RHS
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.decision import Decision, decide, left_to_iree
from mxcomp.matching.storage import erase_gather, is_gathered
from mxcomp.matching.symmetry import is_symmetric
from mxcomp.mlir import build, graph, linalg
from mxcomp.mlir.loops import combined
from mxcomp.packing import runtime_sizes
from mxcomp.ukernels.weight_only import ACTIVATIONS


def run(module: ir.Operation) -> None:
    """Rewrites every recognised matmul below `module` that was left to IREE, except those that it compiles well."""
    for op, decision in left_to_iree(module):
        if decision.reason is not None and decision.index is not None and len(op.operands) == ACC + 1:
            _check_sizes(op)
            if not _compiles_well(op):
                _take_apart(op, decision)


def _check_sizes(op: ir.Operation) -> None:
    with op.location, ir.InsertionPoint(op):
        runtime_sizes.compared(list(op.operands)[:ACC], problem_of(op))


def _compiles_well(op: ir.Operation) -> bool:
    """Returns whether IREE's own lowering of a scaled matmul in canonical form is right and efficient."""
    problem = problem_of(op)
    return (
        problem.types[LHS] == problem.types[RHS] == _FP4
        and not problem.batch
        and None not in (problem.n, problem.k)
        and not any(map(is_gathered, list(op.operands)[:ACC]))
        and not is_symmetric(op)
    )


_FP4 = "f4E2M1FN"


def _take_apart(op: ir.Operation, decision: Decision) -> None:
    operands = list(op.operands)[:ACC]
    with op.location, ir.InsertionPoint(op):
        values = _values(*operands)
        batch = "b" * (ir.RankedTensorType(op.results[0].type).rank - 2)
        inputs = [(batch + of, value) for of, value in zip(("mk", "nk"), values, strict=True)]
        new = combined(f"{batch}mnk", f"{batch}mn", inputs, op.operands[ACC], _product)
        decide(new.owner, decision)
    graph.replace(op, new)
    for operand in operands:
        erase_gather(operand)


def _values(lhs: ir.Value, rhs: ir.Value, lhs_scale: ir.Value, rhs_scale: ir.Value) -> list[ir.Value]:
    """Returns the factors: f32, or unquantised activations, and weights of the same type."""
    if str(build.element(lhs)) != ACTIVATIONS:
        return [_dequantised(lhs, lhs_scale), _dequantised(rhs, rhs_scale)]
    activations = _narrowed(_dequantised(lhs, lhs_scale)) if is_gathered(lhs) else _flat(lhs)
    return [activations, _narrowed(_dequantised(rhs, rhs_scale))]


def _dequantised(elements: ir.Value, scales: ir.Value) -> ir.Value:
    """Returns f32 values [(batch,) rows, K]."""
    kind = ir.RankedTensorType(elements.type)
    if ir.FloatType(kind.element_type).width == 6 or is_gathered(elements) or is_gathered(scales):
        return dequantised(elements, scales)
    flat = _flat(elements)
    shape = build.static_sizes(flat)

    def body(element: ir.Value) -> ir.Value:
        *row, k = (linalg.IndexOp(i).result for i in range(len(shape)))
        block = arith.DivUIOp(k, build.constant_index(kind.shape[-1])).result
        scale = tensor.ExtractOp(scales, [*row, block]).result
        return arith.ScalingExtFOp(ir.F32Type.get(), element, scale).result

    if not build.is_narrow(kind.element_type):
        return build.cast(flat, ir.F32Type.get())
    return build.elementwise(build.tensor_type(shape, "f32"), [flat], body)


def _flat(elements: ir.Value) -> ir.Value:
    """Returns [(batch,) rows, K]."""
    *lead, _, _ = build.static_sizes(elements)
    return build.collapse(elements, [*([i] for i in range(len(lead))), [len(lead), len(lead) + 1]])


def _narrowed(value: ir.Value) -> ir.Value:
    """Returns f32 values as bf16, which represents them exactly."""
    return build.cast(value, ir.Type.parse(ACTIVATIONS))


def _product(a: ir.Value, b: ir.Value, acc: ir.Value) -> ir.Value:
    a, b = (build.cast(factor, acc.type) for factor in (a, b))
    return arith.AddFOp(acc, arith.MulFOp(a, b).result).result
