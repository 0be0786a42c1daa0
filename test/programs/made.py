"""Programs that are written by hand with what random ones are made of, for tests of one thing each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mx_operands
import numpy as np
import products
import quantisers
from drawing import Dice, Drawing, Module
from iree.compiler import ir
from mx_operands import Operand
from nodes import Node, unpacked
from program import Program
from themes import Function, returned

FP4 = "f4E2M1FN"
Make = Callable[[Drawing], Sequence[Node]]


class Plain(Dice):
    """Numbers at random, everything else as plain as it can be: the first of each table, but for what is `chosen`."""

    def __init__(self, call: int = 0, chosen: Mapping[str, str] | None = None) -> None:
        super().__init__(0, call, same=False)
        self._chosen = chosen or {}

    def pick(self, table):  # type: ignore[no-untyped-def]
        return next(iter(table))

    def noted(self, what: str, table: Mapping[str, float]) -> str:
        return self._chosen.get(what) or super().noted(what, table)

    def chance(self, probability: float, feature: str = "") -> bool:
        return bool(feature) and feature in self._chosen


def program(
    make: Callable[[Drawing], Sequence[Node]],
    data_tiling: bool = True,
    ukernels: str = "fastest",
    chosen: Mapping[str, str] | None = None,
    rounds: int = 1,
    way: str = "plain",
    place: str = "argument",
) -> Program:
    """The program that returns what `make` builds, of arguments; called so many times, with other numbers."""
    calls, state = [], dict[str, np.ndarray]()
    for call in range(rounds):
        with ir.Context(), ir.Location.unknown():
            module = Module(ir.Module.create(), Plain(call, chosen), state=state)
            drawing = Drawing(module, "main", {place: 1.0})
            with ir.InsertionPoint(drawing.block):
                results = list(make(drawing))
                drawing.finish([returned(node) for node in results])
            module.ir.operation.verify()
            text, state = str(module.ir), module.state
        calls.append([Function("main", drawing.inputs, results)])
    first, *later = calls
    return Program(
        0, text, first, frozenset(), way, ukernels, data_tiling, "always", {}, module.products, later=tuple(later)
    )


def stored(drawing: Drawing, rows: str, height: int, blocks: int, kind: str = FP4) -> Operand:
    """Elements and scales of so many rows with the letter `rows`, for sums that are exact."""
    return mx_operands.draw(drawing, f"{rows}ki", {rows: height, "k": blocks}, kind, tame=True)


def multiplied(drawing: Drawing, lhs: Operand, rhs: Operand) -> Node:
    """Their product [M, N]."""
    return products.draw(drawing, lhs, rhs, "mn")


def result(drawing: Drawing, m: int, n: int, blocks: int = 1, kinds: tuple[str, str] = (FP4, FP4)) -> Node:
    """The product of stored operands, [m, n]."""
    return multiplied(drawing, stored(drawing, "m", m, blocks, kinds[0]), stored(drawing, "n", n, blocks, kinds[1]))


def quantised(drawing: Drawing, node: Node, rows: str = "m", kind: str = FP4) -> Operand:
    """[rows, K] quantised in the program."""
    return quantisers.draw(drawing, node, rows, kind)


def again(drawing: Drawing, node: Node, n: int = 128, kind: str = FP4) -> Node:
    """[M, K] quantised and multiplied with stored elements."""
    return multiplied(drawing, quantised(drawing, node, "m", kind), stored(drawing, "n", n, node.shape[1] // 32))


def made_of_bits(data: np.ndarray, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    """Codes from bytes without gaps."""
    return unpacked(data, bits).reshape(shape)


def floats(drawing: Drawing, *shape: int, place: str = "argument") -> Node:
    """Small numbers of few digits."""
    data = drawing.dice.numbers.integers(-8, 9, shape).astype(np.float32)
    return Node(drawing.value(data, "f32", place=place), data.astype(np.float64), "f32")
