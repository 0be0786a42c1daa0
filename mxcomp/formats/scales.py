"""E8M0 scales: their values, and the rules that choose one for a block.

All rules take a block's largest magnitude and differ in how they bring it to a power of two:

=====  =========================================  ==========================================================
mode   exponent of the scale                      used by
=====  =========================================  ==========================================================
floor  floor(log2(amax)) - emax                   OCP specification, microxcaling, torchao (default)
even   floor(log2(rounded amax)) - emax           AITER's Triton kernels, Quark (default), torchao
ceil   ceil(log2(amax)) - emax                    torchao
rceil  ceil(log2(amax / max_finite))              AITER's HIP kernels and host code (default), torchao, cuBLAS
=====  =========================================  ==========================================================

``even`` rounds amax to the element's mantissa width first, half up. ``floor`` lets the largest elements of a block
saturate, ``ceil`` and ``rceil`` never do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mxcomp.formats.elements import F32, I32, U8, ElementFormat, float32_exponent

E8M0_BIAS = 127
E8M0_NAN = 0xFF


def decode_e8m0(codes: U8) -> F32:
    """Returns the float32 value 2**(code - 127) of each uint8 code; 0xFF is NaN.

    Code 0 is 2**-127, a float32 denormal (OCP Microscaling v1.0, section 5.4.1). Raises TypeError for another dtype.
    """
    if codes.dtype != np.uint8:
        raise TypeError(f"expected uint8 E8M0 codes, got {codes.dtype}")
    exponent = codes.astype(np.int32) - E8M0_BIAS
    return np.where(codes == E8M0_NAN, np.float32(np.nan), np.ldexp(np.float32(1), np.minimum(exponent, E8M0_BIAS)))


def encode_e8m0(x: F32) -> U8:
    """Returns the uint8 codes of float32 powers of two, 2**-127 to 2**127, or NaN.

    Other values are refused rather than rounded, because systems disagree on the rounding: choosing a scale is the
    business of a mode. Raises TypeError for another dtype, ValueError for a value that is no E8M0 number.
    """
    if x.dtype != np.float32:
        raise TypeError(f"expected float32 scales, got {x.dtype}")
    nan = np.isnan(x)
    mantissa, exponent = np.frexp(np.where(nan, np.float32(1), x))
    exact = (mantissa == 0.5) & (np.abs(exponent - 1) <= E8M0_BIAS)
    if not exact.all():
        raise ValueError(
            f"{x[~exact].flat[0]} is not an E8M0 value: not a power of two from 2**-127 to 2**127, nor NaN"
        )
    return np.where(nan, E8M0_NAN, exponent - 1 + E8M0_BIAS).astype(np.uint8)


def _floor(amax: F32, fmt: ElementFormat) -> I32:
    return float32_exponent(amax) - fmt.emax


def _even(amax: F32, fmt: ElementFormat) -> I32:
    half_ulp = 1 << 22 - fmt.mantissa_bits  # of the element, in units of float32's last place
    return float32_exponent((amax.view(np.int32) + half_ulp).view(np.float32)) - fmt.emax


def _ceil(amax: F32, fmt: ElementFormat) -> I32:
    return float32_exponent((amax.view(np.int32) + 0x7FFFFF).view(np.float32)) - fmt.emax


def _rceil(amax: F32, fmt: ElementFormat) -> I32:
    ratio = amax.astype(np.float64) / fmt.max_finite  # exact enough to tell any float32 from a power of two
    mantissa, exponent = np.frexp(ratio)
    return np.where(ratio > 0, exponent - (mantissa == 0.5), -E8M0_BIAS).astype(np.int32)


SCALE_MODES: dict[str, Callable[[F32, ElementFormat], I32]] = {
    "floor": _floor,
    "even": _even,
    "ceil": _ceil,
    "rceil": _rceil,
}
"""Functions from finite block maxima to exponents that are not yet clamped to E8M0's range, by scale mode."""
