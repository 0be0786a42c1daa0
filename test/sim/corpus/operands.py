"""Random operands of MX products, and their float64 meaning. Written apart from mxcomp, which is what is tested."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
BLOCK = 32
FORMATS = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
BITS = {name: int(ml_dtypes.finfo(kind).bits) for name, kind in FORMATS.items()}
VALUES = {
    name: np.arange(1 << BITS[name], dtype=np.uint8).view(kind).astype(np.float64) for name, kind in FORMATS.items()
}
"""Values by code (OCP Microscaling Formats v1.0, section 5.3)."""


@dataclass(frozen=True)
class Operand:
    """[rows, K] codes of a format, none of them infinite or NaN, and [rows, K / 32] scales."""

    format: str
    codes: Bytes
    scales: Bytes

    @property
    def packed(self) -> Bytes:
        """The codes as they lie in memory."""
        return pack(self.codes, BITS[self.format])

    @cached_property
    def values(self) -> NDArray[np.float64]:
        return VALUES[self.format][self.codes] * np.exp2(self.scales.astype(float) - 127).repeat(BLOCK, axis=1)


def pack(codes: Bytes, bits: int = 4) -> Bytes:
    """Codes without gaps along the last axis, the first in the lowest bits."""
    rows = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(rows.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def operand(rng: np.random.Generator, name: str, rows: int, k: int) -> Operand:
    """Random codes, with scales 2^-12 … 2^11 such that no two next to each other in a row or column are alike.

    A scale that meets a neighbour's block changes the result far beyond rounding.
    """
    finite = np.flatnonzero(np.isfinite(VALUES[name])).astype(np.uint8)
    steps = rng.integers(1, 12, (rows, k // BLOCK)).cumsum(axis=1) + rng.integers(1, 12, (rows, 1)).cumsum(axis=0)
    return Operand(name, rng.choice(finite, (rows, k)), (115 + steps % 24).astype(np.uint8))


def check_product(result: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """`result` is a · bᵀ up to the error of K f32 additions, K · 2^-24 · Σ|a·b|.

    See Higham, Accuracy and Stability of Numerical Algorithms, §3.1.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    wrong = ~(np.abs(result - a @ b.T) <= a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b).T))
    first = np.argwhere(wrong)[:1].tolist()
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} elements are wrong, the first at {first}"


def floor_scales(values: np.ndarray) -> Bytes:
    """E8M0 codes by the OCP rule for E2M1, 2^(⌊log₂ amax⌋ − 2), for [rows, K] finite values."""
    largest = np.abs(values.astype(np.float64)).reshape(len(values), -1, BLOCK).max(axis=2)
    exponent = np.frexp(largest)[1] - 1
    return np.where(largest == 0, 0, np.clip(exponent - 2, -127, 127) + 127).astype(np.uint8)


def quantize_e2m1(values: np.ndarray, scales: Bytes) -> Bytes:
    """Codes nearest to values / scale, ties to even, saturating."""
    scaled = values.astype(np.float64) / np.exp2(scales.astype(float) - 127).repeat(BLOCK, axis=1)
    return np.clip(scaled, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
