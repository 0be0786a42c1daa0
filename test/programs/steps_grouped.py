"""Products grouped by expert: matrices, and rows, that ids choose from stored ones."""

from __future__ import annotations

import mx_operands
import numpy as np
import products
from drawing import Drawing
from iree.compiler import ir
from mx_operands import KINDS, Operand
from nodes import BITS, BLOCK, SCALE, VALUES, Node, packed
from steps_matmul import Scale

from mxcomp import moe
from mxcomp.mlir import build

COUNTS = {1: 1, 2: 3, 3: 2, 5: 1}
"""Of blocks, experts and tokens."""
DIVISORS = {1: 2, 2: 2, 4: 1}
"""Top-k: by how much slots are divided for their tokens."""


def grouped_product(drawing: Drawing, scale: Scale) -> Node:
    """Blocks of rows, stored or chosen by ids, times the matrices that ids choose; some ids are out of range."""
    dice, sizes = drawing.dice, scale.matmul(drawing.dice)
    blocks = sizes["b"] = dice.pick(COUNTS)
    rhs = chosen_weights(drawing, sizes)
    if dice.chance(0.3, "stored blocks"):
        lhs = mx_operands.draw(drawing, "bmki", sizes, tame=True, order="bmki")
    else:
        divisor, tokens = dice.pick(DIVISORS), dice.pick(COUNTS)
        slots = dice.numbers.integers(0, divisor * tokens + 2, (blocks, sizes["m"])).astype(np.int32)
        lhs = _chosen(drawing, "bmki", (tokens, sizes["k"]), slots, divisor)
    return products.draw(drawing, lhs, rhs, "bmn")


def chosen_weights(drawing: Drawing, sizes: dict[str, int]) -> Operand:
    """The matrices of `sizes["b"]` blocks, that ids choose from stored ones."""
    experts = drawing.dice.pick(COUNTS)
    ids = drawing.dice.numbers.integers(-1, experts + 1, sizes["b"]).astype(np.int32)
    return _chosen(drawing, "bnki", (experts, sizes["n"], sizes["k"]), ids, 1)


def _chosen(drawing: Drawing, axes: str, shape: tuple[int, ...], ids: np.ndarray, divisor: int) -> Operand:
    """An operand gathered from stored elements [*shape, 32] and scales [shape] along the first dimension."""
    dice = drawing.dice
    kind = dice.noted("type", KINDS)
    values, numbers = VALUES[kind], dice.numbers
    coarse = np.flatnonzero(np.isin(np.abs(values), VALUES["f4E2M1FN"]) & np.isfinite(values)).astype(np.uint8)
    codes = numbers.choice(coarse, (*shape, BLOCK))
    scales = numbers.integers(126, 129, shape).astype(np.uint8)
    place = "argument" if dice.chance(0.5) else ""
    given = drawing.value(ids, "i32", place="argument")
    parts = np.clip(ids // divisor, 0, shape[0] - 1)
    elements, scale_bytes = (
        moe.gather(drawing.value(array, "i8", place=place), given, divisor)
        for array in (packed(codes, BITS[kind]).reshape(*shape[:-1], -1), scales)
    )
    outer = (*ids.shape, *shape[1:])
    return Operand(
        Node(_typed(elements, (*outer, BLOCK), kind), codes[parts], kind),
        Node(_typed(scale_bytes, outer, SCALE), scales[parts], SCALE),
        axes,
        axes[:-1],
    )


def _typed(value: ir.Value, shape: tuple[int, ...], kind: str) -> ir.Value:
    return build.bitcast(value, build.tensor_type(shape, kind))
