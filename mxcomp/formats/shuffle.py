"""The memory layouts in which AITER's kernels read MX weights and scales."""

from __future__ import annotations

import math

import numpy as np

from mxcomp.formats.elements import U8

# Both layouts are a split of two axes into factors and a permutation of the factors.
_WEIGHT_TILE = (16, 32)  # rows × bytes
_SCALE_PAD = (256, 8)  # rows × K blocks


def shuffle_weight(weight: U8, *, pad_k_to: int = 0) -> U8:
    """Returns weights in AITER's layout (16, 16): 16 rows of 16 bytes become contiguous.

    Rows and bytes are split as [N/16, 16] and [K/32, 2, 16] and ordered [N/16, K/32, 2, 16 rows, 16 bytes].
    Source: `shuffle_weight` in aiter/ops/shuffle.py with layout=(16, 16), for elements of one byte (packed fp4, fp8).

    Args:
        weight: uint8[..., N, K bytes], N a multiple of 16, K of 32.
        pad_k_to: If not 0, zero bytes are appended to every row up to a multiple of this, as AITER does on request.

    Returns:
        uint8 of the (padded) shape.

    Raises:
        TypeError: weight is not uint8.
        ValueError: N or the padded K is no multiple, or pad_k_to is negative.
    """
    _check_uint8(weight, "weight", 2)
    if pad_k_to < 0:
        raise ValueError(f"expected pad_k_to >= 0, got {pad_k_to}")
    if pad_k_to:
        weight = _pad(weight, (1, pad_k_to))
    tiles = _weight_shape(weight)
    return weight.reshape(tiles).transpose(0, 1, 3, 4, 2, 5).reshape(weight.shape)


def unshuffle_weight(shuffled: U8) -> U8:
    """Inverts `shuffle_weight` for uint8[..., N, K bytes]; padding stays. Raises as `shuffle_weight` does."""
    _check_uint8(shuffled, "weight", 2)
    batch, n, rows, k, halves, lane = _weight_shape(shuffled)
    tiles = shuffled.reshape(batch, n, k, halves, rows, lane)
    return tiles.transpose(0, 1, 4, 2, 3, 5).reshape(shuffled.shape)


def shuffle_scale(scales: U8) -> U8:
    """Returns scales in AITER's e8m0_shuffle layout: tiles of 32 rows × 8 K blocks, four scales of one lane per 32-bit
    word.

    Rows and K blocks are split as [M/32, 2, 16] and [K/8, 2, 4] and ordered [M/32, K/8, 4, 16, 2 (K), 2 (M)].
    Source: `shuffle_scale` in aiter/ops/shuffle.py, which `e8m0_shuffle` in aiter/utility/fp4_utils.py calls; the
    same as a formula is `mx_scale_shuffle_idx` in csrc/include/mx_quant_utils.h.

    Args:
        scales: uint8[M, K/32] of any size. Padded to a multiple of 256 rows and 8 columns, as AITER does. AITER's
            host code leaves the padding uninitialised, its quantiser stores 0 there; here it is 0.

    Returns:
        uint8 of the padded shape.

    Raises:
        TypeError: scales are not uint8.
        ValueError: scales are not a matrix.
    """
    _check_uint8(scales, "scales", 2, 2)
    padded = _pad(scales, _SCALE_PAD)
    rows, columns = padded.shape
    tiles = padded.reshape(rows // 32, 2, 16, columns // 8, 2, 4)
    return tiles.transpose(0, 3, 5, 2, 4, 1).reshape(rows, columns)


def unshuffle_scale(shuffled: U8, shape: tuple[int, int] | None = None) -> U8:
    """Inverts `shuffle_scale`, and cuts to ``shape`` = (M, K/32) if given.

    Raises TypeError unless ``shuffled`` is uint8, ValueError unless it has a shape `shuffle_scale` returns.
    """
    _check_uint8(shuffled, "scales", 2, 2)
    rows, columns = shuffled.shape
    if rows % _SCALE_PAD[0] or columns % _SCALE_PAD[1]:
        raise ValueError(f"expected shuffled scales of 256·i × 8·j, got {shuffled.shape}")
    tiles = shuffled.reshape(rows // 32, columns // 8, 4, 16, 2, 2)
    scales = tiles.transpose(0, 5, 3, 1, 4, 2).reshape(rows, columns)
    return scales if shape is None else scales[: shape[0], : shape[1]]


def _check_uint8(x: U8, what: str, least: int, most: int = 64) -> None:
    if x.dtype != np.uint8:
        raise TypeError(f"expected uint8 {what}, got {x.dtype}; pack element codes with pack_bits")
    if not least <= x.ndim <= most:
        raise ValueError(f"expected {what} as a matrix, got shape {x.shape}")


def _weight_shape(weight: U8) -> tuple[int, int, int, int, int, int]:
    rows, k = weight.shape[-2:]
    if rows % _WEIGHT_TILE[0] or k % _WEIGHT_TILE[1]:
        raise ValueError(f"expected a weight of 16·i rows × 32·j bytes, got {rows} × {k}; pad it with zeros")
    return math.prod(weight.shape[:-2]), rows // 16, 16, k // 32, 2, 16


def _pad(x: U8, multiples: tuple[int, int]) -> U8:
    """Appends zeros to the last two axes."""
    extra = [(0, -size % multiple) for size, multiple in zip(x.shape[-2:], multiples, strict=True)]
    return np.pad(x, [(0, 0)] * (x.ndim - 2) + extra)
