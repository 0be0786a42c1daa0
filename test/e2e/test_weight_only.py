"""bf16 activations as they are, times MX weights that a kernel dequantises in registers: float64's numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import linalg
from kernels import compiled

import mxcomp
import mxcomp.ir as mx
from mxcomp import errors, formats
from mxcomp.formats import MX_BLOCK
from mxcomp.mlir import build
from mxcomp.report import ScaledMatmul
from mxcomp.ukernels import weight_only

PACKED = ["pack_rhs", "pack_rhs_scale", "matmul"]
BF16_ROUNDING = 2.0**-8


@dataclass(frozen=True)
class Case:
    """Activations [(batch,) m, k], weights [(batch,) n, k] and a bias [n]; the result is bf16. `m` may be known at run
    time only."""

    m: int
    n: int
    k: int
    element: str = "E2M1"
    batch: tuple[int, ...] = ()
    is_dynamic: bool = False

    @property
    def types(self) -> list[str]:
        bits = formats.element_format(self.element).bits
        rows = "?" if self.is_dynamic else self.m
        shapes = (rows, self.k), (self.n, self.k * bits // 8), (self.n, self.k // MX_BLOCK)
        kinds = ("bf16", "i8", "i8")
        operands = zip(shapes, kinds, strict=True)
        return [*("x".join([*map(str, (*self.batch, *shape)), kind]) for shape, kind in operands), f"{self.n}xf32"]

    def module(self) -> ir.Module:
        def layer(x: ir.Value, w: ir.Value, ws: ir.Value, bias: ir.Value) -> ir.Value:
            y = mx.dequantised_matmul(x, mx.operand(w, ws, self.element))
            return mx.elementwise(mx.add, y, bias, result="bf16")

        return mx.module(layer, *self.types)

    def arguments(self) -> list[np.ndarray]:
        """Weights whose blocks have scales of many sizes."""
        rng, fmt = np.random.default_rng(self.m), formats.element_format(self.element)
        sizes = np.exp2(rng.integers(-8, 9, (*self.batch, self.n, self.k // MX_BLOCK)), dtype=np.float32)
        values = rng.standard_normal((*self.batch, self.n, self.k), np.float32) * sizes.repeat(MX_BLOCK, -1)
        codes, scales = formats.quantise(values, fmt)
        x = rng.standard_normal((*self.batch, self.m, self.k)).astype(ml_dtypes.bfloat16)
        bias = rng.standard_normal(self.n, np.float32)
        return [x, formats.pack_bits(codes, fmt).view(np.int8), scales.view(np.int8), bias]

    def values(self, given: list[np.ndarray]) -> np.ndarray:
        """Weights as float64."""
        fmt = formats.element_format(self.element)
        codes = formats.unpack_bits(given[1].view(np.uint8), fmt)
        return formats.dequantise(codes, given[2].view(np.uint8), fmt, dtype=np.float64)

    def check(self, y: np.ndarray, given: list[np.ndarray]) -> None:
        """Within what f32 sums and a bf16 round."""
        x, weights, bias = given[0].astype(np.float64), self.values(given), given[3]
        transposed = weights.swapaxes(-1, -2)
        expected, scale = x @ transposed + bias, np.abs(x) @ np.abs(transposed) + np.abs(bias)
        error = np.abs(y.astype(np.float64) - expected) - BF16_ROUNDING * np.abs(expected)
        assert (error <= 2.0**-20 * scale).all()


CASES = [
    Case(1, 96, 1056), Case(16, 80, 1024, "E4M3"), Case(5, 208, 544, "E3M2"), Case(17, 272, 1056),
    Case(64, 80, 544, "E5M2"), Case(1, 40, 544, batch=(3,)), Case(7, 48, 96, "E4M3"),
    Case(33, 48, 1056, "E3M2", batch=(2,)),
]  # fmt: skip
NAMES = ("E5M2", "E2M3", "E4M3", "E2M1")
SLOW = [
    *(Case(m + i, 48 + 32 * i, 544 + 512 * i, name) for m in (1, 29, 49) for i, name in enumerate(NAMES)),
    *(Case(m, 33, k, name) for (m, k), name in zip(((1, 512), (20, 32), (64, 288), (3, 480)), NAMES, strict=True)),
    *(Case(m, 17 + 16 * i, 544, name, batch=(4 - i,)) for m in (1, 16, 64) for i, name in enumerate(NAMES)),
]


@pytest.mark.parametrize("case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str)
def test_one_dispatch(case: Case) -> None:
    program = mxcomp.compile(case.module())
    (found,) = program.report.matmuls
    assert found.dispatches == PACKED, found.reason
    assert (found.note or "").startswith("RHS is dequantised by mx_bf16_")
    given = case.arguments()
    case.check(program.run(*given)[0], given)


TILES = [each for each in weight_only.INSTANCES if each.elements[0] in ("f4E2M1FN", "f6E3M2FN", "f8E4M3FN")]


@pytest.mark.slow
@pytest.mark.parametrize("instance", TILES, ids=lambda each: each.name)
def test_each_tile_in_turns(instance: weight_only.Instance) -> None:
    """Two K tiles for some of the waves, three for others."""
    tile, name = instance.tile, formats.element_format(instance.elements[0]).name
    case = Case(instance.most_rows - 1, 16 * tile.inner_tiles[1] + 16, 512 * (2 * tile.waves.k + 1), name)
    program = mxcomp.compile(case.module(), ukernels=instance.name)
    (found,) = program.report.matmuls
    assert found.ukernel == instance.name, found.reason
    given = case.arguments()
    case.check(program.run(*given)[0], given)


IN_TILES = [
    Case(65, 80, 1056), Case(128, 48, 544, "E4M3"), Case(150, 112, 1024, "E3M2"),
    pytest.param(Case(300, 208, 2080, "E5M2"), marks=pytest.mark.slow),
]  # fmt: skip


@pytest.mark.parametrize("case", IN_TILES, ids=str)
def test_more_rows_than_a_workgroup_takes(case: Case) -> None:
    """They are tiles, whole ones: rows that are missing are added first."""
    program = mxcomp.compile(case.module())
    (found,) = program.report.matmuls
    padding = ["pad_lhs"] if case.m % weight_only.MOST_ROWS else []
    assert sorted(found.dispatches) == sorted([*PACKED, *padding]), found.reason
    given = case.arguments()
    case.check(program.run(*given)[0], given)


DYNAMIC = [Case(1, 80, 1056), *(pytest.param(Case(1, 208, 544, name), marks=pytest.mark.slow) for name in NAMES[:3])]


@pytest.mark.parametrize("case", DYNAMIC, ids=str)
def test_dynamic_rows(case: Case) -> None:
    """One program for all M: by the kernel for so many rows, which takes them as they are up to 64."""
    program = mxcomp.compile(replace(case, is_dynamic=True).module())
    (found,) = program.report.matmuls
    assert [each.max_m for each in found.versions] == [16, 32, 64, None], found.reason
    for rows in (1, 16, 17, 33, 64, 65, 130):
        of_rows = replace(case, m=rows)
        given = of_rows.arguments()
        (y,) = program.run(*given)
        of_rows.check(y, given)
        launches = program.profile(*given, execute=False).dispatches
        owners = [each.owner.split(" ")[0] for each in launches]
        limit = next((each.max_m for each in found.versions if each.max_m and rows <= each.max_m), None)
        matmul = "matmul" if limit is None else f"matmul_up_to_{limit}"
        assert owners == ["pack_rhs", "pack_rhs_scale", *(["pad_lhs"] if limit is None else []), matmul]
        version = next(each for each in found.versions if each.max_m == limit)
        inner_m, inner_n = version.layout["inner_tiles"]
        columns = -(-case.n // (16 * _packed(found))) * _packed(found) // inner_n
        assert math.prod(launches[-1].grid) == -(-rows // (16 * inner_m)) * columns


def _packed(found: ScaledMatmul) -> int:
    """Inner tiles of columns that weights are packed in whole multiples of."""
    return max(each.layout["inner_tiles"][1] for each in found.versions)


@pytest.mark.parametrize("options", [{"ukernels": "none"}, {"versions": False}], ids=str)
def test_dynamic_rows_without_ukernels(options: dict[str, Any]) -> None:
    """Multiplied as bf16 all the same."""
    case = Case(5, 48, 544, is_dynamic=True)
    program = mxcomp.compile(case.module(), **options)
    (found,) = program.report.matmuls
    assert "left to IREE: activations are not quantised" in (found.reason or "")
    given = case.arguments()
    case.check(program.run(*given)[0], given)


@pytest.mark.slow
@pytest.mark.parametrize("instance", weight_only.INSTANCES, ids=lambda instance: instance.name)
def test_every_instance(instance: weight_only.Instance) -> None:
    """Right, without spilled registers, and by as many conversions as there are pairs, or blocks."""
    case = Case(instance.most_rows - 3, 208, 4128, formats.element_format(instance.elements[0]).name)
    program, kernels = compiled(str(case.module()), ukernels=instance.name)
    assert kernels[-1].assembly.spills == kernels[-1].assembly.scratch_bytes == 0
    assert kernels[-1].assembly.count("v_mfma_f32_16x16x32_bf16") > 0
    given = case.arguments()
    case.check(program.run(*given)[0], given)


@pytest.mark.parametrize("element", ["E2M1", pytest.param("E4M3", marks=pytest.mark.slow)])
def test_extreme_scales(element: str) -> None:
    """The smallest scale, the largest that leaves finite weights, and NaN, which stays in its column."""
    case = Case(2, 48, 1024, element)
    given = case.arguments()
    given[0][:] = np.exp2(np.random.default_rng(0).integers(-3, 4, given[0].shape)).astype(ml_dtypes.bfloat16)
    scales = given[2].view(np.uint8)
    scales[:] = 127
    given[0][:, :MX_BLOCK] = ml_dtypes.bfloat16(2.0**120)
    scales[:, 0] = 0
    scales[:, 1] = 240
    given[0][:, MX_BLOCK : 2 * MX_BLOCK] = ml_dtypes.bfloat16(2.0**-113)
    (y,) = mxcomp.compile(case.module()).run(*given)
    case.check(y, given)
    scales[5, 3] = 255
    (y,) = mxcomp.compile(case.module()).run(*given)
    is_nan = np.isnan(y.astype(np.float32))
    assert is_nan[:, 5].all()
    assert not np.delete(is_nan, 5, axis=1).any()


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case(1, 64, 32), "expected more than 16 columns, and more than one block, got 64 and 32"),
        (Case(70, 32, 544, batch=(2,)), "expected 1 to 64 rows of each matrix, got 70"),
    ],
    ids=str,
)
def test_what_is_left(case: Case, reason: str) -> None:
    """It is a matmul of dequantised weights, as other contractions that are not recognised."""
    program = mxcomp.compile(case.module())
    assert reason in (program.report.matmuls[0].reason or "")
    given = case.arguments()
    case.check(program.run(*given)[0], given)


@pytest.mark.parametrize("case", [Case(3, 64, 1024, "E4M3"), Case(3, 40, 544, "E2M3", batch=(2,))], ids=str)
def test_without_ukernels(case: Case) -> None:
    """Recognised, but left to IREE."""
    program = mxcomp.compile(case.module(), ukernels="none")
    assert "left to IREE" in (program.report.matmuls[0].reason or "")
    given = case.arguments()
    case.check(program.run(*given)[0], given)


def test_dequantised_to_f32() -> None:
    """Another spelling: both sides as f32 in a linalg.matmul, activations extended before."""
    case = Case(4, 64, 1024)

    def layer(x: ir.Value, w: ir.Value, ws: ir.Value, bias: ir.Value) -> ir.Value:
        weights = mx.operand(w, ws, case.element)
        blocks = case.k // MX_BLOCK
        flat = build.tensor_type((case.n, case.k), "f32")
        n, k, inner = (ir.AffineExpr.get_dim(i) for i in range(3))
        wide = build.tensor_type((case.n, blocks, MX_BLOCK), "f32")
        maps = [ir.AffineMap.get(3, 0, each) for each in ([n, k, inner], [n, k], [n, k, inner])]
        values = build.generic(
            wide, [weights.elements, weights.scales], build.empty(wide), maps, ["parallel"] * 3, _dequantised
        ).results[0]
        joined = build.collapse(values, [[0], [1, 2]])
        turned = build.transpose(joined, [1, 0])
        assert joined.type == flat
        result = build.zero_filled(build.tensor_type((case.m, case.n), "f32"))
        y = linalg.matmul(mx.elementwise(lambda a: a, x, result="f32"), turned, outs=[result])
        return mx.elementwise(mx.add, y, bias, result="bf16")

    program = mxcomp.compile(mx.module(layer, *case.types))
    assert program.report.matmuls[0].dispatches == PACKED, program.report.matmuls[0].reason
    given = case.arguments()
    case.check(program.run(*given)[0], given)


def _dequantised(element: ir.Value, scale: ir.Value, _: ir.Value) -> ir.Value:
    from iree.compiler.dialects import arith

    return arith.ScalingExtFOp(ir.F32Type.get(), element, scale).result


def test_verify() -> None:
    """Nothing of it is there to be verified on a CPU, which says so."""
    with pytest.raises(errors.VerifyError, match="no scaled matmul to verify"):
        mxcomp.verify(str(CASES[0].module()), CASES[0].arguments())
