"""Where accumulators of a lane that are neighbours in a row lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from iree.compiler import ir

from mxcomp.layout import ACC, OPERAND_NAMES, DataTiledLayout
from mxcomp.layout.inner_tiles import HALF_STEPS, inner_tiled_layout
from mxcomp.registry import Registry
from mxcomp.target import get_target

LAYOUTS = [inner_tiled_layout(3, 2), inner_tiled_layout(4, 6, HALF_STEPS)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_neighbours_are_in_one_piece(layout: DataTiledLayout) -> None:
    """The last packed dimension is along a row; without them it is along a column."""
    ours = replace(layout, lane_columns=True)
    m, n, _ = layout.workgroup_tile
    result = np.arange(m * n).reshape(m, n)
    for each, step in ((layout, n), (ours, 1)):
        packed = each.packing(ACC).pack(result)
        assert (np.diff(packed, axis=-1) == step).all()
        np.testing.assert_array_equal(each.packing(ACC).unpack(packed, result.shape), result)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_fragment_is_transposed(layout: DataTiledLayout) -> None:
    """What the hardware has at a place of a fragment [m, n] it has there of [n, m] when factors change places."""
    square = replace(layout, inner_tiles=(1, 1))
    size = square.workgroup_tile[0]
    result = np.arange(size * size).reshape(size, size)
    swapped = replace(square, lane_columns=True)
    np.testing.assert_array_equal(swapped.packing(ACC).pack(result), square.packing(ACC).pack(result.T))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_nothing_else_changes(layout: DataTiledLayout) -> None:
    ours = replace(layout, lane_columns=True)
    for operand in range(len(OPERAND_NAMES)):
        assert ours.swizzle(operand) == layout.swizzle(operand)
        assert operand == ACC or ours.packing(operand) == layout.packing(operand)
    assert ours.packed((1, 1)) == layout.packed((1, 1))


def test_not_rows_and_columns() -> None:
    with pytest.raises(ValueError, match="consecutive in rows or in columns, not in both"):
        replace(LAYOUTS[0], lane_rows=True, lane_columns=True)


def test_a_stock_compiler_gets_the_same_ukernels_without() -> None:
    with ir.Context(), ir.Location.unknown():
        ours, stock = (Registry(get_target("gfx950"), stock=stock).ukernels for stock in (False, True))
    assert list(ours) == list(stock)
    having = [name for name, each in ours.items() if each.layout is not None and each.layout.lane_columns]
    assert having
    for name, each in stock.items():
        own = ours[name].layout
        assert each.layout == (own and replace(own, lane_columns=False))
