"""A program from a seed: a module, how it is compiled, its inputs and what it returns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch_models
from drawing import Dice
from themes import Function, draw_module

from mxcomp.ukernels import KINDS, intrawave

WAYS = {"plain": 30, "parameters": 2, "packed": 2.5, "plugin": 4, "torch": 1}
"""How weights come in, who compiles, and what programs are written in."""
NAMED = "named"
UKERNELS = {"fastest": 6, "benefit": 2, NAMED: 3, "none": 1}
"""How ukernels are chosen; "named": any that takes what the program has, also far larger than a drawn product."""
DATA_TILING = {True: 6, False: 1.3}
APART = {"in rows": 0.04, "few of any": 0.05, "in parts": 0.05, "in place": 0.06, "decoder layers": 0.05}
"""How often a program is for ukernels that read LHS as it is stored, of a dynamic M, few rows of which a version
quantises, has K in parts wherever it can be, or sorts, scatters and scans in place: drawn apart from all else, which
stays as it was."""
_IN_ROWS = [each for each in intrawave.INSTANCES if each.tile.lhs_row_major]
VERSIONS = {"by gain": 2, "always": 1}
"""Where a dynamic M gets kernels by ranges: N and K drawn here are too small to gain by them."""
FEW = "always, and few rows quantised by theirs"


@dataclass(frozen=True, eq=False)
class Program:
    """`way` is one of WAYS, `versions` of VERSIONS; `parameters` are by key; `products` is how many products all of its
    matmuls have."""

    seed: int
    text: str
    functions: list[Function]
    features: frozenset[str]
    way: str
    ukernels: str
    data_tiling: bool
    versions: str
    parameters: dict[str, np.ndarray]
    products: int
    has_parts: bool = False
    later: tuple[list[Function], ...] = ()
    """Further rounds of calls of the same program, with other sizes and numbers."""


ROUNDS = {True: {0: 3, 1: 2, 2: 1}, False: {0: 20, 1: 1}}
"""How many follow the first: where sizes are open or something is kept from call to call, and elsewhere."""
_TRIES = 4


def draw(seed: int, theme: str = "", way: str = "") -> Program:
    """The program of a seed; `theme` and `way` may be given."""
    first, state = _draw(seed, theme, way, 0, {}, True)
    if "way:torch" in first.features:
        return first
    table = ROUNDS["state" in first.features or "?x" in first.text]
    count = random.Random(f"{seed} rounds").choices(list(table), list(table.values()))[0]
    same = bool(first.parameters) or "arith.constant dense" in first.text
    later: list[list[Function]] = []
    for call in range(1, 1 + count * _TRIES):
        if len(later) == count:
            break
        found, after = _draw(seed, theme, way, call, state, same)
        if found.text == first.text:  # which may depend on numbers
            later.append(found.functions)
            state = after
    if later and not state:
        later.append(first.functions)  # which have to give the same once more
    features = first.features | {f"calls:{1 + len(later)}"}
    return replace(first, features=features, later=tuple(later))


def _draw(
    seed: int, theme: str, way: str, call: int, before: Mapping[str, np.ndarray], same: bool
) -> tuple[Program, dict[str, np.ndarray]]:
    """The program with the arguments of one round of calls, of the `same` numbers or others; and what is kept behind
    it, if it is `before` in front."""
    dice = Dice(seed, call, same)
    way = way or dice.pick(WAYS)
    rare = [name for name, often in APART.items() if random.Random(f"{seed} {name}").random() < often]
    if not theme and rare:
        theme, way = rare[0], "plain"
    if theme == "decoder layers":
        theme, way = (theme, "torch") if torch_models.AVAILABLE else ("", way)
    way = "plain" if way == "torch" and not torch_models.AVAILABLE else way
    dice.features.add(f"way:{way}")
    ukernels, data_tiling = dice.pick(UKERNELS), dice.pick(DATA_TILING)
    if theme in ("few of any", "in parts"):
        ukernels, data_tiling = "fastest", True
    if ukernels != "fastest":
        dice.features.add(f"ukernels:{ukernels}")
    if theme == "in rows":
        ukernels = NAMED
    if ukernels == NAMED:
        data_tiling = True
    if not data_tiling:
        dice.features.add("data tiling:off")
    if way == "torch":
        text, (functions, *later) = _torch_draw(theme)(dice)
        parameters, products, state = {}, 0, {}
    else:
        text, module, functions = draw_module(dice, way in ("parameters", "packed"), theme, before)
        later = []
        parameters, products, state = module.parameters, module.products, module.state
    versions = dice.pick(VERSIONS)  # after all else, which stays as it was for a seed
    if theme == "few of any":
        versions = dice.pick({"always": 1, FEW: 2})
    if versions != "by gain":
        dice.features.add(f"versions:{versions}")
    if ukernels == NAMED:
        ukernels = _named(dice) if theme != "in rows" else dice.pick([each.name for each in _IN_ROWS])
    drawn = Program(
        seed, text, functions, frozenset(dice.features), way, ukernels, data_tiling, versions, parameters, products,
        has_parts=theme == "in parts", later=tuple(later),
    )  # fmt: skip
    return drawn, state


def _torch_draw(theme: str) -> Callable[[Dice], tuple[str, list[list[Function]]]]:
    """What draws a model in PyTorch, which is imported where it is needed."""
    if theme != "decoder layers":
        return torch_models.draw
    import torch_decoders

    return torch_decoders.draw


def _named(dice: Dice) -> str:
    """A ukernel for element types that the program has; "fastest" if it has none."""
    kinds = {feature.removeprefix("type:") for feature in dice.features if feature.startswith("type:")}
    names = [each.name for each in chain.from_iterable(kind.INSTANCES for kind in KINDS) if kinds >= {*each.elements}]
    return dice.pick(dict.fromkeys(names, 1.0)) if names else "fastest"
