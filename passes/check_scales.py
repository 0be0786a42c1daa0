"""mxcomp-check-scales: refuses scaled conversions whose scale has no meaning.

    arith.scaling_extf %x, %s : f8E4M3FN, f8E4M3FN to f32        (an error: the scale is none of E8M0, f16, bf16, f32)

Nothing is rewritten.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.errors import InputError
from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.mlir import build, graph

_SCALED = ("arith.scaling_extf", "arith.scaling_truncf")
"""Operations with a scale, their second operand."""


def run(module: ir.Operation) -> None:
    """Raises InputError for the first scale below `module` that has no meaning."""
    for op in graph.walk(module):
        if op.name in _SCALED:
            _check(op, build.element(op.operands[1]))


def _check(op: ir.Operation, kind: ir.Type) -> None:
    if str(kind) != SCALE_TYPE and kind.width <= 8:
        raise InputError(
            f"{op.location}: {op.name} with a scale of type {kind}: expected {SCALE_TYPE}, or f16, "
            "bf16 or f32, of which the exponent is taken; extend other scales, and multiply (arith.extf, arith.mulf)"
        )
