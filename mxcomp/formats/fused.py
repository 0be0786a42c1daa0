"""Fuses `quantise` and `pack_bits` of whole weights into one compiled pass on all cores, with the same bits.

Numba compiles the loop once for a machine (about a second) and caches it next to this file, or in the user's cache.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mxcomp.formats.blocks import MX_BLOCK, mx_format
from mxcomp.formats.elements import F32, U8, ElementFormat, as_float32, element_format
from mxcomp.formats.scales import E8M0_NAN, SCALE_MODES

_PIECE = 2**19
"""The number of elements that a thread processes at once, so that they stay in its cache."""

_MANTISSA = 0x7FFFFF


def quantise_packed(x: NDArray[Any], fmt: ElementFormat | str, mode: str = "even") -> tuple[U8, U8]:
    """Quantises along the last axis and packs the codes: uint8[..., K · bits / 8] and uint8[..., K / 32].

    Raises what the two raise.
    """
    fmt = element_format(fmt)
    if mode not in SCALE_MODES:
        raise ValueError(f"unknown scale mode {mode!r}; use one of {', '.join(SCALE_MODES)}")
    if not x.ndim or x.shape[-1] % MX_BLOCK:
        raise ValueError(
            f"shape {x.shape}: the last size is not a multiple of the block size {MX_BLOCK}; pad with zeros"
        )
    as_float32(x[..., :0])  # raises for types that are no floats
    *lead, k = x.shape
    rows = x.reshape(math.prod(lead), k)
    packed = np.empty((len(rows), k // MX_BLOCK * mx_format(fmt).block_bytes), np.uint8)
    scales = np.empty((len(rows), k // MX_BLOCK), np.uint8)
    numbers = _numbers(fmt, mode)
    step = max(1, _PIECE // max(k, 1))

    def piece(start: int) -> None:
        at = slice(start, start + step)
        _quantise(
            _float32(rows[at]).reshape(-1).view(np.uint32), packed[at].reshape(-1), scales[at].reshape(-1), *numbers
        )

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(piece, range(0, len(rows), step)))
    return packed.reshape(*lead, packed.shape[1]), scales.reshape(*lead, scales.shape[1])


def _numbers(fmt: ElementFormat, mode: str) -> tuple[np.uint32, ...]:
    """Returns the parameters of the loop: the format's bits, mantissa bits, bias, and largest number as float32; the
    exponent that is subtracted from scales, and what is added to the bits of a block's largest magnitude so that a
    carry increments its exponent."""
    largest = int(np.float32(fmt.max_finite).view(np.uint32))
    carries = {
        "floor": 0,
        "even": 1 << 22 - fmt.mantissa_bits,
        "ceil": _MANTISSA,
        "rceil": _MANTISSA - (largest & _MANTISSA),
    }
    return tuple(map(np.uint32, (fmt.bits, fmt.mantissa_bits, fmt.bias, largest, fmt.emax, carries[mode])))


def _float32(rows: NDArray[Any]) -> F32:
    if rows.dtype.name == "bfloat16":  # the upper half, which is quicker than a cast
        return (np.ascontiguousarray(rows).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.ascontiguousarray(as_float32(rows))


@njit(cache=True, nogil=True)
def _quantise(
    x: Any, packed: Any, scales: Any, bits: Any, mantissa_bits: Any, bias: Any, largest: Any, emax: Any, carry: Any
) -> None:
    """Quantises one block after another; `x` are the bits of float32."""
    values = np.empty(1, np.uint32).repeat(MX_BLOCK)
    floats = values.view(np.float32)
    codes = np.empty(MX_BLOCK, np.uint32)
    pair = np.empty(3, np.uint32)
    numbers = pair.view(np.float32)
    shift = np.uint32(23) - mantissa_bits
    half = (np.uint32(1) << (shift - np.uint32(1))) - np.uint32(1)
    normal = (np.uint32(128) - bias) << np.uint32(23)  # the least magnitude that is no subnormal of the format
    fields = (np.uint32(127) - bias) << mantissa_bits
    pair[0] = (np.uint32(126) + mantissa_bits + bias) << np.uint32(23)
    units, whole = numbers[0], np.float32(8388608)
    pair[1] = largest
    most = numbers[1]
    per_block = MX_BLOCK * bits // 8
    for block in range(len(scales)):
        first = block * MX_BLOCK
        amax = np.uint32(0)
        for i in range(MX_BLOCK):
            amax = max(amax, x[first + i] & np.uint32(0x7FFFFFFF))
        if amax >= np.uint32(0x7F800000):
            scales[block] = E8M0_NAN
            for i in range(per_block):
                packed[block * per_block + i] = 0
            continue
        raised = (amax + carry) >> np.uint32(23)
        scale = raised - emax if raised > emax else np.uint32(0)
        scales[block] = scale
        pair[2] = (np.uint32(254) - scale) << np.uint32(23) if scale < 254 else np.uint32(0x00400000)
        factor = numbers[2]
        for i in range(MX_BLOCK):
            values[i] = x[first + i] & np.uint32(0x7FFFFFFF)
        for i in range(MX_BLOCK):
            floats[i] = min(floats[i] * factor, most)
        for i in range(MX_BLOCK):
            value = values[i]
            codes[i] = ((value + ((value >> shift) & np.uint32(1)) + half) >> shift) - fields
        for i in range(MX_BLOCK):
            if values[i] < normal:
                floats[i] = floats[i] * units + whole
                codes[i] = values[i] & _MANTISSA
        for i in range(MX_BLOCK):
            codes[i] |= (x[first + i] >> np.uint32(31)) << (bits - np.uint32(1))
        at = block * per_block
        if bits == 8:
            for i in range(MX_BLOCK):
                packed[at + i] = codes[i]
        elif bits == 4:
            for i in range(MX_BLOCK // 2):
                packed[at + i] = codes[2 * i] | codes[2 * i + 1] << np.uint32(4)
        else:
            for i in range(MX_BLOCK // 4):
                word = codes[4 * i] | codes[4 * i + 1] << 6 | codes[4 * i + 2] << 12 | codes[4 * i + 3] << 18
                for byte in range(3):
                    packed[at + 3 * i + byte] = (word >> 8 * byte) & 255
