"""MX data as float32 numbers in logical order, whatever its layout in memory, for debugging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.formats import E8M0, FORMATS, MX_BLOCK, decode, decode_e8m0, element_format, unpack_bits
from mxcomp.layout import LHS_SCALE, OPERAND_NAMES, layout_from

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

SCALE_TYPES = (E8M0.mlir_type, E8M0.name)
TYPES = (*FORMATS, *SCALE_TYPES)
"""The types that bytes can be interpreted as."""


def numbers(data: NDArray[Any], kind: str, scales: NDArray[Any] | None = None) -> F32:
    """Decodes bytes to numbers.

    Args:
        data: uint8 or int8 [..., bytes], elements without gaps, the first in the lowest bits; or [..., bytes of a
            block, as 16 for fp4], whose last two dimensions are then taken for one.
        kind: Type of the elements, one of `TYPES`.
        scales: uint8 or int8 E8M0 codes, one for each 32 elements. None: elements are shown as they are.

    Returns:
        float32 [..., elements]. Raises ValueError for an unknown type, or for shapes that do not belong together.
    """
    codes = _bytes(data, "elements")
    if kind in SCALE_TYPES:
        if scales is not None:
            raise ValueError(f"{kind} is a type of scales: they have no scales themselves")
        return decode_e8m0(codes)
    if kind not in FORMATS:
        raise ValueError(f"unknown type '{kind}': expected one of {', '.join(TYPES)}")
    values = decode(unpack_bits(codes, kind), kind)
    if scales is None:
        return values
    factors = decode_e8m0(_bytes(scales, "scales"))
    if values.shape[-1] == MX_BLOCK and factors.shape == values.shape[:-1]:
        values = values.reshape(*values.shape[:-2], -1)
    if values.shape != (*factors.shape[:-1], factors.shape[-1] * MX_BLOCK):
        raise ValueError(
            f"elements {values.shape} and scales {factors.shape}: expected one scale per {MX_BLOCK} elements"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return values * factors.repeat(MX_BLOCK, axis=-1)


def _bytes(data: NDArray[Any], what: str) -> U8:
    if data.dtype.itemsize != 1 or not data.ndim:
        raise ValueError(f"{what} are {data.dtype} {list(data.shape)}: expected an array of bytes")
    return np.ascontiguousarray(data).view(np.uint8)


def stored_bytes(shape: Sequence[int], kind: str) -> int:
    """Returns the size of an operand in memory; `shape` counts elements of MLIR type `kind`."""
    bits = 8 if kind in SCALE_TYPES else element_format(kind).bits
    return int(np.prod(shape, dtype=np.int64)) * bits // 8


def operand(
    data: U8, name: str, kind: str, shape: Sequence[int], layout: Mapping[str, Any] | None, rows: int | None, k: int
) -> F32:
    """Returns an operand of a matmul dispatch in logical order.

    Args:
        data: All of its bytes.
        name: One of `OPERAND_NAMES`: "lhs", "rhs", "lhs_scale" or "rhs_scale", as it is multiplied.
        kind: MLIR type of an element.
        shape: As it lies in memory: (tiles of rows, tiles of K, …) with a layout, (workgroups' tiles, inner tiles of
            rows, tiles of K, …) if that has inner tiles, else (rows, K/32, …).
        layout: Entries of a `DataTiledLayout`, as in a report; None: row-major.
        rows, k: Size without padding; rows None: whole tiles.

    Returns:
        float32 [rows, k] elements, not multiplied by scales, or [rows, k / 32] scales.
    """
    index = OPERAND_NAMES.index(name)
    columns = k // MX_BLOCK if index >= LHS_SCALE else k
    tiled = None if layout is None else layout_from(dict(layout))
    if tiled is not None and tiled.inner_tiles is not None:
        shape = (shape[0] * tiled.inner_tiles[index % 2], *shape[2:])
    values = numbers(data.reshape(shape[0], -1), kind)
    if tiled is None:
        return np.ascontiguousarray(values[:rows, :columns])
    swizzle = tiled.packing(index, kind) if index < LHS_SCALE else tiled.packing(index)
    tile = swizzle.tile_shape
    units = tile[2:]  # elements that stay together along K, nothing for scales
    outer = (*shape[:2], *(1 for _ in units))
    count = shape[0] * tile[0] if rows is None else rows
    source = (count, columns // units[0], units[0]) if units else (count, columns)
    return swizzle.unpack(values.reshape(*outer, *swizzle.packed_shape), source).reshape(count, columns)
