"""`mxcomp.ir`: programs written in Python compile to one dispatch a matmul, and are right on the simulated GPU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.errors import InputError

RNG = np.random.default_rng(7)


def matrix(fmt: str, *shape: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes and scales of random numbers of very different sizes, and the float64 values that they mean."""
    spread = np.exp2(RNG.integers(-6, 6, (*shape[:-1], 1)))
    codes, scales = formats.quantise((RNG.standard_normal(shape) * spread).astype(np.float32), fmt)
    return codes, scales, formats.dequantise(codes, scales, fmt, dtype=np.float64)


def near(found: np.ndarray, a: np.ndarray, b: np.ndarray, expected: np.ndarray | None = None) -> None:
    """Within what f32 sums of so many products can be off, and one rounding of the result's type."""
    products = a @ np.swapaxes(b, -1, -2)
    bound = (np.abs(a) @ np.abs(np.swapaxes(b, -1, -2))) * a.shape[-1] * 2.0**-24
    expected = products if expected is None else expected
    rounding = np.abs(expected) * (2.0**-8 if found.dtype == ml_dtypes.bfloat16 else 2.0**-23)
    assert (np.abs(found.astype(np.float64) - expected) <= bound + rounding).all()


def test_layer_with_epilogue_and_dynamic_rows() -> None:
    """Quantised activations, constant weights, bias by column, a factor by row, a scalar: one dispatch after
    packing."""
    w, w_scales, w_values = matrix("E4M3", 48, 96)

    def layer(x: ir.Value, bias: ir.Value, factor: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.constant(w, w_scales, "E4M3"))
        return mx.elementwise(
            lambda y, b, f: mx.maximum(mx.multiply(mx.add(y, b), f), -1.0), y, bias, factor, result="bf16"
        )

    program = mxcomp.compile(mx.module(layer, "?x96xf32", "48xf32", "1x1xf32"))
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == ["quantise_lhs", "matmul"]
    x = RNG.standard_normal((5, 96)).astype(np.float32)
    bias, factor = RNG.standard_normal(48).astype(np.float32), np.array([[1.5]], np.float32)
    (y,) = program.run(x, bias, factor)
    a = formats.dequantise(*formats.quantise(x, "E2M1"), "E2M1", dtype=np.float64)
    near(y, 1.5 * a, w_values, np.maximum((a @ w_values.T + bias) * 1.5, -1.0))


@pytest.mark.parametrize("types", [("E2M1", "E2M1"), ("E3M2", "E5M2")], ids="-".join)
def test_operands_from_bytes(types: tuple[str, str]) -> None:
    (a, a_scales, a_values), (b, b_scales, b_values) = (
        matrix(fmt, rows, 64) for fmt, rows in zip(types, (3, 32), strict=True)
    )

    def product(a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.operand(a, a_scales, types[0]), mx.operand(b, b_scales, types[1]))

    packed = [formats.pack_bits(codes, fmt) for codes, fmt in zip((a, b), types, strict=True)]
    shapes = [packed[0].shape, a_scales.shape, packed[1].shape, b_scales.shape]
    program = mxcomp.compile(mx.module(product, *("x".join(map(str, shape)) + "xi8" for shape in shapes)))
    (y,) = program.run(*(data.view(np.int8) for data in (packed[0], a_scales, packed[1], b_scales)))
    near(y, a_values, b_values)


def test_batch_and_dynamic_columns() -> None:
    a, a_scales, a_values = matrix("E2M1", 2, 4, 64)
    b, b_scales, b_values = matrix("E2M1", 2, 20, 64)

    def product(a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.operand(a, a_scales, "E2M1"), mx.operand(b, b_scales, "E2M1"))

    program = mxcomp.compile(mx.module(product, "2x?x32xi8", "2x?x2xi8", "2x?x32xi8", "2x?x2xi8"))
    assert program.report.matmuls[0].ukernel
    packed = [formats.pack_bits(codes, "E2M1") for codes in (a, b)]
    (y,) = program.run(*(data.view(np.int8) for data in (packed[0], a_scales, packed[1], b_scales)))
    near(y, a_values, b_values)


def test_two_results() -> None:
    def both(x: ir.Value) -> tuple[ir.Value, ir.Value]:
        halves = mx.elementwise(lambda value: mx.divide(value, 2.0), x)
        return halves, mx.elementwise(lambda a, b: mx.subtract(mx.tanh(a), mx.exp(b)), x, halves)

    x = RNG.standard_normal((3, 5)).astype(np.float32)
    half, rest = mxcomp.compile(mx.module(both, "3x5xf32")).run(x)
    np.testing.assert_array_equal(half, x / 2)
    np.testing.assert_allclose(rest, np.tanh(x) - np.exp(x / 2), rtol=1e-5, atol=1e-6)


def test_mistakes() -> None:
    with pytest.raises(InputError, match="argument type '3xfoo': expected a tensor as 64x"):
        mx.module(lambda x: x, "3xfoo")
    with pytest.raises(InputError, match=r"expected bytes \[rows, K · 4 / 8\] and \[rows, K / 32\] of E2M1"):
        mx.module(lambda a, s: mx.operand(a, s, "E2M1").elements, "3x32xi8", "3x3xi8")
    with pytest.raises(InputError, match=r"tensor<2x7xf32> cannot be broadcast to \[2, 8\]"):
        mx.module(lambda a, b: mx.elementwise(mx.add, a, b), "2x8xf32", "2x7xf32")
    with pytest.raises(InputError, match="batch and K must be equal"):
        mx.module(lambda a, b: mx.scaled_matmul(mx.quantise(a, "E2M1"), mx.quantise(b, "E2M1")), "2x64xf32", "2x32xf32")


def test_public_names() -> None:
    assert {"compile", "verify", "Program"} <= set(dir(mxcomp))
    assert set(mx.__all__) <= set(dir(mx))
    program = mxcomp.compile(mx.module(lambda x: mx.elementwise(lambda a: a, x), "4xf32"))
    assert len(repr(program)) < 200
