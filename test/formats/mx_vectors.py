"""Inputs for every case of the quantisers: all exponents, rounding boundaries, denormals, ±0, infinities, NaN."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]

FORMAT_NAMES = ("E2M1", "E2M3", "E3M2", "E4M3", "E5M2")
MODES = ("floor", "even", "ceil", "rceil")

# fmt: off
SPECIALS = np.array([
    0x00000000, 0x00000001, 0x00400000, 0x007FFFFF, 0x00800000, 0x3F800000,
    0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001, 0x7FFFFFFF,
], np.uint32)
# fmt: on
"""Zero, denormals, normals at both ends, infinity, and NaN: plain, signalling, all ones."""


def block_maxima() -> U32:
    """float32 bit patterns of block maxima: every exponent with every mantissa at which a mode changes its mind.

    The modes step at mantissas 0, 1.5, 1.75, 1.875 and 1.9375 (by format); float32's log2 blurs the steps of rceil by
    up to 23 units in the last place.
    """
    steps = [0, *(int((m - 1) * 2**23) for m in (1.25, 1.5, 1.75, 1.875, 1.9375)), 1 << 23]
    mantissas = {step + near for step in steps for near in (-1, 0, 1)}
    mantissas |= {step + near for step in steps[2:5] for near in (2, 3, 6, 12, 22, 23, 24)}
    mantissa = np.array(sorted(m for m in mantissas if 0 <= m < 1 << 23), np.uint32)
    return (mantissa[:, None] + (np.arange(256, dtype=np.uint32) << np.uint32(23))).ravel()


def blocks(exponents: NDArray[np.integer], seed: int = 0) -> U32:
    """float32 bit patterns [n, 32]: a block for each (biased) exponent of its largest element, then special blocks.

    Elements lie up to 24 binades below the largest; half of the mantissas sit on or next to a rounding boundary.
    """
    rng = np.random.default_rng(seed)
    shape = (len(exponents), 32)
    exponent = np.maximum(exponents[:, None] - rng.integers(0, 24, shape) * (np.arange(32) > 0), 0)
    mantissa = rng.integers(0, 1 << 23, shape)
    coarse = mantissa & (0x7FFFFF << rng.integers(18, 23, shape)) & 0x7FFFFF
    near = np.clip(coarse + rng.integers(-1, 2, shape), 0, 0x7FFFFF)
    mantissa = np.where(rng.random(shape) < 0.5, mantissa, near)
    regular = rng.integers(0, 2, shape) << 31 | exponent << 23 | mantissa

    sign = rng.integers(0, 2, (36, 32), dtype=np.uint32) << np.uint32(31)
    special = rng.choice(SPECIALS, (36, 32)) | sign
    # From all kinds mixed, through one kind each, to blocks in which it stands alone among ordinary numbers.
    special[12:24] = SPECIALS[:, None] | sign[12:24]
    special[24:36, 1:] = np.where(rng.random((12, 31)) < 0.5, 0x3F900000, 0x41300000) | sign[24:36, 1:]
    special[24:36, 0] = SPECIALS | sign[24:36, 0]
    return np.concatenate([regular.astype(np.uint32), special])


def as_bfloat16(bits: U32) -> U16:
    """Drops the lower half; a NaN that would become an infinity stays a NaN."""
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return (bits >> 16 | nan).astype(np.uint16)
