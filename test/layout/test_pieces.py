"""Pieces in which fused consumers read what lies along a dimension of a result: right, and never beyond its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxcomp.layout import ACC, DataTiledLayout
from mxcomp.packing.result_tiles import _piece
from mxcomp.ukernels import data_tiled, gating, multistage

LAYOUTS = (
    *(replace(tile.layout, lane_rows=True) for tile in gating.down("f4E2M1FN")),
    *(tile.layout for tile in data_tiled.TILES),
    multistage.TILES[-1].layout,
)


@given(st.sampled_from(LAYOUTS), st.sampled_from((0, 1)), st.integers(1, 600))
def test_a_piece_is_read_as_its_elements_are(layout: DataTiledLayout, dim: int, size: int) -> None:
    swizzle = layout.packing(ACC)
    strides, shape = swizzle.strides(dim), swizzle.packed_shape
    piece = _piece(strides, shape, size)
    places = np.indices(shape).reshape(len(shape), -1).T
    starts = places @ [stride if stride >= piece else 0 for stride in strides]
    inside = places @ [stride if stride < piece else 0 for stride in strides]
    tile = swizzle.tile_shape[dim]
    first = (size - 1) // tile * tile  # of the last tile
    found = np.minimum(first + starts, size - piece) + inside
    wanted = first + starts + inside
    assert found.max() < size
    assert found.min() >= 0
    assert np.array_equal(found[wanted < size], wanted[wanted < size])


@pytest.mark.parametrize("size", [96, 2880])
def test_a_lane_with_whole_blocks_reads_four_at_a_time(size: int) -> None:
    swizzle = LAYOUTS[0].packing(ACC)
    assert _piece(swizzle.strides(0), swizzle.packed_shape, size) == 4
    assert _piece(swizzle.strides(1), swizzle.packed_shape, size) == 1
