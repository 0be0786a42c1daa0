"""Scalar values that record operations on them: 128-bit integers, which have room for all that the scalar table
computes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir


class Condition:
    """A traced comparison; counts as 0 or 1."""

    def __init__(self, builder: llvm.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    def select(self, if_true: Any, if_false: Any) -> Exact:
        chosen = [lift(self.builder, x).value for x in (if_true, if_false)]
        return Exact(self.builder, self.builder.select(self.value, *chosen))

    def __or__(self, other: Condition) -> Condition:
        return Condition(self.builder, self.builder.or_(self.value, other.value))

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.builder, self.builder.and_(self.value, other.value))

    def __bool__(self) -> bool:
        raise TypeError("a branch on a traced value")


class Exact:
    """A traced integer."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: llvm.IRBuilder, value: ir.Value) -> None:
        self.builder, self.value = builder, value

    def select(self, if_true: Any, if_false: Any) -> Exact:
        """Returns a choice by the value as a condition (SCC)."""
        zero = ir.constant(ir.i128, 0)
        condition = Condition(self.builder, self.builder.icmp_signed("!=", self.value, zero))
        return condition.select(if_true, if_false)

    def __invert__(self) -> Exact:
        return Exact(self.builder, self.builder.not_(self.value))

    def __neg__(self) -> Exact:
        return Exact(self.builder, self.builder.neg(self.value))

    def __bool__(self) -> bool:
        raise TypeError("a branch on a traced value")


def lift(builder: llvm.IRBuilder, x: Any) -> Exact:
    if isinstance(x, Exact):
        return x
    if isinstance(x, Condition):
        return Exact(builder, builder.zext(x.value, ir.i128))
    return Exact(builder, ir.constant(ir.i128, int(x)))


def _operator(name: str) -> tuple[Any, Any]:
    def forward(self: Exact, other: Any) -> Exact:
        return Exact(self.builder, getattr(self.builder, name)(self.value, lift(self.builder, other).value))

    def reflected(self: Exact, other: Any) -> Exact:
        return forward(lift(self.builder, other), self)

    return forward, reflected


def _comparison(operator: str) -> Any:
    def compare(self: Exact, other: Any) -> Condition:
        return Condition(self.builder, self.builder.icmp_signed(operator, self.value, lift(self.builder, other).value))

    return compare


_OPERATORS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and_", "or": "or_", "xor": "xor", "lshift": "shl",
              "rshift": "ashr"}  # fmt: skip
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

for _name, _instruction in _OPERATORS.items():
    _forward, _reflected = _operator(_instruction)
    setattr(Exact, f"__{_name}__", _forward)
    setattr(Exact, f"__r{_name}__", _reflected)
for _name, _sign in _COMPARISONS.items():
    setattr(Exact, f"__{_name}__", _comparison(_sign))
