"""Element formats against ml_dtypes, and against midpoints computed from its tables."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mx_vectors
import numpy as np
import pytest

from mxcomp.formats import E2M1, E4M3, E5M2, FORMATS, decode, element_format, encode

ML_DTYPES = {
    "E2M1": ml_dtypes.float4_e2m1fn,
    "E2M3": ml_dtypes.float6_e2m3fn,
    "E3M2": ml_dtypes.float6_e3m2fn,
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
}
each_format = pytest.mark.parametrize("name", mx_vectors.FORMAT_NAMES)


def table(name: str) -> np.ndarray:
    bits = {"E2M1": 4, "E2M3": 6, "E3M2": 6, "E4M3": 8, "E5M2": 8}[name]
    return np.arange(1 << bits, dtype=np.uint8).view(ML_DTYPES[name]).astype(np.float32)


def magnitudes(name: str) -> np.ndarray:
    """The finite non-negative values in order, indexed by code."""
    values = table(name)[: len(table(name)) // 2]
    return values[np.isfinite(values)]


@pytest.mark.parametrize(
    ("name", "mlir_type", "bits", "bias", "emax", "max_finite", "code"),
    [
        ("E2M1", "f4E2M1FN", 4, 1, 2, 6.0, 4),
        ("E2M3", "f6E2M3FN", 6, 1, 2, 7.5, 2),
        ("E3M2", "f6E3M2FN", 6, 3, 4, 28.0, 3),
        ("E4M3", "f8E4M3FN", 8, 7, 8, 448.0, 0),
        ("E5M2", "f8E5M2", 8, 15, 15, 57344.0, 1),
    ],
)
def test_properties(name: str, mlir_type: str, bits: int, bias: int, emax: int, max_finite: float, code: int) -> None:
    fmt = FORMATS[name]
    assert (fmt.bits, fmt.bias, fmt.emax, fmt.max_finite, fmt.hardware_code) == (bits, bias, emax, max_finite, code)
    assert fmt.mlir_type == mlir_type
    assert element_format(mlir_type) is element_format(name) is element_format(fmt) is fmt


@each_format
def test_decodes_every_code(name: str) -> None:
    codes = np.arange(len(table(name)), dtype=np.uint8)
    expected, actual = table(name), decode(codes, name)
    nan = np.isnan(expected)
    assert actual.dtype == np.float32
    assert np.array_equal(np.isnan(actual), nan)
    assert np.array_equal(actual[~nan].view(np.uint32), expected[~nan].view(np.uint32))


@each_format
def test_encodes_every_finite_value_to_its_code(name: str) -> None:
    finite = np.isfinite(table(name))
    assert np.array_equal(encode(table(name)[finite], name), np.flatnonzero(finite))


@each_format
@pytest.mark.parametrize("sign", [1, -1])
def test_rounds_midpoints_and_their_neighbours(name: str, sign: float) -> None:
    values = magnitudes(name)
    low = np.arange(len(values) - 1)
    middle = (values[:-1] + values[1:]) / np.float32(2)
    sign_bit = len(table(name)) // 2 if sign < 0 else 0

    def encoded(x: np.ndarray, **ties: str) -> np.ndarray:
        return encode(x * np.float32(sign), name, **ties) - sign_bit

    for ties in ("even", "away"):
        assert np.array_equal(encoded(np.nextafter(middle, np.float32(0)), ties=ties), low)
        assert np.array_equal(encoded(np.nextafter(middle, np.float32(np.inf)), ties=ties), low + 1)
    assert np.array_equal(encoded(middle), low + low % 2)
    assert np.array_equal(encoded(middle, ties="away"), low + 1)


@each_format
def test_agrees_with_ml_dtypes_on_all_bfloat16(name: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    in_range = np.abs(x.astype(np.float32)) <= magnitudes(name)[-1]  # NaN is not
    expected = x[in_range].astype(np.float32).astype(ML_DTYPES[name]).view(np.uint8)
    assert np.array_equal(encode(x[in_range], name), expected)


@each_format
def test_agrees_with_ml_dtypes_on_float32(name: str) -> None:
    x = mx_vectors.blocks(np.random.default_rng(3).integers(90, 146, 4000)).view(np.float32)
    x = x[np.abs(x) <= magnitudes(name)[-1]]
    assert len(x) > 50_000
    assert np.array_equal(encode(x, name), x.astype(ML_DTYPES[name]).view(np.uint8))


@each_format
def test_saturates(name: str) -> None:
    largest = len(magnitudes(name)) - 1
    sign_bit = len(table(name)) // 2
    x = np.array([np.inf, 3e38, magnitudes(name)[-1] * 1.001], np.float32)
    assert np.array_equal(encode(x, name), [largest] * 3)
    assert np.array_equal(encode(-x, name), [largest + sign_bit] * 3)


def test_nan_keeps_its_sign() -> None:
    nan = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert encode(nan, E4M3).tolist() == [0x7F, 0xFF] * 2
    assert encode(nan, E5M2).tolist() == [0x7F, 0xFF] * 2
    assert encode(nan, E2M1).tolist() == [0x7, 0xF] * 2  # has no NaN: saturates


@each_format
def test_zeros_and_denormals_keep_their_sign(name: str) -> None:
    sign_bit = len(table(name)) // 2
    x = np.array([0x00000000, 0x80000000, 0x00000001, 0x807FFFFF], np.uint32).view(np.float32)
    assert encode(x, name).tolist() == [0, sign_bit, 0, sign_bit]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_inputs_are_widened(dtype: Any) -> None:
    x = np.linspace(-8, 8, 999, dtype=np.float32).astype(dtype)
    assert np.array_equal(encode(x, E2M1), encode(x.astype(np.float32), E2M1))


def test_shapes_are_kept() -> None:
    assert encode(np.float32(1.5), E2M1) == 3
    assert encode(np.zeros((2, 0, 3), np.float32), E2M1).shape == (2, 0, 3)
    assert decode(np.zeros((2, 0, 3), np.uint8), E2M1).shape == (2, 0, 3)


def test_table_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        E2M1.values()[0] = 1


def test_errors() -> None:
    with pytest.raises(TypeError, match="float64"):
        encode(np.zeros(3), E2M1)
    with pytest.raises(TypeError, match="int8"):
        decode(np.zeros(3, np.int8), E2M1)
    with pytest.raises(ValueError, match="0x10 does not fit E2M1's 4 bits"):
        decode(np.array([16], np.uint8), E2M1)
    with pytest.raises(ValueError, match="unknown element format 'E9M9'; use one of E2M1"):
        encode(np.zeros(3, np.float32), "E9M9")
    with pytest.raises(ValueError, match="unknown rule for ties"):
        encode(np.zeros(3, np.float32), E2M1, ties="odd")
