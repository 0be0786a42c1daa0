"""Results whose dimensions come in any order: a batch behind rows, as in x[t, h, k] · w[h, d, k] = y[t, h, d]."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from string import Template

import numpy as np
import pytest
from iree.compiler import ir
from modules import KINDS, dequantise
from spread import quick_if

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.mlir import build

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


def test_left_to_iree() -> None:
    """A batch that no kernel of ours takes, of a size at which IREE cannot write its contraction in that order."""
    sizes = {"b": 3, "m": 63, "n": 32}
    rng = np.random.default_rng(1)
    codes, scales = ([rng.integers(*span, (3, sizes[each], last)).astype(np.uint8) for each in "mn"]
                     for span, last in (((0, 64), 32), ((120, 135), 1)))  # fmt: skip

    def turned(a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.operand(a, a_scales, "E3M2"), mx.operand(b, b_scales, "E3M2"))
        return build.transpose(y, [1, 2, 0])

    shapes = ("3x63x24xi8", "3x63x1xi8", "3x32x24xi8", "3x32x1xi8")
    program = mxcomp.compile(mx.module(turned, *shapes), data_tiling=False)
    assert "left to IREE" in (program.report.matmuls[0].reason or "")
    given = [
        part for pair in zip((formats.pack_bits(each, "E3M2") for each in codes), scales, strict=True) for part in pair
    ]
    (found,) = program.run(*(each.view(np.int8) for each in given))
    a, b = (formats.dequantise(*each, "E3M2", dtype=np.float64) for each in zip(codes, scales, strict=True))
    expected, size = np.einsum("bmk,bnk->mnb", a, b), np.einsum("bmk,bnk->mnb", np.abs(a), np.abs(b))
    assert (np.abs(found - expected) <= 2.0**-20 * size).all()
