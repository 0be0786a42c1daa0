"""Quantisation to MX blocks, its inverse, and the matrix product of quantised operands in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.formats.blocks import MX_BLOCK
from mxcomp.formats.elements import U8, ElementFormat, as_float32, check_codes, element_format, encode
from mxcomp.formats.profiles import PROFILES, Profile
from mxcomp.formats.scales import SCALE_MODES, decode_e8m0


@np.errstate(all="ignore")  # zeros, infinities and NaN are part of the job
def quantise(
    x: NDArray[np.generic],
    fmt: ElementFormat | str,
    mode: str = "even",
    *,
    profile: str = "ocp",
    block_size: int = MX_BLOCK,
    axis: int = -1,
) -> tuple[U8, U8]:
    """Quantises blocks of ``block_size`` consecutive elements along ``axis``.

    Every block gets the scale that ``mode`` derives from its largest magnitude; its elements are divided by the scale,
    rounded to nearest and saturated. A block with an infinity or a NaN gets the NaN scale and zero codes; `profiles`
    says where profiles other than ``"ocp"`` depart from this.

    Args:
        x: float32, float16 or bfloat16 array, its length along ``axis`` a multiple of ``block_size``.
        fmt: Element format or its name.
        mode: Scale mode: ``"floor"``, ``"even"``, ``"ceil"`` or ``"rceil"`` (see `scales`).
        profile: Implementation to reproduce bit for bit: ``"ocp"``, ``"torchao"`` or ``"aiter"`` (E2M1, even only).

    Returns:
        Element codes, uint8 of x's shape, one per byte (`pack_bits` packs them), and E8M0 scale codes, uint8 of x's
        shape with length / block_size along ``axis``.

    Raises:
        TypeError: x has another dtype.
        ValueError: unknown format, mode or profile, a combination the profile does not have, a length that is no
            multiple of the block size, or an axis x does not have.
    """
    fmt = element_format(fmt)
    rules = _profile(profile, fmt, mode)
    blocks = _split(as_float32(x), axis, block_size)
    amax = np.max(np.abs(blocks), axis=-1)
    scales = rules.scales(amax, fmt, mode)
    codes = encode(rules.scaled(blocks, scales[..., None], fmt, mode), fmt, ties=rules.ties)
    return _join(codes, axis), np.moveaxis(scales, -1, axis)


def dequantise(
    codes: U8,
    scales: U8,
    fmt: ElementFormat | str,
    *,
    block_size: int = MX_BLOCK,
    axis: int = -1,
    dtype: type[np.floating[Any]] = np.float32,
) -> NDArray[Any]:
    """Multiplies every element with its block's scale, as MLIR's ``arith.scaling_extf`` does.

    Args:
        codes, scales: uint8 arrays as `quantise` returns them.
        fmt: Element format or its name.
        dtype: np.float32 or np.float64. Products are exact in both, except that float32 ends below 2**128.

    Returns:
        Array of codes' shape; NaN where the scale is NaN.

    Raises:
        TypeError: codes or scales are not uint8.
        ValueError: unknown format, a code wider than the format, shapes that do not belong together, or an axis
            codes do not have.
    """
    fmt = element_format(fmt)
    check_codes(codes, fmt)
    blocks = _split(codes, axis, block_size)
    per_block = np.moveaxis(scales, axis, -1) if scales.ndim == codes.ndim else scales
    if per_block.shape != blocks.shape[:-1]:
        raise ValueError(
            f"expected one scale per {block_size} elements along axis {axis} of codes {codes.shape}, "
            f"got scales {scales.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        values = fmt.values().astype(dtype)[blocks] * decode_e8m0(per_block).astype(dtype)[..., None]
    return _join(values, axis)


def matmul(
    lhs_codes: U8,
    lhs_scales: U8,
    lhs_fmt: ElementFormat | str,
    rhs_codes: U8,
    rhs_scales: U8,
    rhs_fmt: ElementFormat | str,
) -> NDArray[np.float64]:
    """Returns the reference product LHS · RHSᵀ, float64[..., M, N], products exact and summed in float64.

    Args:
        lhs_codes, lhs_scales: uint8[..., M, K] and uint8[..., M, K/32].
        rhs_codes, rhs_scales: uint8[..., N, K] and uint8[..., N, K/32]: the RHS is transposed.
        lhs_fmt, rhs_fmt: Element formats or their names, not necessarily the same.

    Raises what `dequantise` raises, and ValueError if the two K differ.
    """
    lhs = dequantise(lhs_codes, lhs_scales, lhs_fmt, dtype=np.float64)
    rhs = dequantise(rhs_codes, rhs_scales, rhs_fmt, dtype=np.float64)
    if lhs.shape[-1] != rhs.shape[-1]:
        raise ValueError(f"expected LHS M×K and RHS N×K (transposed), got {lhs.shape} and {rhs.shape}")
    return lhs @ np.swapaxes(rhs, -1, -2)


def _profile(name: str, fmt: ElementFormat, mode: str) -> Profile:
    if mode not in SCALE_MODES:
        raise ValueError(f"unknown scale mode {mode!r}; use one of {', '.join(SCALE_MODES)}")
    if name not in PROFILES:
        raise ValueError(f"unknown profile {name!r}; use one of {', '.join(PROFILES)}")
    profile = PROFILES[name]
    if mode not in profile.modes or fmt not in (profile.formats or (fmt,)):
        formats = ", ".join(map(str, profile.formats or ("all formats",)))
        raise ValueError(
            f"profile {name!r} covers {formats} in mode {', '.join(profile.modes)}, "
            f"got {fmt} in mode {mode}; use profile 'ocp'"
        )
    return profile


def _split(x: NDArray[Any], axis: int, block_size: int) -> NDArray[Any]:
    """Moves ``axis`` last and splits it: [..., blocks, block_size]."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"expected an axis of an array of shape {x.shape}, got axis {axis}")
    if block_size < 1 or x.shape[axis] % block_size:
        raise ValueError(
            f"length {x.shape[axis]} along axis {axis} of shape {x.shape} is not a multiple of the block size "
            f"{block_size}; pad with zeros"
        )
    x = np.moveaxis(x, axis, -1)
    return x.reshape(*x.shape[:-1], x.shape[-1] // block_size, block_size)


def _join(blocks: NDArray[Any], axis: int) -> NDArray[Any]:
    """Inverts `_split`."""
    *lead, count, block_size = blocks.shape
    return np.moveaxis(blocks.reshape(*lead, count * block_size), -1, axis)
