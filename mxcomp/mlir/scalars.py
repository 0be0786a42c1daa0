"""Arithmetic on scalars in bodies of linalg operations; a Python number is a constant of the other operand's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor
from iree.compiler.dialects import math as mlir_math

from mxcomp.mlir import build, linalg

Number: TypeAlias = ir.Value | int | float
_LOW_BITS = 31
_SIGN, _ALL = 0x80000000, 0xFFFFFFFF


def i32(value: int) -> ir.Value:
    """Returns a constant of 32 bits, whose value may be signed or unsigned."""
    return constant(value, ir.IntegerType.get_signless(32))


def constant(value: int | float, kind: ir.Type) -> ir.Value:
    """Returns a number of this type; integers may be signed or unsigned."""
    if isinstance(kind, ir.IntegerType):
        half = 1 << kind.width - 1
        value = (int(value) + half) % (2 * half) - half
    return arith.ConstantOp(kind, value).result


def _like(value: Number, other: Number) -> ir.Value:
    """Returns a number as a constant of the other operand's type."""
    if isinstance(value, ir.Value):
        return value
    assert isinstance(other, ir.Value)
    return constant(value, other.type)


def loop_index(dimension: int) -> ir.Value:
    """Returns the subscript of a loop, as i32."""
    index = linalg.IndexOp(dimension).result
    return arith.IndexCastOp(ir.IntegerType.get_signless(32), index).result


def subscript(value: ir.Value) -> ir.Value:
    """Returns a non-negative i32 as an index."""
    return arith.IndexCastOp(ir.IndexType.get(), value).result


def at(source: ir.Value, *indices: ir.Value) -> ir.Value:
    """Returns the element of a tensor at i32 indices, which must be in range."""
    return tensor.ExtractOp(source, [subscript(each) for each in indices]).result


def _compare(predicate: arith.CmpIPredicate, a: Number, b: Number) -> ir.Value:
    return arith.CmpIOp(predicate, _like(a, b), _like(b, a)).result


def equal(a: Number, b: Number) -> ir.Value:
    return _compare(arith.CmpIPredicate.eq, a, b)


def less(a: Number, b: Number) -> ir.Value:
    """Returns a < b of signed numbers."""
    return _compare(arith.CmpIPredicate.slt, a, b)


def above(a: Number, b: Number) -> ir.Value:
    """Returns a > b of unsigned numbers."""
    return _compare(arith.CmpIPredicate.ugt, a, b)


def select(condition: ir.Value, a: Number, b: Number) -> ir.Value:
    if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
        a = constant(a, ir.F32Type.get()) if isinstance(a, float) else i32(a)
    return arith.SelectOp(condition, _like(a, b), _like(b, a)).result


def _binary(op: Callable[[ir.Value, ir.Value], ir.OpView]) -> Callable[[Number, Number], ir.Value]:
    """Returns the function that builds an operation of two numbers, of which one is a value."""
    return lambda a, b: op(_like(a, b), _like(b, a)).operation.result


plus, minus, times = map(_binary, (arith.AddIOp, arith.SubIOp, arith.MulIOp))
added, subtracted, multiplied, quotient = map(_binary, (arith.AddFOp, arith.SubFOp, arith.MulFOp, arith.DivFOp))
divided, remainder, lowest = map(_binary, (arith.DivUIOp, arith.RemUIOp, arith.MinUIOp))  # of unsigned numbers
both, either, flipped = map(_binary, (arith.AndIOp, arith.OrIOp, arith.XOrIOp))


def largest(a: ir.Value, b: ir.Value) -> ir.Value:
    """Returns the larger of signed numbers.

    Reduce only what is not negative: IREE 3.13 takes 0 for the identity of a wave's signed maximum, and the least
    signed number for that of the unsigned one.
    """
    return arith.MaxSIOp(a, b).result


def greatest(a: ir.Value, b: ir.Value) -> ir.Value:
    """Returns the larger of unsigned numbers."""
    return arith.MaxUIOp(a, b).result


def clamped(value: ir.Value, last: int, first: int = 0) -> ir.Value:
    """Returns a signed number within [first, last]."""
    above = arith.MaxSIOp(value, constant(first, value.type)).result
    return arith.MinSIOp(above, constant(last, value.type)).result


def packed(high: ir.Value, low: ir.Value) -> ir.Value:
    """Returns an unsigned i32 and a non-negative i32 as one non-negative i64, which orders like the pair."""
    i64 = ir.IntegerType.get_signless(64)
    first, second = (arith.ExtUIOp(i64, each).result for each in (high, low))
    return either(arith.ShLIOp(first, constant(_LOW_BITS, i64)).result, second)


def high(value: ir.Value) -> ir.Value:
    """Returns the first number of `packed`."""
    moved = arith.ShRUIOp(value, constant(_LOW_BITS, value.type)).result
    return arith.TruncIOp(ir.IntegerType.get_signless(32), moved).result


def low(value: ir.Value) -> ir.Value:
    """Returns the second number of `packed`."""
    return both(arith.TruncIOp(ir.IntegerType.get_signless(32), value).result, 2**_LOW_BITS - 1)


def bits(value: ir.Value) -> ir.Value:
    """Returns the bits of an f32 as i32."""
    return arith.BitcastOp(ir.IntegerType.get_signless(32), value).result


def number(value: ir.Value) -> ir.Value:
    """Returns the f32 with the bits of an i32."""
    return arith.BitcastOp(ir.F32Type.get(), value).result


def is_nan(value: ir.Value) -> ir.Value:
    return arith.CmpFOp(arith.CmpFPredicate.UNO, value, value).result


def ordered(value: ir.Value, nan: int) -> ir.Value:
    """Returns an f32 as an unsigned i32 with the same order, equal for -0.0 and 0.0; of NaN that one."""
    found = bits(value)
    found = select(equal(found, _SIGN), 0, found)
    turned = select(less(found, 0), flipped(found, _ALL), flipped(found, _SIGN))
    return select(is_nan(value), nan, turned)


def of_order(order: ir.Value) -> ir.Value:
    """Returns the f32 of what `ordered` returns; 0.0 for -0.0."""
    return number(select(less(order, 0), flipped(order, _SIGN), flipped(order, _ALL)))


def widened(value: ir.Value) -> ir.Value:
    """Returns a float as f32."""
    return build.cast(value, ir.F32Type.get())


def exp(a: ir.Value) -> ir.Value:
    return mlir_math.ExpOp(a).result


def sigmoid(a: ir.Value) -> ir.Value:
    """Returns 1 / (1 + e^-a)."""
    return quotient(1.0, added(1.0, exp(subtracted(0.0, a))))
