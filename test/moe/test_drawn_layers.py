"""The experts of a layer, drawn differently each time: types, sizes, routing, activation and ukernels.

A failure names its seed; MXCOMP_PROGRAMS_SEED=SEED draws it first once more.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from seeds import BASE
from spread import quick_if
from test_gated_experts import BF16, Case, without_first
from test_moe_layer import Layer

import mxcomp
from mxcomp import formats, moe
from mxcomp.ukernels import gating, swiglu

QUICK, ALL = (3,), 60
"""The one that takes little; all others are slow."""
NAMES = [fmt.name for fmt in map(formats.element_format, formats.ELEMENT_TYPES)]
UKERNELS = {"fastest": 5, "benefit": 1, "none": 1, "gating": 1, "hidden": 1}
ROWS = (1, 2, 5, 8, 16, 17, 32, 33, 48, 64, 100, 128, 160, 256)
EXPERTS = (1, 2, 3, 4, 6)
BLOCKS = (1, 2, 3, 4, 5, 8, 9, 12, 16, 20)
TOLERANCE = 1e-4
"""Of the largest result: f32 sums."""
MOST, MOST_BF16 = 1 << 24, 1 << 22
"""How large rows times both sizes times experts may be; so may tokens in the place of rows, as they may take blocks of
their own. Of bf16 activations rows beyond 64 are left to IREE, which is slow."""
FLIPPED, FLIPPED_ROWS = 0.1, 2
"""The same of rows in which a hidden activation between two codes has become the other one; how many there may be."""


def mlir_type(name: str) -> str:
    return name if name == BF16 else formats.element_format(name).mlir_type


def draw(seed: int) -> tuple[Case | Layer, str]:
    """Experts, and the ukernels to compile them with."""
    dice = random.Random(seed)
    types = dice.choice([*NAMES, BF16]), dice.choice(NAMES)
    rows, activation = dice.choice(ROWS), dice.choice([*moe.ACTIVATIONS])
    tokens, model, inner = dice.choice((1, 2, 7, 16, 33, 70)), 32 * dice.choice(BLOCKS), 32 * dice.choice(BLOCKS)
    ukernels = dice.choices([*UKERNELS], [*UKERNELS.values()])[0]
    if ukernels == "gating":
        ukernels = dice.choice(gating.INSTANCES).name
    elif ukernels == "hidden":
        of_types = [each for each in swiglu.INSTANCES if each.elements == tuple(map(mlir_type, types))]
        ukernels, rows = dice.choice(of_types or swiglu.INSTANCES).name, dice.choice([n for n in ROWS if n <= 8])
    work = (MOST_BF16 if types[0] == BF16 else MOST) // max(EXPERTS)
    most = work // rows
    model = min(model, max(32, most // inner // 32 * 32))
    inner = min(inner, max(32, most // model // 32 * 32))
    tokens = min(tokens, max(1, work // (model * inner)))
    if ukernels not in ("fastest", "benefit"):
        tokens = min(tokens, 16)  # what is left to IREE gathers weights for each block, which takes a simulator long
    if types[0] != BF16 and dice.random() < 0.4:
        return Layer(types, rows, activation, tokens, model, inner, dice.choice(EXPERTS[2:]), seed), ukernels
    experts = dice.choice(EXPERTS)
    top_k, has_bias = dice.randint(1, experts), dice.random() < 0.6
    return Case(types, rows, activation, tokens, model, inner, experts, top_k, has_bias=has_bias, seed=seed), ukernels


@pytest.mark.parametrize("number", quick_if(QUICK.__contains__, range(ALL)))
def test_drawn(number: int) -> None:
    seed = BASE + number
    experts, ukernels = draw(seed)
    program = mxcomp.compile(experts.module(), ukernels=ukernels)
    (found,) = program.run(*experts.arguments)
    expected = experts.expected()
    error = np.abs(found - expected) / np.abs(expected).max()
    off = np.flatnonzero(~(error <= TOLERANCE).all(axis=1))
    again = f"MXCOMP_PROGRAMS_SEED={seed}: {experts}, ukernels={ukernels}"
    assert len(off) <= FLIPPED_ROWS, f"{again}: tokens {off} are off"
    assert (error[off] <= FLIPPED).all(), f"{again}: off by {error.max():.1%}"
    (spoilt,) = program.run(*without_first(experts))
    others = (experts.choice != 0).all(axis=1)
    assert np.array_equal(found[others], spoilt[others]), f"{again}: the first expert's NaN are in tokens of others"
