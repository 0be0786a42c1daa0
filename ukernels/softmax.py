"""Arithmetic of softmax: powers of 2, and sums and maxima over lanes of a wave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, rocdl, vector

from mxcomp.ukernels import builder

Combining: TypeAlias = Callable[[ir.Value, ir.Value], ir.Value]

LOWEST = -3.4028234663852886e38
"""The lowest f32, which marks the score of a hidden key."""

_ROTATIONS = (8, 4, 2, 1)


def exp2(value: ir.Value) -> ir.Value:
    """Returns 2 to the power of an f32, by the instruction for it."""
    return rocdl.exp2(value.type, value)


def inverse(value: ir.Value) -> ir.Value:
    """Returns 1 divided by an f32, by the instruction for it."""
    return rocdl.rcp(value.type, value)


def largest(one: ir.Value, other: ir.Value) -> ir.Value:
    """Returns the larger of two numbers, and of a NaN and a number the number."""
    return arith.MaxNumFOp(one, other).result


def maximum(one: ir.Value, other: ir.Value) -> ir.Value:
    """Returns the larger one, NaN if one is: `arith.maximumf`, which IREE replaces by one that ignores NaN."""
    return llvm.intr_maximum(one, other)


def plus_pair(pair: ir.Value, total: ir.Value) -> ir.Value:
    """Returns an f32 plus both elements of a vector of two bf16 or f16, by one instruction."""
    kind = ir.VectorType(pair.type)
    ones = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 1.0))
    name = {"bf16": "llvm.amdgcn.fdot2.f32.bf16", "f16": "llvm.amdgcn.fdot2"}[str(kind.element_type)]
    i1 = ir.IntegerType.get_signless(1)
    clamp = arith.ConstantOp(i1, ir.IntegerAttr.get(i1, 0)).result
    operands = [pair, arith.ConstantOp(kind, ones).result, total, clamp]
    return llvm.CallIntrinsicOp(total.type, name, operands, [], []).results_


def powers(scores: Sequence[ir.Value], scale: ir.Value, more: ir.Value) -> list[ir.Value]:
    """Returns 2 to the power of score · scale + more.

    LLVM would multiply two at a time, which does not run beside MFMA.
    Nothing waits for what is in front of it; behind the last power is the wait state that its use needs.
    """
    count = len(scores)
    lines = [f"v_fma_f32 ${i}, ${count + i}, ${2 * count}, ${2 * count + 1}" for i in range(count)]
    lines += [f"v_exp_f32 ${i}, ${i}" for i in range(count)]
    kind = ir.Type.parse(f"!llvm.struct<({', '.join(['f32'] * count)})>")
    constraints = ",".join(["=&v"] * count + ["v"] * count + ["s", "v"])
    text = "\n".join([*lines, "s_nop 0"])
    made = llvm.InlineAsmOp(kind, [*scores, scale, more], text, constraints, has_side_effects=False).res
    return [llvm.ExtractValueOp(more.type, made, ir.DenseI64ArrayAttr.get([i])).res for i in range(count)]


def added(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.AddFOp(one, other).result


def tree(combine: Combining, values: Sequence[ir.Value]) -> ir.Value:
    """Returns all values combined by pairs."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return combine(tree(combine, values[:half]), tree(combine, values[half:]))


def number(value: float) -> ir.Value:
    return arith.ConstantOp(ir.F32Type.get(), value).result


def splat(value: ir.Value, size: int) -> ir.Value:
    return vector.BroadcastOp(ir.VectorType.get([size], value.type), value).result


def of_column(value: ir.Value, combine: Combining) -> ir.Value:
    """Combines an f32 over the four lanes that are 16 apart, with the result in each of them."""
    for swap in (rocdl.Permlane16SwapOp, rocdl.Permlane32SwapOp):
        value = combine(*swapped(swap, value, value))
    return value


def of_wave(value: ir.Value, combine: Combining) -> ir.Value:
    """Combines an f32 over all lanes, with the result in each of them."""
    for distance in _ROTATIONS:
        value = combine(value, builder.rotated(value, value, distance))
    return of_column(value, combine)


def of_lane(value: ir.Value, lane: int) -> ir.Value:
    """Returns one lane's value in all lanes."""
    bits = arith.BitcastOp(ir.IntegerType.get_signless(32), value).result
    return arith.BitcastOp(value.type, rocdl.readlane(bits.type, bits, builder.i32(lane))).result


def swapped(swap: Callable[..., ir.OpView], one: ir.Value, other: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Exchanges odd rows of lanes of the first f32 or i32 with even ones of the second."""
    i32 = ir.IntegerType.get_signless(32)
    bits = [arith.BitcastOp(i32, each).result for each in (one, other)]
    pair = swap(ir.Type.parse("!llvm.struct<(i32, i32)>"), *bits, False, False).res
    halves = (llvm.ExtractValueOp(i32, pair, ir.DenseI64ArrayAttr.get([i])).res for i in range(2))
    first, second = (arith.BitcastOp(one.type, half).result for half in halves)
    return first, second
