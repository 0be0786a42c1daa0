"""Index arithmetic: sums that are folded in Python, and become operations where they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import assumptions, build
from mxcomp.mlir.assumptions import Range
from mxcomp.mlir.scalars import both, i32

__all__ = ["Index", "all_of", "assume", "both", "i32", "i32_type", "least", "most", "select", "to_i32", "unsigned"]

_MOST = 2**24
"""A number above any number of K tiles."""


def _compared(predicate: arith.CmpIPredicate) -> Callable[[Index, Index | int], ir.Value]:
    return lambda self, other: arith.CmpIOp(predicate, self.value, Index.of(other).value).result


class Index:
    """A sum of a number and of multiples of index values. Values are not negative where one is divided."""

    def __init__(self, terms: Mapping[ir.Value, int], number: int = 0) -> None:
        self.terms = {value: factor for value, factor in terms.items() if factor}
        self.number = number

    @staticmethod
    def of(value: Index | ir.Value | int) -> Index:
        """Returns a number, or a value of index or integer type, as an index."""
        if isinstance(value, Index):
            return value
        return Index({}, value) if isinstance(value, int) else Index({build.as_index(value): 1})

    @property
    def value(self) -> ir.Value:
        """The sum as an SSA value, computed here."""
        if not self.terms:
            return build.constant_index(self.number)
        if self.number == 0 and list(self.terms.values()) == [1]:
            return next(iter(self.terms))
        dims = (ir.AffineExpr.get_dim(i) * factor for i, factor in enumerate(self.terms.values()))
        expression = reduce(lambda left, right: left + right, dims)
        return build.apply(expression + self.number if self.number else expression, list(self.terms))

    @property
    def here(self) -> Index:
        """The same, computed here: later sums are not folded into it."""
        return Index.of(self.value)

    def __add__(self, other: Index | int) -> Index:
        other = Index.of(other)
        terms = {value: self.terms.get(value, 0) + other.terms.get(value, 0) for value in {**self.terms, **other.terms}}
        return Index(terms, self.number + other.number)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Index:
        return Index({value: each * factor for value, each in self.terms.items()}, self.number * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: Index | int) -> Index:
        """Divides divisible terms now, and the rest at run time."""
        if isinstance(divisor, Index):
            return _binary(arith.DivUIOp, self, divisor)
        whole, rest = self._split(divisor)
        return whole + (rest.number // divisor if not rest.terms else _binary(arith.DivUIOp, rest, divisor))

    def __mod__(self, divisor: Index | int) -> Index:
        if isinstance(divisor, Index):
            return _binary(arith.RemUIOp, self, divisor)
        _, rest = self._split(divisor)
        return Index.of(rest.number % divisor) if not rest.terms else _binary(arith.RemUIOp, rest, divisor)

    def __xor__(self, other: Index) -> Index:
        return _binary(arith.XOrIOp, self, other)

    __lt__, __ge__, is_value = map(
        _compared, (arith.CmpIPredicate.ult, arith.CmpIPredicate.uge, arith.CmpIPredicate.eq)
    )

    def times(self, other: Index) -> Index:
        """Returns the product of two values that are known only at run time."""
        return _binary(arith.MulIOp, self, other)

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """Returns the quotient of divisible terms, and the rest."""
        whole = {value: factor // divisor for value, factor in self.terms.items() if factor % divisor == 0}
        rest = {value: factor for value, factor in self.terms.items() if factor % divisor}
        quotient, remainder = divmod(self.number, divisor)
        return Index(whole, quotient), Index(rest, remainder)


def _binary(op: Callable[..., ir.OpView], left: Index, right: Index | int) -> Index:
    return Index.of(op(left.value, Index.of(right).value).result)


def row_major(place: Iterable[Index | ir.Value], sizes: Iterable[int]) -> Index:
    """Returns the number of an element by its place in a tensor, of which only the first size may be dynamic."""
    number = Index.of(0)
    for each, size in zip(place, sizes, strict=True):
        number = number * size + (0 if size == 1 else Index.of(each))
    return number


def select(condition: ir.Value, yes: Index | ir.Value | int, no: Index | ir.Value | int) -> Index:
    return Index.of(arith.SelectOp(condition, Index.of(yes).value, Index.of(no).value).result)


def least(one: Index, other: Index) -> Index:
    return select(one < other, one, other)


def most(one: Index, other: Index) -> Index:
    return select(one < other, other, one)


def unsigned(value: ir.Value) -> Index:
    """Returns an unsigned i32, on which LLVM computes with 32 bits."""
    return Index.of(arith.IndexCastUIOp(ir.IndexType.get(), value).result)


def all_of(conditions: Iterable[ir.Value | None]) -> ir.Value | None:
    """Returns whether all conditions that there are hold; None of none."""
    found = [each for each in conditions if each is not None]
    return reduce(both, found) if found else None


def assume(value: Index, low: int, high: int = _MOST) -> Index:
    """Returns the value, assumed to be between two numbers, both included."""
    return Index.of(assumptions.assume(value.value, Range(low, high)))


def to_i32(value: Index) -> ir.Value:
    return arith.IndexCastOp(i32_type(), value.value).result


def i32_type() -> ir.Type:
    return ir.IntegerType.get_signless(32)
