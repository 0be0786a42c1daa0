"""One size: a number times sizes of tensors, or indices, that are not followed any further."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from iree.compiler import ir

from mxcomp.mlir import build, graph


@dataclass(frozen=True)
class Root:
    """Dimension `dim` of a tensor, or an index, that is not followed any further."""

    value: ir.Value
    dim: int = 0

    def build(self) -> ir.Value:
        """Returns the index at the insertion point."""
        return build.dim(self.value, self.dim) if build.is_tensor(self.value) else build.as_index(self.value)

    def __str__(self) -> str:
        op, dim = graph.producer(self.value), self.dim
        argument = self.value
        if op is not None and op.name == _OF_VIEW:
            argument, dim = op.operands[0], ir.IntegerAttr(op.attributes["index"]).value
        function = argument.owner.owner.operation if isinstance(argument, ir.BlockArgument) else None
        if function is None or function.name not in FUNCTIONS:
            return f"a size computed at {graph.location_text(self.value.location)}"
        of_dim = "" if isinstance(argument.type, (ir.IndexType, ir.IntegerType)) else f"dimension {dim} of "
        of_function = "" if graph.is_public(function) else f" of @{graph.symbol_name(function)}"
        return f"{of_dim}argument {ir.BlockArgument(argument).arg_number}{of_function}"

    @property
    def is_known(self) -> bool:
        """Whether it is a size of a function's or a loop's argument or result, or an index that is computed."""
        return owner(self.value).name.startswith((*FUNCTIONS, "scf.")) or not build.is_tensor(self.value)


_OF_VIEW = "hal.buffer_view.dim"
OF_DIMENSION = ("tensor.dim", _OF_VIEW)
FUNCTIONS = ("util.func", "func.func")


@dataclass(frozen=True, eq=False)
class Size:
    """`factor` times the product of `roots`, in any order."""

    factor: Fraction = Fraction(1)
    roots: tuple[Root, ...] = ()

    def __mul__(self, other: Size | Fraction | int) -> Size:
        if isinstance(other, Size):
            return Size(self.factor * other.factor, self.roots + other.roots)
        return Size(self.factor * other, self.roots)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> object:
        return self.factor, frozenset(Counter(self.roots).items())

    def __str__(self) -> str:
        factors = [] if self.factor == 1 and self.roots else [str(self.factor)]
        return " * ".join([*factors, *map(str, self.roots)])

    @property
    def number(self) -> int | None:
        """Returns what it is, if it depends on no root."""
        return None if self.roots else int(self.factor)

    @property
    def is_known(self) -> bool:
        """Whether all of its roots are known."""
        return all(root.is_known for root in self.roots)

    @property
    def producers(self) -> list[ir.Operation]:
        """Returns the operations that compute its roots."""
        return [op for root in self.roots if (op := graph.producer(root.value)) is not None]

    def over(self, other: Size) -> Size:
        """Returns this size without the common factors of both; its factor is an integer."""
        left = Counter(self.roots) - Counter(other.roots)
        return Size(Fraction((self.factor / other.factor).numerator), tuple(left.elements()))

    def by(self, other: Size) -> Size | None:
        """Returns this size divided by another one; None where that is no product of sizes and an integer."""
        is_whole = other.factor and (self.factor / other.factor).denominator == 1
        return self.over(other) if is_whole and Counter(other.roots) <= Counter(self.roots) else None

    def build(self) -> ir.Value:
        """Returns the index at the insertion point, of a size with an integer factor."""
        values, factor = [root.build() for root in self.roots], int(self.factor)
        return build.times(build.product(values), factor) if values else build.constant_index(factor)


def owner(value: ir.Value) -> ir.Operation:
    """Returns the operation that computes a value, or that has it as an argument of its region."""
    owner = value.owner
    return owner.owner.operation if isinstance(owner, ir.Block) else owner.operation
