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

from mxcomp.layout.inner_tiles import BLOCK

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
        i32 = ir.IntegerType.get_signless(32)
        halves = ir.VectorType.get([2], ir.IntegerType.get_signless(16))
        zero = arith.ConstantOp(i32, 0).result if before is None else before
        if not self.in_halves:
            for turn, pair in enumerate(pairs):
                zero = self.op(i32, zero, *pair, scale, turn).result
            return zero
        value = vector.BitCastOp(halves, vector.FromElementsOp(ir.VectorType.get([1], i32), [zero]).result).result
        for turn, pair in enumerate(pairs):
            value = self.op(halves, value, *pair, scale, bool(turn)).result
        return vector.ExtractOp(vector.BitCastOp(ir.VectorType.get([1], i32), value).result, [], [0]).result


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


@dataclass(frozen=True)
class Extension:
    """An instruction that converts two of the elements in a register, of which there are twice `turns`."""

    op: type
    turns: int

    def pairs(self, word: ir.Value, scale: ir.Value, kind: str) -> list[ir.Value]:
        """Returns a register's elements times a scale, an f32, as vectors of two."""
        pair = ir.VectorType.get([_PAIR], ir.Type.parse(kind))
        selections = [bool(turn) if self.turns == _PAIR else turn for turn in range(self.turns)]
        return [self.op(pair, word, scale, selection).result for selection in selections]


EXTENSIONS = {
    ("f4E2M1FN", "bf16"): Extension(rocdl.CvtScaleF32PkBf16Fp4Op, 4),
    ("f4E2M1FN", "f16"): Extension(rocdl.CvtScaleF32PkF16Fp4Op, 4),
    ("f8E4M3FN", "bf16"): Extension(rocdl.CvtScaleF32PkBf16Fp8Op, 2),
    ("f8E4M3FN", "f16"): Extension(rocdl.CvtScaleF32PkF16Fp8Op, 2),
    ("f8E5M2", "bf16"): Extension(rocdl.CvtScaleF32PkBf16Bf8Op, 2),
    ("f8E5M2", "f16"): Extension(rocdl.CvtScaleF32PkF16Bf8Op, 2),
}
"""The instructions that convert elements, by their MLIR types and those of values."""


def extended(words: ir.Value, scale: ir.Value, element: str, kind: str) -> ir.Value:
    """Returns the elements in a vector of i32 registers times a scale, an f32, as a vector of bf16 or f16."""
    one = ir.VectorType.get([1], ir.IntegerType.get_signless(32))
    registers = [
        vector.ExtractOp(vector.BitCastOp(one, pair).result, [], [0]).result
        for i in range(ir.VectorType(words.type).shape[0])
        for pair in EXTENSIONS[element, kind].pairs(vector.ExtractOp(words, [], [i]).result, scale, kind)
    ]
    together = vector.FromElementsOp(ir.VectorType.get([len(registers)], one.element_type), registers).result
    return vector.BitCastOp(ir.VectorType.get([_PAIR * len(registers)], ir.Type.parse(kind)), together).result


def converted(x: ir.Value, scale: ir.Value, element: str) -> ir.Value:
    """Returns a block of 32 values divided by an f8E8M0FNU scale, as elements in a vector of i32 registers."""
    kind, i32 = ir.VectorType(x.type).element_type, ir.IntegerType.get_signless(32)
    divisor = exponent(arith.BitcastOp(ir.IntegerType.get_signless(8), scale).result)
    if (whole := WHOLE.get((element, str(kind)))) is not None:
        turns = [ir.DenseI64ArrayAttr.get(range(first, BLOCK, _PAIR)) for first in range(_PAIR)]
        given = [vector.ShuffleOp(x, x, turn).result for turn in turns] if isinstance(kind, ir.F32Type) else [x]
        return whole(ir.VectorType.get([_SIX_BIT_WORDS], i32), *given, divisor).result
    conversion = CONVERSIONS[element, str(kind)]
    count = BLOCK // (_PAIR * conversion.turns)
    pairs = [_pair(x, _PAIR * i) for i in range(BLOCK // _PAIR)]
    words = [conversion.word(pairs[conversion.turns * i :][: conversion.turns], divisor) for i in range(count)]
    return vector.FromElementsOp(ir.VectorType.get([count], i32), words).result


def _pair(x: ir.Value, at: int) -> list[ir.Value]:
    """Returns two values from `at`, as an instruction takes them: separate f32, others in a register."""
    kind = ir.VectorType(x.type).element_type
    if isinstance(kind, ir.F32Type):
        return [vector.ExtractOp(x, [], [at + i]).result for i in range(_PAIR)]
    return [slice_of(x, at, _PAIR)]


def slice_of(x: ir.Value, at: int, size: int) -> ir.Value:
    result, i64 = ir.VectorType.get([size], ir.VectorType(x.type).element_type), ir.IntegerType.get_signless(64)
    arrays = (ir.ArrayAttr.get([ir.IntegerAttr.get(i64, value)]) for value in (at, size, 1))
    return vector.ExtractStridedSliceOp(result, x, *arrays).result


def exponent(scale: ir.Value) -> ir.Value:
    """Returns an f32 with the exponent of a scale, given as a byte or i32: the instructions use only the exponent."""
    i32 = ir.IntegerType.get_signless(32)
    code = scale if scale.type == i32 else arith.ExtUIOp(i32, scale).result
    bits = arith.ShLIOp(code, arith.ConstantOp(i32, _MANTISSA_BITS).result).result
    return arith.BitcastOp(ir.F32Type.get(), bits).result
