"""Blocks of 8-bit elements, of which a lane of the MFMA takes halves: a loop nest whose innermost loops are a whole
block.

Packed elements of a 16x16x128 MFMA are [kk, g, r, half, 16], where g counts halves of blocks and `half` is 64 elements.
Of the four g two are a block's: with g = 2 g' + h a lane computes all of a block, and stores its halves h apart:

    loops  (kk, g', r, half), inside a block (h, 16)    elements [kk, g', h, r, half, 16]    scales [half, g', r, kk]
"""

from __future__ import annotations

from dataclasses import replace

from iree.compiler import ir

from mxcomp.layout.swizzle import TileSwizzle
from mxcomp.packing.packed_loops import Loop, LoopNest

_HALVES = 2


def of(nest: LoopNest, scale_swizzle: TileSwizzle) -> tuple[LoopNest, list[list[int]]] | None:
    """Returns the nest over whole blocks for one over packed halves of them, and orders of its loops.

    Elements and scales are stored in these orders. None is returned where packing has another form.
    """
    halves = [i for i, each in enumerate(nest.over) if (each.row, each.column) == (0, 1) and i >= nest.outer]
    half = nest.operand.block // _HALVES
    if nest.inner != (half,) or len(halves) != 1 or (nest.over[halves[0]].size or 0) <= _HALVES:
        return None
    at, rank = halves[0], nest.rank
    blocks = Loop((nest.over[at].size or 0) // _HALVES, 0, _HALVES)
    over = (*nest.over[:at], blocks, *nest.over[at + 1 :])
    within = ir.AffineExpr.get_dim(rank) * half + ir.AffineExpr.get_dim(rank + 1)
    whole = replace(nest, over=over, within=within, inner=(_HALVES, half))
    scales = whole.order(scale_swizzle)
    if scales is None or any(each.column % _HALVES for each in over):
        return None
    elements = [*range(at + 1), rank, *range(at + 1, rank), rank + 1]
    return whole, [elements, [*range(nest.outer), *scales]]
