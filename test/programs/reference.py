"""Quantisation to MX in float64, from the OCP specification (v1.0) and nothing else: no code of mxcomp.

float64 holds every f32 and every f32 divided by a scale exactly, so all of this is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from nodes import BITS, BLOCK, EMAX, LARGEST, VALUES, Bytes, Floats

BIAS, NAN = 127, 255
"""Of E8M0: the code of 1.0, and the one that says that a block is no number."""
FINITE = {kind: np.flatnonzero(np.isfinite(VALUES[kind][: 1 << BITS[kind] - 1])) for kind in LARGEST}
"""Codes of what is not negative, in ascending order."""


def _exponents(amax: Floats) -> np.ndarray:
    """⌊log₂⌋, and something very small for 0."""
    return np.where(amax > 0, np.frexp(amax)[1] - 1, -1000)


def _even(amax: Floats, kind: str) -> np.ndarray:
    """Rounded to as many digits as an element has, halves up, before the exponent is taken."""
    ulp = np.ldexp(1.0, _exponents(amax) - digits(kind))
    return _exponents(np.floor(amax / ulp + 0.5) * ulp) - EMAX[kind]


def _ceil(amax: Floats, kind: str) -> np.ndarray:
    exponents = _exponents(amax)
    return exponents + (amax > np.ldexp(1.0, exponents)) - EMAX[kind]


def _rceil(amax: Floats, kind: str) -> np.ndarray:
    """The least with which nothing is larger than the largest element."""
    exponents = _exponents(amax) - EMAX[kind]
    return exponents + (amax > np.ldexp(LARGEST[kind], exponents))


EXPONENTS: dict[str, Callable[[Floats, str], np.ndarray]] = {
    "floor": lambda amax, kind: _exponents(amax) - EMAX[kind],
    "even": _even,
    "ceil": _ceil,
    "rceil": _rceil,
}
"""By scale mode, the exponent of a block with a largest magnitude."""


def digits(kind: str) -> int:
    """Of a significand, without the leading one."""
    return {"f4E2M1FN": 1, "f6E2M3FN": 3, "f6E3M2FN": 2, "f8E4M3FN": 3, "f8E5M2": 2}[kind]


def scale_codes(amax: Floats, kind: str, mode: str, least: int = 0) -> Bytes:
    """E8M0 codes of blocks with these largest magnitudes; of what is not finite, `NAN`."""
    finite = np.isfinite(amax)
    codes = np.clip(EXPONENTS[mode](np.where(finite, amax, 0.0), kind) + BIAS, least, NAN - 1)
    return np.where(finite, codes, NAN).astype(np.uint8)


def element_codes(x: Floats, kind: str) -> Bytes:
    """The nearest elements, of two the one with an even code; what is too large becomes the largest."""
    codes = FINITE[kind]
    values = VALUES[kind][codes]
    between = (values[1:] + values[:-1]) / 2
    size = np.abs(x)
    above = np.searchsorted(between, size, side="left")
    tie = (above < len(between)) & (size == between[np.minimum(above, len(between) - 1)])
    place = above + (tie & (above % 2 == 1))
    return np.where(np.signbit(x), codes[place] | 1 << BITS[kind] - 1, codes[place]).astype(np.uint8)


def blocks_of(x: np.ndarray) -> Floats:
    """[…, K] as [..., K / 32, 32]."""
    return x.reshape(*x.shape[:-1], -1, BLOCK).astype(np.float64)


def divided(blocks: Floats, codes: Bytes) -> Floats:
    """Blocks by their scales."""
    return blocks * np.exp2(float(BIAS) - codes)[..., None]


def quantise(x: np.ndarray, kind: str, mode: str) -> tuple[Bytes, Bytes]:
    """Codes of elements […, K / 32, 32] and of scales […, K / 32] of […, K].

    Where a number of a block is not finite, its scale is NaN and its elements are zeros.
    """
    blocks = blocks_of(x)
    with np.errstate(invalid="ignore"):
        amax = np.abs(blocks).max(axis=-1)
    codes = scale_codes(amax, kind, mode)
    finite = (codes != NAN)[..., None]
    return element_codes(divided(np.where(finite, blocks, 0.0), codes), kind), codes
