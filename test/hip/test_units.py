"""Ukernels over units: whatever is multiplied, on the simulator with all checks on, against float64 NumPy."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from iree.compiler import ir
from modules import FP4, KINDS
from shapes import Shaped

import mxcomp
import mxcomp.ir as mx
from mxcomp.formats import dequantise, pack_bits
from mxcomp.layout import DataTiledLayout
from mxcomp.ukernels import Registry, family

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]
BATCHED = ("brki", "brki", "brk", "brk")
TURNED = ("rki", "kir", "rk", "kr")
UNITS = [tile for tile in family.TILES if tile.layout.units is not None]
TYPICAL = ("m16_n32", "m64_n64", "m64_n128", "m256_n256")
"""By default: waves that share fragments, or have several; rows and columns of several waves; the largest."""


def name(tile: family.Tile, lhs: str = "f4E2M1FN", rhs: str = "f4E2M1FN") -> str:
    return family.Instance(tile, (lhs, rhs)).name


def of(size: str, *types: str) -> str:
    (tile,) = [tile for tile in UNITS if f"_{size}_" in tile.pattern]
    return name(tile, *types)


def layout_of(ukernel: str) -> DataTiledLayout:
    with ir.Context(), ir.Location.unknown():
        layout = Registry("gfx950")[ukernel].layout
    assert layout is not None
    return layout


def check(shaped: Shaped, ukernel: str, *runs: tuple[int, int, int]) -> None:
    """One program; several sizes where some are dynamic."""
    program = mxcomp.compile(shaped.text(), ukernels=ukernel)
    assert [matmul.ukernel for matmul in program.report.matmuls] == [ukernel], program.report.matmuls[0].reason
    for m, n, k in runs or ((shaped.m, shaped.n, shaped.k),):
        again = replace(shaped, m=m, n=n, k=k)
        (result,) = program.run(*again.inputs)
        assert again.error(result) <= again.bound


@pytest.mark.parametrize(
    "tile",
    [
        tile if any(f"_{size}_" in tile.pattern for size in TYPICAL) else pytest.param(tile, marks=SLOW)
        for tile in UNITS
    ],
    ids=lambda tile: tile.pattern,
)
def test_padded(tile: family.Tile) -> None:
    """The last tile has one row and few columns, and K ends within a K tile; more K tiles than waves share."""
    m, n, _ = tile.layout.workgroup_tile
    waves = tile.waves.k if tile.waves else 1
    check(Shaped(m + 1, n + 5, 512 * (waves + 4) + 96), name(tile))


@pytest.mark.parametrize("k", [32, 512, 1024])
@pytest.mark.parametrize("size", ["m16_n32", pytest.param("m128_n128", marks=SLOW)])
def test_few_k_tiles(size: str, k: int) -> None:
    """Fewer than there are waves along K, or steps in LDS."""
    check(Shaped(40, 72, k), of(size))


@pytest.mark.parametrize(
    ("shaped", "size", "runs"),
    [
        (Shaped(16, 64, 1056, dynamic="m"), "m16_n32", [(1, 64, 1056), (130, 64, 1056)]),
        (Shaped(64, 128, 256, dynamic="mnk"), "m64_n128", [(1, 1, 32), (130, 260, 1056)]),
        pytest.param(
            Shaped(64, 96, 1056, batch=2, orders=BATCHED, dynamic="m"), "m32_n32", [(7, 96, 1056)], marks=SLOW
        ),
        (Shaped(40, 132, 1056, batch=2, orders=BATCHED), "m32_n64", []),
        pytest.param(Shaped(140, 132, 1056, batch=2, orders=BATCHED), "m128_n128", [], marks=SLOW),
        (Shaped(40, 132, 96, orders=TURNED, constant_rhs=True), "m64_n32", []),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
def test_storage(shaped: Shaped, size: str, runs: list[tuple[int, int, int]]) -> None:
    check(shaped, of(size), *runs)


@pytest.mark.parametrize(
    ("size", "lhs", "rhs"),
    [
        ("m16_n16", E4M3, E2M3),
        pytest.param("m16_n32", E3M2, E5M2, marks=SLOW),
        pytest.param("m32_n32", FP4, E2M3, marks=SLOW),
        ("m64_n128", E2M3, E5M2),
        pytest.param("m64_n128", E4M3, E4M3, marks=SLOW),
        pytest.param("m96_n128", E3M2, FP4, marks=SLOW),
    ],
)
def test_types(size: str, lhs: str, rhs: str) -> None:
    check(Shaped(100, 140, 1056, types=(lhs, rhs)), of(size, lhs, rhs))


@pytest.mark.parametrize(
    ("ukernels", "data_tiling"), [("fastest", True), (of("m32_n32"), True), ("fastest", False), ("none", False)]
)
@pytest.mark.parametrize(("rows", "k"), [(17, 64), (48, 128)])
def test_one_tensor_on_both_sides(rows: int, k: int, ukernels: str, data_tiling: bool) -> None:
    """x · xᵀ would be packed once by ukernels over units, and read twice: IREE 3.13 does not compile that."""

    def gram(x: ir.Value, scales: ir.Value) -> ir.Value:
        side = mx.operand(x, scales, "E2M1")
        return mx.scaled_matmul(side, side)

    module = mx.module(gram, f"{rows}x{k // 2}xi8", f"{rows}x{k // 32}xi8")
    program = mxcomp.compile(module, ukernels=ukernels, data_tiling=data_tiling)
    (matmul,) = program.report.matmuls
    assert not matmul.ukernel or layout_of(matmul.ukernel).units is None
    dice = np.random.default_rng(rows)
    codes, scales = dice.integers(0, 16, (rows, k), np.uint8), dice.integers(120, 134, (rows, k // 32), np.uint8)
    values = dequantise(codes, scales, "E2M1").astype(np.float64)
    found = program.run(pack_bits(codes, "E2M1").view(np.int8), scales.view(np.int8))
    assert np.allclose(found, values @ values.T, rtol=1e-6, atol=1e-6 * np.abs(values @ values.T).max())


def test_the_fastest_is_taken() -> None:
    """Small tiles for few rows, large ones for many; the report says what others would take."""
    taken = {}
    for m, n, k in ((1, 2048, 4096), (4096, 4096, 512)):
        shaped = Shaped(m, n, k)
        program = mxcomp.compile(shaped.text(), ukernels="fastest", compile_to="input")
        (matmul,) = program.report.matmuls
        assert matmul.note is not None
        best, *others = map(float, re.findall(r"(\d+\.\d)(?: µs|[,;]|$)", matmul.note))
        assert best <= min(others)
        taken[m] = layout_of(matmul.ukernel or "").workgroup_tile
    assert taken[1][0] == 16
    assert taken[4096][0] >= 128
