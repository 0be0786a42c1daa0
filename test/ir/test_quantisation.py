"""Quantisation inside compiled programs, on the simulated device, is bit-equal to `mxcomp.formats.quantise`."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import func
from modules import BITS

import mxcomp
from mxcomp.formats import element_format, pack_bits, quantise
from mxcomp.ir.quantisation import SCALE_CARRIES
from mxcomp.ir.quantisation import quantise as quantise_in_program
from mxcomp.mlir import build

FORMATS = ("f4E2M1FN", "f8E4M3FN", "f8E5M2")  # IREE cannot store tensors of 6-bit elements
CASES = list(itertools.product(FORMATS, SCALE_CARRIES))
TYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
ROWS, K = 48, 128


def module(kind: str, dynamic: bool, cases: list[tuple[str, str]]) -> str:
    """A function that quantises its argument in all `cases`, and returns the bytes of elements and scales."""
    context = ir.Context()
    context.load_all_available_dialects()
    with context, ir.Location.unknown():
        result = ir.Module.create()
        rows = None if dynamic else ROWS
        x = build.tensor_type((rows, K), kind)
        columns = [column for fmt, _ in cases for column in (K * BITS[fmt] // 8, K // 32)]
        types = [build.tensor_type((rows, column), "i8") for column in columns]
        with ir.InsertionPoint(result.body):
            function = func.FuncOp("main", ir.FunctionType.get([x], types))
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            values = [value for fmt, mode in cases for value in quantise_in_program(block.arguments[0], fmt, mode)]
            func.ReturnOp([build.bitcast(value, type_) for value, type_ in zip(values, types, strict=True)])
        return str(result)


def samples(kind: str) -> np.ndarray:
    """Random blocks of very different sizes; zeros, denormals, infinities, NaN, ties, the ends of the range."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((ROWS, K)) * np.exp2(rng.integers(-20, 20, (ROWS, 1)))
    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6]
    largest = float(ml_dtypes.finfo(TYPES[kind]).max)
    x[0], x[1], x[2, :32] = 0.0, -0.0, 0.0
    x[3, 3], x[4, 5], x[5, 64] = np.inf, np.nan, -np.inf
    x[6] *= np.exp2(-130)
    x[7] *= largest / np.abs(x[7]).max()
    x[8] = float(ml_dtypes.finfo(TYPES[kind]).smallest_subnormal)
    x[9], x[10] = np.tile(ties, K // 16), np.nextafter(np.tile(ties, K // 16).astype(np.float32), np.inf)
    x[11], x[12] = x[9] * np.exp2(-127), x[9] * np.exp2(-14)
    # Where modes differ: maxima all over the mantissas, just below and above them.
    x[13:29] = np.clip(x[13:29], -1, 1)
    maxima = np.linspace(1, 2, 64, endpoint=False).astype(np.float32)
    x[13:29].reshape(64, 32)[:, 7] = maxima
    x[29:45].reshape(64, 32)[:, 9] = np.nextafter(np.exp2(30) * maxima, 0, dtype=np.float32)
    with np.errstate(over="ignore"):
        return x.astype(TYPES[kind])


@pytest.mark.parametrize(
    ("kind", "dynamic", "cases"),
    [
        pytest.param("f32", False, CASES, id="f32"),
        pytest.param("bf16", True, CASES[::5], id="bf16-some"),
        pytest.param("bf16", True, CASES, id="bf16", marks=pytest.mark.slow),
        pytest.param("f16", False, CASES, id="f16", marks=pytest.mark.slow),
    ],
)
def test_bit_equal(kind: str, dynamic: bool, cases: list[tuple[str, str]]) -> None:
    x = samples(kind)
    results = mxcomp.compile(module(kind, dynamic, cases)).run(x)
    scales_seen = set()
    for (fmt, mode), elements, scales in zip(cases, results[::2], results[1::2], strict=True):
        codes, expected = quantise(x, fmt, mode)
        np.testing.assert_array_equal(scales.view(np.uint8), expected, f"{fmt} {mode}")
        np.testing.assert_array_equal(elements.view(np.uint8), pack_bits(codes, element_format(fmt)), f"{fmt} {mode}")
        scales_seen.add(expected.tobytes())
    assert len(scales_seen) == len(cases)  # no two ask for the same
