"""mxcomp-extend-elements: gives a contraction that was not recognised its elements and scales as f32.

So nothing takes it for a scaled matmul: IREE lays elements out for scaled MFMA then, and fails over blocks that the
instruction has not. 6-bit elements are mxcomp-unpack-elements's.

Before (of what looks like a scaled matmul, and is none of ours):

    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%a, %b, %as, %bs) outs(%zero) {
      arith.scaling_extf … arith.scaling_extf … arith.mulf … arith.addf
    }

After:

    %e = linalg.generic ins(%a : tensor<64x16x16xf8E5M2>) { arith.extf } -> tensor<64x16x16xf32>        (and others)
    %r = linalg.generic {…, mxcomp.scaled_matmul = {reason = "…"}} ins(%e, %f, %es, %fs) outs(%zero) {
      arith.mulf … arith.mulf … arith.mulf … arith.addf
    }
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes.decode import scale_value, scaled
from mxcomp.codes.six_bit import is_six_bit
from mxcomp.matching.canonical import claimed
from mxcomp.matching.decision import Decision, decide, unrecognised
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.inline import inline
from mxcomp.mlir.linalg_ops import indexing_maps


def run(module: ir.Operation) -> None:
    """Rewrites contractions below `module` that look like scaled matmuls, and were not recognised."""
    for op, decision in unrecognised(module):
        if not claimed(op):
            _extend_elements(op, decision)


def _extend_elements(op: ir.Operation, decision: Decision) -> None:
    *inputs, init = op.operands
    block = op.regions[0].blocks[0]
    extended = [_is_extended(argument) for argument in list(block.arguments)[:-1]]
    if not any(extended):
        return
    with op.location, ir.InsertionPoint(op):
        values = [_extended(value) if wanted else value for value, wanted in zip(inputs, extended, strict=True)]
        maps, loops, kind = indexing_maps(op) or [], linalg_ops.iterators(op), ir.RankedTensorType(op.results[0].type)
        new = build.generic(kind, values, init, maps, loops, lambda *given: inline(op, given, _without_extension))
        decide(new, decision)
    graph.replace(op, new.results[0])


def _is_extended(argument: ir.Value) -> bool:
    """Returns whether a body uses a value only to multiply an element by its scale."""
    users = [(use.owner.operation.name, use.operand_number) for use in argument.uses]
    if not isinstance(argument.type, ir.FloatType) or is_six_bit(argument.type):  # mxcomp-unpack-elements takes those
        return False
    role = 1 if str(argument.type) == SCALE_TYPE else 0
    return bool(users) and all(user == ("arith.scaling_extf", role) for user in users)


def _without_extension(op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
    """Returns the result of arith.scaling_extf for an element or a scale that is f32 already."""
    if op.name != "arith.scaling_extf":
        return None
    (element, scale), f32 = operands, ir.F32Type.get()
    is_extended = scale.type != op.operands[1].type
    if element.type != f32 and not is_extended:
        return None
    element = build.cast(element, f32)
    value = arith.MulFOp(element, scale).result if is_extended else scaled(element, scale)
    return build.cast(value, op.results[0].type)


def _extended(value: ir.Value) -> ir.Value:
    """Returns the elements or scales as f32."""
    if str(build.element(value)) == SCALE_TYPE:
        return build.elementwise(build.tensor_type(build.static_sizes(value), "f32"), [value], scale_value)
    return build.cast(value, ir.F32Type.get())
