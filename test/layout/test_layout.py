"""Layouts: equal to IREE's, bijective, padded with zeros."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from iree.compiler import ir
from iree.compiler.dialects import iree_codegen
from iree_encodings import choose

from mxcomp.layout import ACC, INTRINSICS, LHS, LHS_SCALE, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.layout.inner_tiles import inner_tiled_layout
from mxcomp.layout.swizzle import Dim, TileSwizzle
from mxcomp.mlir import attributes, build
from mxcomp.plans.data_tiled import CODEGEN_LAYOUTS
from mxcomp.registry import Registry
from mxcomp.target import get_target
from mxcomp.ukernels import gating

TYPES = ["f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32"]
OPERANDS = range(5)
counts = st.sampled_from([1, 2, 3, 4])
interleaving = st.sets(st.sampled_from(OPERANDS)).map(lambda operands: tuple(sorted(operands)))
layouts = st.builds(
    DataTiledLayout,
    intrinsic=st.sampled_from(list(INTRINSICS)),
    intrinsics_m=counts,
    intrinsics_n=counts,
    intrinsics_k=counts,
    subgroups_m=counts,
    subgroups_n=counts,
    operands_interleaving_intrinsics_m=interleaving,
    operands_interleaving_intrinsics_n=interleaving,
    operands_interleaving_intrinsics_k=interleaving,
)
SEED = DataTiledLayout(
    intrinsics_m=4,
    intrinsics_n=4,
    intrinsics_k=2,
    operands_interleaving_intrinsics_m=(LHS_SCALE,),
    operands_interleaving_intrinsics_n=(RHS_SCALE,),
    operands_interleaving_intrinsics_k=(LHS_SCALE, RHS_SCALE),
)


# Against IREE.


@pytest.mark.parametrize("builtin_ukernels", [False, True])
@pytest.mark.parametrize(
    "size", [(1024, 2048, 4096), (2048, 1024, 1024), (255, 513, 4064), (16, 32, 128), (1, 4096, 512)]
)
def test_swizzles_equal_encoding_info(size: tuple[int, int, int], builtin_ukernels: bool) -> None:
    choice = choose(*size, builtin_ukernels)
    assert len(choice.encodings) == 5
    for operand, encoding in enumerate(choice.encodings):
        swizzle = choice.layout.swizzle(operand)
        assert swizzle == encoding.swizzle
        assert swizzle.tile_shape == encoding.inner_tiles
        # Nothing but the swizzle reorders: pack() knows no outer permutation.
        assert encoding.inner_dims == encoding.outer_permutation == tuple(range(len(encoding.inner_tiles)))
        m, n, blocks = size[0], size[1], size[2] // 32
        source = {LHS: (m, blocks), LHS_SCALE: (m, blocks), ACC: (m, n)}.get(operand, (n, blocks))
        outer = [-(-size // tile) for size, tile in zip(source, encoding.inner_tiles, strict=False)]
        assert choice.layout.packed_shape(operand, outer) == choice.packed_shapes[operand]


def test_the_builtin_ukernel_has_the_layout_that_interleaves_scales() -> None:
    """Otherwise the comparison above would never see an interleaving of M and N."""
    layout = choose(1024, 2048, 4096, True).layout
    assert layout.operands_interleaving_intrinsics_m == (LHS_SCALE,)
    assert layout.operands_interleaving_intrinsics_n == (RHS_SCALE,)
    assert layout.tile == (128, 256, 256)
    default = choose(1024, 2048, 4096, False).layout
    assert default.operands_interleaving_intrinsics_m == ()
    assert default != layout


def _inner_tiled(layout: DataTiledLayout, shapes: list[tuple[int, ...]]) -> None:
    """Builds and verifies the operation that materialise makes, on operands of these shapes."""
    maps = ["(m, k, kb)", "(n, k, kb)", "(m, k)", "(n, k)", "(m, n)"]
    kinds = ["parallel", "parallel", "reduction", "reduction"]
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            *inputs, acc = (build.empty(build.tensor_type(s, t)) for s, t in zip(shapes, TYPES, strict=True))
            iree_codegen.InnerTiledOp(
                inputs,
                [acc],
                ir.ArrayAttr.get([ir.Attribute.parse(f"affine_map<(m, n, k, kb) -> {dims}>") for dims in maps]),
                ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
                attributes.mma_layout(layout, TYPES),
                attributes.mma_semantics(opaque=False),
            )
        module.operation.verify()


def _packed_shapes(layout: DataTiledLayout) -> list[tuple[int, ...]]:
    return [layout.packed_shape(operand, (2, 3)) for operand in OPERANDS]


@settings(max_examples=40)
@given(layouts)
def test_inner_tiled_accepts_our_shapes(layout: DataTiledLayout) -> None:
    shapes = _packed_shapes(layout)
    shapes[RHS] = (5, *shapes[RHS][1:])
    shapes[RHS_SCALE] = (5, *shapes[RHS_SCALE][1:])
    shapes[ACC] = (2, 5, *shapes[ACC][2:])
    _inner_tiled(layout, shapes)


@settings(max_examples=40)
@given(layouts, st.sampled_from(OPERANDS), st.data())
def test_inner_tiled_rejects_other_shapes(layout: DataTiledLayout, operand: int, data: st.DataObject) -> None:
    """So that acceptance means something."""
    shapes = _packed_shapes(layout)
    shapes[ACC] = (2, 2, *shapes[ACC][2:])
    first = len(shapes[operand]) - len(layout.swizzle(operand).dims)
    shape = list(shapes[operand])
    if data.draw(st.booleans()):
        other = data.draw(st.permutations(shape[first:]).filter(lambda sizes: sizes != shape[first:]))
        shape[first:] = other
    else:
        shape[data.draw(st.integers(first, len(shape) - 1))] += 1
    shapes[operand] = tuple(shape)
    with pytest.raises(ir.MLIRError):
        _inner_tiled(layout, shapes)


@pytest.mark.parametrize("layout", [*CODEGEN_LAYOUTS.values(), SEED])
def test_layouts_of_ours_are_iree_layouts(layout: DataTiledLayout) -> None:
    assert layout.expressible_in_iree
    shapes = _packed_shapes(layout)
    shapes[ACC] = (2, 2, *shapes[ACC][2:])
    _inner_tiled(layout, shapes)


GATED = {instance.name for instance in gating.INSTANCES if instance.tile in gating.GATED}


def test_layouts_of_ukernels_fit_their_tiles() -> None:
    with ir.Context(), ir.Location.unknown():
        tiled = [ukernel for ukernel in Registry(get_target("gfx950")).ukernels.values() if ukernel.layout]
        assert {ukernel.layout.expressible_in_iree for ukernel in tiled} == {True, False}
        for ukernel in tiled:
            assert ukernel.tile == ukernel.layout.workgroup_tile
            if ukernel.layout.inner_tiles is None:
                waves = ukernel.layout.subgroups_m if ukernel.name in GATED else 1  # compute what others do in more
                along_k = 4 if ukernel.name.endswith("_occupancy2") else 1
                assert math.prod(ukernel.workgroup_size) * waves == ukernel.layout.threads * along_k


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 150), st.integers(1, 40))
def test_inner_tiles_change_padding_only(inner_m: int, inner_n: int, rows: int, blocks: int) -> None:
    """What kernels of different sizes take is packed alike, and padded to whole tiles of each."""
    plain, tiled = inner_tiled_layout(1, 1), inner_tiled_layout(inner_m, inner_n)
    source = np.random.default_rng(rows).integers(1, 256, (rows, blocks), np.uint8)
    for operand, inner_tiles in ((LHS_SCALE, inner_m), (RHS_SCALE, inner_n)):
        first, packed = (layout.packing(operand).pack(source) for layout in (plain, tiled))
        assert len(packed) % inner_tiles == 0
        assert len(packed) - len(first) < inner_tiles
        np.testing.assert_array_equal(packed[: len(first)], first)
        assert not packed[len(first) :].any()
        np.testing.assert_array_equal(tiled.packing(operand).unpack(packed, source.shape), source)


def test_results_of_units_have_them_in_the_tile() -> None:
    layout = inner_tiled_layout(3, 2)
    assert layout.workgroup_tile == (48, 32, 512)
    assert layout.packing(ACC).packed_shape == (3, 2, 4, 16, 4)
    result = np.arange(96 * 64).reshape(96, 64)
    packed = layout.packing(ACC).pack(result)
    assert packed.shape == (2, 2, 3, 2, 4, 16, 4)
    assert packed[1, 0, 2, 1, 3, 5, 2] == result[48 + 2 * 16 + 3 * 4 + 2, 16 + 5]


# The scale layouts of 256-wide K tiles.


def test_scale_swizzle_with_intrinsics_innermost() -> None:
    lanes = (Dim("CrossIntrinsic", 4), Dim("CrossThread", 16)), (Dim("CrossIntrinsic", 2), Dim("CrossThread", 4))
    older = DataTiledLayout(intrinsics_m=4, intrinsics_n=4, intrinsics_k=2, scale_permutation=(3, 0, 1, 2))
    for operand in (LHS_SCALE, RHS_SCALE):
        assert SEED.swizzle(operand) == TileSwizzle(lanes, (3, 1, 0, 2))
        assert older.swizzle(operand) == TileSwizzle(lanes, (3, 0, 1, 2))
    assert not older.expressible_in_iree


def test_scale_swizzle_puts_each_scale_where_a_lane_reads_it() -> None:
    source = np.arange(64 * 8).reshape(64, 8)
    packed = SEED.swizzle(LHS_SCALE).pack(source)
    older = TileSwizzle(SEED.swizzle(LHS_SCALE).expand_shape, (3, 0, 1, 2)).pack(source)
    assert packed.shape == (1, 1, 4, 16, 4, 2)
    assert older.shape == (1, 1, 4, 4, 16, 2)
    for group, row, m, k in np.ndindex(4, 16, 4, 2):
        assert packed[0, 0, group, row, m, k] == older[0, 0, group, m, row, k] == source[16 * m + row, 4 * k + group]


@pytest.mark.parametrize(("intrinsic", "lanes", "apart"), [("16x16x128", 16, 64), ("32x32x64", 32, 32)])
def test_a_lane_holds_8_bit_elements_in_two_halves(intrinsic: str, lanes: int, apart: int) -> None:
    """AMD CDNA4 ISA, v_mfma_scale_f32_*_f8f6f4: byte 16·h + j of lane lanes·g + r is row r, K = apart·h + 16·g + j."""
    swizzle = DataTiledLayout(f"MFMA_SCALE_F32_{intrinsic}_B32").swizzle(LHS, "f8E4M3FN")
    r, k = np.meshgrid(np.arange(lanes), np.arange(2 * apart), indexing="ij")
    packed = swizzle.pack((1000 * r + k).reshape(lanes, -1, 16)).reshape(64, 2, 16)
    lane, h, j = np.meshgrid(np.arange(64), np.arange(2), np.arange(16), indexing="ij")
    assert (packed == 1000 * (lane % lanes) + apart * h + 16 * (lane // lanes) + j).all()


@pytest.mark.parametrize("element", ["f4E2M1FN", "f6E2M3FN", "f6E3M2FN"])
def test_other_elements_lie_as_iree_puts_them(element: str) -> None:
    assert SEED.swizzle(LHS, element) == SEED.swizzle(LHS)
    assert SEED.swizzle(RHS, element) == SEED.swizzle(RHS)


@given(layouts, st.permutations(range(4)))
def test_scale_permutation_keeps_subgroups_outermost(layout: DataTiledLayout, order: list[int]) -> None:
    assume(1 not in (layout.intrinsics_m, layout.intrinsics_n, layout.intrinsics_k))
    fields = {field: getattr(layout, field) for field in layout.__dataclass_fields__}
    permuted = DataTiledLayout(**fields | {"scale_permutation": tuple(order)})
    for operand, subgroups in ((LHS_SCALE, layout.subgroups_m), (RHS_SCALE, layout.subgroups_n)):
        expected = [p + 1 for p in order] if subgroups > 1 else order
        assert list(permuted.swizzle(operand).permutation)[-4:] == expected
        assert permuted.swizzle(operand).expand_shape == layout.swizzle(operand).expand_shape
    for operand in (LHS, RHS, ACC):
        assert permuted.swizzle(operand) == layout.swizzle(operand)


# Packing.


@st.composite
def packings(draw: st.DrawFn) -> tuple[TileSwizzle, np.ndarray]:
    """A swizzle and a source without zeros, of whole tiles or not."""
    operand = draw(st.sampled_from(OPERANDS))
    swizzle = draw(layouts).swizzle(operand)
    sizes = tuple(draw(st.integers(1, 2 * tile + 1)) for tile in swizzle.tile_shape[:2])
    shape = (*sizes, 2) if len(swizzle.tile_shape) == 3 else sizes  # two bytes stand for a block
    return swizzle, np.arange(1, math.prod(shape) + 1).reshape(shape)


@given(layouts, st.sampled_from(OPERANDS))
def test_a_swizzle_is_a_permutation_of_the_tile(layout: DataTiledLayout, operand: int) -> None:
    swizzle = layout.swizzle(operand)
    m, n, k = layout.tile
    tile = {LHS: (m, k // 32, 32), RHS: (n, k // 32, 32), LHS_SCALE: (m, k // 32), RHS_SCALE: (n, k // 32), ACC: (m, n)}
    assert sorted(swizzle.permutation) == list(range(len(swizzle.dims)))
    assert swizzle.tile_shape == tile[operand]
    assert math.prod(swizzle.packed_shape) == math.prod(swizzle.tile_shape)


@given(packings())
def test_unpack_inverts_pack(case: tuple[TileSwizzle, np.ndarray]) -> None:
    swizzle, source = case
    packed = swizzle.pack(source)
    assert np.array_equal(swizzle.unpack(packed, source.shape), source)


@given(packings())
def test_packed_size_and_padding(case: tuple[TileSwizzle, np.ndarray]) -> None:
    swizzle, source = case
    packed = swizzle.pack(source)
    rows, columns = (-(-size // tile) for size, tile in zip(source.shape[:2], swizzle.tile_shape, strict=False))
    block = source.shape[2:]
    inner = (*swizzle.packed_shape[: len(swizzle.packed_shape) - len(block)], *block)
    assert packed.shape == (rows, columns, *(1 for _ in block), *inner)
    # Every element once, and zeros besides.
    assert np.array_equal(np.sort(packed[packed != 0]), np.arange(1, source.size + 1))


@given(packings())
def test_strides_say_where_each_packed_element_comes_from(case: tuple[TileSwizzle, np.ndarray]) -> None:
    swizzle, source = case
    packed = swizzle.pack(source)
    block = len(source.shape) - 2
    places = np.indices(packed.shape)
    tile, inner = places[:2], places[2 + block : len(places) - block]
    row, column = (
        tile[dim] * swizzle.tile_shape[dim]
        + sum(i * stride for i, stride in zip(inner, swizzle.strides(dim), strict=False))
        for dim in (0, 1)
    )
    inside = (row < source.shape[0]) & (column < source.shape[1])
    rest = (places[-1][inside],) if block else ()
    assert np.array_equal(packed[inside], source[(row[inside], column[inside], *rest)])
    assert not packed[~inside].any()


def test_bytes_pack_as_the_codes_they_hold() -> None:
    codes = np.random.default_rng(0).integers(0, 16, (100, 9, 32), dtype=np.uint8)
    packed = CODEGEN_LAYOUTS[None].swizzle(LHS).pack(codes)
    as_bytes = CODEGEN_LAYOUTS[None].swizzle(LHS).pack(codes[..., ::2] | codes[..., 1::2] << 4)
    assert np.array_equal(packed[..., ::2] | packed[..., 1::2] << 4, as_bytes)
    assert packed.shape == CODEGEN_LAYOUTS[None].packed_shape(LHS, (1, 2))


# Mistakes.


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"intrinsic": "MFMA_F32_16x16x16_F16"}, "unknown intrinsic 'MFMA_F32_16x16x16_F16'"),
        ({"intrinsics_m": 0}, "intrinsics_m must be at least 1, got 0"),
        ({"intrinsics_n": -2}, "intrinsics_n must be at least 1, got -2"),
        ({"intrinsics_k": 0}, "intrinsics_k must be at least 1, got 0"),
        ({"subgroups_m": 0}, "subgroups_m must be at least 1, got 0"),
        ({"subgroups_n": 0}, "subgroups_n must be at least 1, got 0"),
        ({"subgroups_k": 2}, "subgroups_k must be 1"),
        ({"scale_permutation": (0, 1, 2)}, "must order 4 dimensions"),
        ({"scale_permutation": (0, 1, 2, 2)}, "must order 4 dimensions"),
        ({"scale_permutation": (3, 1, 0, 2), "intrinsics_m": 2, "intrinsics_n": 2}, "above 1"),
        ({"lhs_row_lines": True}, "lhs_row_lines are for layouts with inner tiles, without lane_rows"),
    ],
)
def test_bad_layouts_are_rejected(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataTiledLayout(**fields)


def test_bad_sources_are_rejected() -> None:
    swizzle = CODEGEN_LAYOUTS[None].swizzle(LHS_SCALE)
    with pytest.raises(ValueError, match="rank 2"):
        swizzle.pack(np.zeros((4, 4, 4)))
    with pytest.raises(ValueError, match="does not belong to source shape"):
        swizzle.unpack(swizzle.pack(np.zeros((4, 4))), (4, 400))
