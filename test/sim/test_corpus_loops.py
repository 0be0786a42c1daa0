"""Loops as peers write them compute what they should, with checks on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from corpus.device import Machine
from corpus.loops import KERNELS
from corpus.loops.inputs import PRODUCTS, TILE, problem
from corpus.operands import check_product
from spread import quick_if

QUICK = {"8 waves, mxfp4 16x16x128, scales combined", "4 waves, f16"}


@pytest.mark.parametrize("name", quick_if(QUICK.__contains__, PRODUCTS))
def test_products(name: str, rng: np.random.Generator) -> None:
    """Two steps in the loop, and two behind it."""
    given = problem(name, 4, rng)
    given.machine.launch([given.code], [given.launch])
    check_product(given.machine.read(given.result, np.empty((TILE, TILE), np.float32)), *given.values)


@pytest.mark.slow
def test_attention(rng: np.random.Generator) -> None:
    """Two heads with two tiles of queries: to the precision of bf16, in which weights are multiplied."""
    heads, queries, keys = 2, 512, 320
    scale = np.float32(np.log2(np.e) / np.sqrt(128))
    q, k, v = (rng.standard_normal((heads, rows, 128)).astype(ml_dtypes.bfloat16) for rows in (queries, keys, keys))
    inputs = {name: array.view(np.uint16) for name, array in (("q", q), ("k", k), ("v", v))}
    sizes = {"queries": queries, "heads": heads, "keys": keys, "scale": scale}
    (o,) = KERNELS["attention"].run(Machine(), inputs, {"o": inputs["q"]}, sizes)
    scores = (q.astype(np.float32) * scale).astype(ml_dtypes.bfloat16).astype(float) @ k.astype(float).swapaxes(1, 2)
    weights = np.exp2(scores - scores.max(axis=2, keepdims=True))
    expected = weights @ v.astype(float) / weights.sum(axis=2, keepdims=True)
    bound = 2.0**-8 * (weights @ np.abs(v.astype(float)) / weights.sum(axis=2, keepdims=True) + np.abs(expected))
    assert (np.abs(o.view(ml_dtypes.bfloat16).astype(float) - expected) <= bound).all()
