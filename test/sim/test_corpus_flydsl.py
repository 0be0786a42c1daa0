"""Kernels that FlyDSL compiled are right on the simulator, with all checks on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from corpus.device import Machine
from corpus.flydsl import KERNELS
from corpus.operands import check_product, operand
from spread import quick_if

SCALED = [name for name, kernel in KERNELS.items() if "staged" in kernel.constants]
QUICK = {"scaled_e2m1_e2m1_staged", "scaled_e4m3_e2m1", "scaled_e4m3_e4m3_staged"}


@pytest.mark.parametrize("name", quick_if(QUICK.__contains__, SCALED))
def test_scaled_matmul(name: str, machine: Machine, rng: np.random.Generator) -> None:
    """Three steps of K, and tiles that M fills in part."""
    kernel = KERNELS[name]
    m, n, k = 80, 128, 768
    a, b = operand(rng, kernel.constants["a_format"], m, k), operand(rng, kernel.constants["b_format"], n, k)
    inputs = {"a": a.packed, "b": b.packed, "a_scale": a.scales, "b_scale": b.scales}
    (c,) = kernel.run(machine, inputs, {"c": np.empty((m, n), np.float32)}, {"m": m, "n": n, "k": k})
    check_product(c, a.values, b.values)


def test_names() -> None:
    assert set(SCALED) > QUICK


def test_softmax(machine: Machine, rng: np.random.Generator) -> None:
    rows, columns = 5, 781
    x = (4 * rng.standard_normal((rows, columns))).astype(np.float32)
    (y,) = KERNELS["softmax"].run(machine, {"x": x}, {"y": x}, {"rows": rows, "columns": columns})
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(axis=1, keepdims=True), rtol=3e-6)


def test_rms_norm(machine: Machine, rng: np.random.Generator) -> None:
    """The last workgroup is part full."""
    rows, columns, epsilon = 10, 512, 1e-5
    x = (3 * rng.standard_normal((rows, columns)) + 1).astype(ml_dtypes.bfloat16)
    weight = rng.standard_normal(columns).astype(np.float32)
    sizes = {"rows": rows, "epsilon": epsilon}
    (y,) = KERNELS["rms_norm"].run(machine, {"x": x, "weight": weight}, {"y": x}, sizes)
    values = x.astype(np.float64)
    expected = values / np.sqrt((values**2).mean(axis=1, keepdims=True) + epsilon) * weight
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=2.0**-8, atol=1e-5)
