"""What a router computes of scores, in one dispatch, on the simulator with all checks."""

from __future__ import annotations

from pathlib import Path
from string import Template

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxcomp

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
MODULE = Template((Path(__file__).parent / "chain.mlir.in").read_text())


def check(tokens: int, experts: int, top_k: int, kind: str, predicate: str = "oge") -> None:
    """Scores with some that are equal, infinite, zeros of either sign or NaN."""
    widened = "arith.addf %a, %zero : f32" if kind == "f32" else f"arith.extf %a : {kind} to f32"
    text = MODULE.substitute(t=tokens, e=experts, k=top_k, type=kind, predicate=predicate, widened=widened)
    program = mxcomp.compile(text, strict=True)
    rng = np.random.default_rng(tokens * experts + top_k)
    x = rng.standard_normal((tokens, experts)).astype(TYPES[kind])
    x[:, rng.integers(experts)] = x[:, rng.integers(experts)]
    x[0, rng.integers(experts)] = -np.inf
    x[-1, : experts // 2] = 0.0
    x[-1, rng.integers(experts, size=3)] = -0.0
    x[tokens // 2, rng.integers(experts)] = np.nan
    chosen, weights, counts = program.run(x)
    wide = x.astype(np.float64)
    is_last = np.isnan(wide) != predicate.startswith("og")
    signed = -wide if predicate.startswith("og") else wide
    order = np.lexsort((np.broadcast_to(np.arange(experts), x.shape), signed, is_last))[:, :top_k]
    assert np.array_equal(chosen, order)
    assert np.array_equal(counts, np.bincount(order.ravel(), minlength=experts))
    best = np.take_along_axis(wide, order, 1)
    powers = np.exp(best - best.max(1, keepdims=True))
    np.testing.assert_allclose(weights, powers / powers.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)
    (dispatch,) = program.profile(x).dispatches
    assert dispatch.owner.startswith("routing")


@pytest.mark.parametrize(
    ("tokens", "experts", "top_k", "kind", "predicate"),
    [(6, 40, 6, "f16", "oge"), (9, 130, 4, "f32", "ole")],
    ids=["counted", "by waves"],
)
def test_results(tokens: int, experts: int, top_k: int, kind: str, predicate: str) -> None:
    """Reductions of several tokens are in parts, and take several turns of a workgroup; waves choose among many."""
    check(tokens, experts, top_k, kind, predicate)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 20), st.integers(4, 70) | st.integers(100, 200), st.integers(2, 8), st.sampled_from(sorted(TYPES)),
    st.sampled_from(["oge", "ole", "ogt", "olt"]),
)  # fmt: skip
def test_any_size(tokens: int, experts: int, top_k: int, kind: str, predicate: str) -> None:
    check(tokens, experts, min(top_k, experts - 1), kind, predicate)
