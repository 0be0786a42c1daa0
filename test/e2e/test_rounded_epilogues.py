"""What is computed behind a matmul and rounded to bf16: where it is approximated, and how far off that is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from iree.compiler import ir
from ml_dtypes import bfloat16

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats

M, N, K = 3, 80, 64
Combine = Callable[[ir.Value, ir.Value], ir.Value]


def _silu(x: ir.Value, _: ir.Value) -> ir.Value:
    return mx.divide(x, mx.add(mx.exp(mx.subtract(0.0, x)), 1.0))


def _module(combine: Combine, result: str) -> ir.Module:
    """A matmul with a bias; `combine` has the sum and the bias."""

    def body(x: ir.Value, xs: ir.Value, w: ir.Value, ws: ir.Value, b: ir.Value) -> ir.Value:
        product = mx.scaled_matmul(mx.operand(x, xs, "E2M1"), mx.operand(w, ws, "E2M1"))
        return mx.elementwise(lambda r, bias: combine(mx.add(r, bias), bias), product, b, result=result)

    shapes = (f"{rows}x{columns}xi8" for rows in (M, N) for columns in (K // 2, K // 32))
    return mx.module(body, *shapes, f"{N}xf32")


@pytest.mark.parametrize(
    ("combine", "result", "count"),
    [
        pytest.param(_silu, "bf16", 2, id="silu"),
        pytest.param(_silu, "f32", 0, id="not rounded"),
        pytest.param(lambda x, y: mx.divide(x, y), "bf16", 0, id="any divisor"),
        pytest.param(lambda x, y: mx.divide(y, mx.add(mx.exp(x), 1.0)), "bf16", 1, id="another numerator"),
        pytest.param(lambda x, _: mx.subtract(mx.exp(x), 1.0), "bf16", 0, id="cancelled"),
        pytest.param(lambda x, _: mx.add(mx.exp(x), -1.0), "bf16", 0, id="a negative constant"),
    ],
)
def test_what_is_approximated(combine: Combine, result: str, count: int) -> None:
    text = mxcomp.compile(_module(combine, result), compile_to="flow").vmfb.decode()
    assert text.count("fastmath<arcp,afn>") == count


def test_silu_of_any_number() -> None:
    """Within one bf16 of float64's; what is less than 2⁻¹¹⁹ may be 0."""
    rng = np.random.default_rng(3)
    x, w = (rng.integers(0, 256, (rows, K // 2)).astype(np.uint8) for rows in (M, N))
    scales = [rng.integers(118, 124, (rows, K // 32)).astype(np.uint8) for rows in (M, N)]
    edges = [-np.inf, np.inf, np.nan, -3e38, 3e38, -104, -89, -88.5, -87, -80, 80, 89, 0, -1e-30]
    bias = np.concatenate([edges, rng.uniform(-20, 20, N - len(edges))]).astype(np.float32)
    given = [each.view(np.int8) for each in (x, scales[0], w, scales[1])]
    result = mxcomp.compile(_module(_silu, "bf16"), strict=True).run(*given, bias)[0].astype(np.float64)
    a, b = (
        formats.dequantise(formats.unpack_bits(codes, formats.E2M1), scale, formats.E2M1, dtype=np.float64)
        for codes, scale in zip((x, w), scales, strict=True)
    )
    with np.errstate(over="ignore", invalid="ignore"):
        gate = ((a @ b.T).astype(np.float32) + bias).astype(np.float64)
        expected = (gate / (1 + np.exp(-gate))).astype(bfloat16).astype(np.float64)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_allclose(result, expected, rtol=2**-7, atol=2.0**-119)
