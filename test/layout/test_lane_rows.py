"""Orders of rows that are ours: those of a lane together, those of gate and up apart, and rows in one piece."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.ukernels import family, gating

LANE_ROWS = {
    "16x16x128": DataTiledLayout(
        intrinsics_m=8, intrinsics_n=4, subgroups_n=4, operands_interleaving_intrinsics_m=(2,)
    ),
    "16x16x128, two subgroups": DataTiledLayout(intrinsics_m=8, intrinsics_k=2, subgroups_m=2),
    "32x32x64": DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32", intrinsics_m=2, intrinsics_k=2),
    "one intrinsic": DataTiledLayout(),
}


@pytest.mark.parametrize("layout", LANE_ROWS.values(), ids=LANE_ROWS)
def test_lane_rows(layout: DataTiledLayout) -> None:
    """Another order of the rows, the same for elements, scales and accumulators; a lane's are consecutive."""
    rows = layout.tile[0]
    ours = replace(layout, lane_rows=True)
    moved = {}
    for operand in (LHS, LHS_SCALE, ACC):
        plain, packing = layout.swizzle(operand), ours.packing(operand)
        assert ours.swizzle(operand) == plain
        source = np.broadcast_to(np.arange(rows).reshape(-1, *[1] * (len(plain.tile_shape) - 1)), plain.tile_shape)
        before, after = plain.pack(source).ravel(), packing.pack(source).ravel()
        moved[operand] = dict(zip(before.tolist(), after.tolist(), strict=True))
        assert len(set(zip(before.tolist(), after.tolist(), strict=True))) == rows
    assert moved[LHS] == moved[LHS_SCALE] == moved[ACC]
    assert sorted(moved[ACC].values()) == list(range(rows))

    shape = layout.shape
    groups = shape.m // (shape.acc_outer * shape.acc_inner) * shape.acc_inner
    mine = [row for row in range(rows // layout.subgroups_m) if row % shape.m % groups < shape.acc_inner]
    assert [moved[ACC][row] for row in mine] == list(range(len(mine)))


def test_lane_rows_keep_the_right_side() -> None:
    layout = replace(LANE_ROWS["16x16x128"], lane_rows=True)
    for operand in (RHS, RHS_SCALE):
        assert layout.packing(operand) == layout.swizzle(operand)


@pytest.mark.parametrize("element", ["f4E2M1FN", "f6E3M2FN", "f8E4M3FN"])
def test_rows_in_one_piece(element: str) -> None:
    """What an MFMA takes of an LHS row, one row after the other; IREE sees no difference, and RHS has none."""
    plain = DataTiledLayout(intrinsics_k=4, inner_tiles=(1, 2))
    ours = replace(plain, lhs_row_lines=True)
    source, scales = np.arange(16 * 512).reshape(16, 16, 32), np.arange(16 * 16).reshape(16, 16)
    packed = ours.packing(LHS, element).pack(source).reshape(4, 16, 128)
    assert np.array_equal(packed, source.reshape(16, 4, 128).swapaxes(0, 1))
    assert ours.swizzle(LHS, element) == plain.swizzle(LHS, element)
    assert np.array_equal(ours.packing(LHS_SCALE).pack(scales).ravel(), plain.packing(LHS_SCALE).pack(scales).ravel())
    assert all(ours.packing(operand) == plain.packing(operand) for operand in (RHS, RHS_SCALE, ACC))


@pytest.mark.parametrize("element", ["f4E2M1FN", "f8E4M3FN"])
@pytest.mark.parametrize("tile", gating.down("f8E4M3FN"), ids=lambda tile: tile.pattern)
def test_rows_of_rhs_in_one_piece(tile: family.Tile, element: str) -> None:
    """Blocks of elements are whole, one row's behind one another; all else is where it was."""
    ours, plain = tile.layout, replace(tile.layout, rhs_row_lines=False)
    rows = ours.tile[1]
    source = np.arange(rows * 128).reshape(rows, 4, 32)
    packed = ours.packing(RHS, element).pack(source)
    assert np.array_equal(packed.reshape(-1, 16, 128), source.reshape(-1, 16, 128))
    assert ours.swizzle(RHS, element) == plain.swizzle(RHS, element)
    assert all(ours.packing(operand) == plain.packing(operand) for operand in (LHS, LHS_SCALE, RHS_SCALE, ACC))


@pytest.mark.parametrize("tile", gating.GATED, ids=lambda tile: tile.pattern)
def test_gated_rows_alternate(tile: family.Tile) -> None:
    """Of the rows of a gated layout, 2 i is row i of its half in the first subgroup, 2 i + 1 that in the second."""
    layout = replace(tile.layout, lane_rows=True, gated=True)
    for operand in (LHS, LHS_SCALE, ACC):
        whole, half = layout.packing(operand), layout.half.packing(operand)
        rows, *others = whole.tile_shape
        sizes = np.broadcast_to(np.arange(rows).reshape(-1, *[1] * len(others)), whole.tile_shape)
        halves = np.split(whole.pack(sizes).ravel(), 2)
        wanted = half.pack(sizes[: rows // 2]).ravel()
        assert all(np.array_equal(found, 2 * wanted + which) for which, found in enumerate(halves))


def test_a_gated_layout_has_two_subgroups() -> None:
    for entries in ({"lane_rows": True}, {"subgroups_m": 2}):
        with pytest.raises(ValueError, match="a gated layout has lane_rows and subgroups_m = 2"):
            DataTiledLayout(gated=True, **entries)
