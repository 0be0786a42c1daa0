"""An MLP, down(relu(up(x))), whose hidden activations are quantised in their tile: few dispatches, right numbers."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir
from kernels import Kernel, compiled
from ml_dtypes import bfloat16

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.compiler import Program
from mxcomp.run import runtime

EXAMPLE = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "examples" / "02_gated_mlp.py")))
HIDDEN, INTERMEDIATE = 128, 384


def weights(hidden: int = HIDDEN, intermediate: int = INTERMEDIATE) -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    return EXAMPLE.Weights(rng, intermediate, hidden), EXAMPLE.Weights(rng, hidden, intermediate)


def mlp(up: Any, down: Any, tokens: int | None) -> ir.Module:
    kind, mode = EXAMPLE.gated_mlp.__globals__["ELEMENT"], EXAMPLE.MODE

    def layer(x: ir.Value) -> ir.Value:
        hidden = mx.scaled_matmul(mx.quantise(x, kind, mode), up.constant())
        between = mx.elementwise(lambda value: mx.maximum(value, 0.0), hidden, result="bf16")
        y = mx.scaled_matmul(mx.quantise(between, kind, mode), down.constant())
        return mx.elementwise(lambda value: value, y, result="bf16")

    return mx.module(layer, f"{'?' if tokens is None else tokens}x{up.values.shape[1]}xbf16")


def hidden_of(x: np.ndarray, up: Any) -> np.ndarray:
    """Hidden activations as `down` multiplies them, by NumPy."""
    products = np.maximum(EXAMPLE._quantised(x) @ up.values.T, 0)
    return EXAMPLE._quantised(products.astype(np.float32).astype(bfloat16))


FUSED: dict[str, Any] = {"fuse_quantisers": "on"}
"""However long that takes."""


def dispatches(module: ir.Module, **how: Any) -> int:
    """Dispatches of the whole program, whatever they are for; fused as far as can be, or as `how` says."""
    return mxcomp.compile(module, compile_to="flow", **(how or FUSED)).vmfb.decode().count("flow.dispatch @")


def check(program: Program, mats: Sequence[Any], tokens: int) -> None:
    """Within what bf16 rounds, and a rare step of an element where a sum rounds to the other side; with three weights,
    of the gated MLP."""
    x = np.random.default_rng(tokens).standard_normal((tokens, mats[0].values.shape[1]), np.float32).astype(bfloat16)
    (y,) = program.run(x)
    expected = EXAMPLE.reference(x, *mats) if len(mats) == 3 else hidden_of(x, mats[0]) @ mats[1].values.T
    assert np.linalg.norm(y.astype(np.float64) - expected) <= 4e-3 * np.linalg.norm(expected)


@cache
def small(tokens: int) -> tuple[Program, list[Kernel]]:
    return compiled(str(mlp(*weights(), tokens)), **FUSED)


@pytest.mark.parametrize("tokens", [70, pytest.param(256, marks=pytest.mark.slow)])
def test_in_three_dispatches(tokens: int) -> None:
    """Quantisation of x, up with all that follows up to the packed operand of down, and down."""
    mats = weights()
    assert dispatches(mlp(*mats, tokens)) == 3
    program, kernels = small(tokens)
    assert [matmul.dispatches for matmul in program.report.matmuls] == [["quantise_lhs", "matmul"], ["matmul"]]
    for kernel in kernels:
        assert kernel.assembly.spills == 0
        assert kernel.assembly.count("scratch_") == 0
    (requantised,) = [kernel for kernel in kernels if kernel.assembly.count("v_cvt_scalef32_pk_fp4_f32") == 64]
    assert requantised.assembly.count("v_mfma_scale_f32_16x16x128") == 32
    check(program, mats, tokens)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [None, 64], ids=["dynamic", "few rows"])
def test_in_four_dispatches(tokens: int | None) -> None:
    """Where the result is not quantised in its tile, it is on the way to down."""
    mats = weights()
    module = mlp(*mats, tokens)
    assert dispatches(module, fuse_quantisers="off") == 4
    program = mxcomp.compile(module, fuse_quantisers="off")
    assert program.report.matmuls[1].dispatches == ["quantise_lhs", "matmul"]
    for rows in (64,) if tokens else (1, 70):
        check(program, mats, rows)


def test_gate_and_up_are_quantised_behind_their_tiles() -> None:
    """Two results that are combined, where no kernel of both quantises them: they are stored, and quantised when they
    are packed."""
    gate, mats = EXAMPLE.Weights(np.random.default_rng(8), INTERMEDIATE, HIDDEN), weights()
    module = EXAMPLE.gated_mlp(gate, *mats, 70)
    assert dispatches(module) == 5
    program = mxcomp.compile(module, fuse_quantisers="off")
    assert program.report.matmuls[2].dispatches == ["quantise_lhs", "matmul"]
    check(program, [gate, *mats], 70)


@pytest.mark.slow
def test_a_last_tile_with_padding() -> None:
    """N of the product is no multiple of 128: scales of what is not there would be made of anything."""
    mats = weights(intermediate=320)
    module = mlp(*mats, 96)
    assert dispatches(module) == 4
    check(mxcomp.compile(module, **FUSED), mats, 96)


@pytest.mark.slow
def test_nan() -> None:
    """A NaN stays in its row, through both quantisations."""
    mats = weights()
    program = mxcomp.compile(mlp(*mats, 96), **FUSED)
    x = np.random.default_rng(3).standard_normal((96, HIDDEN), np.float32).astype(bfloat16)
    x[5, 40], x[17] = np.nan, np.float32(0)
    (y,) = program.run(x)
    rows = np.isnan(y.astype(np.float32))
    assert rows[5].all() and not np.delete(rows, 5, axis=0).any()
    assert not y[17].astype(np.float32).any()
    expected = np.delete(hidden_of(x, mats[0]) @ mats[1].values.T, 5, axis=0)
    assert np.linalg.norm(np.delete(y.astype(np.float64), 5, axis=0) - expected) <= 4e-3 * np.linalg.norm(expected)


@pytest.mark.parametrize("tokens", [70, pytest.param(256, marks=pytest.mark.slow)])
def test_operands(tokens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each matmul multiplies: the first one the quantised x, bit for bit, the last one its quantised result."""
    mats = weights()
    program, _ = small(tokens)
    x = np.random.default_rng(11).standard_normal((tokens, HIDDEN), np.float32).astype(bfloat16)
    (tmp_path / "report.json").write_text(program.report.to_json())
    monkeypatch.setenv("MXCOMP_SIM_REPORT", str(tmp_path / "report.json"))
    monkeypatch.setenv("MXCOMP_SIM_DUMP_OPERANDS", str(tmp_path))
    program.run(x)
    monkeypatch.undo()
    runtime._of_thread.kept = None  # the device, which is this thread's, is to dump nothing from now on

    dumped = [json.loads(line) for line in (tmp_path / "operands.jsonl").read_text().splitlines()]
    assert len(dumped) == 4 * 2
    products = [
        {line["operand"]: np.load(tmp_path / line["file"]) for line in dumped[i : i + 4]}
        for i in range(0, len(dumped), 4)
    ]
    values = [
        {side: product[side] * product[f"{side}_scale"].repeat(32, 1) for side in ("lhs", "rhs")}
        for product in products
    ]
    for found, weight in zip(values, mats, strict=True):
        np.testing.assert_array_equal(found["rhs"], weight.values)
    np.testing.assert_array_equal(values[0]["lhs"], EXAMPLE._quantised(x))
    # Sums of f32 are in another order than NumPy's, so that a bf16 may be one step off.
    assert np.mean(values[1]["lhs"] != hidden_of(x, mats[0])) < 1e-3


def test_verify() -> None:
    """Layouts of the transposed matmuls, on the CPU."""
    mats = weights()
    x = np.random.default_rng(5).standard_normal((96, HIDDEN), np.float32).astype(bfloat16)
    verified = mxcomp.verify(str(mlp(*mats, 96)), [x], **FUSED)
    assert verified.ok, verified.checks
    sizes = [(each.m, each.n, each.k) for each in verified.checks]
    assert sizes == [(96, INTERMEDIATE, HIDDEN), (96, HIDDEN, INTERMEDIATE)]
    assert all(matmul.transposed for matmul in verified.report.matmuls)


@pytest.mark.slow
@pytest.mark.parametrize(("element", "count"), [("E2M3", 3), ("E3M2", 3), ("E4M3", 6), ("E5M2", 6)])
def test_other_formats(element: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8-bit blocks are quantised in their tile, too, and packed after that; x and its scales are packed apart."""
    monkeypatch.setitem(EXAMPLE.gated_mlp.__globals__, "ELEMENT", formats.element_format(element))
    mats, tokens = weights(), 256 if element in ("E2M3", "E4M3") else 70
    module = mlp(*mats, tokens)
    assert dispatches(module) == count
    program, kernels = compiled(str(module), **FUSED)
    assert all(kernel.assembly.spills == 0 and kernel.assembly.count("scratch_") == 0 for kernel in kernels)
    assert "quantise_lhs" not in program.report.matmuls[1].dispatches
    check(program, mats, tokens)
