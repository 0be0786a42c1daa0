"""Blocks of 8-bit elements, of which a lane of the MFMA takes halves: a loop nest whose innermost loops are a whole
block.

Packed elements of a 16x16x128 MFMA are [kk, g, r, half, 16], where g counts halves of blocks and `half` is 64 elements.
Of the four g two are a block's: with g = 2 g' + h a lane computes all of a block, and stores its halves h apart:

    loops  (kk, g', r, half), inside a block (h, 16)    elements [kk, g', h, r, half, 16]    scales [half, g', r, kk]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.layout.swizzle import COLUMNS, ROWS, TileSwizzle
from mxcomp.packing.packed_loops import LoopNest

_HALVES = 2


@dataclass(frozen=True)
class HalfBlocks:
    """A nest over blocks, and the orders of its loops in which elements and scales are stored."""

    nest: LoopNest
    elements: list[int]
    scales: list[int]


def of(nest: LoopNest, swizzle: TileSwizzle, scale_swizzle: TileSwizzle) -> HalfBlocks | None:
    """Returns the nest over whole blocks for one over packed halves of them; None where packing has another form."""
    packed = nest.sizes[nest.outer :]
    strides = list(zip(swizzle.strides(ROWS), swizzle.strides(COLUMNS), strict=True))[: len(packed)]
    halves = [i for i, stride in enumerate(strides) if stride == (0, 1)]
    half = nest.operand.block // _HALVES
    if nest.inner != (half,) or len(halves) != 1 or (packed[halves[0]] or 0) <= _HALVES:
        return None
    at = nest.outer + halves[0]
    sizes = [size if i != at else (size or 0) // _HALVES for i, size in enumerate(nest.sizes)]
    blocks = {i: (row, column // _HALVES) for i, (row, column) in enumerate(strides)} | {halves[0]: (0, 1)}
    scales = _order(blocks, [size or 0 for size in sizes[nest.outer :]], scale_swizzle)
    if scales is None or any(column % _HALVES for i, (_, column) in enumerate(strides) if i != halves[0]):
        return None
    doubled = [ir.AffineExpr.get_dim(i) * (_HALVES if i == at else 1) for i in range(nest.rank)]
    twice = ir.AffineMap.get(nest.rank, 0, doubled)
    whole = replace(
        nest,
        sizes=tuple(sizes),
        row=nest.row.compose(twice),
        block=nest.block.compose(twice),
        within=ir.AffineExpr.get_dim(nest.rank) * half + ir.AffineExpr.get_dim(nest.rank + 1),
        inner=(_HALVES, half),
    )
    elements = [*range(at + 1), nest.rank, *range(at + 1, nest.rank), nest.rank + 1]
    return HalfBlocks(whole, elements, [*range(nest.outer), *(nest.outer + i for i in scales)])


def _order(blocks: dict[int, tuple[int, int]], sizes: list[int], scale_swizzle: TileSwizzle) -> list[int] | None:
    """Returns the loops of each dimension of packed scales, of which `blocks` has strides along rows and blocks.

    A dimension may be several loops, the outer ones first.
    """
    order: list[int] = []
    dims = zip(scale_swizzle.packed_shape, scale_swizzle.strides(ROWS), scale_swizzle.strides(COLUMNS), strict=True)
    for size, *stride in dims:
        parts: list[int] = []
        covered = 1
        while covered < size:
            wanted = tuple(step * covered for step in stride)
            found = next((i for i in blocks if blocks[i] == wanted and i not in (*order, *parts)), None)
            if found is None:
                return None
            parts.insert(0, found)
            covered *= sizes[found]
        if covered != size:
            return None
        order += parts
    return order if len(order) == len(blocks) else None
