"""Unsigned i32 values with Python's operators, which build arith operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith


@dataclass(frozen=True)
class Unsigned:
    """An i32 that is never negative; operators build operations at the insertion point."""

    value: ir.Value

    @staticmethod
    def of(index: ir.Value) -> Unsigned:
        """Casts an index, which must be below 2³²."""
        return Unsigned(arith.IndexCastUIOp(ir.IntegerType.get_signless(32), index).result)

    @property
    def index(self) -> ir.Value:
        return arith.IndexCastUIOp(ir.IndexType.get(), self.value).result

    def __add__(self, other: Number) -> Unsigned:
        return _made(arith.AddIOp, self, other)

    def __radd__(self, other: Number) -> Unsigned:
        return _made(arith.AddIOp, other, self)

    def __sub__(self, other: Number) -> Unsigned:
        return _made(arith.SubIOp, self, other)

    def __rsub__(self, other: Number) -> Unsigned:
        return _made(arith.SubIOp, other, self)

    def __mul__(self, other: Number) -> Unsigned:
        return _made(arith.MulIOp, self, other)

    def __rmul__(self, other: Number) -> Unsigned:
        return _made(arith.MulIOp, other, self)

    def __floordiv__(self, other: Number) -> Unsigned:
        return _made(arith.DivUIOp, self, other)

    def __mod__(self, other: Number) -> Unsigned:
        return _made(arith.RemUIOp, self, other)


Number: TypeAlias = Unsigned | int


def minimum(first: Number, second: Number) -> Number:
    """Returns the smaller of two."""
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return _made(arith.MinUIOp, first, second)


def _made(op: Callable[[ir.Value, ir.Value], ir.OpView], first: Number, second: Number) -> Unsigned:
    return Unsigned(op(_value(first), _value(second)).operation.results[0])


def _value(number: Number) -> ir.Value:
    if isinstance(number, Unsigned):
        return number.value
    return arith.ConstantOp(ir.IntegerType.get_signless(32), number).result
