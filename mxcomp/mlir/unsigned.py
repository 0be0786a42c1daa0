"""Unsigned i32 values with Python's operators, which build arith operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import scalars as s

_Operator: TypeAlias = "Callable[[Unsigned, Number], Unsigned]"


def _operators(op: Callable[[s.Number, s.Number], ir.Value]) -> tuple[_Operator, _Operator]:
    """Returns the methods that build an operation with another number behind, and in front."""
    return (
        lambda self, other: Unsigned(op(self.value, _value(other))),
        lambda self, other: Unsigned(op(_value(other), self.value)),
    )


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

    __add__, __radd__ = _operators(s.plus)
    __sub__, __rsub__ = _operators(s.minus)
    __mul__, __rmul__ = _operators(s.times)
    __floordiv__, _ = _operators(s.divided)
    __mod__, _ = _operators(s.remainder)


Number: TypeAlias = Unsigned | int


def minimum(first: Number, second: Number) -> Number:
    """Returns the smaller of two."""
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    return Unsigned(s.lowest(_value(first), _value(second)))


def _value(number: Number) -> s.Number:
    return number.value if isinstance(number, Unsigned) else number
