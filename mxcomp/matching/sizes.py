"""Traces dynamic sizes of tensors to sizes of arguments, multiplied, and times or divided by a number.

%s = tensor.collapse_shape %x [[0, 1], [2]] : tensor<?x4x32xf32> into tensor<?x32xf32>
%e = tensor.empty(dim %s, 0)   →   4 * dimension 0 of argument 0

Bounds of slices are sizes plus numbers, which can be compared, as no size is negative: min(size + 1, 1) is 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from iree.compiler import ir

from mxcomp.matching import conditions
from mxcomp.matching.conditions import Sum, Value
from mxcomp.matching.size import FUNCTIONS, OF_DIMENSION, Root, Size, owner
from mxcomp.mlir import build, graph
from mxcomp.mlir.dispatches import DISPATCH
from mxcomp.mlir.linalg_ops import reassociation


class Sizes:
    """The sizes of tensors' dimensions, each found once; producers are asked first, which keeps recursion shallow."""

    def __init__(self) -> None:
        self._known: dict[tuple[ir.Value, int], Size] = {}
        self._scalars: dict[ir.Value, Value | None] = {}

    def of(self, value: ir.Value, dim: int) -> Size:
        """Returns the size of a tensor's dimension."""
        if (size := build.static_sizes(value)[dim]) is not None:
            return Size(Fraction(size))
        if (value, dim) not in self._known:
            op = graph.producer(value)
            found = self._of_argument(value, dim) if op is None else self._behind(op, value, dim)
            self._known[value, dim] = found or Size(roots=(Root(value, dim),))
        return self._known[value, dim]

    def product(self, value: ir.Value, dims: Iterable[int]) -> Size:
        """Returns the number of elements of a tensor along dimensions."""
        return math.prod((self.of(value, dim) for dim in dims), start=Size())

    def of_index(self, value: ir.Value) -> Size:
        """Returns the size that an index, or an integer, is."""
        op, number = graph.producer(value), graph.number(value)
        if number is not None:
            return Size(Fraction(number))
        if op is not None and op.name == "tensor.dim" and (at := graph.number(op.operands[1])) is not None:
            return self.of(op.operands[0], at)
        if op is not None and op.name in _SAME_INDEX:
            return self.of_index(op.operands[0])
        if op is not None and op.name == "arith.muli":
            return self.of_index(op.operands[0]) * self.of_index(op.operands[1])
        if op is not None and op.name in _QUOTIENTS:
            found = self.of_index(op.operands[0]).by(self.of_index(op.operands[1]))
            return found or Size(roots=(Root(value),))
        total = None if op is None or not op.name.startswith(_ARITHMETIC) else self.scalar(value)
        return (total.size if isinstance(total, Sum) else None) or Size(roots=(Root(value),))

    def offsets(self, op: ir.Operation) -> list[int] | None:
        """Returns the offsets of a slice without steps; None where one depends on sizes, or on data."""
        static, _, steps = graph.slicing(op)
        numbers = build.mixed(static, op.opview.offsets)
        found = [Sum(each) if isinstance(each, int) else self.scalar(each) for each in numbers]
        known = [each.number for each in found if isinstance(each, Sum) and each == Sum(each.number)]
        return known if len(known) == len(static) and set(steps) <= {1} else None

    def scalar(self, value: ir.Value) -> Value | None:
        """Returns the sum, number or truth value that arithmetic on sizes and constants gives; None for others."""
        if value not in self._scalars:
            self._scalars[value] = self._calculated(value)
        return self._scalars[value]

    def _calculated(self, value: ir.Value) -> Value | None:
        op = graph.producer(value)
        if op is not None and op.name in OF_DIMENSION:
            return Sum.of(self.of_index(value))
        if op is None or not op.name.startswith(_ARITHMETIC) or build.is_tensor(value):
            return None
        return conditions.of_scalars(op, [self.scalar(each) for each in op.operands])

    def given(self, op: ir.Operation, dim: int) -> Size | None:
        """Returns the size of a result's dimension that is an operand of its operation, or None."""
        if op.name == "tensor.reshape":
            made = graph.producer(op.operands[1])
            is_listed = made is not None and made.name == "tensor.from_elements"
            return self.of_index(made.operands[dim]) if made is not None and is_listed else None
        sizes = build.static_sizes(op.results[0])
        if op.name == "tensor.extract_slice" and len(sizes) == len(op.opview.static_sizes):
            return self.of_index(op.opview.sizes[sizes[:dim].count(None)])
        first = _GIVEN.get(op.name)
        if op.name in ("iree_tensor_ext.bitcast", "flow.tensor.bitcast"):
            first = len(op.operands) - sizes.count(None)
        return None if first is None else self.of_index(op.operands[first + sizes[:dim].count(None)])

    def _behind(self, op: ir.Operation, value: ir.Value, dim: int) -> Size | None:
        """Returns a size by how an operation computes it, or None where that is not known."""
        if op.name.startswith(_SAME):
            return self.of(op.operands[0] if build.is_tensor(op.operands[0]) else op.operands[1], dim)
        if op.name.startswith("linalg."):
            return self.of(op.operands[len(op.operands) - len(op.results) + ir.OpResult(value).result_number], dim)
        if op.name == "tensor.collapse_shape":
            return self.product(op.operands[0], reassociation(op)[dim])
        if op.name == "tensor.concat":
            return self.of(op.operands[0], dim) if dim != concatenated(op) else None
        if op.name == DISPATCH:
            dynamic = [
                (each, i) for each in op.results for i, size in enumerate(build.static_sizes(each)) if size is None
            ]
            return self.of_index(op.operands[len(op.operands) - len(dynamic) + dynamic.index((value, dim))])
        if op.name in _INSIDE:
            return _INSIDE[op.name](self, op, ir.OpResult(value).result_number, dim)
        return self.given(op, dim)

    def _of_argument(self, value: ir.Value, dim: int) -> Size | None:
        """Returns the size of a loop's initial value, if each iteration keeps it."""
        argument = ir.BlockArgument(value)
        loop, carried = argument.owner.owner.operation, argument.arg_number - 1
        if loop.name != "scf.for":
            return None
        root = Root(value, dim)
        self._known[value, dim] = same = Size(roots=(root,))
        if self._yielded(argument.owner, carried, dim) != same:
            return same
        self._known = {key: size for key, size in self._known.items() if root not in size.roots}
        return self.of(loop.operands[_BOUNDS + carried], dim)

    def _of_region(self, op: ir.Operation, number: int, dim: int) -> Size | None:
        """Returns the size of what all branches, or a loop, yield. None where they differ, or depend on values
        inside."""
        if op.name == "scf.for":
            first, *others = [self.of(op.regions[0].blocks[0].arguments[1 + number], dim)]
        else:
            first, *others = [self._yielded(region.blocks[0], number, dim) for region in op.regions]
        is_outside = not any(op in graph.around(owner(root.value)) for root in first.roots)
        return first if is_outside and all(other == first for other in others) else None

    def _of_call(self, op: ir.Operation, number: int, dim: int) -> Size | None:
        """Returns the size that a function computes from those of its arguments."""
        name = graph.callee(op)
        top = (view.operation for view in graph.module_block(graph.root(op)).operations)
        callee = next((each for each in top if graph.symbol_name(each) == name), None)
        if callee is None or callee.name not in FUNCTIONS or len(callee.regions[0].blocks) != 1:
            return None
        self._known[op.results[number], dim] = Size(roots=(Root(op.results[number], dim),))  # for recursive functions
        size = self._yielded(callee.regions[0].blocks[0], number, dim)
        found = Size(size.factor)
        for root in size.roots:
            if not isinstance(root.value, ir.BlockArgument) or owner(root.value) != callee:
                return None
            given = op.operands[ir.BlockArgument(root.value).arg_number]
            found *= self.of(given, root.dim) if build.is_tensor(given) else self.of_index(given)
        return found

    def _yielded(self, block: ir.Block, number: int, dim: int) -> Size:
        """Returns the size of what a block yields; the sizes of all operations in front are found first."""
        for result in (result for view in block.operations for result in view.operation.results):
            for at in range(ir.RankedTensorType(result.type).rank if build.is_tensor(result) else 0):
                self.of(result, at)
        return self.of(list(block.operations)[-1].operands[number], dim)


_BOUNDS = 3
"""The number of operands of a loop in front of its initial values: from, to, step."""
_SAME = ("arith.", "math.", "tensor.cast", "tensor.bitcast", "util.optimization_barrier")
"""Operations whose result has the sizes of their first operand that is a tensor."""
_GIVEN = {"tensor.empty": 0, "tensor.expand_shape": 1, "flow.tensor.tie_shape": 1, "hal.tensor.import": 1}
"""Operations whose operands contain their result's dynamic sizes, with the index of the first one."""
_ARITHMETIC = ("arith.", "affine.apply")
_QUOTIENTS = ("arith.divui", "arith.divsi", "arith.floordivsi")
_SAME_INDEX = ("arith.index_cast", "arith.index_castui", "util.assume.int")


_INSIDE = {
    "scf.if": Sizes._of_region, "scf.for": Sizes._of_region, "func.call": Sizes._of_call, "util.call": Sizes._of_call,
}  # fmt: skip
"""Functions that find sizes of values computed in a region, or a function."""


def concatenated(op: ir.Operation) -> int:
    """Returns the dimension along which tensor.concat joins its operands."""
    return int(ir.IntegerAttr(op.attributes["dim"]).value)


def in_columns(value: ir.Value) -> list[ir.Value]:
    """Returns what a tensor is a concatenation of, along its last dimension; nothing if it is none."""
    last = len(build.static_sizes(value)) - 1
    if (op := graph.producer(value, "tensor.concat")) is not None:
        return list(op.operands) if concatenated(op) == last else []
    parts: list[ir.Value] = []
    *outer, end = build.static_sizes(value)
    while end and (op := graph.producer(value, "tensor.insert_slice")) is not None:
        part, value, *_ = op.operands
        *outer_sizes, size = build.static_sizes(part)
        offsets, _, strides = graph.slicing(op)
        end -= size or 0
        if outer_sizes != outer or None in outer_sizes or offsets != [0] * last + [end] or set(strides) != {1}:
            return []
        parts.insert(0, part)
    return parts if end == 0 else []
