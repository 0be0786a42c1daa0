"""Steps that multiply: stored operands, quantised activations and results, static quantisation, batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import mx_operands
import numpy as np
import products
import quantisers
from drawing import Dice, Drawing
from elementwise import BINARY, apply, loops_of, sliced, times, transposed
from mx_operands import KINDS, Operand
from nodes import BLOCK, FLOATS, Node

from mxcomp.mlir import build

SLOW = {"data tiling:off", "ukernels:none"}
"""What leaves many matmuls to kernels that take long to simulate."""

ROWS = {1: 2, 2: 1, 3: 1, 5: 2, 15: 1, 16: 1, 17: 1, 31: 1, 32: 2, 33: 1, 63: 0.5, 64: 1, 65: 1, 66: 0.5, 70: 0.5}
COLUMNS = {1: 1, 2: 1, 4: 1, 15: 1, 16: 1, 17: 1, 32: 3, 33: 1, 40: 1, 64: 3, 65: 0.5, 96: 1, 127: 0.5, 128: 1}
BLOCKS = {1: 4, 2: 3, 3: 1, 4: 2, 5: 0.5, 8: 0.7, 17: 0.2}
DYNAMIC = {"": 12, "m": 2, "n": 0.7, "k": 0.7, "mn": 0.4, "mk": 0.3, "mnk": 0.4}
CALLED = 4
"""How many times as many products later calls may have."""
BASES = {(127, 127): 60, (118, 136): 2, (0, 232): 0.7, (1, 230): 0.3}
"""Least scale codes of both sides: among them code 0, 2^-127, against large ones."""
SOURCES = {"f32": 4, "bf16": 2, "f16": 1.5}
VALUES = {"": 6, "zeros": 1, "wide": 1, "special": 0.7}


@dataclass(frozen=True)
class Scale:
    """Sizes to draw from, and how often some are dynamic."""

    rows: dict[int, float] = field(default_factory=lambda: ROWS)
    columns: dict[int, float] = field(default_factory=lambda: COLUMNS)
    blocks: dict[int, float] = field(default_factory=lambda: BLOCKS)
    dynamic: dict[str, float] = field(default_factory=lambda: DYNAMIC)
    tame: float = 0.3
    products: int = 200_000
    """Of one matmul, at most."""

    def most(self, dice: Dice) -> int:
        return self.products // 8 if dice.features & SLOW else self.products

    def matmul(self, dice: Dice, dynamic: str = "") -> dict[str, int]:
        """Rows, columns and blocks; few where they are dynamic."""
        most = self.most(dice) // (4 if dynamic else 1)
        while True:
            m, n, k = dice.pick(self.rows), dice.pick(self.columns), dice.pick(self.blocks)
            if m * n * k * BLOCK <= most:
                return self.opened(dice, {"m": m, "n": n, "k": k}, dynamic)

    def opened(self, dice: Dice, sizes: dict[str, int], dynamic: str) -> dict[str, int]:
        """Sizes of which these are open; in later calls they are others, so that products do not get far too many."""
        found = dict(sizes)
        for axis in dynamic:
            others = math.prod(size for letter, size in found.items() if letter != axis and letter in "mnkb") * BLOCK
            found[axis] = dice.open(sizes[axis], 8 if axis in "kb" else max(CALLED * self.products // others, 1))
        return found


def stored_product(drawing: Drawing, scale: Scale, kinds: tuple[str, str] = ("", "")) -> Node:
    """Both operands stored; of these types, if they are given."""
    dice = drawing.dice
    dynamic = dice.noted("dynamic", scale.dynamic)
    sizes = scale.matmul(dice, dynamic)
    tame = dice.chance(scale.tame)
    left, right = (127, 127) if tame else dice.pick(BASES)
    if left < 2:
        dice.features.add("scale:0")
        left, right = dice.shuffled([left, right])
    lhs = mx_operands.draw(drawing, "mki", sizes, kinds[0], _only(dynamic, "mk"), left, tame)
    if lhs.elements.static and dice.chance(0.1, "both sides alike"):
        rhs = lhs.renamed({"m": "n"})
    else:
        rhs = mx_operands.draw(drawing, "nki", sizes, kinds[1], _only(dynamic, "nk"), right, tame)
    out = "nm" if dice.chance(0.06, "result transposed") else "mn"
    start = None
    if not set("mn") & set(dynamic) and dice.chance(0.12, "accumulator"):
        start = floats(drawing, tuple(lhs_or_rhs_size(lhs, rhs, axis) for axis in out), "f32", "")
    return products.draw(drawing, lhs, rhs, out, start)


def lhs_or_rhs_size(lhs: Operand, rhs: Operand, axis: str) -> int:
    side = lhs if axis in lhs.axes else rhs
    return side.elements.shape[side.axes.index(axis)]


def _only(letters: str, axes: str) -> str:
    return "".join(letter for letter in letters if letter in axes)


BATCHES = {("bmki", "bnki"): 4, ("bmki", "nki"): 3, ("mki", "bnki"): 1, ("cbmki", "bnki"): 1, ("cbmki", "cbnki"): 1,
           ("bmki", "tnki"): 0.5, ("bki", "bnki"): 1, ("mki", "ki"): 0.5, ("bmki", "bki"): 0.5}  # fmt: skip
"""Axes of both sides: batches of both or of one, and sides without rows."""
BATCH = {1: 2, 2: 3, 3: 1}


def batched_product(drawing: Drawing, scale: Scale) -> Node:
    """An einsum: batches, dimensions of size 1, dimensions of the result in any order."""
    dice, sizes = drawing.dice, scale.matmul(drawing.dice)
    sizes |= {letter: dice.pick(BATCH) for letter in "bct"}
    sizes |= {letter: 1 for letter in "mnk" if dice.chance(0.15, "size 1")}
    left, right = dice.pick(BATCHES)
    dice.features.add(f"einsum:{left},{right}")
    tame = dice.chance(scale.tame)
    dynamic = "bm" if (left, right) == ("bmki", "nki") and dice.chance(0.3, "dynamic:batch") else ""
    sizes = scale.opened(dice, sizes, dynamic)
    lhs = mx_operands.draw(drawing, left, sizes, "", dynamic, tame=tame)
    rhs = mx_operands.draw(drawing, right, sizes, "", "", tame=tame)
    free = [letter for letter in dict.fromkeys(left + right) if letter not in "ki"]
    out = "".join(dice.shuffled(free) if dice.chance(0.15, "result transposed") else _natural(free))
    return products.draw(drawing, lhs, rhs, out)


def _natural(letters: list[str]) -> list[str]:
    return sorted(letters, key="ctbmn".index)


def floats(
    drawing: Drawing, shape: tuple[int, ...], kind: str, values: str, dynamic: tuple[int, ...] = (), place: str = ""
) -> Node:
    """A tensor of few digits, an argument or a constant; `values` as in VALUES."""
    numbers = drawing.dice.numbers
    data: np.ndarray = numbers.integers(-8, 9, shape) * np.exp2(numbers.integers(-1, 2, (*shape[:-1], 1)))
    if values == "wide":
        data = numbers.standard_normal(shape) * np.exp2(numbers.integers(-5, 6, (*shape[:-1], 1)))
    if values == "zeros":
        data[numbers.random(shape[:-1]) < 0.4] = 0
    if values == "special":
        for value in (np.nan, np.inf, -np.inf)[: 1 + drawing.dice.below(3)]:
            data.reshape(-1)[drawing.dice.below(data.size)] = value
    array = data.astype(FLOATS[kind])
    return Node(drawing.value(array, kind, dynamic, place), array.astype(np.float64), kind)


LAYOUTS = {"": 8, "transposed": 1, "slice": 1, "column slice": 0.7, "broadcast": 0.7}


def activation(drawing: Drawing, rows: int, columns: int, dynamic: bool = False) -> Node:
    """[rows, columns] of floats: an argument, a constant, or a part of one."""
    dice = drawing.dice
    kind, values = dice.noted("source", SOURCES), dice.noted("activations", VALUES)
    if dynamic:
        return floats(drawing, (rows, columns), kind, values, (0,))
    layout = dice.noted("activation", LAYOUTS)
    place = "constant" if dice.chance(0.1, "constant activation") else "argument"
    match layout:
        case "transposed":
            return transposed(floats(drawing, (columns, rows), kind, values, (), place), (1, 0), dice.chance(0.5))
        case "slice":
            whole = floats(drawing, (2 * rows + 1, columns), kind, values, (), place)
            return sliced(whole, [1, 0], [rows, columns], [dice.pick([1, 2]), 1])
        case "column slice":
            whole = floats(drawing, (rows, columns + BLOCK), kind, values, (), place)
            return sliced(whole, [0, dice.pick([0, 1, BLOCK])], [rows, columns], [1, 1])
        case "broadcast":
            return broadcast(floats(drawing, (columns,), kind, values, (), place), rows)
    return floats(drawing, (rows, columns), kind, values, (), place)


def broadcast(node: Node, rows: int) -> Node:
    """[rows, columns] of equal rows [columns]."""
    result = build.tensor_type((rows, *node.shape), node.kind)
    maps = [loops_of(2, [1]), loops_of(2, [0, 1])]
    body = lambda x, _: x  # noqa: E731
    value = build.generic(result, [node.ir], build.empty(result), maps, ["parallel"] * 2, body).results[0]
    return node.at(value, lambda array: np.broadcast_to(array, (rows, *node.shape)))


Quantise = Callable[[Drawing, Node, str, str], Operand]


def quantised_product(drawing: Drawing, scale: Scale, quantise: Quantise = quantisers.draw) -> Node:
    """What is in the pool, or a new activation, quantised and multiplied with stored elements."""
    dice = drawing.dice
    found = quantisable(drawing)
    node = dice.pick(found[-3:]) if found and dice.chance(0.85) else _new(drawing, scale)
    if quantise is not quantisers.draw and not node.finite:
        node = _new(drawing, scale, finite=True)
    kind = dice.noted("type", KINDS)
    batch = "b" * (len(node.shape) - 2)
    lhs = quantise(drawing, node, f"{batch}m", kind)
    return _times(drawing, scale, lhs, batch)


def _new(drawing: Drawing, scale: Scale, finite: bool = False) -> Node:
    sizes = scale.matmul(drawing.dice)
    dynamic = "m" in drawing.dice.pick(scale.dynamic) and not finite
    sizes = scale.opened(drawing.dice, sizes, "m" * dynamic)
    if finite:
        return floats(drawing, (sizes["m"], sizes["k"] * BLOCK), "f32", "")
    node = activation(drawing, sizes["m"], sizes["k"] * BLOCK, dynamic)
    if drawing.dice.chance(0.3):
        drawing.pool.append(node)
    return node


def quantisable(drawing: Drawing) -> list[Node]:
    return [
        node for node in drawing.pool
        if node.exact and len(node.shape) in (2, 3) and node.shape[-1] % BLOCK == 0 and (
            node.static or (len(node.shape) == 2 and None not in build.static_sizes(node.ir)[1:]))
    ]  # fmt: skip


def _times(drawing: Drawing, scale: Scale, lhs: Operand, batch: str) -> Node:
    """A quantised operand times a stored one, or times another quantised one of the same K."""
    dice, blocks = drawing.dice, lhs.elements.shape[lhs.axes.index("k")]
    m = dice.first(lhs.elements.shape[lhs.axes.index("m")])
    n = dice.pick(scale.columns)
    while m * n * blocks * BLOCK > scale.most(dice) and n > 1:
        n //= 2
    sizes = {"n": n, "k": blocks, "b": lhs.elements.shape[0]}  # a batch is outermost
    alike = [node for node in quantisable(drawing) if len(node.shape) == 2 and node.shape[-1] == blocks * BLOCK]
    if not batch and dice.chance(0.15) and alike:
        dice.features.add("both quantised")
        rhs = (
            lhs.renamed({"m": "n"})
            if dice.chance(0.5)
            else quantisers.draw(drawing, dice.pick(alike), "n", dice.noted("type", KINDS))
        )
    else:
        axes = f"{batch}nki" if batch and dice.chance(0.5, "batch of both") else "nki"
        rhs = mx_operands.draw(drawing, axes, sizes, tame=dice.chance(scale.tame))
    if not batch and dice.chance(0.05, "quantised right side"):
        lhs, rhs = rhs.renamed({"n": "m"}), lhs.renamed({"m": "n"})
    return products.draw(drawing, lhs, rhs, f"{batch}mn")


USERS = {2: 3, 3: 1}


def shared_product(drawing: Drawing, scale: Scale) -> Node:
    """One quantised activation in several matmuls, whose weights differ in format; one of them quantised anew."""
    dice = drawing.dice
    found = [node for node in quantisable(drawing) if len(node.shape) == 2]
    node = dice.pick(found[-3:]) if found and dice.chance(0.7) else _new(drawing, scale)
    blocks, m = node.shape[1] // BLOCK, dice.first(node.shape[0])
    n = dice.pick([size for size in scale.columns if m * size * blocks * BLOCK <= scale.most(dice)] or [1])
    lhs, total = quantisers.draw(drawing, node, "m", dice.noted("type", KINDS)), None
    for _ in range(dice.pick(USERS)):
        if dice.chance(0.25, "quantised twice"):
            lhs = quantisers.draw(drawing, node, "m", dice.noted("type", KINDS))
        rhs = mx_operands.draw(drawing, "nki", {"n": n, "k": blocks}, dice.noted("type", KINDS), tame=True)
        product = products.draw(drawing, lhs, rhs, "mn")
        if total is not None and total.kind == product.kind and dice.chance(0.7):
            product = apply(BINARY["add"], total, product)
        elif total is not None:
            drawing.pool.append(total)
        total = product
    assert total is not None
    return total


def times_stored(drawing: Drawing, scale: Scale, lhs: Operand, columns: int) -> Node:
    """A quantised operand times a stored one of so many columns, or any."""
    m, blocks = (lhs.elements.shape[lhs.axes.index(axis)] for axis in "mk")
    fitting = [size for size in scale.columns if m * size * blocks * BLOCK <= scale.most(drawing.dice)] or [1]
    n = columns if columns and m * columns * blocks * BLOCK <= scale.most(drawing.dice) else drawing.dice.pick(fitting)
    rhs = mx_operands.draw(drawing, "nki", {"n": n, "k": blocks}, drawing.dice.noted("type", KINDS), tame=True)
    return products.draw(drawing, lhs, rhs, f"{'b' * ('b' in lhs.axes)}mn")


def static_product(drawing: Drawing, scale: Scale) -> Node:
    """The same with scales that are constants."""

    def quantise(drawing: Drawing, node: Node, axes: str, kind: str) -> Operand:
        largest = np.abs(node.data).max(initial=1.0)
        factor = 2.0 ** -max(0, round(np.log2(largest)) - drawing.dice.pick([1, 2, 3]))
        if drawing.dice.chance(0.8):
            scaled = apply(times(factor), node)
            node = scaled if scaled.exact else node
        return quantisers.static(drawing, node, axes, kind)

    drawing.dice.features.add("static quantisation")
    return quantised_product(drawing, scale, quantise)
