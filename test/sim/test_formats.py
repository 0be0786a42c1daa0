"""Every pair of MX element types, through the family's ukernels and IREE's code generation, is right on the simulator.

Scales are random and differ from block to block, so an element that meets another block's scale is seen.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from corpus.code_objects import metadata
from corpus.device import Machine
from corpus.iree import DATA_TILING, TYPES, ours, scaled_matmul, stock
from corpus.iree.program import Program
from corpus.operands import check_product, operand
from spread import every, quick_if

from mxcomp.layout import DataTiledLayout
from mxcomp.plans import data_tiled as planned
from mxcomp.ukernels import data_tiled, family

Pair = tuple[str, str]
Shape = tuple[int, int, int]

PAIRS = list(itertools.product(TYPES, repeat=2))
WIDTHS = [("e4m3", "e2m1"), ("e2m1", "e5m2"), ("e2m3", "e4m3"), ("e5m2", "e3m2"), ("e3m2", "e2m1")]
"""A pair for each kind of fragment on each side."""
SHAPES = {128: ((128, 256, 512), (200, 300, 736)), 64: ((64, 256, 1024), (40, 200, 736))}
"""By rows of the tile: whole tiles, and padded in every dimension; several K tiles."""
SINGLE_ROW = (1, 200, 96)
"""One K tile, the larger part of it padding."""


def run(program: Program, pair: Pair, shape: Shape, engine: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The result, and the operands' values. Compiling a kernel pays off for IREE's own, which run for long."""
    m, n, k = shape
    rng = np.random.default_rng(shape)
    a, b = operand(rng, pair[0], m, k), operand(rng, pair[1], n, k)
    inputs = [a.packed, b.packed, a.scales, b.scales]
    (c,) = program.run(Machine(engine), inputs, [np.empty((m, n), np.float32)])
    return c, a.values, b.values


def name_of(tile: family.Tile, pair: Pair) -> str:
    return family.Instance(tile, (TYPES[pair[0]], TYPES[pair[1]]), family.Kernel).name


TILES = data_tiled.TILES
"""Those over inner tiles are in test/ukernels/test_inner_tiles.py."""


def check_instance(tile: family.Tile, pair: Pair, shape: Shape) -> None:
    program = ours(scaled_matmul(*shape, *pair), ukernels=name_of(tile, pair))
    assert len(program.dispatches) == 5
    (kernel,) = [k for code in program.code for k in metadata(code) if k[".name"] == program.dispatches[-1].kernel]
    assert kernel[".private_segment_fixed_size"] == 0
    assert kernel[".vgpr_count"] <= 256
    assert kernel[".group_segment_fixed_size"] <= 80 * 1024
    check_product(*run(program, pair, shape, "numpy"))


def name_of_tile(tile: family.Tile) -> str:
    return tile.pattern.partition("f32_")[2]


each_tile = pytest.mark.parametrize("tile", TILES, ids=name_of_tile)


IN_TURN = [(tile, padded) for tile in TILES for padded in (0, 1)]


@pytest.mark.parametrize(
    "case",
    quick_if(lambda case: (TILES.index(case[0]) == 0) == case[1], IN_TURN),
    ids=lambda case: f"{name_of_tile(case[0])}-{('whole', 'padded')[case[1]]}",
)
def test_instances(case: tuple[family.Tile, int]) -> None:
    """The pairs take turns; by default each tile with one of the shapes."""
    tile, padded = case
    pair = WIDTHS[(2 * TILES.index(tile) + padded) % len(WIDTHS)]
    check_instance(tile, pair, SHAPES[tile.layout.tile[0]][padded])


@pytest.mark.slow
@each_tile
@pytest.mark.parametrize("padded", [0, 1], ids=["whole", "padded"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_all_instances(tile: family.Tile, pair: Pair, padded: int) -> None:
    check_instance(tile, pair, SHAPES[tile.layout.tile[0]][padded])


@pytest.mark.parametrize("pair", [("e2m3", "e3m2")], ids="-".join)
def test_single_row(pair: Pair) -> None:
    """What is chosen for it has a tile of 64 rows."""
    program = ours(scaled_matmul(*SINGLE_ROW, *pair))
    check_product(*run(program, pair, SINGLE_ROW, "numpy"))


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_single_row_of_all_pairs(pair: Pair) -> None:
    test_single_row(pair)


@pytest.mark.parametrize("pair", every(2, [("e5m2", "e2m1"), ("e4m3", "e4m3")]), ids="-".join)
def test_code_generation(pair: Pair) -> None:
    """No ukernel: the layout alone makes IREE's code right."""
    shape = (100, 200, 96)
    program = ours(scaled_matmul(*shape, *pair), ukernels="none")
    check_product(*run(program, pair, shape, "fast"))


CODEGEN_32X32X64 = {
    "m128_n256_k256": DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32", 2, 4, 4, 2, 2),
    "m128_n256_k128": DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32", 2, 4, 2, 2, 2),
    "m64_n128_k256": DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32", 1, 2, 4, 2, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("layout", CODEGEN_32X32X64)
@pytest.mark.parametrize("pair", [("e4m3", "e4m3"), ("e4m3", "e2m1"), ("e2m1", "e2m1")], ids="-".join)
def test_code_generation_with_the_other_intrinsic(pair: Pair, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "CODEGEN_LAYOUTS", {None: CODEGEN_32X32X64[layout]})
    shape = (200, 300, 736)
    program = ours.__wrapped__(scaled_matmul(*shape, *pair), ukernels="none")  # not the one of another layout
    check_product(*run(program, pair, shape, "fast"))


@pytest.mark.parametrize("flags", every(2, [(), (DATA_TILING,)]), ids=["plain", "data-tiling"])
def test_stock_iree_needs_equal_scales(flags: tuple[str, ...]) -> None:
    """Why 8-bit operands are packed in halves here, and not left to IREE.

    Its lanes hold 32 consecutive elements along K, of which the hardware takes half for another block's.
    """
    pair, shape = ("e4m3", "e4m3"), (128, 256, 512)
    c, a, b = run(stock(scaled_matmul(*shape, *pair), *flags), pair, shape, "fast")
    with pytest.raises(AssertionError, match="elements are wrong"):
        check_product(c, a, b)
    error = np.abs(c - a @ b.T) / (np.abs(a) @ np.abs(b).T)
    assert np.median(error) > 0.01  # not rounding


DEQUANTISED = list(
    itertools.product([("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e2m1", "e4m3")], [(128, 256, 512), (100, 200, 96)])
)


@pytest.mark.parametrize("case", every(3, DEQUANTISED), ids=str)
def test_without_data_tiling(case: tuple[Pair, Shape]) -> None:
    """8-bit operands are dequantised first, in the one kernel that IREE makes."""
    pair, shape = case
    program = ours(scaled_matmul(*shape, *pair), data_tiling=False)
    assert len(program.dispatches) == 1
    check_product(*run(program, pair, shape, "fast"))
