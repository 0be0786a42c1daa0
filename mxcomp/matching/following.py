"""Follows elements of tensors back to what they are computed from, through views, bodies, and reductions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from iree.compiler import ir

from mxcomp.matching.elements import RESHAPES, ZERO, Element, Index, UntraceableError, apply_map, loop_subscripts
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, is_elementwise, loop_sizes, yielded

KEY = "l"
"""The axis of the elements of a row that is reduced: of attention's scores, the key."""
DEEPEST = 60
"""The largest number of operations on tensors that are followed back one after the other."""

_T = TypeVar("_T")
"""The type of what is known of a scalar."""


@dataclass(frozen=True)
class Reduction:
    """A reduction by an operation of this name of a scalar in its body, at these loops, some of which are `reduced`."""

    name: str
    scalar: ir.Value
    loops: list[Index]
    reduced: list[int]


class Following(Generic[_T]):
    """Follows elements, each once however often it is used. Of scalars None is known where a method says nothing."""

    def __init__(self) -> None:
        self._known: dict[Element, _T | None] = {}
        self._depth = 0

    def element(self, value: ir.Value, indices: Sequence[Index]) -> _T | None:
        """Returns what is known of `value[indices]`, or of a value that is no tensor."""
        if not build.is_tensor(value):
            return self.outside(value)
        place = self.place(value, indices)
        if place not in self._known:
            self._depth += 1
            found = self._computed(place)
            self._depth -= 1
            self._known[place] = self.of_element(place, found)
        return self._known[place]

    def place(self, value: ir.Value, indices: Sequence[Index]) -> Element:
        """Returns an element by subscripts that are alike where they are equal."""
        return Element(value, tuple(ZERO if not each.axis or each.extent == 1 else each for each in indices))

    def of_element(self, place: Element, found: _T | None) -> _T | None:
        """Returns what is known of an element, from what is known of how it is computed."""
        return found

    def outside(self, value: ir.Value) -> _T | None:
        """Returns what is known of a scalar from outside of a body."""
        raise NotImplementedError

    def scalar(self, op: ir.Operation, operands: Sequence[_T | None], loops: Sequence[Index]) -> _T | None:
        """Returns what is known of the result of an operation in a body, at these loops."""
        raise NotImplementedError

    def other(self, op: ir.Operation, place: Element) -> _T | None:
        """Returns what is known of an element that is neither moved nor computed from single elements."""
        raise NotImplementedError

    def _computed(self, place: Element) -> _T | None:
        op = graph.producer(place.value)
        if op is None or self._depth > DEEPEST:
            return None
        try:
            if op.name in RESHAPES:
                return self.element(op.operands[0], RESHAPES[op.name](op, place.indices))
            if is_elementwise(op):
                return self.body(op, yielded(op), loop_subscripts(op, place.indices), {})
            return self.other(op, place)
        except UntraceableError:
            return None

    def body(
        self, op: ir.Operation, wanted: ir.Value, loops: Sequence[Index], known: dict[ir.Value, _T | None]
    ) -> _T | None:
        """Returns what is known of a scalar of the body of an operation, from what is known already."""
        block = op.regions[0].blocks[0]
        for argument, operand, each in zip(block.arguments, inputs(op), indexing_maps(op) or [], strict=False):
            if argument not in known:
                known[argument] = self.element(operand, apply_map(each, loops))
        for inner in (each.operation for each in block.operations):
            if len(inner.results) == 1 and inner.results[0] not in known:
                operands = [known[value] if value in known else self.outside(value) for value in inner.operands]
                known[inner.results[0]] = self.scalar(inner, operands, loops)
        return known[wanted] if wanted in known else self.outside(wanted)


def reduction(op: ir.Operation, place: Element) -> Reduction | None:
    """Returns the reduction along rows that computes an element; None where another operation does."""
    maps = indexing_maps(op)
    if maps is None or len(inputs(op)) != 1 or place.value != op.results[0] or not maps[0].is_permutation:
        return None
    combining, so_far = graph.producer(yielded(op)), op.regions[0].blocks[0].arguments[1]
    others = [] if combining is None else [each for each in combining.operands if each != so_far]
    if combining is None or len(others) != 1 or any(each.axis == KEY for each in place.indices):
        return None
    sizes, kept, loops = loop_sizes(op, maps), linalg_ops.loops(maps[1]), [ZERO] * maps[0].n_dims
    for expression, index in zip(maps[1].results, place.indices, strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            loops[expression.position] = index
    reduced = [loop for loop, size in sorted(sizes.items()) if loop not in kept and size != 1]
    for number, loop in enumerate(reduced):
        loops[loop] = Index(f"{KEY}{number or ''}", 1, sizes[loop])
    return Reduction(combining.name, others[0], loops, reduced)
