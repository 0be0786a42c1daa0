"""Converts a block in registers: 32 values divided by a scale, as 4- or 8-bit elements in whole registers.

IREE's lowering of `arith.scaling_truncf` to 4 bits builds a vector of them, which LLVM moves through scratch memory to
access it as bytes. The instruction writes into a byte, or a half, of a register instead:

    %1 = rocdl.cvt.scalef32.pk.fp4.bf16 %pair0, %scale -> %0[0] : i32
    %2 = rocdl.cvt.scalef32.pk.fp4.bf16 %pair1, %scale -> %1[1] : i32
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, rocdl, vector

from mxcomp.formats import element_format
from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.mlir.index import i32, i32_type
from mxcomp.mlir.vectors import bitcast, element, from_elements

_PAIR, _SIX_BIT_WORDS = 2, 6
_MANTISSA_BITS = 23


@dataclass(frozen=True)
class Conversion:
    """An instruction that converts two values: an f32 each, or a vector of two; `turns` of it fill a register."""

    op: type
    turns: int

    @property
    def in_halves(self) -> bool:
        """Whether the destination is two halves of a register; else it is one integer."""
        return self.turns == _PAIR

    def word(self, pairs: list[list[ir.Value]], scale: ir.Value, before: ir.Value | None = None) -> ir.Value:
        """Returns a register of elements, written over `before`, of which nothing is left; by default over zero."""
        value = i32(0) if before is None else before
        if self.in_halves:
            value = bitcast(from_elements([value]), "i16", _PAIR)
        for turn, pair in enumerate(pairs):
            value = self.op(value.type, value, *pair, scale, bool(turn) if self.in_halves else turn).result
        return element(bitcast(value, "i32", 1), 0) if self.in_halves else value


CONVERSIONS = {
    ("f4E2M1FN", "f32"): Conversion(rocdl.CvtScaleF32PkFp4F32Op, 4),
    ("f4E2M1FN", "bf16"): Conversion(rocdl.CvtScaleF32PkFp4Bf16Op, 4),
    ("f4E2M1FN", "f16"): Conversion(rocdl.CvtScaleF32PkFp4F16Op, 4),
    ("f8E4M3FN", "f32"): Conversion(rocdl.CvtScaleF32PkFp8F32Op, 2),
    ("f8E4M3FN", "bf16"): Conversion(rocdl.CvtScaleF32PkFp8Bf16Op, 2),
    ("f8E4M3FN", "f16"): Conversion(rocdl.CvtScaleF32PkFp8F16Op, 2),
    ("f8E5M2", "f32"): Conversion(rocdl.CvtScaleF32PkBf8F32Op, 2),
    ("f8E5M2", "bf16"): Conversion(rocdl.CvtScaleF32PkBf8Bf16Op, 2),
    ("f8E5M2", "f16"): Conversion(rocdl.CvtScaleF32PkBf8F16Op, 2),
}
"""The conversion instructions by the MLIR types of elements and of values."""

WHOLE = {
    ("f6E2M3FN", "f32"): rocdl.CvtScaleF322xPk16Fp6F32Op,
    ("f6E2M3FN", "bf16"): rocdl.CvtScaleF32Pk32Fp6Bf16Op,
    ("f6E2M3FN", "f16"): rocdl.CvtScaleF32Pk32Fp6F16Op,
    ("f6E3M2FN", "f32"): rocdl.CvtScaleF322xPk16Bf6F32Op,
    ("f6E3M2FN", "bf16"): rocdl.CvtScaleF32Pk32Bf6Bf16Op,
    ("f6E3M2FN", "f16"): rocdl.CvtScaleF32Pk32Bf6F16Op,
}
"""The instructions that convert a block at once; f32 are given as two vectors, whose elements alternate."""


EXTENSIONS = {
    ("f4E2M1FN", "bf16"): rocdl.CvtScaleF32PkBf16Fp4Op,
    ("f4E2M1FN", "f16"): rocdl.CvtScaleF32PkF16Fp4Op,
    ("f8E4M3FN", "bf16"): rocdl.CvtScaleF32PkBf16Fp8Op,
    ("f8E4M3FN", "f16"): rocdl.CvtScaleF32PkF16Fp8Op,
    ("f8E5M2", "bf16"): rocdl.CvtScaleF32PkBf16Bf8Op,
    ("f8E5M2", "f16"): rocdl.CvtScaleF32PkF16Bf8Op,
}
"""The instructions that convert two of the elements in a register, by the MLIR types of these and of values."""


def extended(words: ir.Value, scale: ir.Value, format_: str, kind: str) -> ir.Value:
    """Returns the elements in a vector of i32 registers times a scale, an f32, as a vector of bf16 or f16."""
    op, pair, registers = EXTENSIONS[format_, kind], ir.VectorType.get([_PAIR], ir.Type.parse(kind)), []
    turns = range(4) if element_format(format_).bits == 4 else (False, True)
    for i in range(ir.VectorType(words.type).shape[0]):
        word = element(words, i)
        pairs = [op(pair, word, scale, turn).result for turn in turns]
        registers += [element(bitcast(each, "i32", 1), 0) for each in pairs]
    return bitcast(from_elements(registers), kind, _PAIR * len(registers))


def converted(x: ir.Value, scale: ir.Value, format_: str) -> ir.Value:
    """Returns a block of 32 values divided by an f8E8M0FNU scale, as elements in a vector of i32 registers."""
    kind = ir.VectorType(x.type).element_type
    divisor = exponent(arith.BitcastOp(ir.IntegerType.get_signless(8), scale).result)
    if (whole := WHOLE.get((format_, str(kind)))) is not None:
        turns = [ir.DenseI64ArrayAttr.get(range(first, BLOCK, _PAIR)) for first in range(_PAIR)]
        given = [vector.ShuffleOp(x, x, turn).result for turn in turns] if isinstance(kind, ir.F32Type) else [x]
        return whole(ir.VectorType.get([_SIX_BIT_WORDS], i32_type()), *given, divisor).result
    conversion = CONVERSIONS[format_, str(kind)]
    pairs = [_pair(x, first) for first in range(0, BLOCK, _PAIR)]
    runs = (pairs[first : first + conversion.turns] for first in range(0, len(pairs), conversion.turns))
    return from_elements([conversion.word(run, divisor) for run in runs])


def _pair(x: ir.Value, at: int) -> list[ir.Value]:
    """Returns two values from `at`, as an instruction takes them: separate f32, others in a register."""
    kind = ir.VectorType(x.type).element_type
    return [element(x, at + i) for i in range(_PAIR)] if isinstance(kind, ir.F32Type) else [slice_of(x, at, _PAIR)]


def slice_of(x: ir.Value, at: int, size: int) -> ir.Value:
    result, i64 = ir.VectorType.get([size], ir.VectorType(x.type).element_type), ir.IntegerType.get_signless(64)
    arrays = (ir.ArrayAttr.get([ir.IntegerAttr.get(i64, value)]) for value in (at, size, 1))
    return vector.ExtractStridedSliceOp(result, x, *arrays).result


def exponent(scale: ir.Value) -> ir.Value:
    """Returns an f32 with the exponent of a scale, given as a byte or i32: the instructions use only the exponent."""
    code = scale if scale.type == i32_type() else arith.ExtUIOp(i32_type(), scale).result
    return arith.BitcastOp(ir.F32Type.get(), arith.ShLIOp(code, i32(_MANTISSA_BITS)).result).result
