"""`torch.operator "torch.mxcomp.scaled_linear"` in a module, as exporters write it: no torch is needed here."""

from __future__ import annotations

from string import Template

import ml_dtypes
import numpy as np
import pytest
from modules import BITS, FP4, HERE, Matmul, product

import mxcomp
from mxcomp.formats import pack_bits, quantise

TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize(
    ("weight", "activations", "mode", "kind"),
    [(FP4, FP4, "even", "f32"), ("f6E3M2FN", "f8E4M3FN", "floor", "bf16")],
)
def test_operator(weight: str, activations: str, mode: str, kind: str) -> None:
    matmul = Matmul(48, 160, 256, types=(FP4, weight))
    _, w, _, s = matmul.operands
    text = Template((HERE / "torch_operator.mlir.in").read_text()).substitute(
        m=matmul.m,
        n=matmul.n,
        k=matmul.k,
        bytes=matmul.k * BITS[weight] // 8,
        blocks=matmul.k // 32,
        kind=kind,
        weight=weight,
        input=activations,
        mode=mode,
    )
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((matmul.m, matmul.k)) * np.exp2(rng.integers(-9, 9, (matmul.m, 1)))).astype(TYPES[kind])
    codes, scales = quantise(x, activations, mode)
    operands = pack_bits(codes, activations), w, scales, s
    program = mxcomp.compile(text)
    (result,) = program.run(x, w, s)

    (found,) = program.report.matmuls
    assert found.reason is None
    assert found.types[:2] == [activations, weight]
    types = (activations, weight)
    expected, magnitude = product(*operands, types=types), product(*operands, types=types, absolute=True)
    rounding = np.abs(expected) * (2.0**-8 if kind == "bf16" else 0)
    assert result.dtype == TYPES[kind]
    assert (np.abs(result.astype(np.float64) - np.maximum(expected, 0)) <= magnitude * matmul.bound + rounding).all()
    assert (expected > 0).any() and (expected < 0).any()
