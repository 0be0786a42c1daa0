"""Results whose dimensions come in any order: a batch behind rows, as in x[t, h, k] · w[h, d, k] = y[t, h, d]."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from string import Template

import numpy as np
import pytest
from modules import KINDS, dequantise
from spread import quick_if

import mxcomp

TEXT = Template(Path(__file__).with_name("result_order.mlir.in").read_text())
SIZES = {"t": 5, "h": 3, "d": 40}
ORDERS = ["".join(order) for order in permutations(SIZES)]
CASES = [(weights, order, dynamic) for weights in ("hd", "d") for order in ORDERS for dynamic in (False, True)]
"""The loops of the weights: of each head, or the same for all heads, which are rows then; and those of the result."""
QUICK = [("hd", "thd", False), ("hd", "dth", True), ("d", "tdh", False)]


@pytest.mark.parametrize("case", quick_if(QUICK.__contains__, CASES), ids=str)
def test_orders(case: tuple[str, str, bool]) -> None:
    weights, order, dynamic = case
    shown = SIZES | ({"t": "?"} if dynamic else {})
    text = TEXT.substitute(
        w_loops=", ".join(weights), w="x".join(str(SIZES[each]) for each in weights), order=", ".join(order),
        t=shown["t"], result="x".join(str(shown[each]) for each in order), sizes="{%size}" * dynamic,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    finite = np.flatnonzero(np.isfinite(np.arange(256, dtype=np.uint8).view(KINDS["f8E4M3FN"]).astype(np.float32)))
    rows = [SIZES[each] for each in weights]
    x, w = rng.choice(finite, (5, 3, 96)).astype(np.uint8), rng.integers(0, 256, (*rows, 48)).astype(np.uint8)
    x_scales, w_scales = (rng.integers(118, 132, (*shape, 3)).astype(np.uint8) for shape in ((5, 3), rows))
    start = rng.standard_normal([SIZES[each] for each in order]).astype(np.float32)
    program = mxcomp.compile(text)
    (found,) = program.run(*(each.view(np.int8) for each in (x, x_scales, w, w_scales)), start)
    turned = weights == "d" and dynamic and order.index("h") < order.index("t")  # rows, in another order than in memory
    assert ("no known order" in (program.report.matmuls[0].reason or "")) == turned
    values = dequantise(x.reshape(15, 96), x_scales.reshape(15, 3), "f8E4M3FN").reshape(5, 3, 96)
    factors = dequantise(w.reshape(-1, 48), w_scales.reshape(-1, 3)).reshape(*rows, 96)
    expected, size = (
        np.einsum(f"thk,{weights}k->{order}", *operands)
        for operands in ((values, factors), (np.abs(values), np.abs(factors)))
    )
    assert (np.abs(found - start - expected) <= 100 * 2.0**-24 * (size + np.abs(start))).all()
