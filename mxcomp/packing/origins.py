"""Finds the bits of a stored tensor that an operand consists of, by following data movement back.

    %all = util.global.load @w : tensor<4x300x16xi8>
    %bytes = tensor.extract_slice %all[2, 0, 0] [1, 100, 16] [1, 3, 1] : tensor<4x300x16xi8> to tensor<100x16xi8>
    %b = iree_tensor_ext.bitcast %bytes : tensor<100x16xi8> -> tensor<100x1x32xf4E2M1FN>

Row n of %b begins at bit 2 · 300 · 128 + n · 3 · 128 of @w. Each axis of an operand, (batch,) rows and the bits of a
row, has a table of positions, which are added. Slices, reshapes, bitcasts, transposes and gathers
(`mxcomp.matching.storage`) transform the tables, so that no algebra on subscripts is needed. A `View` is a compact form
of the final tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from iree.compiler import ir
from numpy.typing import NDArray

from mxcomp.matching.operands import SCALE_TYPE
from mxcomp.matching.storage import BITCASTS, source_and_map
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import indexing_maps, is_elementwise, yielded
from mxcomp.mlir.variables import LOAD
from mxcomp.weights.manifest import element_bits
from mxcomp.weights.views import View, steps_of


class NotStoredError(Exception):
    """An operand is not stored as it is, or it is not known where; the message says why."""


@dataclass(frozen=True)
class Bits:
    """The positions of an operand's bits in a tensor: `start` plus one entry, in bits, from the table of each axis."""

    start: int
    tables: tuple[NDArray[np.int64], ...]

    def through(self, sizes: Sequence[int], steps: Sequence[int], start: int) -> Bits:
        """Returns the same bits by subscripts of a reshaped tensor of `sizes`, `start` plus a step for each. Raises
        NotStoredError.

        Subscripts of different axes can only be added where none of them carries into the next; the start belongs to
        the axis that it can be added to. What stays together on the way is one subscript, in which they may.
        """
        sizes, steps = _joined(sizes, steps)
        total = self.start + sum(int(table.min()) for table in self.tables)
        for first in range(len(self.tables)):
            parts = [table - table.min() + total * (axis == first) for axis, table in enumerate(self.tables)]
            subscripts = [np.unravel_index(part, sizes) for part in parts]
            last = [sum(int(found[i].max()) for found in subscripts) for i in range(len(sizes))]
            if all(index < size for index, size in zip(last, sizes, strict=True)):
                return Bits(start, tuple(_weighted(found, steps) for found in subscripts))
        raise NotStoredError("a part of it ends within a row of another part")

    def view(self, batch: bool) -> View:
        """Returns a compact form; the first of the tables is of the batch, if there is one. Raises NotStoredError."""
        axes = [steps_of(table - table[0]) for table in self.tables]
        offset = self.start + sum(int(table[0]) for table in self.tables)
        if None in axes:
            raise NotStoredError("its elements lie at no regular distances")
        found = [steps for steps in axes if steps is not None]
        return View(offset, *([] if batch else [()]), *found)


def root(operand: ir.Value) -> ir.Operation | None:
    """Returns the load of a global that is the only source of an operand, however it is transformed, or None."""
    value: ir.Value | None = operand
    while value is not None and (op := graph.producer(value)) is not None:
        if op.name == LOAD:
            return op
        inside = (each for inner in graph.walk(op) for each in inner.operands)
        read = [each for each in (*op.operands, *inside) if isinstance(each.type, ir.RankedTensorType)]
        sources = set(read) - {each for each in read if _holds_nothing(each)}
        value = sources.pop() if len(sources) == 1 else None
    return None


def _holds_nothing(value: ir.Value) -> bool:
    return graph.producer(value, "tensor.empty", "linalg.fill", "arith.constant") is not None


def view(operand: ir.Value) -> View:
    """Returns the view of an operand in canonical form, elements or scales, in the global that is its root.

    Raises NotStoredError where it is not a static part of it.
    """
    value, bits = _start(operand)
    while (op := graph.producer(value)) is not None and op.name != LOAD:
        move = _MOVES.get(op.name, _linalg)
        value, bits = move(op, bits)
    return bits.view(batch=len(bits.tables) == 3)


def _start(operand: ir.Value) -> tuple[ir.Value, Bits]:
    """Returns the bits of an operand in itself, or, if it is a gather, in its source."""
    source, access_map = source_and_map(operand)
    counts, width = _static(operand), _width(operand)
    if str(ir.RankedTensorType(operand.type).element_type) != SCALE_TYPE:
        counts[-2:] = [counts[-2] * counts[-1]]
    axes = np.ix_(*(np.arange(count) for count in counts))
    subscripts = [_evaluate(expr, axes) for expr in access_map.results]
    start, tables = 0, [np.zeros(count, np.int64) for count in counts]
    for subscript, step in zip(subscripts, _steps(_static(source), width), strict=True):
        along = [axis for axis, size in enumerate(subscript.shape) if size > 1]
        if len(along) > 1:
            raise NotStoredError("one subscript of it depends on rows and K")
        if along:
            tables[along[0]] += subscript.reshape(-1) * step
        else:
            start += int(subscript.reshape(-1)[0]) * step
    *outer, row = tables
    return source, Bits(start, (*outer, (row[:, None] + np.arange(width)).reshape(-1)))


_ARITHMETIC = {
    ir.AffineAddExpr: np.add,
    ir.AffineMulExpr: np.multiply,
    ir.AffineFloorDivExpr: np.floor_divide,
    ir.AffineModExpr: np.remainder,
}


def _evaluate(expr: ir.AffineExpr, dims: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Evaluates a subscript on an open grid; its size is 1 along axes that it does not depend on."""
    match expr:
        case ir.AffineDimExpr():
            return dims[expr.position]
        case ir.AffineConstantExpr():
            return np.array([expr.value])
    return _ARITHMETIC[type(expr)](_evaluate(expr.lhs, dims), _evaluate(expr.rhs, dims))


def _same(op: ir.Operation, bits: Bits) -> tuple[ir.Value, Bits]:
    """Follows an operation that keeps the bytes and changes shape or type."""
    return op.operands[0], bits


def _slice(op: ir.Operation, bits: Bits) -> tuple[ir.Value, Bits]:
    """Follows a static slice; a result of lower rank only lacks sizes of 1."""
    offsets, sizes, strides = graph.slicing(op)
    if build.DYNAMIC in (*offsets, *sizes, *strides):
        raise NotStoredError("a slice of it is taken at a place that only the running program knows")
    source = op.operands[0]
    width = _width(source)
    whole = _steps(_static(source), width)
    steps = [stride * step for stride, step in zip(strides, whole, strict=True)]
    start = sum(offset * step for offset, step in zip(offsets, whole, strict=True))
    return source, bits.through([*sizes, width], [*steps, 1], start)


def _linalg(op: ir.Operation, bits: Bits) -> tuple[ir.Value, Bits]:
    """Follows a transpose, broadcast or copy. Raises NotStoredError for everything else."""
    computed = NotStoredError(f"it is computed in the program, by {op.name}")
    element = yielded(op) if is_elementwise(op) else None
    if not isinstance(element, ir.BlockArgument) or ir.BlockArgument(element).arg_number >= len(op.operands) - 1:
        raise computed
    number = ir.BlockArgument(element).arg_number
    source, *maps = op.operands[number], *(indexing_maps(op) or [])
    steps = [0] * maps[-1].n_dims
    for expr, step in zip(maps[number].results, _steps(_static(source), _width(source)), strict=True):
        if not isinstance(expr, ir.AffineDimExpr):
            raise computed
        steps[expr.position] += step
    order = [steps[expr.position] for expr in maps[-1].results]
    return source, bits.through([*_static(op.results[0]), _width(source)], [*order, 1], 0)


_RESHAPES = (
    "tensor.collapse_shape",
    "tensor.expand_shape",
    "tensor.cast",
    "flow.tensor.reshape",
    "arith.bitcast",
    "util.optimization_barrier",
)
_MOVES: dict[str, Callable[[ir.Operation, Bits], tuple[ir.Value, Bits]]] = {
    **dict.fromkeys((*BITCASTS, *_RESHAPES), _same),
    "tensor.extract_slice": _slice,
}


def _width(value: ir.Value) -> int:
    return element_bits(str(ir.RankedTensorType(value.type).element_type))


def _static(value: ir.Value) -> list[int]:
    """Returns the sizes of a tensor. Raises NotStoredError where they are dynamic."""
    sizes = static_sizes(value)
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        raise NotStoredError("only the running program knows its size")
    return known


def _steps(sizes: Sequence[int], width: int) -> list[int]:
    """Returns the strides of dimensions, in bits."""
    return [math.prod(sizes[i + 1 :]) * width for i in range(len(sizes))]


def _joined(sizes: Sequence[int], steps: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns contiguous dimensions joined as one."""
    joined: list[tuple[int, int]] = []
    for size, step in zip(sizes, steps, strict=True):
        outer = joined.pop() if joined and joined[-1][1] == size * step else None
        joined.append((size, step) if outer is None else (outer[0] * size, step))
    return [size for size, _ in joined], [step for _, step in joined]


def _weighted(subscripts: Sequence[NDArray[np.int64]], steps: Sequence[int]) -> NDArray[np.int64]:
    return np.sum([part * step for part, step in zip(subscripts, steps, strict=True)], axis=0)
