"""Packed programs on the CPU against float64, recomputed here from the inputs; and that mistakes are seen."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import generated_ukernels
import numpy as np
import pytest
from cases import M64, M128
from iree.compiler.dialects import arith
from modules import FP4, Matmul, inputs, product, source
from parameters import KEYS, SCOPE, SMALL, tensors, with_parameters
from shapes import Shaped
from spread import every, quick_if

import mxcomp
from mxcomp import target
from mxcomp.errors import InputError, VerifyError
from mxcomp.layout import ACC, DataTiledLayout, layout_from
from mxcomp.layout.swizzle import TileSwizzle
from mxcomp.measuring import verification
from mxcomp.measuring.verification import Verification, verify
from mxcomp.packing import result_tiles, stored_operand
from mxcomp.weights import checkpoint

TILES = {M128: (128, 256, 256), M64: (64, 128, 512)}
SEED_PERMUTATIONS = ((3, 1, 0, 2), (3, 0, 1, 2))
INTERLEAVED = {
    "operands_interleaving_intrinsics_m": (2,),
    "operands_interleaving_intrinsics_n": (3,),
    "operands_interleaving_intrinsics_k": (2, 3),
}
LAYOUTS = [
    *(
        DataTiledLayout(intrinsics_m=4, intrinsics_n=2, intrinsics_k=2, subgroups_n=2, scale_permutation=permutation)
        for permutation in SEED_PERMUTATIONS
    ),
    DataTiledLayout(intrinsics_m=3, intrinsics_n=5, subgroups_m=2, subgroups_n=3),
    DataTiledLayout(intrinsics_m=2, intrinsics_n=2, intrinsics_k=4, operands_interleaving_intrinsics_m=(0, 4)),
    DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32", 2, 3, 4, 1, 2, **INTERLEAVED),
    DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32"),
]


_compile_once = cache(verification._compile)


@pytest.fixture
def compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is verified twice, on other inputs, is compiled once."""
    monkeypatch.setattr(verification, "_compile", _compile_once)


def check(matmuls: list[Matmul], verification: Verification) -> None:
    """Every result is right by the numbers made here, and verification says so by its own."""
    assert verification.ok
    assert len(verification.checks) == len(verification.results) == len(matmuls)
    for matmul, own, result in zip(matmuls, verification.checks, verification.results, strict=True):
        assert result.shape == (matmul.m, matmul.n)
        assert result.dtype == np.float32
        assert (own.m, own.n, own.k) == (matmul.m, matmul.n, matmul.k)
        assert matmul.error(result) <= matmul.bound
        assert own.error == pytest.approx(matmul.error(result), rel=1e-3, abs=1e-12)


def tiles(verification: Verification) -> list[tuple[int, int, int]]:
    layouts = [matmul.layout for matmul in verification.report.matmuls]
    return [layout_from(layout).tile for layout in layouts]


def shapes(tile: tuple[int, int, int], count: int, least_m: int = 1) -> list[tuple[int, int, int]]:
    """Shapes in which every size of interest occurs: 1, primes, K of one block, tile multiples, one more, one less."""
    m, n, _ = tile
    rows = [x for x in (1, 2, 17, m - 1, m, m + 1, 2 * m - 1, 2 * m, 2 * m + 1, 509, 1000) if x >= least_m]
    columns = [1, 3, 31, n - 1, n, n + 1, 2 * n - 1, 2 * n, 2 * n + 1, 997, 1000]
    depths = [32, 64, 96, 224, 256, 288, 480, 512, 544, 768, 1024, 1056]
    each = zip(
        *(itertools.islice(itertools.cycle(sizes), count) for sizes in (rows, columns[3:] + columns, depths)),
        strict=True,
    )
    return list(each)


@pytest.mark.parametrize("shape", every(7, shapes(TILES[M128], 14, least_m=65)), ids=str)
def test_wide_tiles(shape: tuple[int, int, int]) -> None:
    matmul = Matmul(*shape)
    verification = verify(source(matmul), matmul.inputs, ukernels="benefit")
    check([matmul], verification)
    assert verification.report.matmuls[0].ukernel == M128
    assert tiles(verification) == [TILES[M128]]


FEW_ROWS = [(m, n, k) for m, n, k in shapes(TILES[M64], 14) if m < 65]


@pytest.mark.parametrize("shape", quick_if(lambda shape: shape == (1, 127, 1056), FEW_ROWS), ids=str)
def test_few_rows_take_the_narrow_tile(shape: tuple[int, int, int]) -> None:
    matmul = Matmul(*shape)
    verification = verify(source(matmul), matmul.inputs, ukernels="benefit")
    check([matmul], verification)
    assert verification.report.matmuls[0].ukernel == M64
    assert tiles(verification) == [TILES[M64]]


UNITS = [(1, 1, 32), (17, 127, 96), (130, 515, 1056), (1000, 300, 480)]


@pytest.mark.parametrize("shape", every(2, UNITS), ids=str)
@pytest.mark.parametrize("dynamic_m", [False, True])
def test_the_fastest(shape: tuple[int, int, int], dynamic_m: bool) -> None:
    """What is taken by default is packed in inner tiles."""
    matmul = Matmul(*shape, dynamic_m=dynamic_m)
    verification = verify(source(matmul), matmul.inputs)
    check([matmul], verification)
    assert all(m.layout.get("inner_tiles") for m in verification.report.matmuls if m.layout)
    assert verification.report.matmuls[0].ukernel


@pytest.mark.slow
@pytest.mark.parametrize("shape", shapes(TILES[M64], 12), ids=str)
def test_narrow_tiles_by_name(shape: tuple[int, int, int]) -> None:
    """By default `test_forms` has them."""
    matmul = Matmul(*shape)
    verification = verify(source(matmul), matmul.inputs, ukernels=M64)
    check([matmul], verification)
    assert tiles(verification) == [TILES[M64]]


@pytest.mark.parametrize("shape", every(8, shapes(TILES[M128], 4) + shapes(TILES[M64], 4)), ids=str)
def test_layouts_without_ukernel(shape: tuple[int, int, int]) -> None:
    matmul = Matmul(*shape)
    verification = verify(source(matmul), matmul.inputs, ukernels="none")
    check([matmul], verification)
    assert verification.report.matmuls[0].ukernel is None


FORMS: list[dict[str, Any]] = [{"dynamic_m": True}, {"constant_rhs": True}, {"form": "unfused"}]
FORMS += [a | b for a, b in itertools.combinations(FORMS, 2)] + [FORMS[0] | FORMS[1] | FORMS[2]]


@pytest.mark.parametrize(
    "case", every(5, itertools.product(TILES, FORMS)), ids=lambda case: "-".join([*case[1], case[0]])
)
def test_forms(case: tuple[str, dict[str, Any]]) -> None:
    """By default each property of a form twice, and both ukernels."""
    ukernel, form = case
    m, n, k = TILES[ukernel]
    matmul = Matmul(2 * m - 5, n + 3, k + 32, **form)
    verification = verify(source(matmul), matmul.inputs, ukernels=ukernel)
    check([matmul], verification)
    assert tiles(verification) == [TILES[ukernel]]
    assert (verification.report.matmuls[0].m is None) == matmul.dynamic_m


MIXED = (("f8E4M3FN", FP4), ("f8E5M2", "f6E2M3FN"), ("f6E3M2FN", "f8E4M3FN"))
ELEMENT_TYPES = [
    Matmul(m, 131, 352, types=types, **form) for types, form, m in itertools.product(MIXED, FORMS[:3], (40, 200))
]


QUICK_TYPES = [ELEMENT_TYPES[i] for i in (0, 9, 16)]


@pytest.mark.parametrize("matmul", quick_if(QUICK_TYPES.__contains__, ELEMENT_TYPES), ids=str)
def test_element_types(matmul: Matmul) -> None:
    """By default all types, all forms and both tiles, not every combination."""
    verification = verify(source(matmul), matmul.inputs, ukernels="benefit")
    check([matmul], verification)
    assert tiles(verification) == [(64, 128, 256) if matmul.m == 40 and not matmul.dynamic_m else (128, 256, 128)]


@pytest.mark.parametrize("shape", every(2, [(40, 70, 96), (200, 300, 544)]), ids=str)
def test_8_bit_elements_without_ukernel(shape: tuple[int, int, int]) -> None:
    matmul = Matmul(*shape, types=("f8E4M3FN", "f8E5M2"))
    verification = verify(source(matmul), matmul.inputs, ukernels="none")
    check([matmul], verification)
    assert verification.report.matmuls[0].ukernel is None


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("m", quick_if(lambda m: m == 129, [1, 64, 127, 128, 129, 700]))
def test_one_program_for_every_m(m: int) -> None:
    matmul = Matmul(m, 40, 96, dynamic_m=True)
    check([matmul], verify(source(matmul), matmul.inputs))


def test_several_matmuls() -> None:
    """Of different layouts, forms and sizes; and equal shapes on other data."""
    matmuls = [
        Matmul(100, 30, 96),
        Matmul(20, 200, 544, form="unfused"),
        Matmul(77, 300, 32, dynamic_m=True),
        Matmul(100, 30, 96, constant_rhs=True, seed=1),
    ]
    verification = verify(source(*matmuls), inputs(matmuls), ukernels="benefit")
    check(matmuls, verification)
    assert [matmul.index for matmul in verification.report.matmuls] == [0, 1, 2, 3]
    assert set(tiles(verification)) == set(TILES.values())


SELDOM = (LAYOUTS[1], LAYOUTS[3], LAYOUTS[-1])
"""The second permutation of scales, interleaving of less than the next layout has, and a second one of 32x32x64."""


@pytest.mark.parametrize(
    "layout",
    quick_if(lambda layout: layout not in SELDOM, LAYOUTS),
    ids=lambda layout: f"{layout.tile}-{layout.scale_permutation}",
)
def test_any_layout(tmp_path: Path, layout: DataTiledLayout) -> None:
    """Layouts come from ukernel files; no layout is built in."""
    generated_ukernels.write(tmp_path, "mine", layout)
    m, n, k = layout.tile
    matmul = Matmul(m + 7, 2 * n - 1, k + 32, dynamic_m=True)
    verification = verify(source(matmul), matmul.inputs, ukernels="mine", ukernel_dirs=[str(tmp_path)])
    check([matmul], verification)
    assert verification.report.matmuls[0].ukernel == "mine"
    assert tiles(verification) == [layout.tile]


# NaN scales.


@pytest.mark.usefixtures("compiled_once")
def test_a_nan_scale_makes_its_row_or_column_nan() -> None:
    matmul = Matmul(70, 40, 96, dynamic_m=True)
    operands = [array.copy() for array in matmul.operands]
    operands[2][5, 1] = operands[3][7, 2] = 0xFF
    verification = verify(source(matmul), [array.view(np.int8) for array in operands])
    expected = np.isnan(product(*operands))
    (result,) = verification.results
    assert np.isnan(result[5]).all() and np.isnan(result[:, 7]).all()
    assert np.array_equal(np.isnan(result), expected)
    assert matmul.errors(result)[~expected].max() <= matmul.bound
    assert verification.ok


# Dynamic M.


@pytest.mark.usefixtures("compiled_once")
def test_no_rows_are_an_error() -> None:
    matmul = Matmul(3, 40, 96, dynamic_m=True)
    lhs, rhs, lhs_scale, rhs_scale = matmul.inputs
    with pytest.raises(VerifyError, match="M must be between 1 and"):
        verify(source(matmul), [lhs[:0], rhs, lhs_scale[:0], rhs_scale])


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("m", quick_if(lambda m: m < 5000, [512, 513, 5000]))
def test_m_above_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch, m: int) -> None:
    """65536 bytes are 512 rows of a K tile of 128 bytes."""
    small = replace(target.get_target("gfx950"), max_buffer_bytes=65536)
    monkeypatch.setattr(target, "targets", lambda: {small.name: small})
    matmul = Matmul(m, 16, 32, dynamic_m=True)
    if m <= 512:
        check([matmul], verify(source(matmul), matmul.inputs, ukernels=M128))
        return
    with pytest.raises(VerifyError, match="M must be between 1 and 512"):
        verify(source(matmul), matmul.inputs, ukernels=M128)


@pytest.mark.usefixtures("compiled_once")
def test_scales_of_another_m_are_an_error() -> None:
    matmul = Matmul(5, 40, 96, dynamic_m=True)
    lhs, rhs, lhs_scale, rhs_scale = matmul.inputs
    with pytest.raises(VerifyError, match="LHS and LHS scales must have the same M"):
        verify(source(matmul), [lhs, rhs, lhs_scale[:4], rhs_scale])


# Mistakes are seen.


@dataclass(frozen=True)
class Swapped(DataTiledLayout):
    """Two packed factors of equal size change places: every type fits, the order is wrong."""

    def swizzle(self, operand: int, element: str | None = None) -> TileSwizzle:
        good = super().swizzle(operand, element)
        order, sizes = list(good.permutation), good.packed_shape
        i, j = next((i, j) for i, j in itertools.combinations(range(len(sizes)), 2) if sizes[i] == sizes[j])
        order[i], order[j] = order[j], order[i]
        return TileSwizzle(good.expand_shape, tuple(order))


def swapped(layout: DataTiledLayout) -> DataTiledLayout:
    return Swapped(**{field: getattr(layout, field) for field in layout.__dataclass_fields__})


@pytest.mark.parametrize("operand", quick_if(lambda operand: operand in (0, 3, 4), range(5)))
def test_a_wrong_order_is_detected(monkeypatch: pytest.MonkeyPatch, operand: int) -> None:
    good_pack, good_unpack, done = stored_operand.pack, result_tiles.unpack, []

    def packing(value: Any, layout: Any, index: int, *rest: Any, **options: Any) -> Any:
        if index != operand:
            return good_pack(value, layout, index, *rest, **options)
        done.append(index)
        assert swapped(layout).swizzle(index) != layout.swizzle(index)
        return good_pack(value, swapped(layout), index, *rest, **options)

    def unpacking(value: Any, tiles: Any, *rest: Any) -> Any:
        if operand != ACC:
            return good_unpack(value, tiles, *rest)
        done.append(ACC)
        return good_unpack(value, replace(tiles, layout=swapped(tiles.layout)), *rest)

    monkeypatch.setattr(stored_operand, "pack", packing)
    monkeypatch.setattr(result_tiles, "unpack", unpacking)
    matmul = Matmul(64, 128, 512)
    verification = verify(source(matmul), matmul.inputs, ukernels=M64)
    assert done == [operand]
    assert not verification.ok
    assert verification.error > 1e-3
    assert matmul.error(verification.results[0]) > 1e-3


def test_padding_with_anything_but_zero_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of bounds, what stands past the last row of K is read instead."""
    good = arith.SelectOp
    monkeypatch.setattr(arith, "SelectOp", lambda inside, value, zero: good(inside, value, value))
    matmul = Matmul(70, 40, 96)
    assert not verify(source(matmul), matmul.inputs).ok


# Weights that are parameters.


@pytest.mark.usefixtures("compiled_once")
def test_parameters(tmp_path: Path) -> None:
    path = tmp_path / "weights.irpa"
    checkpoint.save(path, tensors(SMALL))
    text = with_parameters(SMALL, keys=KEYS)
    check([SMALL], verify(text, SMALL.inputs, parameters={SCOPE: path}))
    with pytest.raises(VerifyError, match="it reads parameters, and none are given"):
        verify(text, SMALL.inputs)
    with pytest.raises(InputError, match="cannot read the parameters of scope 'model' from"):
        verify(text, SMALL.inputs, parameters={SCOPE: tmp_path / "absent.irpa"})


# What cannot be verified.


def test_no_scaled_matmul() -> None:
    text = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    with pytest.raises(VerifyError, match="no scaled matmul"):
        verify(text, [np.zeros(4, np.float32)])


def test_function_has_to_be_named_among_several() -> None:
    """Here a function of IREE's util dialect."""
    matmul = Matmul(70, 30, 96)
    text = source(matmul, dialect="util", extra="func.func @other() { return }")
    with pytest.raises(VerifyError, match="public functions are main, other"):
        verify(text, matmul.inputs)
    with pytest.raises(VerifyError, match="public functions are main, other"):
        verify(text, matmul.inputs, function="absent")
    check([matmul], verify(text, matmul.inputs, function="main"))


@pytest.mark.usefixtures("compiled_once")
def test_wrong_inputs_are_an_error() -> None:
    matmul = Matmul(4, 40, 96, dynamic_m=True)
    with pytest.raises(VerifyError, match="@main failed"):
        verify(source(matmul), Matmul(4, 41, 96).inputs)


@pytest.mark.parametrize(
    "shaped",
    [
        Shaped(40, 132, 96, orders=("rki", "kir", "rk", "kr"), types=("f4E2M1FN", "f6E2M3FN")),
        Shaped(40, 132, 96, batch=2, orders=("brki", "brki", "brk", "brk"), dynamic="mk"),
        Shaped(40, 132, 96, dynamic="mnk", types=("f6E3M2FN", "f8E5M2")),
    ],
    ids=str,
)
def test_shapes(shaped: Shaped) -> None:
    """Operands in any order, batches and dynamic sizes."""
    check = mxcomp.verify(shaped.text(), shaped.inputs)
    assert check.ok, check.checks
    assert shaped.error(check.results[0]) <= shaped.bound
