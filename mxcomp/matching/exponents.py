"""Converts scales of any type to E8M0 codes: `arith.scaling_extf` and `scaling_truncf` take only the exponent of wider
ones.

MLIR says that a scale of f32, f16 or bf16 is truncated to f8E8M0FNU, and lowers that (`arith-expand`) to the eight bits
of its exponent as f32. So 3.0 is 2, a sign has no meaning, infinities become NaN, and 0 and the denormals of f32 become
code 0. `arith.truncf` itself is not written here: for constants, LLVM's own conversion would round to nearest.
"""

from __future__ import annotations

from dataclasses import replace

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.matching.storage import Access
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s

_MANTISSA_BITS = 23


def code_of(scale: ir.Value) -> ir.Value:
    """Returns the E8M0 code, in i32, of a scalar that is a scale."""
    i8, i32 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(32)
    if str(scale.type) == SCALE_TYPE:
        return arith.ExtUIOp(i32, arith.BitcastOp(i8, scale).result).result
    bits = arith.ShRUIOp(s.bits(s.widened(scale)), s.i32(_MANTISSA_BITS)).result
    return arith.AndIOp(bits, s.i32(0xFF)).result  # drops the sign


def truncated(where: Access, kind: str) -> Access:
    """Returns an access to scales, of type `kind` or as its bits, as an access to a tensor of f8E8M0FNU."""
    if kind == SCALE_TYPE:
        return where
    stored = ir.Type.parse(kind)

    def body(scale: ir.Value) -> ir.Value:
        scale = scale if scale.type == stored else arith.BitcastOp(stored, scale).result
        code = arith.TruncIOp(ir.IntegerType.get_signless(8), code_of(scale)).result
        return arith.BitcastOp(result.element_type, code).result

    result = build.tensor_type(build.static_sizes(where.value), SCALE_TYPE)
    return replace(where, value=build.elementwise(result, [where.value], body))
