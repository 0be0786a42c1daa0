"""Quantisation against torchao's golden vectors, AITER's rule written out, and a search for the nearest element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import mx_vectors
import numpy as np
import pytest
from test_elements import ML_DTYPES, magnitudes, table

from mxcomp.formats import E2M1, E4M3, E5M2, dequantise, matmul, quantise

GOLDEN = Path(__file__).parent / "golden"
each_mode = pytest.mark.parametrize("mode", mx_vectors.MODES)
each_format = pytest.mark.parametrize("fmt", mx_vectors.FORMAT_NAMES)


def blocks(seed: int = 1) -> np.ndarray:
    return mx_vectors.blocks(np.tile(np.arange(255), 8), seed).view(np.float32)


def ordinary_blocks() -> np.ndarray:
    return mx_vectors.blocks(np.tile(np.arange(60, 190), 10)).view(np.float32)[: 130 * 10]


# --- torchao ---


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@each_format
@each_mode
def test_torchao_codes_and_scales(dtype: str, fmt: str, mode: Any) -> None:
    golden = np.load(GOLDEN / f"torchao_{dtype}.npz")
    x = golden["input"].view(np.float32 if dtype == "float32" else ml_dtypes.bfloat16)
    codes, scales = quantise(x, fmt, mode, profile="torchao")
    assert np.array_equal(scales, golden[f"{fmt}_scales"][mx_vectors.MODES.index(mode)])
    assert np.array_equal(codes, golden[f"{fmt}_codes"][mx_vectors.MODES.index(mode)])


@each_format
@each_mode
def test_torchao_scales_of_all_block_maxima(fmt: str, mode: Any) -> None:
    golden = np.load(GOLDEN / "torchao_scales.npz")
    x = np.zeros((len(golden["maxima"]), 32), np.float32)
    x[:, 0] = golden["maxima"].view(np.float32)
    _, scales = quantise(x, fmt, mode, profile="torchao")
    assert np.array_equal(scales[:, 0], golden[f"{fmt}_scales"][mx_vectors.MODES.index(mode)])


@each_format
@each_mode
def test_torchao_is_ocp_on_ordinary_bfloat16(fmt: str, mode: Any) -> None:
    x = ordinary_blocks().astype(ml_dtypes.bfloat16)
    for ours, theirs in zip(quantise(x, fmt, mode), quantise(x, fmt, mode, profile="torchao"), strict=True):
        assert np.array_equal(ours, theirs)


def test_torchao_differs_where_documented() -> None:
    x = np.zeros((6, 32), np.float32)
    x[0, 0] = np.inf
    x[1, :2] = np.nan, -1
    x[2, :2] = 6 * 2.0**-127, 2.0**-127
    x[3, 0] = np.nextafter(np.float32(6 * 2.0**10), np.float32(np.inf))
    x[4, 0] = -0.0
    x[5, 0] = 3e38
    codes, scales = {}, {}
    for profile in ("ocp", "torchao"):
        for mode in ("floor", "rceil"):
            codes[profile, mode], scales[profile, mode] = quantise(x, E2M1, mode, profile=profile)
    assert scales["ocp", "floor"][:, 0].tolist() == [0xFF, 0xFF, 0, 137, 0, 252]
    assert scales["torchao", "floor"][:, 0].tolist() == [253, 0xFF, 0, 137, 0, 252]
    assert scales["ocp", "rceil"][:, 0].tolist() == [0xFF, 0xFF, 0, 138, 0, 253]
    assert scales["torchao", "rceil"][:, 0].tolist() == [254, 0xFF, 0, 137, 0, 253]
    assert codes["ocp", "floor"][:5, :2].tolist() == [[0, 0], [0, 0], [7, 2], [7, 0], [8, 0]]
    assert codes["torchao", "floor"][:5, :2].tolist() == [[7, 0], [3, 8], [5, 1], [7, 0], [8, 0]]
    assert codes["torchao", "rceil"][:5, :2].tolist() == [[7, 0], [3, 3], [0, 0], [7, 0], [8, 0]]


# --- AITER ---


@np.errstate(all="ignore")
def aiter_mxfp4(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """AITER's rule step by step on float32[n, 32]: codes and scales."""
    amax = np.abs(x).max(axis=1, keepdims=True)
    amax[np.isnan(amax)] = np.nan  # of several NaN a maximum returns any
    a = ((amax.view(np.uint32) + np.uint32(0x200000)) & ~np.uint32(0x7FFFFF)).view(np.float32)
    e = np.clip(np.floor(np.log2(a)) - 2, -127, 127).astype(np.float64)
    q = (x * (2.0**-e).astype(np.float32)).astype(np.float32)
    exponent = (q.view(np.uint32) >> 23 & 0xFF).astype(np.int64)
    m = (q.view(np.uint32) & 0x7FFFFF).astype(np.int64)
    m = np.where(exponent < 127, (0x400000 | m >> 1) >> np.clip(126 - exponent, 0, 31), m)
    exponent = np.maximum(exponent, 126) - 126
    code = np.minimum(((exponent << 2 | m >> 21) + 1) >> 1, 7)
    return (code | np.where(q < 0, 8, 0)).astype(np.uint8), (e + 127).astype(np.uint8)


def check_aiter(x: np.ndarray) -> None:
    codes, scales = quantise(x, E2M1, "even", profile="aiter")
    expected_codes, expected_scales = aiter_mxfp4(x)
    assert np.array_equal(scales, expected_scales)
    assert np.array_equal(codes, expected_codes)


def test_aiter_on_all_exponents_and_specials() -> None:
    check_aiter(blocks())


def test_aiter_on_all_bfloat16_maxima() -> None:
    amax = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    with np.errstate(invalid="ignore"):
        x = amax[:, None] * np.linspace(-1, 1, 32, dtype=np.float32)
    x[:, 0] = amax
    check_aiter(x)


def test_aiter_on_all_block_maxima() -> None:
    x = np.zeros((len(mx_vectors.block_maxima()), 32), np.float32)
    x[:, 31] = mx_vectors.block_maxima().view(np.float32)
    check_aiter(x)


def test_aiter_on_random_bits() -> None:
    bits = np.random.default_rng(5).integers(0, 1 << 32, (20_000, 32), dtype=np.uint64)
    check_aiter(bits.astype(np.uint32).view(np.float32))


def test_aiter_ties_and_negative_zero() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :9] = [4, 0.25, 1.25, 2.5, 5, -0.25, -0.75, -0.0, -1e-30]
    codes, _ = quantise(x, E2M1, profile="aiter")
    assert codes[0, :9].tolist() == [6, 1, 3, 5, 7, 9, 10, 0, 8]
    codes, _ = quantise(x, E2M1)
    assert codes[0, :9].tolist() == [6, 0, 2, 4, 6, 8, 10, 8, 8]


def test_aiter_covers_mxfp4_even_only() -> None:
    x = np.zeros((1, 32), np.float32)
    with pytest.raises(ValueError, match="profile 'aiter' covers E2M1 in mode even, got E4M3 in mode even"):
        quantise(x, E4M3, profile="aiter")
    with pytest.raises(ValueError, match="got E2M1 in mode rceil"):
        quantise(x, E2M1, "rceil", profile="aiter")


# --- the specification ---


def nearest(q: np.ndarray, fmt: str) -> np.ndarray:
    """Codes of the nearest elements by bisection of the sorted table in float64; ties to even, saturating."""
    values = magnitudes(fmt).astype(np.float64)
    middle = (values[:-1] + values[1:]) / 2
    low, high = np.searchsorted(middle, np.abs(q), "left"), np.searchsorted(middle, np.abs(q), "right")
    magnitude = np.where(low % 2 == 0, low, high)  # low + 1 == high on a tie only
    return magnitude | np.signbit(q) * len(table(fmt)) // 2


@each_format
@each_mode
def test_elements_are_nearest(fmt: str, mode: Any) -> None:
    x = blocks()
    codes, scales = quantise(x, fmt, mode)
    finite = np.isfinite(x).all(axis=1)
    q = x[finite].astype(np.float64) / 2.0 ** (scales[finite].astype(np.float64) - 127)
    assert np.array_equal(codes[finite], nearest(q, fmt))
    assert (scales[~finite] == 0xFF).all()
    assert not codes[~finite].any()


@each_format
@pytest.mark.parametrize("mode", ["ceil", "rceil"])
def test_ceil_modes_never_saturate(fmt: str, mode: Any) -> None:
    x = ordinary_blocks()
    _, scales = quantise(x, fmt, mode)
    ratio = np.abs(x).max(axis=1).astype(np.float64) / 2.0 ** (scales[:, 0].astype(np.float64) - 127)
    assert (ratio <= magnitudes(fmt)[-1]).all()


@each_mode
def test_zero_block(mode: Any) -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, 1] = -0.0
    codes, scales = quantise(x, E2M1, mode)
    assert scales.tolist() == [[0]]
    assert codes[0, :3].tolist() == [0, 8, 0]


def test_default_is_even_and_ocp() -> None:
    x = blocks()
    for default, explicit in zip(quantise(x, E2M1), quantise(x, E2M1, "even", profile="ocp"), strict=True):
        assert np.array_equal(default, explicit)


def test_axis() -> None:
    x = ordinary_blocks()[:64].reshape(8, 64, 4)
    codes, scales = quantise(x, E2M1, axis=1)
    assert codes.shape == (8, 64, 4)
    assert scales.shape == (8, 2, 4)
    moved_codes, moved_scales = quantise(np.moveaxis(x, 1, -1), E2M1)
    assert np.array_equal(codes, np.moveaxis(moved_codes, -1, 1))
    assert np.array_equal(scales, np.moveaxis(moved_scales, -1, 1))
    assert np.array_equal(
        dequantise(codes, scales, E2M1, axis=1), np.moveaxis(dequantise(moved_codes, moved_scales, E2M1), -1, 1)
    )


def test_block_size() -> None:
    x = ordinary_blocks()[:4]
    codes, scales = quantise(x, E2M1, block_size=16)
    assert scales.shape == (4, 2)
    padded = np.zeros((8, 32), np.float32)
    padded[:, :16] = x.reshape(8, 16)
    assert np.array_equal(codes.reshape(8, 16), quantise(padded, E2M1)[0][:, :16])


def test_sizes() -> None:
    assert [a.shape for a in quantise(np.zeros(32, np.float32), E2M1)] == [(32,), (1,)]
    assert [a.shape for a in quantise(np.zeros((0, 64), np.float32), E2M1)] == [(0, 64), (0, 2)]
    assert [a.shape for a in quantise(np.zeros((3, 0), np.float32), E2M1)] == [(3, 0), (3, 0)]


@each_format
def test_dequantize_multiplies(fmt: str) -> None:
    rng = np.random.default_rng(7)
    codes = rng.integers(0, len(table(fmt)), (256, 64)).astype(np.uint8)
    scales = np.arange(512, dtype=np.uint16).astype(np.uint8).reshape(256, 2)
    scale = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    expected = table(fmt).astype(np.float64)[codes] * np.repeat(scale, 32, axis=1)
    assert np.array_equal(dequantise(codes, scales, fmt, dtype=np.float64), expected, equal_nan=True)
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = expected.astype(np.float32)
    assert np.array_equal(dequantise(codes, scales, fmt), narrowed, equal_nan=True)


@pytest.mark.parametrize("lhs_fmt", mx_vectors.FORMAT_NAMES)
@pytest.mark.parametrize("rhs_fmt", mx_vectors.FORMAT_NAMES)
def test_matmul(lhs_fmt: str, rhs_fmt: str) -> None:
    rng = np.random.default_rng(11)

    def operand(rows: int, fmt: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes, scales = quantise(rng.standard_normal((rows, 96)).astype(np.float32), fmt)
        values = codes.view(ML_DTYPES[fmt]).astype(np.float64).reshape(rows, 3, 32)
        return codes, scales, values * 2.0 ** (scales.astype(np.float64) - 127)[..., None]

    lhs_codes, lhs_scales, lhs = operand(5, lhs_fmt)
    rhs_codes, rhs_scales, rhs = operand(7, rhs_fmt)
    actual = matmul(lhs_codes, lhs_scales, lhs_fmt, rhs_codes, rhs_scales, rhs_fmt)
    assert actual.dtype == np.float64
    np.testing.assert_allclose(actual, np.einsum("mbk,nbk->mn", lhs, rhs), rtol=1e-12, atol=1e-12)


def test_matmul_propagates_nan_scales() -> None:
    codes, scales = np.zeros((2, 32), np.uint8), np.array([[127], [255]], np.uint8)
    assert np.isnan(matmul(codes, scales, E2M1, codes, scales, E2M1)).tolist() == [[False, True], [True, True]]


def test_errors() -> None:
    x = np.zeros((2, 48), np.float32)
    with pytest.raises(ValueError, match=r"length 48 along axis -1 of shape \(2, 48\) is not a multiple .* 32; pad"):
        quantise(x, E2M1)
    with pytest.raises(ValueError, match="axis 2"):
        quantise(x, E2M1, axis=2)
    with pytest.raises(ValueError, match="unknown scale mode 'up'; use one of floor, even, ceil, rceil"):
        quantise(x, E2M1, "up")
    with pytest.raises(ValueError, match="unknown profile 'nv'; use one of ocp, torchao, aiter"):
        quantise(x, E2M1, profile="nv")
    with pytest.raises(ValueError, match="unknown element format"):
        quantise(x, "FP4")
    with pytest.raises(TypeError, match="float64"):
        quantise(x.astype(np.float64), E5M2)
    codes = np.zeros((2, 64), np.uint8)
    with pytest.raises(ValueError, match=r"one scale per 32 .*\(2, 64\), got scales \(2, 3\)"):
        dequantise(codes, codes[:, :3], E2M1)
    with pytest.raises(TypeError, match="uint8"):
        dequantise(codes.astype(np.int32), codes[:, :2], E2M1)
    with pytest.raises(ValueError, match="LHS M×K and RHS N×K"):
        matmul(codes, codes[:, :2], E2M1, codes[:, :32], codes[:, :1], E2M1)
