"""Steps of a decoder's layers: gate and up of one activation, and weights that activations are not quantised for."""

from __future__ import annotations

import mx_operands
import products
import quantisers
from drawing import Drawing
from elementwise import BINARY, UNARY, apply
from mx_operands import KINDS
from nodes import BLOCK, Node
from steps_grouped import COUNTS, chosen_weights
from steps_matmul import VALUES, Scale, floats

GATES = {"relu": 2, "half": 1, "minus": 1}
WEIGHT_ONLY_DYNAMIC = {"": 2.0, "m": 1.0}
TILED = {65: 1, 128: 1, 130: 1}
"""More rows than a workgroup takes."""
COMBINED = {"multiply": 2, "add": 1, "subtract": 1}


def gated_product(drawing: Drawing, scale: Scale) -> Node:
    """Two products of one quantised activation, which meet: op(x · gateᵀ) · (x · upᵀ)."""
    dice, sizes = drawing.dice, scale.matmul(drawing.dice)
    kind, side = dice.noted("type", KINDS), dice.noted("type", KINDS)
    source = dice.noted("source", {"f32": 1, "bf16": 3, "f16": 1})
    dynamic = (0,) if set(scale.dynamic) == {"m"} else ()
    sizes = scale.opened(dice, sizes, "m" * len(dynamic))
    x = floats(drawing, (sizes["m"], sizes["k"] * BLOCK), source, "", dynamic)
    lhs = quantisers.draw(drawing, x, "m", kind)
    gate, up = (
        products.draw(drawing, lhs, mx_operands.draw(drawing, "nki", sizes, side, tame=True), "mn") for _ in range(2)
    )
    if up.kind != gate.kind:
        return gate
    gate = apply(UNARY[dice.noted("gate", GATES)], gate)
    return apply(BINARY[dice.noted("combined", COMBINED)], gate, up)


def weight_only_product(drawing: Drawing, scale: Scale) -> Node:
    """Activations of bf16 as they are, and stored weights; or a batch of both, whose weights ids may choose."""
    dice, sizes, batch = drawing.dice, scale.matmul(drawing.dice), ""
    if dice.chance(0.3, "weight only batch"):
        sizes["b"], batch = dice.pick(COUNTS), "b"
    dynamic = (0,) if not batch and dice.noted("dynamic", WEIGHT_ONLY_DYNAMIC) == "m" else ()
    if not batch and dice.chance(0.2, "weight only in tiles"):
        sizes |= {"m": dice.pick(TILED), "k": min(sizes["k"], 17)}
    sizes = scale.opened(dice, sizes, "m" * len(dynamic))
    shape = (*(sizes[axis] for axis in f"{batch}m"), sizes["k"] * BLOCK)
    x = floats(drawing, shape, "bf16", dice.noted("activations", VALUES), dynamic)
    if batch and dice.chance(0.5, "weight only by id"):
        return products.weight_only(drawing, x, chosen_weights(drawing, sizes))
    axes = f"{batch}nki"
    return products.weight_only(drawing, x, mx_operands.draw(drawing, axes, sizes, order=axes, tame=True))
