"""Ukernels over inner tiles: whatever is multiplied, on the simulator with all checks on, against float64 NumPy."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir
from modules import FP4, KINDS
from shapes import Shaped

import mxcomp
import mxcomp.ir as mx
from mxcomp.formats import dequantise, element_format, pack_bits, quantise
from mxcomp.layout import DataTiledLayout, layout_from
from mxcomp.registry import Registry
from mxcomp.target import get_target
from mxcomp.ukernels import PLAIN_KINDS, family

pytestmark = pytest.mark.usefixtures("numpy_engine")

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]
BATCHED = ("brki", "brki", "brk", "brk")
TURNED = ("rki", "kir", "rk", "kr")
UNITS = [tile for kind in PLAIN_KINDS for tile in kind.TILES if tile.layout.inner_tiles is not None]
TYPICAL = (
    "m16_n32_k512",
    "m64_n128_k512",
    "m256_n256_k512",
    "m16_n64_k512_single_wave",
    "m64_n128_k256_single_wave",
    "n32_k512_max_m2",
)
"""The tiles that run by default: waves that share fragments; rows and columns of several waves; the largest; a single
wave; half inner tiles; two rows."""


def name(tile: family.Tile, lhs: str = "f4E2M1FN", rhs: str = "f4E2M1FN") -> str:
    return family.Instance(tile, (lhs, rhs), family.Kernel).name


def types_of(tile: family.Tile) -> tuple[str, str]:
    """The first types that there is an instance for."""
    return next(each.elements for kind in PLAIN_KINDS for each in kind.INSTANCES if each.tile == tile)


def of(size: str, *types: str) -> str:
    """Returns the kernel of that M and N: in whole inner tiles and of several waves, unless `size` says more."""
    (tile,) = [tile for tile in UNITS if tile.pattern.endswith(f"_{size}" if "_k" in size else f"_{size}_k512")]
    return name(tile, *types)


def _bits(instance: family.Instance) -> tuple[str, ...]:
    return (instance.tile.pattern, *(str(element_format(kind).bits) for kind in instance.elements))


_INSTANCES = {_bits(each): each for kind in PLAIN_KINDS for each in reversed(kind.INSTANCES) if each.tile in UNITS}
OF_OTHER_WIDTHS = [each for each in _INSTANCES.values() if each.elements != types_of(each.tile)]
"""An instance of each tile for each number of bits, but those of `test_padded`."""


def layout_of(ukernel: str) -> DataTiledLayout:
    with ir.Context(), ir.Location.unknown():
        layout = Registry(get_target("gfx950"))[ukernel].layout
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
    [tile if tile.pattern.endswith(TYPICAL) else pytest.param(tile, marks=SLOW) for tile in UNITS],
    ids=lambda tile: tile.pattern,
)
def test_padded(tile: family.Tile) -> None:
    """The last tile has one row and few columns, and K ends within a K tile; more K tiles than waves share.

    Of few rows one is not there. An operand that is read as it is stored has whole K tiles.
    """
    m, n, _ = tile.layout.workgroup_tile
    waves = tile.waves.k if tile.waves else 1
    k = 512 * ((waves // 2 if tile.is_half else waves) + 4) + 96 * (not tile.lhs_row_major)
    types = types_of(tile)
    check(Shaped(tile.max_m - 1 if tile.max_m else m + 1, n + 5, k, types=types), name(tile, *types))


@SLOW
@pytest.mark.parametrize("instance", OF_OTHER_WIDTHS, ids=lambda instance: instance.name)
def test_every_width(instance: family.Instance) -> None:
    """Another number of bits is another schedule: two K tiles and more, whose last one ends within."""
    m, n, k = instance.layout.workgroup_tile
    whole = instance.tile.is_half or instance.tile.lhs_row_major
    rows = instance.tile.max_m - 1 if instance.tile.max_m else m + 1
    check(Shaped(rows, n + 5, 3 * k if whole else 2 * k + 96, types=instance.elements), instance.name)


@pytest.mark.parametrize(
    ("size", "k"),
    [
        *product(["m16_n32"], [32, 1024]),
        *(
            pytest.param(*each, marks=SLOW)
            for each in product(["m128_n128", "m256_n256", "m320_n256_k512_intrawave"], [32, 512, 1024])
        ),
        *product(["m16_n32_k256_single_wave"], [32, 256]),
        pytest.param("m16_n32", 512, marks=SLOW),
        pytest.param("m16_n32_k256_single_wave", 768, marks=SLOW),
        *(
            pytest.param(*each, marks=SLOW)
            for each in product(["m64_n128_k256_single_wave", "m128_n64_k256_single_wave"], [96, 256, 768])
        ),
        pytest.param("m256_n256_k256", 256, marks=SLOW),
    ],
)
def test_few_k_tiles(size: str, k: int) -> None:
    """Fewer than there are waves along K, or steps in LDS."""
    check(Shaped(40, 72, k), of(size))


@pytest.mark.parametrize(("k", "is_half"), [(256, True), (288, False), (1280, True)])
def test_half_inner_tiles_are_taken(k: int, is_half: bool) -> None:
    """Where whole ones would be padded by half of one; what is chosen is right."""
    shaped = Shaped(100, 300, k)
    program = mxcomp.compile(shaped.text(), ukernels="fastest")
    (matmul,) = program.report.matmuls
    assert layout_of(matmul.ukernel or "").tile[2] == (256 if is_half else 512)
    (result,) = program.run(*shaped.inputs)
    assert shaped.error(result) <= shaped.bound


def test_half_inner_tiles_of_a_dynamic_m() -> None:
    """Kernels for ranges of M all take the same inner tiles."""
    program = mxcomp.compile(Shaped(16, 7168, 3840, dynamic="m").text(), ukernels="fastest", compile_to="input")
    (matmul,) = program.report.matmuls
    kernels = re.findall(r"mx_\w+", f"{matmul.note} {matmul.ukernel}")
    assert len(kernels) > 1, matmul.note
    assert len({"_k256" in kernel for kernel in kernels}) == 1


def test_versions_share_units() -> None:
    """All read the same packed weights, split over waves along K or shared by them."""
    for kinds in ((E4M3, E4M3), (E2M3, E2M3)):
        shaped = Shaped(16, 8192, 8192, dynamic="m", types=kinds)
        (matmul,) = mxcomp.compile(shaped.text(), ukernels="fastest", compile_to="input").report.matmuls
        assert len(matmul.versions) > 4
        few, many = (layout_from(each.layout) for each in (matmul.versions[0], matmul.versions[-1]))
        assert few.inner_tiles != many.inner_tiles
        for operand, kind in enumerate(kinds):
            assert few.packed((1, 1)).packing(operand, kind) == many.packed((1, 1)).packing(operand, kind)
            assert few.packed((1, 1)).packing(operand + 2) == many.packed((1, 1)).packing(operand + 2)


@pytest.mark.parametrize(
    ("shaped", "reason"),
    [
        (Shaped(40, 72, 1024), "K = 1024, padded to multiples of 256, is an even number of them"),
        (Shaped(40, 72, 4352), "K = 4352 is above 4095"),
        (Shaped(40, 72, 256, dynamic="k"), "K is dynamic, but has a bound (max, odd)"),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
def test_half_inner_tiles_are_not_taken(shaped: Shaped, reason: str) -> None:
    """By name neither, for other K."""
    program = mxcomp.compile(shaped.text(), ukernels=of("m16_n32_k256_single_wave"), compile_to="input")
    (matmul,) = program.report.matmuls
    assert matmul.ukernel is None
    assert reason in (matmul.reason or "")


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
        (Shaped(40, 132, 96, orders=TURNED, constant_rhs=True), "m64_n64", []),
        pytest.param(
            Shaped(40, 132, 96, orders=TURNED, constant_rhs=True), "m128_n64_k256_single_wave", [], marks=SLOW
        ),
        pytest.param(Shaped(40, 132, 768, batch=2, orders=BATCHED), "m16_n32_k256_single_wave", [], marks=SLOW),
        (Shaped(64, 128, 256, dynamic="mn"), "m64_n128_k256_single_wave", [(1, 1, 256), (130, 260, 256)]),
        pytest.param(
            Shaped(16, 64, 768, dynamic="m"), "m16_n32_k256_single_wave", [(1, 64, 768), (130, 64, 768)], marks=SLOW
        ),
        (Shaped(2, 132, 1056, batch=3, orders=BATCHED), "m16_n32_k512_max_m2", []),
        pytest.param(Shaped(7, 132, 96, orders=TURNED, constant_rhs=True), "m16_n32_k512_max_m8", [], marks=SLOW),
        pytest.param(
            Shaped(300, 132, 1056, batch=2, orders=BATCHED, types=(E4M3, E4M3)),
            "m256_n256_k512_intrawave",
            [],
            marks=SLOW,
        ),
        pytest.param(
            Shaped(300, 260, 1056, dynamic="m", types=(E5M2, E4M3)),
            "m256_n256_k512_intrawave",
            [(1, 260, 1056)],
            marks=SLOW,
        ),
        pytest.param(Shaped(8, 132, 1056, dynamic="nk"), "m16_n16_k512_max_m8", [(8, 260, 96)], marks=SLOW),
    ],
    ids=lambda value: str(value) if isinstance(value, Shaped) else "",
)
def test_storage(shaped: Shaped, size: str, runs: list[tuple[int, int, int]]) -> None:
    check(shaped, of(size, *shaped.types), *runs)


@pytest.mark.parametrize(
    ("size", "lhs", "rhs"),
    [
        ("m16_n16", E4M3, E2M3),
        ("m16_n32_k256_single_wave", E4M3, E2M3),
        pytest.param("m64_n128_k256_single_wave", E5M2, FP4, marks=SLOW),
        pytest.param("m128_n64_k256_single_wave", E2M3, E3M2, marks=SLOW),
        pytest.param("m64_n128_k256_single_wave", E2M3, E5M2, marks=SLOW),
        pytest.param("m64_n64_k512_single_wave", FP4, E3M2, marks=SLOW),
        pytest.param("m16_n32", E3M2, E5M2, marks=SLOW),
        pytest.param("m32_n32", FP4, E2M3, marks=SLOW),
        ("m64_n128", E2M3, E5M2),
        pytest.param("m64_n128", E4M3, E4M3, marks=SLOW),
        pytest.param("m96_n128", E3M2, FP4, marks=SLOW),
        ("m256_n256_k512_intrawave", E4M3, E5M2),
        pytest.param("m256_n256_k512_intrawave", E2M3, E4M3, marks=SLOW),
        pytest.param("m256_n256_k512_intrawave", E5M2, E3M2, marks=SLOW),
        pytest.param("m256_n256_k512_intrawave", E3M2, E2M3, marks=SLOW),
        pytest.param("m256_n256_k512_intrawave", E3M2, FP4, marks=SLOW),
        ("m256_n128_k512_occupancy2", FP4, FP4),
        pytest.param("m128_n128_k512_occupancy2", E2M3, E3M2, marks=SLOW),
        pytest.param("m128_n128_k512_occupancy2", E4M3, FP4, marks=SLOW),
    ],
)
def test_types(size: str, lhs: str, rhs: str) -> None:
    check(Shaped(100, 140, 1056, types=(lhs, rhs)), of(size, lhs, rhs))  # padded to an odd number of half inner tiles


@pytest.mark.parametrize(
    ("size", "lhs", "rhs"),
    [
        ("m16_n16_k512_max_m2", E4M3, FP4),
        ("m16_n32_k512_max_m8", E3M2, E5M2),
        pytest.param("m16_n16_k512_max_m2", E5M2, E4M3, marks=SLOW),
        pytest.param("m16_n64_k512_max_m8", E2M3, FP4, marks=SLOW),
        pytest.param("m16_n32_k512_single_wave_max_m8", E2M3, E4M3, marks=SLOW),
    ],
)
@pytest.mark.parametrize("m", [1, 2])
def test_types_of_few_rows(size: str, lhs: str, rhs: str, m: int) -> None:
    """Their rows are in one piece in LHS fragments, 8-bit ones with both of a lane's halves."""
    check(Shaped(m, 140, 2560, types=(lhs, rhs)), of(size, lhs, rhs))


def test_more_than_few_rows() -> None:
    """A kernel that loads two rows takes no third, and no M that only the running program knows."""
    for shaped, reason in ((Shaped(3, 64, 512), "M = 3 is above 2"), (Shaped(1, 64, 512, dynamic="m"), "M is dynamic")):
        program = mxcomp.compile(shaped.text(), ukernels=of("m16_n32_k512_max_m2"), compile_to="input")
        (matmul,) = program.report.matmuls
        assert matmul.ukernel is None
        assert reason in (matmul.reason or "")


@pytest.mark.parametrize(("source", "kind"), [("bf16", "E2M1"), ("f32", "E4M3")])
def test_few_rows_that_are_quantised(source: str, kind: str) -> None:
    """Where that has a dispatch of its own it writes rows in one piece: bit for bit what packing stored ones does."""
    dice, (m, n, k) = np.random.default_rng(5), (2, 64, 1056)
    bits = {"E2M1": 4, "E4M3": 8}[kind]
    types = {"E2M1": FP4, "E4M3": E4M3}[kind]
    codes, scales = dice.integers(0, 16, (n, k), np.uint8), dice.integers(120, 134, (n, k // 32), np.uint8)

    def quantised(x: ir.Value, b: ir.Value, b_scales: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.quantise(x, kind), mx.operand(b, b_scales, "E2M1"))

    def stored(a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.operand(a, a_scales, kind), mx.operand(b, b_scales, "E2M1"))

    x = dice.standard_normal((m, k)).astype(ml_dtypes.bfloat16 if source == "bf16" else np.float32)
    rhs = pack_bits(codes, "E2M1").view(np.int8), scales.view(np.int8)
    rhs_types = f"{n}x{k // 2}xi8", f"{n}x{k // 32}xi8"
    ukernel = of("m16_n16_k512_max_m2", types, FP4)
    first = mxcomp.compile(mx.module(quantised, f"{m}x{k}x{source}", *rhs_types), ukernels=ukernel)
    assert [matmul.ukernel for matmul in first.report.matmuls] == [ukernel]
    a, a_scales = quantise(x.astype(np.float32), kind)
    lhs_types = (f"{m}x{k * bits // 8}xi8", f"{m}x{k // 32}xi8")
    second = mxcomp.compile(mx.module(stored, *lhs_types, *rhs_types), ukernels=of("m16_n16", types, FP4))
    (found,) = first.run(x, *rhs)
    (expected,) = second.run(pack_bits(a, kind).view(np.int8), a_scales.view(np.int8), *rhs)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("ukernels", "data_tiling"), [("fastest", True), (of("m32_n32"), True), ("fastest", False), ("none", False)]
)
@pytest.mark.parametrize(("rows", "k"), [(17, 64), pytest.param(48, 128, marks=SLOW)])
def test_one_tensor_on_both_sides(rows: int, k: int, ukernels: str, data_tiling: bool) -> None:
    """x · xᵀ would be packed once by ukernels over inner tiles, and read twice: IREE 3.13 does not compile that."""

    def gram(x: ir.Value, scales: ir.Value) -> ir.Value:
        side = mx.operand(x, scales, "E2M1")
        return mx.scaled_matmul(side, side)

    module = mx.module(gram, f"{rows}x{k // 2}xi8", f"{rows}x{k // 32}xi8")
    program = mxcomp.compile(module, ukernels=ukernels, data_tiling=data_tiling)
    (matmul,) = program.report.matmuls
    assert not matmul.ukernel or layout_of(matmul.ukernel).inner_tiles is None
    dice = np.random.default_rng(rows)
    codes, scales = dice.integers(0, 16, (rows, k), np.uint8), dice.integers(120, 134, (rows, k // 32), np.uint8)
    values = dequantise(codes, scales, "E2M1").astype(np.float64)
    found = program.run(pack_bits(codes, "E2M1").view(np.int8), scales.view(np.int8))
    assert np.allclose(found, values @ values.T, rtol=1e-6, atol=1e-6 * np.abs(values @ values.T).max())


def test_the_fastest_is_taken() -> None:
    """Small tiles for few rows, large ones for many; the report says what others would take."""
    taken = {}
    for m, n, k in ((1, 2048, 4096), (4096, 4096, 4096)):
        shaped = Shaped(m, n, k)
        program = mxcomp.compile(shaped.text(), ukernels="fastest", compile_to="input")
        (matmul,) = program.report.matmuls
        assert matmul.note is not None
        best, *others = map(float, re.findall(r"(\d+\.\d)(?: µs|[,;]|$)", matmul.note))
        assert best <= min(others)
        taken[m] = layout_of(matmul.ukernel or "").workgroup_tile
    assert taken[1][0] == 16
    assert taken[4096][0] >= 128
