"""Packs element codes without gaps, little-endian: the first code along K takes the lowest bits."""

from __future__ import annotations

import math

import numpy as np

from mxcomp.formats.elements import U8, ElementFormat, check_codes, element_format


def pack_bits(codes: U8, fmt: ElementFormat | str) -> U8:
    """Packs codes along the last axis.

    fp4: two codes per byte, the even one in the low nibble. fp6: four codes in three bytes, so that a block of 32
    takes 24 bytes. fp8: unchanged.

    Args:
        codes: uint8[..., K], one code per byte; K is a multiple of 2 for fp4, of 4 for fp6.
        fmt: Element format or its name.

    Returns:
        uint8[..., K * bits / 8].

    Raises:
        TypeError: codes are not uint8.
        ValueError: unknown format, a code wider than the format, or a K that does not fill whole bytes.
    """
    fmt = element_format(fmt)
    check_codes(codes, fmt)
    return _regroup(codes, fmt.bits, 8, f"{fmt} codes")


def unpack_bits(packed: U8, fmt: ElementFormat | str) -> U8:
    """Inverts `pack_bits`: from uint8[..., bytes] to uint8[..., bytes * 8 / bits] codes, one per byte.

    Raises TypeError for another dtype, ValueError for an unknown format or, for fp6, bytes not a multiple of 3.
    """
    fmt = element_format(fmt)
    if packed.dtype != np.uint8:
        raise TypeError(f"expected uint8 bytes, got {packed.dtype}")
    return _regroup(packed, 8, fmt.bits, f"bytes of packed {fmt}")


def _regroup(fields: U8, width: int, new_width: int, what: str) -> U8:
    """Reads the last axis as a stream of ``width``-bit fields and cuts it into ``new_width``-bit fields."""
    word_bits = math.lcm(width, new_width)  # 8 or 24: the shortest stretch that both divide
    count = word_bits // width
    if fields.ndim == 0 or fields.shape[-1] % count:
        raise ValueError(f"expected a multiple of {count} {what} along the last axis, got shape {fields.shape}")
    words = fields.shape[-1] // count
    groups = fields.reshape(*fields.shape[:-1], words, count).astype(np.uint32)
    stream = np.bitwise_or.reduce(groups << np.arange(0, word_bits, width, dtype=np.uint32), axis=-1, keepdims=True)
    parts = stream >> np.arange(0, word_bits, new_width, dtype=np.uint32) & np.uint32((1 << new_width) - 1)
    return parts.astype(np.uint8).reshape(*fields.shape[:-1], words * word_bits // new_width)
