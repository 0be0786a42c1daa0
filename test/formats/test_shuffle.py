"""AITER's layouts against index formulas: where each byte goes, one at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcomp.formats import shuffle_scale, shuffle_weight, unshuffle_scale, unshuffle_weight


def random_bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape).astype(np.uint8)


def test_weight_positions() -> None:
    n, k = 48, 96
    weight = random_bytes(n, k)
    flat = shuffle_weight(weight).ravel()
    for i in range(n):
        for j in range(k):
            # 16 rows × 16 bytes are one contiguous 256-byte tile; tiles run along K first.
            tile = i // 16 * (k // 16) + j // 16
            assert flat[tile * 256 + i % 16 * 16 + j % 16] == weight[i, j]


def test_scale_positions() -> None:
    rows, columns = 70, 20
    scales = random_bytes(rows, columns)
    shuffled = shuffle_scale(scales)
    assert shuffled.shape == (256, 24)
    flat = shuffled.ravel()
    seen = np.zeros(flat.shape, bool)
    for x in range(rows):
        for y in range(columns):
            # mx_scale_shuffle_idx in AITER's csrc/include/mx_quant_utils.h
            index = x // 32 * 24 * 32 + y // 8 * 256 + y % 4 * 64 + x % 16 * 4 + y % 8 // 4 * 2 + x % 32 // 16
            assert flat[index] == scales[x, y]
            seen[index] = True
    assert not flat[~seen].any()  # padding


@given(st.lists(st.integers(0, 3), max_size=2), st.integers(0, 4), st.integers(0, 4))
def test_weight_roundtrip(batch: list[int], rows: int, columns: int) -> None:
    weight = random_bytes(*batch, 16 * rows, 32 * columns)
    shuffled = shuffle_weight(weight)
    assert shuffled.shape == weight.shape
    assert np.array_equal(unshuffle_weight(shuffled), weight)


def test_weight_batches_are_independent() -> None:
    weight = random_bytes(3, 32, 64)
    assert np.array_equal(shuffle_weight(weight), np.stack([shuffle_weight(matrix) for matrix in weight]))


def test_weight_padding() -> None:
    weight = random_bytes(16, 40)
    padded = unshuffle_weight(shuffle_weight(weight, pad_k_to=64))
    assert padded.shape == (16, 64)
    assert np.array_equal(padded[:, :40], weight)
    assert not padded[:, 40:].any()


@given(st.integers(1, 600), st.integers(1, 40))
def test_scale_roundtrip(rows: int, columns: int) -> None:
    scales = random_bytes(rows, columns)
    assert np.array_equal(unshuffle_scale(shuffle_scale(scales), scales.shape), scales)


def test_scale_padding_stays_without_a_shape() -> None:
    assert unshuffle_scale(shuffle_scale(random_bytes(5, 3))).shape == (256, 8)


def test_errors() -> None:
    with pytest.raises(ValueError, match="16·i rows × 32·j bytes, got 8 × 32"):
        shuffle_weight(random_bytes(8, 32))
    with pytest.raises(ValueError, match="got 16 × 40; pad"):
        shuffle_weight(random_bytes(16, 40))
    with pytest.raises(ValueError, match="pad_k_to >= 0"):
        shuffle_weight(random_bytes(16, 32), pad_k_to=-1)
    with pytest.raises(ValueError, match=r"matrix, got shape \(32,\)"):
        shuffle_weight(random_bytes(32))
    with pytest.raises(TypeError, match="int8"):
        shuffle_weight(random_bytes(16, 32).view(np.int8))
    with pytest.raises(ValueError, match=r"matrix, got shape \(2, 4, 8\)"):
        shuffle_scale(random_bytes(2, 4, 8))
    with pytest.raises(ValueError, match="256·i × 8·j, got"):
        unshuffle_scale(random_bytes(32, 8))
