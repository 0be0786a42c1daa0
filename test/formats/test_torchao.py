"""Live comparison with torchao, where it is installed; the golden vectors cover the same without it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import mx_vectors
import numpy as np
import pytest

from mxcomp.formats import quantise

torch = pytest.importorskip("torch")

each_mode = pytest.mark.parametrize("mode", mx_vectors.MODES)
each_format = pytest.mark.parametrize("fmt", mx_vectors.FORMAT_NAMES)


@pytest.fixture(autouse=True, scope="module")
def torchao() -> None:
    """Is imported for these tests alone: it takes seconds, and every process collects all tests."""
    pytest.importorskip("torchao", reason="torchao is not installed; the golden vectors stand in for it")


def compare(bits: np.ndarray, fmt: str, mode: str) -> None:
    from make_golden import torchao_quantize

    x = bits.view(np.float32 if bits.dtype == np.uint32 else ml_dtypes.bfloat16)
    codes, scales = quantise(x, fmt, mode, profile="torchao")
    expected_codes, expected_scales = torchao_quantize(bits, fmt, mode)
    assert np.array_equal(scales, expected_scales)
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        # Which of two NaN operands a product returns, and the sign of a new NaN, depend on the machine.
        known = (scales != 0xFF)[:, 0]
        codes, expected_codes = codes[known], expected_codes[known]
    assert np.array_equal(codes, expected_codes)


@each_format
@each_mode
def test_float32_blocks(fmt: str, mode: Any) -> None:
    compare(mx_vectors.blocks(np.tile(np.arange(255), 3), seed=2), fmt, mode)


@each_format
@each_mode
def test_float32_random_bits(fmt: str, mode: Any) -> None:
    bits = np.random.default_rng(3).integers(0, 1 << 32, (4_000, 32), dtype=np.uint64)
    compare(bits.astype(np.uint32), fmt, mode)


@each_format
@each_mode
def test_block_maxima(fmt: str, mode: Any) -> None:
    bits = np.zeros((len(mx_vectors.block_maxima()), 32), np.uint32)
    bits[:, 5] = mx_vectors.block_maxima()
    compare(bits, fmt, mode)


@each_format
@each_mode
def test_all_bfloat16(fmt: str, mode: Any) -> None:
    alone = np.zeros((1 << 15, 32), np.uint16)  # negative ones are in the blocks
    alone[:, 9] = np.arange(1 << 15)
    compare(alone, fmt, mode)
    compare(mx_vectors.as_bfloat16(mx_vectors.blocks(np.tile(np.arange(255), 12), seed=4)), fmt, mode)
