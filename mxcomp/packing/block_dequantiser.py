"""Builds functions that dequantise a lane's weights in registers, which weight-only ukernels call.

    func.func @dequantise(%bytes: vector<16xi8>, %scale0: i8, %scale1: i8) -> vector<4x8xbf16> {
      %w = vector.bitcast %bytes : vector<16xi8> to vector<4xi32>
      %p = rocdl.cvt.scalef32.pk.bf16.fp4 %w0[0], %scale …        and 15 more
      …
    }

Elements times scales are exact in bf16, as they are in f32: they have at most three bits of mantissa, and the same
exponents. The function is text in an attribute of its matmul, like that of `block_quantiser`.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import func, rocdl, vector

from mxcomp.layout.inner_tiles import BLOCK, MFMA
from mxcomp.mlir import vectors
from mxcomp.packing.block_quantiser import body_of, functions
from mxcomp.ukernels.conversions import exponent, extended

NAME = "dequantise"
_HALVES, _VECTOR, _WORD_BYTES = 2, 8, 4
_WHOLE = {"f6E2M3FN": rocdl.CvtScaleF32Pk32Bf16Fp6Op, "f6E3M2FN": rocdl.CvtScaleF32Pk32Bf16Bf6Op}
"""The conversions of a whole block by the MLIR type of elements."""


def text(element: str, blocks: int) -> str:
    """Returns a module with the function for weights of this type, and @blocks, the blocks in a row of activations."""
    i8, bf16 = ir.IntegerType.get_signless(8), ir.BF16Type.get()
    taken = ir.VectorType.get([MFMA.lane_bytes(element)], i8)
    given = ir.VectorType.get([BLOCK // _VECTOR, _VECTOR], bf16)
    with functions(blocks) as module, body_of(NAME, [taken, i8, i8], [given]) as (packed, *scales):
        values = _values(packed, element, [exponent(scale) for scale in scales])
        func.ReturnOp([vector.ShapeCastOp(given, values).result])
    return str(module)


def _values(packed: ir.Value, element: str, scales: list[ir.Value]) -> ir.Value:
    """Returns a lane's 32 weights; `scales` are those of its two halves, as f32 exponents."""
    i32 = ir.IntegerType.get_signless(32)
    count = MFMA.lane_bytes(element) // _WORD_BYTES
    words = vector.BitCastOp(ir.VectorType.get([count], i32), packed).result
    wide = ir.VectorType.get([BLOCK], ir.BF16Type.get())
    if element in _WHOLE:
        return _WHOLE[element](wide, words, scales[0]).result
    each = count // _HALVES
    parts = [extended(vectors.part(words, half * each, each), scales[half], element, "bf16") for half in range(_HALVES)]
    return vectors.joined(parts)
