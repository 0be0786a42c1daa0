"""Whole weights at once: every bit as `quantise` and `pack_bits` have it, which are the reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxcomp.formats import FORMATS, SCALE_MODES, mx_format, pack_bits, quantise
from mxcomp.formats.fused import quantise_packed

NAMES = [name for name, fmt in FORMATS.items() if name == fmt.name]
TYPES = np.float32, np.float16, ml_dtypes.bfloat16
SHAPE = (16, 512)


def inputs(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(SHAPE, np.float32)
    bits = rng.integers(0, 2**32, SHAPE, np.uint32)
    powers = np.exp2(rng.integers(-149, 127, (SHAPE[0], SHAPE[1] // 32))).astype(np.float32).repeat(32, 1)
    special = normal.copy()
    special[0, 5], special[1, 70], special[2], special[3], special[4, ::2] = np.inf, np.nan, -0.0, 3.4e38, 1e-45
    return {
        "normal": normal,
        "any bits": bits.view(np.float32),
        "finite bits": (bits & 0xBFFFFFFF).view(np.float32),
        "denormals": (bits & 0x807FFFFF).view(np.float32),
        "ties": rng.integers(-127, 128, SHAPE).astype(np.float32) / 128 * powers,
        "powers": powers * rng.choice([-1, 1], SHAPE),
        "special": special,
        "transposed": rng.standard_normal(SHAPE[::-1], np.float32).T,
        "strided": rng.standard_normal((2 * SHAPE[0], 2 * SHAPE[1]), np.float32)[::2, ::2],
    }


def check(x: np.ndarray, fmt: str, mode: str) -> None:
    codes, scales = quantise(x, fmt, mode)
    packed, found = quantise_packed(x, fmt, mode)
    np.testing.assert_array_equal(found, scales)
    np.testing.assert_array_equal(packed, pack_bits(codes, fmt))


@pytest.mark.parametrize("mode", SCALE_MODES)
@pytest.mark.parametrize("fmt", NAMES)
@pytest.mark.filterwarnings("ignore:.*encountered in cast")
def test_bits(fmt: str, mode: str) -> None:
    for x in inputs().values():
        for kind in TYPES:
            check(x.astype(kind, copy=False), fmt, mode)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=2), st.integers(0, 3), st.sampled_from(NAMES))
def test_shapes(lead: list[int], blocks: int, fmt: str) -> None:
    """Any number of dimensions, empty ones too."""
    x = np.random.default_rng(0).standard_normal((*lead, 32 * blocks), np.float32)
    packed, scales = quantise_packed(x, fmt)
    assert packed.shape == (*lead, blocks * mx_format(fmt).block_bytes) and scales.shape == (*lead, blocks)
    if x.size:
        check(x, fmt, "even")


def test_several_pieces() -> None:
    """More than a thread takes at once, and rows longer than that."""
    rng = np.random.default_rng(1)
    for shape in ((700, 1024), (3, 2**19 + 32)):
        check(rng.standard_normal(shape, np.float32), "E2M1", "even")


@pytest.mark.parametrize(
    ("x", "fmt", "mode", "message"),
    [
        (np.zeros((2, 40), np.float32), "E2M1", "even", "not a multiple of the block size 32"),
        (np.zeros((2, 64), np.float32), "E2M1", "nearest", "unknown scale mode"),
        (np.zeros((2, 64), np.float32), "E9M9", "even", "unknown element format"),
        (np.zeros((2, 64), np.float64), "E2M1", "even", "expected a float32"),
        (np.float32(1), "E2M1", "even", "not a multiple"),
    ],
)
def test_what_it_does_not_take(x: np.ndarray, fmt: str, mode: str, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        quantise_packed(np.asarray(x), fmt, mode)
