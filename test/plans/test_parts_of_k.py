"""K split over workgroups: parts of the same packed operands, and their sum, on the simulator against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir
from ml_dtypes import bfloat16
from modules import FP4, KINDS
from shapes import Shaped
from test_inner_tiles import of

import mxcomp
import mxcomp.ir as mx
from mxcomp.formats import dequantise, pack_bits
from mxcomp.layout.problem import Problem
from mxcomp.measuring.dispatches import modelled
from mxcomp.run import runtime
from mxcomp.selection import tuned_lines
from mxcomp.selection.tuned_lines import Key, Line
from mxcomp.sim.schedule import ORDERS

SLOW = pytest.mark.slow
E2M3, E3M2, E4M3, E5M2 = [kind for kind in KINDS if kind != FP4]
PACKED = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale"]


def table(path: Path, shaped: Shaped, size: str, parts: int) -> Path:
    """A tuned table by which a product has its K in parts."""
    problem = Problem(shaped.m, shaped.n, shaped.k, (*shaped.types, "f8E8M0FNU", "f8E8M0FNU", "f32"))
    line = Line(Key("gfx950", problem), of(size, *shaped.types), "modelled", 10.0, None, split_k=parts)
    path.write_text(tuned_lines.text([line]))
    return path


@pytest.mark.parametrize(
    ("shaped", "size", "parts"),
    [
        (Shaped(40, 72, 4096), "m64_n64", 4),
        (Shaped(2, 72, 3000 // 32 * 32), "m16_n32_k512_max_m2", 2),
        pytest.param(Shaped(40, 300, 2048, types=(E4M3, E5M2)), "m128_n128", 2, marks=SLOW),
        pytest.param(Shaped(100, 140, 3072, types=(E2M3, FP4)), "m64_n128", 3, marks=SLOW),
        pytest.param(Shaped(300, 140, 2048), "m256_n256", 2, marks=SLOW),
        pytest.param(Shaped(300, 140, 3072), "m256_n128_k512_occupancy2", 2, marks=SLOW),
        pytest.param(Shaped(100, 140, 1280), "m64_n128_k256_single_wave", 5, marks=SLOW),
        pytest.param(
            Shaped(40, 132, 4096, orders=("rki", "kir", "rk", "kr"), constant_rhs=True), "m32_n64", 8, marks=SLOW
        ),
    ],
    ids=str,
)
def test_parts(tmp_path: Path, shaped: Shaped, size: str, parts: int) -> None:
    """Padded in all dimensions or not; each part once, whatever the order of workgroups."""
    program = mxcomp.compile(shaped.text(), tuned=table(tmp_path / "t.csv", shaped, size, parts), strict=True)
    (matmul,) = program.report.matmuls
    assert matmul.ukernel == of(size, *shaped.types)
    assert [name for name in matmul.dispatches if name not in PACKED] == ["matmul", "sum"]
    results = [runtime.run(program.vmfb, "main", shaped.inputs, "sim", schedule=order)[0] for order in ORDERS]
    assert shaped.error(results[0]) <= shaped.bound
    assert all(np.array_equal(result, results[0]) for result in results)


def test_consumers_are_behind_the_sum(tmp_path: Path) -> None:
    """In its dispatch: nothing else reads or writes the sum."""
    shaped = Shaped(40, 64, 2048)

    def layer(a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value, bias: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.operand(a, a_scales, "E2M1"), mx.operand(b, b_scales, "E2M1"))
        return mx.elementwise(lambda v, w: mx.maximum(mx.add(v, w), 0.0), y, bias, result="bf16")

    types = [f"{rows}x{size}xi8" for rows in (40, 64) for size in (1024, 64)]
    module = mx.module(layer, *types, "64xf32")
    program = mxcomp.compile(module, tuned=table(tmp_path / "t.csv", shaped, "m64_n64", 2), strict=True)
    dice = np.random.default_rng(3)
    codes = [dice.integers(0, 16, (rows, 2048), np.uint8) for rows in (40, 64)]
    scales = [dice.integers(122, 130, (rows, 64), np.uint8) for rows in (40, 64)]
    bias = dice.standard_normal(64).astype(np.float32)
    a, b = (dequantise(c, s, "E2M1").astype(np.float64) for c, s in zip(codes, scales, strict=True))
    expected = np.maximum(a @ b.T + bias, 0.0)
    operands = [part for c, s in zip(codes, scales, strict=True) for part in (pack_bits(c, "E2M1"), s)]
    arguments = [*(part.view(np.int8) for part in operands), bias]
    assert len(modelled(program.vmfb, arguments)) == len(PACKED) + 2
    (found,) = program.run(*arguments)
    bound = 2.0**-8 * np.abs(expected) + 2.0**-20 * (np.abs(a) @ np.abs(b).T)
    assert (np.abs(found.astype(np.float64) - expected) <= bound).all()


@pytest.mark.parametrize(("rows", "behind"), [(16, ["matmul"]), (40, ["quantise_lhs", "matmul"])])
def test_a_sum_is_quantised(rows: int, behind: list[str], tmp_path: Path, numpy_engine: None) -> None:
    """The matmul behind quantises sums, or one dispatch does: IREE did it in five, as nothing was known of them."""
    shaped = Shaped(rows, 64, 2048)

    def layer(a: ir.Value, b: ir.Value, scales: ir.Value, c: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.quantise(a, "E2M1"), mx.operand(b, scales, "E2M1"))
        rounded = mx.elementwise(lambda v: mx.maximum(v, 0.0), y, result="bf16")
        return mx.scaled_matmul(mx.quantise(rounded, "E2M1"), mx.quantise(c, "E2M1"))

    module = mx.module(layer, f"{rows}x2048xbf16", "64x1024xi8", "64x64xi8", "128x64xbf16")
    dice = np.random.default_rng(5)
    a, c = (dice.integers(-3, 4, size).astype(bfloat16) for size in ((rows, 2048), (128, 64)))
    arguments = a, dice.integers(0, 256, (64, 1024), np.uint8).view(np.int8), np.full((64, 64), 127, np.int8), c
    size = "m16_n16" if rows == 16 else "m64_n64"
    ways = [{"tuned": table(tmp_path / "t.csv", shaped, size, 2), "strict": True}, {"strict": True}]
    whole, plain = (mxcomp.compile(module, **way) for way in ways)
    assert [name for name in whole.report.matmuls[1].dispatches if "rhs" not in name] == behind
    np.testing.assert_array_equal(whole.run(*arguments)[0], plain.run(*arguments)[0])


@pytest.mark.parametrize(
    ("shaped", "parts"),
    [(Shaped(256, 5120, 25600), 2), (Shaped(192, 8192, 28672), 4), (Shaped(4096, 4096, 4096), 1)],
    ids=str,
)
def test_by_time(shaped: Shaped, parts: int) -> None:
    """Where compute units would be idle otherwise."""
    (matmul,) = mxcomp.compile(shaped.text(), compile_to="executable-configurations").report.matmuls
    assert ("sum" in matmul.dispatches) == (parts > 1)
    assert (f"K in {parts} parts" in (matmul.note or "")) == (parts > 1)


@pytest.mark.parametrize(
    ("shaped", "parts", "reason"),
    [
        (Shaped(40, 72, 4096), 3, "K has 8 tiles of 512, which are not 3 equal parts"),
        (Shaped(1, 72, 4096), 2, "K is not split for a single row or column"),
        (Shaped(12000, 24000, 4096), 4, "results of 4 parts exceed 2147483647 bytes"),
    ],
    ids=str,
)
def test_parts_that_cannot_be(tmp_path: Path, shaped: Shaped, parts: int, reason: str) -> None:
    """The line is left out, and the report says why."""
    program = mxcomp.compile(
        shaped.text(), tuned=table(tmp_path / "t.csv", shaped, "m64_n64", parts), compile_to="input"
    )
    (matmul,) = program.report.matmuls
    assert not matmul.dispatches
    assert any(f"split_k is {parts}: {reason}" in text for text in program.report.left_out)


def test_not_for_a_stock_compiler(tmp_path: Path) -> None:
    """Which does not know how to find parts in packed operands."""
    shaped = Shaped(40, 72, 4096)
    tuned = table(tmp_path / "t.csv", shaped, "m64_n64", 2)
    program = mxcomp.compile(shaped.text(), tuned=tuned, compile_to="executable-sources")
    assert "a stock iree-compile cannot split K" in (program.report.matmuls[0].note or "")
    larger = replace(shaped, m=256, n=5120, k=25600)
    assert "parts" not in (mxcomp.compile(larger.text(), compile_to="input").report.matmuls[0].note or "")
