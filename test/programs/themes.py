"""What programs are made of: themes with the steps that each prefers, and how one is drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import steps_elementwise as other
from drawing import Dice, Drawing, Module
from iree.compiler import ir
from narrow import changed_product, widened
from nodes import BITS, FLOATS, Node
from steps_control import branch, call, loop
from steps_few_rows import gated_product, weight_only_product
from steps_grouped import grouped_product
from steps_in_place import in_place
from steps_matmul import (
    SLOW,
    Scale,
    activation,
    batched_product,
    quantised_product,
    shared_product,
    static_product,
    stored_product,
)
from steps_stacked import stacked_product
from steps_state import cache, cached_product, total

from mxcomp.mlir import build

Source = Callable[[Drawing, Scale], Node]
Step = Callable[[Drawing, Node], Node]
SMALL = Scale()
LONG = Scale(
    rows={65: 3, 66: 1, 97: 1, 127: 1, 128: 2, 129: 1, 140: 1, 64: 0.5, 17: 0.5},
    columns={128: 4, 256: 1, 64: 0.5, 32: 0.5},
    blocks={1: 3, 2: 2, 4: 1},
    dynamic={"": 20, "m": 1},
    tame=0.8,
    products=2_500_000,
)
"""Of chains: from 65 rows and 128 columns on, results are quantised in their tile."""
FEW = Scale(
    rows={1: 3, 2: 1, 5: 1, 15: 0.5, 16: 1, 17: 0.5, 30: 0.5, 33: 0.3, 64: 0.5, 65: 0.2},
    columns={17: 1, 32: 1, 33: 1, 40: 0.5, 64: 2, 96: 1, 16: 0.3},
    blocks={17: 3, 18: 1, 32: 1, 33: 1, 16: 1, 5: 1, 1: 1},
    dynamic={"": 20, "m": 1},
    products=1_200_000,
)
"""Of a decoder's steps, with one to three K tiles: up to 16 rows can be quantised in the matmul's dispatch, up to 64 be
multiplied as they are."""

ROWS = Scale(
    rows={1: 1, 16: 1, 100: 1, 255: 1, 256: 1, 257: 1, 300: 1},
    columns={1: 1, 17: 1, 64: 2, 200: 1, 256: 0.5, 300: 0.3},
    blocks={32: 3, 48: 1, 64: 0.5, 16: 0.2, 33: 0.2},
    dynamic={"": 20, "m": 1, "n": 1, "k": 1},
    products=20_000_000,
)
"""Of ukernels that read LHS as it is stored: tiles of 256 × 256, K tiles of 16 blocks."""

PARTS = Scale(
    rows={2: 1, 3: 1, 17: 1, 40: 1, 64: 1, 100: 1, 200: 0.3},
    columns={2: 0.5, 17: 1, 64: 2, 96: 1, 200: 0.5},
    blocks={32: 3, 48: 2, 64: 2, 40: 1, 33: 0.5},
    products=20_000_000,
)
"""Of K in parts: of two to four K tiles."""

FEW_OF_ANY = Scale(
    rows=FEW.rows | {4: 1, 8: 1},
    columns=FEW.columns,
    blocks={32: 3, 48: 1, 47: 0.5, 31: 0.5, 17: 0.2},
    dynamic={"m": 1},
    products=1_200_000,
)
"""Of a decoder whose M is dynamic, and whose kernels for few rows quantise them: K tiles of 16 blocks."""

TALL = Scale(
    rows={257: 1, 511: 1, 777: 1, 1000: 1, 1023: 1, 1025: 0.5, 1499: 1, 1500: 1},
    columns={1: 0.5, 17: 1, 32: 2, 33: 1, 64: 1},
    blocks={1: 3, 2: 2, 3: 1, 5: 0.5},
    dynamic={"": 2, "m": 1},
    tame=0.6,
    products=4_000_000,
)
"""Of a prompt: up to 1500 rows."""

STATE = Scale(
    rows={1: 3, 2: 1, 4: 2, 8: 1, 17: 1},
    columns={32: 3, 64: 2, 96: 1, 128: 1, 17: 0.5},
    blocks={1: 3, 2: 2, 4: 1},
    dynamic={"": 1},
    tame=0.9,
)
"""Of what is kept from call to call: totals stay exact."""

SOURCES: dict[str, Source] = {
    "stored": stored_product,
    "batched": batched_product,
    "quantised": quantised_product,
    "static": static_product,
    "changed": changed_product,
    "widened": widened,
    "in rows": partial(stored_product, kinds=("f4E2M1FN", "f4E2M1FN")),
    "grouped": grouped_product,
    "gated": gated_product,
    "weight only": weight_only_product,
    "stacked": stacked_product,
    "cached": cached_product,
    "shared": shared_product,
}
PRODUCTS = {
    "in rows", "gated", "weight only", "stored", "batched", "grouped", "quantised", "static", "changed", "stacked",
    "cached", "shared",
}  # fmt: skip
STEPS: dict[str, Step] = {
    "unary": other.unary, "binary": other.binary, "pair": other.pair, "cast": other.casted,
    "transpose": other.transpose, "row": other.row, "symmetric": other.symmetric, "part": other.part,
    "sums": other.sums, "flat": other.flat, "captured": other.captured,
    "total": total, "cache": cache,
    "in place": in_place,
}  # fmt: skip
CONTROL: dict[str, Callable[[Drawing, Node, Scale], Node]] = {"branch": branch, "loop": loop, "call": call}
LAST: dict[str, Step] = {"": lambda _, node: node, "final": other.final, "integers": other.integers,
                         "elements": other.elements}  # fmt: skip
EPILOGUE = {"unary": 4, "binary": 4, "cast": 2, "captured": 0.5}
BITS_LAST = {"": 3, "elements": 2, "integers": 1.5}
READS = {"pair": 2, "transpose": 2, "row": 2, "symmetric": 2, "part": 2, "sums": 0.7, "flat": 0.7}


@dataclass(frozen=True)
class Theme:
    """Tables of weights: what it starts with, what follows a number of times, and what comes last."""

    sources: Mapping[str, float]
    steps: Mapping[str, float]
    count: Mapping[int, float]
    scale: Scale = SMALL
    last: Mapping[str, float] = field(default_factory=lambda: {"": 6, "final": 1, "integers": 0.5, "elements": 0.5})
    functions: Mapping[int, float] = field(default_factory=lambda: {1: 1})


MULTIPLIED = EPILOGUE | {"quantised": 1}
CHAINED = EPILOGUE | READS | {"quantised": 8, "static": 1}
THEMES = {
    "matmul": Theme(
        {"stored": 5, "batched": 1}, EPILOGUE | {"stored": 0.5}, {0: 2, 1: 2, 2: 1}, functions={1: 3, 2: 1}
    ),
    "einsum": Theme({"batched": 1}, MULTIPLIED | {"flat": 1, "transpose": 1}, {0: 3, 1: 2, 2: 1}),
    "experts": Theme({"grouped": 1}, MULTIPLIED | {"flat": 0.5, "transpose": 0.5}, {0: 3, 1: 2, 2: 1}),
    "activation": Theme({"activation": 1}, EPILOGUE | {"quantised": 6, "part": 0.5}, {1: 1, 2: 2, 3: 1}),
    "chain": Theme({"stored": 3, "quantised": 1}, CHAINED, {1: 2, 2: 3, 3: 2}, LONG),
    "small chain": Theme({"stored": 3, "quantised": 1}, CHAINED, {1: 1, 2: 2, 3: 1}),
    "few rows": Theme({"activation": 1, "quantised": 2}, EPILOGUE | {"quantised": 3}, {0: 1, 1: 2, 2: 2}, FEW),
    "decoder": Theme({"gated": 3, "weight only": 3}, EPILOGUE | {"quantised": 2}, {0: 1, 1: 2, 2: 2}, FEW),
    "static": Theme({"stored": 3, "activation": 1}, EPILOGUE | {"static": 5}, {1: 2, 2: 1}, last=BITS_LAST),
    "few of any": Theme(
        {"activation": 2, "quantised": 1, "gated": 1}, EPILOGUE | {"quantised": 3}, {0: 1, 1: 2, 2: 2}, FEW_OF_ANY
    ),
    "in rows": Theme({"in rows": 1}, EPILOGUE | {"quantised": 0.5}, {0: 2, 1: 2, 2: 1}, ROWS),
    "in parts": Theme(
        {"stored": 3, "quantised": 1, "activation": 1},
        EPILOGUE | {"quantised": 1, "sums": 0.5},
        {0: 2, 1: 2, 2: 2},
        PARTS,
    ),
    "stacked": Theme({"stacked": 1}, MULTIPLIED | {"flat": 0.5, "transpose": 0.5}, {0: 3, 1: 2, 2: 1}),
    "bits": Theme(
        {"changed": 3, "widened": 1, "stored": 1}, MULTIPLIED | {"changed": 1}, {0: 2, 1: 1, 2: 1}, last=BITS_LAST
    ),
    "state": Theme(
        {"stored": 2, "activation": 1, "cached": 2},
        EPILOGUE | {"total": 3, "cache": 3, "quantised": 3, "cached": 1},
        {1: 1, 2: 2, 3: 1},
        STATE,
        functions={1: 3, 2: 1},
    ),
    "shared": Theme({"shared": 2, "activation": 1}, EPILOGUE | {"shared": 3, "pair": 1, "quantised": 1}, {1: 2, 2: 1}),
    "tall": Theme(
        {"stored": 1, "quantised": 2, "activation": 1}, EPILOGUE | {"quantised": 2}, {0: 1, 1: 2, 2: 1}, TALL
    ),
    "in place": Theme({"activation": 2, "stored": 1}, EPILOGUE | {"in place": 8}, {1: 2, 2: 2}),
    "control": Theme(
        {"stored": 3, "activation": 1},
        {"branch": 3, "loop": 2, "call": 3, "quantised": 2, "unary": 1},
        {1: 2, 2: 2, 3: 1},
    ),
}
WEIGHTS = {
    "matmul": 5,
    "einsum": 2.5,
    "experts": 1.5,
    "activation": 3,
    "chain": 4,
    "small chain": 3,
    "few rows": 3,
    "decoder": 3,
    "stacked": 1.5,
    "static": 2,
    "bits": 1.5,
    "control": 1.5,
    "state": 1.5,
    "shared": 1.5,
    "tall": 0.3,
}


@dataclass(frozen=True, eq=False)
class Function:
    """A function of a program, its arguments, and what it returns."""

    name: str
    inputs: list[np.ndarray]
    results: list[Node]


def draw_function(module: Module, name: str, theme: Theme, places: Mapping[str, float]) -> Function:
    """A function of a theme in a module."""
    drawing, dice = Drawing(module, name, places), module.dice
    scale = SMALL if dice.features & SLOW else theme.scale
    with ir.InsertionPoint(drawing.block):
        started = dice.pick(theme.sources)
        drawing.pool.append(_source(drawing, started, scale))
        steps = [dice.pick(theme.steps) for _ in range(dice.pick(theme.count))]
        if not {started, *steps} & PRODUCTS:
            steps.append("quantised")
        for step in steps:
            dice.features.add(step)
            if step in SOURCES:
                found = _source(drawing, step, scale)
            else:
                node = dice.pick(drawing.pool[-2:]) if dice.chance(0.2) else drawing.pool[-1]
                found = CONTROL[step](drawing, node, scale) if step in CONTROL else STEPS[step](drawing, node)
            if all(found is not node for node in drawing.pool):
                drawing.pool.append(found)
        last = LAST[dice.noted("last", theme.last)](drawing, drawing.pool[-1])
        results = [last]
        for node in drawing.pool[:-1]:
            if node.kind in FLOATS and dice.chance(0.12, "several results"):
                results.append(node)
        drawing.finish([returned(node) for node in results])
    return Function(name, drawing.inputs, results)


def _source(drawing: Drawing, name: str, scale: Scale) -> Node:
    drawing.dice.features.add(name)
    if name == "activation":
        dice, sizes = drawing.dice, scale.matmul(drawing.dice)
        dynamic = "m" in dice.pick(scale.dynamic)
        sizes = scale.opened(dice, sizes, "m" * dynamic)
        return activation(drawing, sizes["m"], sizes["k"] * 32, dynamic)
    return SOURCES[name](drawing, scale)


def returned(node: Node) -> ir.Value:
    """A value as functions can return it: narrow ones as bytes."""
    if node.kind in FLOATS:
        return node.ir
    *outer, last = build.static_sizes(node.ir)
    assert last is not None
    return build.bitcast(node.ir, build.tensor_type((*outer, last * BITS[node.kind] // 8), "i8"))


def draw_module(
    dice: Dice, parameters: bool, theme: str = "", state: Mapping[str, np.ndarray] | None = None
) -> tuple[str, Module, list[Function]]:
    """The text of a module, and its functions; `state` is what its variables hold before."""
    name = theme or dice.pick(WEIGHTS)
    dice.features.add(f"theme:{name}")
    chosen = THEMES[name]
    constants = dice.pick({0.0: 3, 0.3: 1, 0.9: 0.5})
    initialised = dice.pick({0.0: 9, 0.3: 1})
    places = {"argument": 1 - constants, "constant": constants, "initializer": initialised}
    places |= {"parameter": 1.0} if parameters else {}
    with ir.Context(), ir.Location.unknown():
        module = Module(ir.Module.create(), dice, has_parameters=parameters, state=dict(state or {}))
        count = dice.pick(chosen.functions)
        make = partial(draw_function, module, theme=chosen, places=places)
        functions = [make(name="main" if i == 0 else f"main_{i}") for i in range(count)]
        module.ir.operation.verify()
        return str(module.ir), module, functions
