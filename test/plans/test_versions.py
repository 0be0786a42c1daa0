"""Kernels by ranges of a dynamic M: the one that fits runs, others have no workgroups, and numbers are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from iree.compiler import ir
from spread import every

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.plans import few_rows
from mxcomp.plans.multi_m import MultiM
from mxcomp.report import ScaledMatmul
from mxcomp.selection import versions
from mxcomp.ukernels import quantising

RNG = np.random.default_rng(11)
FIRST, LAST = (1, 17, 65, 257, 513, 1025), (16, 64, 256, 512, 1024)
"""Rows at the ends of ranges."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version for each range also where they gain nothing: for small N and K, which are quick to simulate."""
    monkeypatch.setattr(MultiM, "least_gain", -100.0)
    monkeypatch.setattr(versions, "last_of_runs", lambda items, key: tuple(items))


def weights(fmt: str, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales that differ, and the float64 values that they mean."""
    spread = np.exp2(RNG.integers(-6, 6, (n, 1)))
    codes, scales = formats.quantise((RNG.standard_normal((n, k)) * spread).astype(np.float32), fmt)
    return codes, scales, formats.dequantise(codes, scales, fmt, dtype=np.float64)


def quantised(x: np.ndarray, fmt: str) -> np.ndarray:
    return formats.dequantise(*formats.quantise(x, fmt), fmt, dtype=np.float64)


def near(found: np.ndarray, a: np.ndarray, w: np.ndarray, expected: np.ndarray) -> None:
    """Within what f32 sums can be off, and one rounding of the result's type."""
    bound = (np.abs(a) @ np.abs(w.T)) * a.shape[-1] * 2.0**-24
    rounding = np.abs(expected) * (2.0**-8 if found.dtype == ml_dtypes.bfloat16 else 2.0**-22)
    assert found.shape == expected.shape
    assert (np.abs(found.astype(np.float64) - expected) <= bound + rounding).all()


def of_rows(matmul: ScaledMatmul, rows: int) -> str:
    """The kernel that a report says is run for so many rows."""
    found = next(each for each in matmul.versions if each.max_m is None or rows <= each.max_m)
    assert found.kernel is not None
    return found.kernel


@pytest.mark.parametrize("types", every(2, [("E2M1", "E2M1"), ("E4M3", "E2M1"), ("E2M1", "E3M2"), ("E5M2", "E4M3")]))
def test_each_range(types: tuple[str, str]) -> None:
    """With quantised activations, a bias by column and a residual; N is a multiple of no tile."""
    codes, scales, w = weights(types[1], 200, 96)

    def layer(x: ir.Value, bias: ir.Value, residual: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.quantise(x, types[0]), mx.constant(codes, scales, types[1]))
        return mx.elementwise(
            lambda y, b, r: mx.add(mx.maximum(mx.add(y, b), 0.0), r), y, bias, residual, result="bf16"
        )

    program = mxcomp.compile(mx.module(layer, "?x96xf32", "200xf32", "?x200xf32"))
    (matmul,) = program.report.matmuls
    assert [each.max_m for each in matmul.versions] == [16, 64, 256, 512, 1024, None]
    assert len({each.kernel for each in matmul.versions}) > 1
    assert [part for part in matmul.dispatches if part.startswith("matmul")] == [
        "matmul", "matmul_up_to_1024", "matmul_up_to_512", "matmul_up_to_256", "matmul_up_to_64", "matmul_up_to_16",
    ]  # fmt: skip
    bias = RNG.standard_normal(200).astype(np.float32)
    for rows in FIRST:
        x = RNG.standard_normal((rows, 96)).astype(np.float32)
        residual = RNG.standard_normal((rows, 200)).astype(np.float32)
        (y,) = program.run(x, bias, residual)
        a = quantised(x, types[0])
        near(y, a, w, np.maximum(a @ w.T + bias, 0.0) + residual)


@pytest.mark.slow
def test_tiles_that_divide_padded_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions may have tiles of 96 and of 192 columns beside others: 744 of RHS are padded to 768 for all."""
    codes, scales, w = weights("E2M1", 744, 480)
    timed = versions.timed

    def limited(ranked: versions.Ranked, rows: versions.Range) -> Iterator[versions.Timed]:
        wanted = {512: 6, 1024: 12}.get(rows.max_m or 0)
        for each in timed(ranked, rows):
            layout = each.candidate.ukernel.layout
            if wanted is None or (layout is not None and (layout.inner_tiles or (1, 1))[1] == wanted):
                yield each

    monkeypatch.setattr(versions, "timed", limited)
    program = mxcomp.compile(mx.module(layers([(744, codes, scales)]), "?x480xf32"))
    (matmul,) = program.report.matmuls
    columns = {each.max_m: each.layout["inner_tiles"][1] for each in matmul.versions}
    assert (columns.pop(512), columns.pop(1024)) == (6, 12)
    for rows in (130, 300, 513):
        x = RNG.standard_normal((rows, 480)).astype(np.float32)
        a = quantised(x, "E2M1")
        near(program.run(x)[0], a, w, a @ w.T)


def test_only_one_runs(tmp_path: Path) -> None:
    codes, scales, _ = weights("E2M1", 64, 64)

    def layer(x: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.constant(codes, scales, "E2M1"))

    module = mx.module(layer, "?x64xf32")
    program = mxcomp.compile(module, iree_flags=[f"--dump-compilation-phases-to={tmp_path}"])
    (matmul,) = program.report.matmuls
    for rows in LAST[:2]:
        profile = program.profile(RNG.standard_normal((rows, 64)).astype(np.float32), execute=False)
        assert [dispatch.kernel for dispatch in profile.dispatches][1:] == [of_rows(matmul, rows)]
    (stream,) = (path.read_text() for path in tmp_path.glob("*.stream.mlir"))
    assert stream.count("stream.cmd.dispatch") == 7
    assert stream.count("stream.cmd.execute") == 1  # nothing to wait for in between
    assert "stream.cmd.copy" not in stream
    assert "stream.cmd.fill" not in stream


def layers(outputs: list[tuple[int, np.ndarray, np.ndarray]]) -> Callable[[ir.Value], list[ir.Value]]:
    def function(x: ir.Value) -> list[ir.Value]:
        lhs = mx.quantise(x, "E2M1")
        return [mx.scaled_matmul(lhs, mx.constant(codes, scales, "E2M1")) for _, codes, scales in outputs]

    return function


def test_matmuls_of_one_activation_share_its_packing() -> None:
    """Like the projections of attention, of different sizes: whatever tiles they get, rows are padded alike."""
    made = [weights("E2M1", n, 128) for n in (112, 48)]
    function = layers([(len(codes), codes, scales) for codes, scales, _ in made])
    program = mxcomp.compile(mx.module(function, "?x128xf32"))
    dispatches = [matmul.dispatches for matmul in program.report.matmuls]
    assert sum(parts.count("quantise_lhs") for parts in dispatches) == 1
    for rows in (3, 70):
        x = RNG.standard_normal((rows, 128)).astype(np.float32)
        a = quantised(x, "E2M1")
        for y, (_, _, w) in zip(program.run(x), made, strict=True):
            near(y, a, w, a @ w.T)


def test_rows_are_padded_to_what_the_kernel_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no further, of two layers that share an activation, one N of DeepSeek V3's; it is packed once for both."""
    monkeypatch.undo()
    made = [weights("E2M1", n, 2048) for n in (1024, 2112)]
    function = layers([(len(codes), codes, scales) for codes, scales, _ in made])
    program = mxcomp.compile(mx.module(function, "?x2048xbf16"))
    matmuls = program.report.matmuls
    assert len({each.layout["inner_tiles"][0] for each in matmuls[0].versions}) > 2
    for rows in (17, 33, 65, 600, 1300):
        x = np.ones((rows, 2048), ml_dtypes.bfloat16)
        quantise, *launches = program.profile(x, execute=False).dispatches
        assert quantise.owner.startswith("quantise_lhs")
        assert len(launches) == len(matmuls)
        for matmul, (codes, *_) in zip(matmuls, made, strict=True):
            (launch,) = (each for each in launches if each.kernel == of_rows(matmul, rows))
            version = next(each for each in matmul.versions if each.kernel == launch.kernel)
            inner_m, inner_n = version.layout["inner_tiles"]
            packed = max(each.layout["inner_tiles"][1] for each in matmul.versions)  # once for all
            columns = -(-len(codes) // (16 * packed)) * packed // inner_n
            assert math.prod(launch.grid) == -(-rows // (16 * inner_m)) * columns


def test_one_matmul_behind_another() -> None:
    """The second one's activations are what a version wrote."""
    (c, s, first), (d, t, second) = weights("E2M1", 96, 64), weights("E4M3", 40, 96)

    def function(x: ir.Value) -> ir.Value:
        hidden = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.constant(c, s, "E2M1"))
        hidden = mx.elementwise(lambda y: mx.maximum(y, 0.0), hidden, result="bf16")
        return mx.scaled_matmul(mx.quantise(hidden, "E4M3"), mx.constant(d, t, "E4M3"))

    check_behind(mxcomp.compile(mx.module(function, "?x64xf32")), first, second, "E4M3")


def check_behind(program: mxcomp.Program, first: np.ndarray, second: np.ndarray, fmt: str) -> None:
    """With max(0, x · firstᵀ) in bf16, quantised to a format, as what the second matmul multiplies."""
    for rows in (2, 70):
        x = RNG.standard_normal((rows, 64)).astype(np.float32)
        products = np.maximum(quantised(x, "E2M1") @ first.T, 0.0).astype(np.float32)
        a = quantised(products.astype(ml_dtypes.bfloat16).astype(np.float32), fmt)
        (y,) = program.run(x)
        near(y, a, second, a @ second.T)


def test_off_and_without_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, scales, _ = weights("E2M1", 64, 64)
    function = layers([(64, codes, scales)])
    off = mxcomp.compile(mx.module(function, "?x64xf32"), versions=False, compile_to="input").report
    static = mxcomp.compile(mx.module(function, "70x64xf32"), compile_to="input").report
    monkeypatch.undo()
    small = mxcomp.compile(mx.module(function, "?x64xf32"), compile_to="input").report
    assert [report.matmuls[0].versions for report in (off, static, small)] == [[], [], []]
    large = mxcomp.compile(
        mx.module(_large, "?x4096xi8", "?x256xi8", "8192x4096xi8", "8192x256xi8"), compile_to="input"
    )
    (matmul,) = large.report.matmuls
    assert [each.max_m for each in matmul.versions] == [16, 64, 256, 512, 1024, None]
    assert matmul.ukernel == matmul.versions[-1].ukernel
    assert all(one.ukernel != other.ukernel for one, other in pairwise(matmul.versions))
    assert "up to M = 16" in (matmul.note or "")


def _large(a: ir.Value, a_scale: ir.Value, b: ir.Value, b_scale: ir.Value) -> ir.Value:
    return mx.scaled_matmul(mx.operand(a, a_scale, "E2M1"), mx.operand(b, b_scale, "E2M1"))


QUANTISING = [("E2M1", "E2M1", "bf16"), ("E4M3", "E2M1", "f16"), ("E5M2", "E4M3", "bf16"), ("E2M1", "E3M2", "f16")]


@pytest.mark.parametrize("types", every(4, QUANTISING))
def test_few_rows_are_quantised_by_their_version(types: tuple[str, str, str]) -> None:
    """One dispatch up to 16 rows, more beyond them; with what is computed behind, and right in each range."""
    lhs, rhs, source = types
    codes, scales, w = weights(rhs, 208, 1504)

    def layer(x: ir.Value, bias: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.quantise(x, lhs), mx.constant(codes, scales, rhs))
        return mx.elementwise(lambda y, b: mx.maximum(mx.add(y, b), 0.0), y, bias, result="bf16")

    program = mxcomp.compile(mx.module(layer, f"?x1504x{source}", "208xf32"))
    (matmul,) = program.report.matmuls
    first = matmul.versions[0]
    assert first.max_m == 16
    assert first.ukernel.startswith("mx_fused_quant16_")
    assert f"up to 16 rows LHS is quantised by {first.ukernel}" in (matmul.note or "")
    bias = RNG.standard_normal(208).astype(np.float32)
    kind = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[source]
    for rows in (1, 16, 17):
        x = RNG.standard_normal((rows, 1504)).astype(kind)
        a = quantised(x.astype(np.float32), lhs)
        (y,) = program.run(x, bias)
        near(y, a, w, np.maximum(a @ w.T + bias, 0.0))
        kernels = [dispatch.kernel for dispatch in program.profile(x, bias, execute=False).dispatches]
        assert kernels[-1] == of_rows(matmul, rows)
        assert (len(kernels) == 1) == (rows <= 16)


def test_few_rows_beside_one_kernel_for_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where versions gain little, a dispatch less does: one that quantises, and one for all other rows."""
    monkeypatch.undo()
    codes, scales, w = weights("E2M1", 200, 1024)

    def layer(x: ir.Value, bias: ir.Value) -> ir.Value:
        y = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.constant(codes, scales, "E2M1"))
        return mx.elementwise(mx.add, y, bias, result="bf16")

    program = mxcomp.compile(mx.module(layer, "?x1024xbf16", "200xf32"))
    (matmul,) = program.report.matmuls
    assert [each.max_m for each in matmul.versions] == [16, None]
    bias = RNG.standard_normal(200).astype(np.float32)
    for rows, expected in ((1, ["matmul_up_to_16"]), (16, ["matmul_up_to_16"]), (17, ["quantise_lhs", "matmul"])):
        x = RNG.standard_normal((rows, 1024)).astype(ml_dtypes.bfloat16)
        a = quantised(x.astype(np.float32), "E2M1")
        near(program.run(x, bias)[0], a, w, a @ w.T + bias)
        launches = program.profile(x, bias, execute=False).dispatches
        assert [each.owner.split(" ")[0] for each in launches] == expected


def test_version_before_those_of_16_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where quantising all of 16 rows in each workgroup takes longer than a dispatch, it is done of fewer."""
    monkeypatch.setattr(few_rows, "gains", lambda together, rows: rows <= 4)
    codes, scales, w = weights("E2M1", 64, 1024)
    function = layers([(64, codes, scales)])
    program = mxcomp.compile(mx.module(function, "?x1024xf32"))
    (matmul,) = program.report.matmuls
    assert [each.max_m for each in matmul.versions] == [4, 16, 64, 256, 512, 1024, None]
    for rows, dispatches in ((4, 1), (5, 2), (17, 2)):
        x = RNG.standard_normal((rows, 1024)).astype(np.float32)
        a = quantised(x, "E2M1")
        near(program.run(x)[0], a, w, a @ w.T)
        assert len(program.profile(x, execute=False).dispatches) == dispatches


def test_all_of_one_activation_quantise_few_rows_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [weights("E2M1", n, 1024) for n in (112, 48)]
    module = mx.module(layers([(len(codes), codes, scales) for codes, scales, _ in made]), "?x1024xbf16")
    program = mxcomp.compile(module)
    x = RNG.standard_normal((9, 1024)).astype(ml_dtypes.bfloat16)
    a = quantised(x.astype(np.float32), "E2M1")
    for y, (_, _, w) in zip(program.run(x), made, strict=True):
        near(y, a, w, a @ w.T)
    assert [len(program.profile(x[:rows], execute=False).dispatches) for rows in (1, 9)] == [2, 2]
    assert len(program.profile(np.tile(x, (2, 1)), execute=False).dispatches) == 3
    monkeypatch.setattr(quantising.Instance, "covers", lambda self, m, n, k: n != 48)
    report = mxcomp.compile(module, compile_to="input").report
    assert not any(version.ukernel.startswith("mx_fused_quant") for each in report.matmuls for version in each.versions)
    assert "none quantises bf16" in (report.matmuls[1].note or "")


def test_few_rows_behind_another_matmul() -> None:
    """What is fused in between decides on the bits of activations."""
    (c, s, first), (d, t, second) = weights("E2M1", 1024, 64), weights("E2M1", 96, 1024)

    def function(x: ir.Value) -> ir.Value:
        hidden = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.constant(c, s, "E2M1"))
        hidden = mx.elementwise(lambda y: mx.maximum(y, 0.0), hidden, result="bf16")
        wide = mx.elementwise(lambda y: y, hidden, result="f32")
        return mx.scaled_matmul(mx.quantise(wide, "E2M1"), mx.constant(d, t, "E2M1"))

    program = mxcomp.compile(mx.module(function, "?x64xf32"))
    check_behind(program, first, second, "E2M1")
    assert len(program.profile(RNG.standard_normal((2, 64)).astype(np.float32), execute=False).dispatches) == 3
