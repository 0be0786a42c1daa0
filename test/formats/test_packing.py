"""Bit packing against Python's integers and literal bytes."""

from __future__ import annotations

import mx_vectors
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcomp.formats import E2M1, E2M3, E4M3, FORMATS, pack_bits, unpack_bits


@st.composite
def formats_and_codes(draw: st.DrawFn) -> tuple[str, np.ndarray]:
    name = draw(st.sampled_from(mx_vectors.FORMAT_NAMES))
    shape = (*draw(st.lists(st.integers(0, 3), max_size=2)), 4 * draw(st.integers(0, 20)))
    seed = draw(st.integers(0, 2**32 - 1))
    return name, np.random.default_rng(seed).integers(0, 1 << FORMATS[name].bits, shape).astype(np.uint8)


@given(formats_and_codes())
def test_roundtrip(case: tuple[str, np.ndarray]) -> None:
    name, codes = case
    packed = pack_bits(codes, name)
    assert packed.dtype == np.uint8
    assert packed.shape == (*codes.shape[:-1], codes.shape[-1] * FORMATS[name].bits // 8)
    assert np.array_equal(unpack_bits(packed, name), codes)


@given(formats_and_codes())
def test_is_one_little_endian_number(case: tuple[str, np.ndarray]) -> None:
    name, codes = case
    bits = FORMATS[name].bits
    row = codes.ravel()
    number = sum(int(code) << bits * i for i, code in enumerate(row))
    assert pack_bits(row, name).tobytes() == number.to_bytes(len(row) * bits // 8, "little")


def test_literal_bytes() -> None:
    assert pack_bits(np.array([0x1, 0xA, 0xF, 0x0], np.uint8), E2M1).tolist() == [0xA1, 0x0F]
    assert pack_bits(np.array([0b000001, 0b000010, 0b000100, 0b111000], np.uint8), E2M3).tolist() == [
        0b10_000001,
        0b0100_0000,
        0b111000_00,
    ]
    assert pack_bits(np.zeros((3, 32), np.uint8), E2M3).shape == (3, 24)
    assert pack_bits(np.array([1, 255], np.uint8), E4M3).tolist() == [1, 255]


def test_strided_input() -> None:
    codes = np.arange(64, dtype=np.uint8).reshape(8, 8) % 16
    assert np.array_equal(pack_bits(codes.T, E2M1), pack_bits(np.ascontiguousarray(codes.T), E2M1))


def test_errors() -> None:
    with pytest.raises(ValueError, match=r"multiple of 2 E2M1 codes along the last axis, got shape \(4, 3\)"):
        pack_bits(np.zeros((4, 3), np.uint8), E2M1)
    with pytest.raises(ValueError, match="multiple of 4 E2M3 codes"):
        pack_bits(np.zeros(6, np.uint8), E2M3)
    with pytest.raises(ValueError, match="multiple of 3 bytes of packed E2M3"):
        unpack_bits(np.zeros(8, np.uint8), E2M3)
    with pytest.raises(ValueError, match="does not fit"):
        pack_bits(np.array([16, 0], np.uint8), E2M1)
    with pytest.raises(TypeError, match="int64"):
        pack_bits(np.zeros(4, np.int64), E2M1)
    with pytest.raises(TypeError, match="int64"):
        unpack_bits(np.zeros(4, np.int64), E2M1)
