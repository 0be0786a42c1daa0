"""Operands that were written in whole tiles, and are packed again with the padding: no copy is made for that.

    %s = tensor.extract_slice %q[0, 0, 0, 0] [24, 16, 90, 32] [1, 1, 1, 1] {mxcomp.leading}
           : tensor<24x64x92x32xf8E4M3FN> to tensor<24x16x90x32xf8E4M3FN>

Packing reads `%q` instead of the slice.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import build, graph

_LEADING = "mxcomp.leading"
"""The attribute of slices that only remove padding."""


def without_padding(value: ir.Value, result: ir.RankedTensorType) -> ir.Value:
    """Returns the top left of `value`, [(batch,) rows, …]."""
    part = build.leading_slice(value, result, [])
    part.owner.attributes[_LEADING] = ir.UnitAttr.get()
    return part


def behind(operand: ir.Value) -> ir.Value | None:
    """Returns the padded tensor of which an operand is the part without padding, or None."""
    op = graph.producer(operand)
    return op.operands[0] if op is not None and _LEADING in op.attributes else None
