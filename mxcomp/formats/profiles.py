"""Quantisers of implementations, where OCP Microscaling v1.0 leaves a choice or they depart from it.

==============================  ===================  =============================  ============================
case                            ocp                  torchao 0.18                   aiter
==============================  ===================  =============================  ============================
tie between two elements        to even              to even                        away from zero
element -0.0                    -0                   -0                             +0
amax rounds up to 2**128        scale 2**(128-emax)  scale 2**(128-emax)            scale 2**127
block with an infinity          NaN scale, codes 0   scale 2**(128-emax), in rceil  scale 2**127, it saturates
                                                     2**127; it saturates
block with a NaN                NaN scale, codes 0   NaN scale, codes as below      scale 2**127, NaN becomes +6
elements at scale 2**-127       divided by 2**-127   divided by 2**-126, in rceil   divided by 2**-127
                                                     by 1
rceil just above a power of 2   the next power       that power, where float32      has no rceil
                                                     log2 rounds to it
==============================  ===================  =============================  ============================

``ocp`` is what this project means by a mode. On finite blocks it is also what AITER computes today, in its host code
`per_1x32_f4_quant` (aiter/ops/quant.py; rceil by default) and its Triton quantiser `_mxfp4_quant_op`
(aiter/ops/triton/_triton_kernels/quant/quant.py; even), the ends of float32's range apart: maxima that round up to
2**128 get the scale 2**127 or NaN there, and where amax / max_finite is a denormal, ceil and rceil stop at 2**-126.
AITER's Triton code for fp8 (`_mxfp8_quant_op`) rounds amax to E2M1's mantissa width; no profile repeats that.

``aiter`` is the quantiser of AITER's Triton kernels before they turned to ties-to-even (ROCm/aiter pull request 975),
still found in `_fused_dynamic_mxfp4_quant_moe_sort_kernel` (.../quant/fused_mxfp4_quant.py), except that the sign bit
is set only for numbers below zero, where that kernel copies it.

In a block with a NaN ``torchao`` leaves NaN and signed zeros in floor, even and ceil, and NaN alone in rceil; formats
without NaN then hold 1.5 in its place. That is so on x86 with AVX2 or AVX-512: elsewhere torch may give such elements
another sign or, from a NaN with a payload, another code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mxcomp.formats.elements import E2M1, F32, U8, ElementFormat, Ties
from mxcomp.formats.scales import E8M0_BIAS, E8M0_NAN, SCALE_MODES


@dataclass(frozen=True)
class Profile:
    """One implementation's quantiser, as the steps in which implementations differ.

    Attributes:
        scales: From block maxima (float32), format and mode to their E8M0 codes.
        scaled: From blocks, their scale codes (one per block, last axis 1), format and mode to the float32 numbers
            that are then rounded to elements.
        ties: Rounding of those.
        modes: The scale modes it has.
        formats: The element formats it has; None for all.
    """

    scales: Callable[[F32, ElementFormat, str], U8]
    scaled: Callable[[F32, U8, ElementFormat, str], F32]
    ties: Ties = "even"
    modes: tuple[str, ...] = tuple(SCALE_MODES)
    formats: tuple[ElementFormat, ...] | None = None


def _ocp_scales(amax: F32, fmt: ElementFormat, mode: str) -> U8:
    return np.where(np.isfinite(amax), _biased(SCALE_MODES[mode](amax, fmt)), np.uint8(E8M0_NAN))


def _ocp_scaled(blocks: F32, scales: U8, fmt: ElementFormat, mode: str) -> F32:
    return np.where(scales == E8M0_NAN, np.float32(0), np.ldexp(blocks, E8M0_BIAS - scales.astype(np.int32)))


def _torchao_scales(amax: F32, fmt: ElementFormat, mode: str) -> U8:
    # torchao/prototype/mx_formats/mx_tensor.py: to_mx and, for rceil, _to_mx_rceil.
    if mode == "rceil":  # float64's log2 rounded to float32 is what torch's float32 log2 gives near powers of two
        log2 = np.log2((amax / np.float32(fmt.max_finite)).astype(np.float64)).astype(np.float32)
        exponent = np.ceil(np.nan_to_num(log2, nan=0.0))
    else:
        exponent = SCALE_MODES[mode](amax, fmt)
    return np.where(np.isnan(amax), np.uint8(E8M0_NAN), _biased(exponent))


def _torchao_scaled(blocks: F32, scales: U8, fmt: ElementFormat, mode: str) -> F32:
    exponent = np.where(scales == 0, 0 if mode == "rceil" else -126, scales.astype(np.int32) - E8M0_BIAS)
    # A NaN scale is infinity as a divisor, but a NaN as rceil's factor. Infinity / infinity is a negative NaN on x86.
    over_infinity = np.where(np.isinf(blocks), -np.float32(np.nan), blocks * 0)
    over_nan_scale = np.float32(np.nan) if mode == "rceil" else over_infinity
    scaled = np.where(scales == E8M0_NAN, over_nan_scale, np.ldexp(blocks, -exponent))
    if fmt.has_nan:
        return scaled
    # The conversion to formats without NaN (torchao/prototype/custom_fp_utils.py) loses a NaN's exponent to overflow
    # and rounds the rest, its quiet bit and payload: what it makes of 1.5 for a plain NaN.
    as_number = (scaled.view(np.uint32) & np.uint32(0x807FFFFF) | np.uint32(0x3FC00000)).view(np.float32)
    return np.where(np.isnan(scaled), as_number, scaled)


def _aiter_scales(amax: F32, fmt: ElementFormat, mode: str) -> U8:
    exponent = SCALE_MODES[mode](amax, fmt)
    log2_is_finite = np.isfinite(amax) & (exponent < 128 - fmt.emax)  # of amax and of what it rounds to
    return _biased(np.where(log2_is_finite, exponent, E8M0_BIAS))


def _aiter_scaled(blocks: F32, scales: U8, fmt: ElementFormat, mode: str) -> F32:
    scaled = np.ldexp(blocks, E8M0_BIAS - scales.astype(np.int32))
    return np.where(scaled < 0, scaled, np.abs(scaled))


def _biased(exponent: NDArray[np.int32] | F32) -> U8:
    return (np.clip(exponent, -E8M0_BIAS, E8M0_BIAS) + E8M0_BIAS).astype(np.uint8)


PROFILES: dict[str, Profile] = {
    "ocp": Profile(_ocp_scales, _ocp_scaled),
    "torchao": Profile(_torchao_scales, _torchao_scaled),
    "aiter": Profile(_aiter_scales, _aiter_scaled, ties="away", modes=("even",), formats=(E2M1,)),
}
"""The quantisers by name."""
