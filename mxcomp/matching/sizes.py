"""What a dynamic size of a tensor is made of: a size of an argument, times and divided by numbers.

%s = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x4x32xf32> into tensor<?x32xf32>
%e = tensor.empty(dim %s, 0)   →   4 · dimension 0 of argument 0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import reassociation


@dataclass(frozen=True)
class Size:
    """`factor` times what `value` is: dimension `dim` of it if it is a tensor; the factor alone without a value."""

    value: ir.Value | None
    dim: int = 0
    factor: Fraction = Fraction(1)

    def __mul__(self, factor: Fraction | int) -> Size:
        return Size(self.value, self.dim, self.factor * factor)

    @property
    def whole(self) -> Size:
        """Without the factor."""
        return Size(self.value, self.dim)

    def build(self) -> ir.Value:
        """The value, without the factor, as an index at the insertion point."""
        assert self.value is not None
        return build.dim(self.value, self.dim) if _is_tensor(self.value) else self.value

    def __str__(self) -> str:
        if self.value is None:
            return str(self.factor)
        factor = "" if self.factor == 1 else f"{self.factor} * "
        op, dim = graph.producer(self.value), self.dim
        argument = self.value
        if op is not None and op.name == _OF_VIEW:
            argument, dim = op.operands[0], ir.IntegerAttr(op.attributes["index"]).value
        if not isinstance(argument, ir.BlockArgument):
            return f"{factor}a size computed at {graph.location_text(self.value.location)}"
        number = ir.BlockArgument(argument).arg_number
        of_dim = "" if isinstance(argument.type, ir.IndexType) else f"dimension {dim} of "
        return f"{factor}{of_dim}argument {number}"

    @property
    def is_known(self) -> bool:
        """Whether it is a number, a size of an argument of the function, or an index that is computed."""
        if self.value is None:
            return True
        owner = self.value.owner
        if isinstance(owner, ir.Block):
            return owner.owner.operation.name in FUNCTIONS
        return not _is_tensor(self.value)


FUNCTIONS = ("util.func", "func.func")
_OF_VIEW = "hal.buffer_view.dim"


class Sizes:
    """Sizes of tensors' dimensions, each found once: asked for producers first, none is far away."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Value, int], Size] = {}

    def of(self, value: ir.Value, dim: int) -> Size:
        """The size of a tensor's dimension."""
        if (size := build.static_sizes(value)[dim]) is not None:
            return Size(None, factor=Fraction(size))
        if (value, dim) not in self._known:
            op = graph.producer(value)
            found = None if op is None else self._behind(op, value, dim)
            self._known[value, dim] = found or Size(value, dim)
        return self._known[value, dim]

    def of_index(self, value: ir.Value) -> Size:
        """What an index is."""
        op, number = graph.producer(value), graph.number(value)
        if number is not None:
            return Size(None, factor=Fraction(number))
        if op is None:
            return Size(value)
        if op.name == "tensor.dim" and (at := graph.number(op.operands[1])) is not None:
            return self.of(op.operands[0], at)
        if op.name in _SAME_INDEX:
            return self.of_index(op.operands[0])
        if op.name == "arith.muli":
            one, other = map(self.of_index, op.operands)
            if None in (one.value, other.value):
                return one * other.factor if other.value is None else other * one.factor
        return Size(value)

    def _behind(self, op: ir.Operation, value: ir.Value, dim: int) -> Size | None:
        """By what an operation is given, or computes it of; None where that is not known."""
        if op.name.startswith(_SAME):
            return self.of(op.operands[0], dim)
        if op.name.startswith("linalg."):
            return self.of(op.operands[len(op.operands) - len(op.results) + ir.OpResult(value).result_number], dim)
        if (first := _GIVEN.get(op.name)) is not None:
            return self._given(op, dim, first)
        if op.name == "iree_tensor_ext.bitcast":
            return self._given(op, dim, len(op.operands) - build.static_sizes(value).count(None))
        if op.name == "tensor.collapse_shape":
            return self._collapsed(op, dim)
        return self._expanded(op, dim) if op.name == "tensor.expand_shape" else None

    def _given(self, op: ir.Operation, dim: int, first: int) -> Size:
        dynamic = [i for i, size in enumerate(build.static_sizes(op.results[0])) if size is None]
        return self.of_index(op.operands[first + dynamic.index(dim)])

    def _collapsed(self, op: ir.Operation, dim: int) -> Size | None:
        group = reassociation(op)[dim]
        sizes = build.static_sizes(op.operands[0])
        dynamic = [i for i in group if sizes[i] is None]
        if len(dynamic) != 1:
            return None
        return self.of(op.operands[0], dynamic[0]) * math.prod(sizes[i] or 1 for i in group)

    def _expanded(self, op: ir.Operation, dim: int) -> Size:
        """A part of the source's size; what it is given, where the other parts are not numbers."""
        whole, group = next((i, dims) for i, dims in enumerate(reassociation(op)) if dim in dims)
        sizes = build.static_sizes(op.results[0])
        others = [sizes[i] for i in group if i != dim]
        if None in others:
            return self._given(op, dim, first=1)
        return self.of(op.operands[0], whole) * Fraction(1, math.prod(size or 1 for size in others))


_SAME = ("arith.", "math.", "tensor.cast", "util.optimization_barrier")
"""Operations whose result has the sizes of their first operand."""
_GIVEN = {"tensor.empty": 0, "flow.tensor.tie_shape": 1, "hal.tensor.import": 1}
"""Operations that are given their result's dynamic sizes, from which operand on."""
_SAME_INDEX = ("arith.index_cast", "arith.index_castui", "util.assume.int")


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)
