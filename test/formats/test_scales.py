"""E8M0 against ml_dtypes, and the scale modes against their definitions, searched in a table of powers of two."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mx_vectors
import numpy as np
import pytest

from mxcomp.formats import SCALE_MODES, decode_e8m0, encode_e8m0, quantise

# emax, largest finite value and mantissa width (OCP Microscaling v1.0, tables 2 to 5).
CONSTANTS = {"E2M1": (2, 6, 1), "E2M3": (2, 7.5, 3), "E3M2": (4, 28, 2), "E4M3": (8, 448, 3), "E5M2": (15, 57344, 2)}


def test_decodes_every_code() -> None:
    codes = np.arange(256, dtype=np.uint8)
    expected = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    actual = decode_e8m0(codes)
    assert actual.dtype == np.float32
    assert np.array_equal(actual.astype(np.float64), expected, equal_nan=True)
    assert actual[0].view(np.uint32) == 0x00400000
    assert np.isnan(actual[0xFF])


def test_encodes_every_value() -> None:
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(encode_e8m0(decode_e8m0(codes)), codes)


@pytest.mark.parametrize("value", [0, -1, 3, 2.0**-128, np.inf, -np.inf])
def test_encode_refuses_to_round(value: float) -> None:
    with pytest.raises(ValueError, match="not an E8M0 value"):
        encode_e8m0(np.array([1, value], np.float32))


def test_wrong_dtypes() -> None:
    with pytest.raises(TypeError, match="uint8"):
        decode_e8m0(np.zeros(2, np.int32))
    with pytest.raises(TypeError, match="float32"):
        encode_e8m0(np.ones(2))


def expected_scales(amax: np.ndarray, fmt: str, mode: str) -> np.ndarray:
    """The definitions in float64, where all powers, products and sums involved are exact."""
    emax, max_finite, mantissa_bits = CONSTANTS[fmt]
    exponents = np.arange(-160, 130)
    powers = 2.0**exponents
    amax = amax.astype(np.float64)
    if mode == "even":  # half up to mantissa_bits; float32's denormals keep the spacing of its smallest normals
        unit = powers[np.searchsorted(powers, np.maximum(amax, 2.0**-126), side="right") - 1] / 2**mantissa_bits
        amax = np.floor(amax / unit + 0.5) * unit
    if mode in ("floor", "even"):
        found = exponents[np.maximum(np.searchsorted(powers, amax, side="right") - 1, 0)] - emax
    elif mode == "ceil":
        found = exponents[np.searchsorted(powers, amax)] - emax
    else:
        found = exponents[np.searchsorted(powers * max_finite, amax)]
    return np.clip(found, -127, 127) + 127


@pytest.mark.parametrize("mode", mx_vectors.MODES)
@pytest.mark.parametrize("fmt", mx_vectors.FORMAT_NAMES)
def test_modes_follow_their_definitions(fmt: str, mode: Any) -> None:
    blocks = np.zeros((len(mx_vectors.block_maxima()), 32), np.float32)
    blocks[:, 7] = mx_vectors.block_maxima().view(np.float32)
    _, scales = quantise(blocks, fmt, mode)
    finite = np.isfinite(blocks[:, 7])
    assert np.array_equal(scales[finite, 0], expected_scales(blocks[finite, 7], fmt, mode))
    assert (scales[~finite] == 0xFF).all()


def test_registry_names_the_four_modes() -> None:
    assert tuple(SCALE_MODES) == mx_vectors.MODES
