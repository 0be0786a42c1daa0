"""Dynamic sizes that must agree are compared when a program is called: else it fails, naming both."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir
from modules import Matmul, dequantise
from spread import quick_if

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.compiler import Program
from mxcomp.errors import VerifyError
from mxcomp.run.runtime import RunError

SOURCE = (Path(__file__).parent / "inputs" / "agreeing_sizes.mlir").read_text()
KIND = "f8E4M3FN"
WAYS: list[dict[str, Any]] = [{}, {"ukernels": "none"}, {"data_tiling": False}]


@cache
def program(way: int) -> Program:
    return mxcomp.compile(SOURCE, **WAYS[way])


def arguments(m: int = 5, n: int = 24) -> list[np.ndarray]:
    lhs, rhs, lhs_scale, rhs_scale = Matmul(m, n, 96, types=(KIND, KIND)).operands
    rng = np.random.default_rng(1)
    x = dequantise(lhs, lhs_scale, KIND).astype(np.float32)
    scales = [scale.view(ml_dtypes.float8_e8m0fnu) for scale in (lhs_scale, rhs_scale)]
    w = rhs.reshape(n, 3, 32).view(ml_dtypes.float8_e4m3fn)
    shapes = (m, n), (m, 2, n // 2), (m,), (n,), (m, n)
    return [x, scales[0], w, scales[1], *(rng.standard_normal(shape).astype(np.float32) for shape in shapes)]


def expected(inputs: list[np.ndarray]) -> np.ndarray:
    x, _, w, w_scales, residual, gate, factor, bias, _ = inputs
    b = dequantise(w.reshape(len(w), -1).view(np.uint8), w_scales.view(np.uint8), KIND)
    return (x.astype(np.float64) @ b.T + bias) * gate.reshape(residual.shape) * factor[:, None] + residual


SAME_M = "dimension 0 of argument {} and dimension 0 of argument {} must be equal"
WRONG: list[tuple[int, int, str]] = [
    (1, 0, SAME_M.format(0, 1)),
    (2, 0, "dimension 0 of argument 2 and dimension 1 of argument 4 must be equal, for linalg.generic at source:44:8"),
    (3, 0, "RHS and RHS scales must have the same N"),
    (4, 0, SAME_M.format(0, 4)),
    (4, 1, "dimension 0 of argument 2 and dimension 1 of argument 4 must be equal"),
    (5, 0, SAME_M.format(0, 5)),
    (5, 2, r"dimension 0 of argument 2 and 2 \* dimension 2 of argument 5 must be equal"),
    (6, 0, SAME_M.format(0, 6)),
    (7, 0, SAME_M.format(2, 7)),
    (8, 0, f"{SAME_M.format(0, 8)}, for arith.mulf at source:55:8"),
    (8, 1, "dimension 0 of argument 2 and dimension 1 of argument 8 must be equal"),
]


@pytest.mark.parametrize("way", quick_if(lambda way: way == 0, range(len(WAYS))))
def test_consumers_and_activations(way: int) -> None:
    """Residual, gate, row factor, bias, what is not fused; activations and their scales."""
    inputs = arguments()
    z, sums = program(way).run(*inputs)
    wanted = expected(inputs)
    np.testing.assert_allclose(z, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    np.testing.assert_allclose(sums, (wanted * inputs[8]).sum(1), rtol=1e-3, atol=1e-3 * np.abs(wanted).max())
    for argument, dim, message in WRONG:
        for size in (inputs[argument].shape[dim] - 1, inputs[argument].shape[dim] + 1):
            given = list(inputs)
            given[argument] = np.resize(
                given[argument], [size if i == dim else s for i, s in enumerate(given[argument].shape)]
            )
            with pytest.raises(RunError, match=message):
                program(way).run(*given)


@pytest.mark.slow
def test_in_verify() -> None:
    inputs = arguments()
    assert mxcomp.verify(SOURCE, inputs).ok
    with pytest.raises(VerifyError, match=r"dimension 0 of argument 4 must be equal, for linalg\.generic at source:"):
        mxcomp.verify(SOURCE, [*inputs[:4], inputs[4][:-1], *inputs[5:]])


def test_batches() -> None:
    """A batch of both operands, of dynamic M: each matrix has as many rows."""
    rng = np.random.default_rng(2)
    weights = formats.quantise(rng.standard_normal((2, 24, 64)).astype(np.float32), "E4M3")

    def layer(codes: ir.Value, scales: ir.Value, residual: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.operand(codes, scales, "E4M3"), mx.constant(*weights, "E4M3"))
        return mx.elementwise(lambda y, r: mx.add(y, r), y, residual, result="f32")

    made = mxcomp.compile(mx.module(layer, "2x?x64xi8", "2x?x2xi8", "2x?x24xf32"))
    x, residual = (rng.standard_normal((2, 6, n)).astype(np.float32) for n in (64, 24))
    quantised = formats.quantise(x, "E4M3")
    given = [each.view(np.int8) for each in quantised]
    (y,) = made.run(*given, residual)
    product = formats.matmul(*quantised, "E4M3", *weights, "E4M3")
    np.testing.assert_allclose(y, product + residual, rtol=1e-4, atol=1e-4)
    for rows in (1, 5, 7):
        with pytest.raises(RunError, match="dimension 1 of argument 0 and dimension 1 of argument 2 must be equal"):
            made.run(*given, np.resize(residual, (2, rows, 24)))


REGIONS = (Path(__file__).parent / "inputs" / "agreeing_regions.mlir").read_text()


def test_regions() -> None:
    """Pieces of a concatenation; what branches, loops and functions compute. A session goes on."""
    x, y = np.random.default_rng(3).standard_normal((2, 5, 4)).astype(np.float32)
    right: dict[str, tuple[tuple[Any, ...], np.ndarray]] = {
        "cat": ((x, y), np.concatenate([x, y], 1)), "branch": ((True, x, y), x * x + y),
        "loop": ((2, x, y), x + y + y), "calls": ((x, y, x), (x + y) * (x + y) * x),
    }  # fmt: skip
    with mxcomp.compile(REGIONS).session() as session:
        for function, (given, expected) in right.items():
            np.testing.assert_allclose(session.run(*given, function=function)[0], expected, rtol=1e-6)
            tensors = [i for i, value in enumerate(given) if isinstance(value, np.ndarray)]
            for at in tensors:
                wrong = [value[:3] if i == at else value for i, value in enumerate(given)]
                with pytest.raises(RunError, match=r"of argument \d.* and .* of argument \d.* must be equal, for"):
                    session.run(*wrong, function=function)
