"""Triton's kernels, which others validated on hardware, are right on the simulator, with all checks on."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from corpus.device import Machine
from corpus.operands import VALUES, check_product, floor_scales, operand, pack, quantize_e2m1
from corpus.triton import KERNELS
from spread import quick_if

SCALED = [name for name, kernel in KERNELS.items() if kernel.kernel == "scaled_matmul"]
QUICK = {
    "scaled_e2m1_e2m1_mfma16_stages3",
    "scaled_e4m3_e2m1_mfma32_stages2",
}
"""Both matrix instructions and numbers of stages; test_fast_kernels.py has other formats."""
BF16 = ml_dtypes.bfloat16


def sizes(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


def test_names() -> None:
    assert set(SCALED) > QUICK


def matrix(rng: np.random.Generator, rows: int, columns: int, kind: type) -> np.ndarray:
    return rng.standard_normal((rows, columns)).astype(kind)


@pytest.mark.parametrize("name", quick_if(QUICK.__contains__, SCALED))
def test_scaled_matmul(name: str, machine: Machine, rng: np.random.Generator) -> None:
    """Two and a half tiles of K for each pipeline stage, and tiles that M and N fill in part."""
    constants = KERNELS[name].constants
    m, n, k = 160, 192, 5 * constants["block_k"]
    a, b = operand(rng, constants["a_format"], m, k), operand(rng, constants["b_format"], n, k)
    inputs = {"a": a.packed, "b": b.packed, "a_scale": a.scales, "b_scale": b.scales}
    (c,) = KERNELS[name].run(machine, inputs, {"c": np.empty((m, n), np.float32)}, sizes(m, n, k))
    check_product(c, a.values, b.values)


@pytest.mark.parametrize("width", [16, 32])
def test_scaled_matmul_of_transposed_nibbles(width: int, machine: Machine, rng: np.random.Generator) -> None:
    m, n, k = 64, 128, 384
    a, b = operand(rng, "e2m1", m, k), operand(rng, "e2m1", n, k)
    inputs = {"a": a.packed, "b": pack(b.codes.T), "a_scale": a.scales, "b_scale": b.scales}
    kernel = KERNELS[f"scaled_kn_mfma{width}"]
    (c,) = kernel.run(machine, inputs, {"c": np.empty((m, n), np.float32)}, sizes(m, n, k))
    check_product(c, a.values, b.values)


@pytest.mark.parametrize(("name", "kind"), [("weights_bf16", BF16), ("weights_f16", np.float16)])
def test_products_with_converted_weights(name: str, kind: Any, machine: Machine, rng: np.random.Generator) -> None:
    m, n, k = 64, 128, 384
    a, b = matrix(rng, m, k, kind), operand(rng, "e2m1", n, k)
    inputs = {"a": a, "b": b.packed, "b_scale": b.scales}
    (c,) = KERNELS[name].run(machine, inputs, {"c": np.empty((m, n), np.float32)}, sizes(m, n, k))
    check_product(c, a, b.values)


@pytest.mark.parametrize(
    ("name", "kind"), [("f16_mfma16", np.float16), ("f16_mfma32", np.float16), ("bf16_stages3", BF16)]
)
def test_matmul(name: str, kind: Any, machine: Machine, rng: np.random.Generator) -> None:
    """The last tile is part full in all three dimensions."""
    m, n, k = 100, 80, 208
    a, b = matrix(rng, m, k, kind), matrix(rng, n, k, kind)
    (c,) = KERNELS[name].run(machine, {"a": a, "b": b}, {"c": np.empty((m, n), np.float32)}, sizes(m, n, k))
    check_product(c, a, b)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("f16_kn_mfma16", np.float16), ("f16_kn_mfma32", np.float16), ("e4m3_kn", ml_dtypes.float8_e4m3fn)],
)
def test_matmul_of_transposed_operand(name: str, kind: Any, machine: Machine, rng: np.random.Generator) -> None:
    m, n, k = 64, 128, 256
    a, b = matrix(rng, m, k, kind), matrix(rng, k, n, kind)
    (c,) = KERNELS[name].run(machine, {"a": a, "b": b}, {"c": np.empty((m, n), np.float32)}, sizes(m, n, k))
    check_product(c, a, b.T)


@pytest.mark.parametrize(("name", "kind"), [("split_f32", np.float32), ("split_bf16", BF16)])
def test_matmul_with_atomics(name: str, kind: Any, machine: Machine, rng: np.random.Generator) -> None:
    """Each of the three parts of K is rounded to the type of the sum, and so is the sum after each."""
    m, n, k = 64, 64, 192
    a, b, c = matrix(rng, m, k, BF16), matrix(rng, n, k, BF16), np.zeros((m, n), kind)
    (c,) = KERNELS[name].run(machine, {"a": a, "b": b, "c": c}, {"c": c}, sizes(m, n, k))
    if kind is BF16:
        a, b = a.astype(np.float64), b.astype(np.float64)
        parts = [np.abs(a[:, at : at + 64] @ b[:, at : at + 64].T) for at in range(0, k, 64)]
        assert (np.abs(c.astype(np.float64) - a @ b.T) <= 4 * 2.0**-8 * sum(parts)).all()
    else:
        check_product(c, a, b)


def test_softmax(machine: Machine, rng: np.random.Generator) -> None:
    rows, columns = 5, 781
    x = 4 * matrix(rng, rows, columns, np.float32)
    (y,) = KERNELS["softmax"].run(machine, {"x": x}, {"y": x}, {"rows": rows, "columns": columns})
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=3e-6)


def test_layer_norm(machine: Machine, rng: np.random.Generator) -> None:
    rows, columns, epsilon = 5, 1100, 1e-5
    x = (3 * matrix(rng, rows, columns, np.float32) + 1).astype(BF16)
    weight, bias = matrix(rng, 1, columns, np.float32), matrix(rng, 1, columns, np.float32)
    values = {"rows": rows, "columns": columns, "epsilon": epsilon}
    (y,) = KERNELS["layer_norm"].run(machine, {"x": x, "weight": weight, "bias": bias}, {"y": x}, values)
    centred = x.astype(np.float64) - x.astype(np.float64).mean(axis=1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + epsilon) * weight + bias
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=2.0**-8, atol=1e-5)


@pytest.mark.parametrize("name", ["quantize_mxfp4", "convert_mxfp4"])
def test_quantiser(name: str, machine: Machine, rng: np.random.Generator) -> None:
    """Bit for bit, with blocks of every magnitude from subnormal to huge, zero blocks, and all ties of E2M1."""
    rows, columns = 32, 512
    x = matrix(rng, rows, columns, np.float64) * np.exp2(rng.integers(-133, 127, (rows, columns // 32))).repeat(32, 1)
    ties = np.sort(np.abs(VALUES["e2m1"]))[::2]
    x[0, :32] = np.resize(np.concatenate([(ties[1:] + ties[:-1]) / 2, ties, -ties]), 32)
    x[1, :32] = 0
    x = x.astype(BF16)
    scales = floor_scales(x)
    like = {"codes": np.empty((rows, columns // 2), np.uint8), "scales": scales}
    source = x.view(np.uint16) if name == "quantize_mxfp4" else x.view(np.uint32)
    codes, found = KERNELS[name].run(machine, {"x": source}, like, {"rows": rows, "columns": columns})
    np.testing.assert_array_equal(found, scales)
    np.testing.assert_array_equal(codes, pack(quantize_e2m1(x, scales)))
