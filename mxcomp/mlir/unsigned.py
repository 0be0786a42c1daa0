"""Unsigned i32 values with Python's operators, which build arith operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith

_Operator: TypeAlias = "Callable[[Unsigned, Number], Unsigned]"


def _operators(op: Callable[[ir.Value, ir.Value], ir.OpView]) -> tuple[_Operator, _Operator]:
    """Returns the methods that build an operation with another number behind, and in front."""
    return lambda self, other: _made(op, self, other), lambda self, other: _made(op, other, self)


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

    __add__, __radd__ = _operators(arith.AddIOp)
    __sub__, __rsub__ = _operators(arith.SubIOp)
    __mul__, __rmul__ = _operators(arith.MulIOp)
    __floordiv__, _ = _operators(arith.DivUIOp)
    __mod__, _ = _operators(arith.RemUIOp)


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
