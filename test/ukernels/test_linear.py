"""Products of a few rows with weights of 16 bits, against float64, on the simulator with all checks."""

from __future__ import annotations

from pathlib import Path
from string import Template

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mxcomp
from mxcomp.ukernels.linear import Linear

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
ROUNDING = {"bf16": 2**-8, "f16": 2**-11, "f32": 0.0}
MODULE, SEVERAL = (Template((Path(__file__).parent / f"{name}.mlir.in").read_text()) for name in ("linear", "linears"))
_SEVERAL = ((1, 192, 48, 320), (16, 4096, 512, 256), (1, 1280, 64, 4096))


def check(rows: int, columns: int, depth: int, kind: str, result: str) -> None:
    """A product that has a kernel, of numbers of many magnitudes, with a bias."""
    kernel = Linear(rows, columns, depth, kind, result, kind).spread(256)
    assert kernel is not None and not kernel.objection
    text = MODULE.substitute(m=rows, n=columns, k=depth, type=kind, result=result)
    other = "// to f32" if result != "f32" else "// rounded"
    text = "\n".join(line for line in text.splitlines() if not line.endswith(other))
    program = mxcomp.compile(text, strict=True)
    rng = np.random.default_rng(rows * columns + depth)
    x, weights, bias = (
        (rng.standard_normal(shape) * np.exp2(rng.integers(-3, 4, shape))).astype(TYPES[kind])
        for shape in ((rows, depth), (columns, depth), (columns,))
    )
    (found,) = program.run(x, weights, bias)
    assert found.dtype == TYPES[result]
    wide = [each.astype(np.float64) for each in (x, weights, bias)]
    expected = wide[0] @ wide[1].T + wide[2]
    most = np.abs(wide[0]) @ np.abs(wide[1]).T + np.abs(wide[2])
    error = np.abs(found.astype(np.float64) - expected)
    assert np.all(error <= ROUNDING[result] * np.abs(expected) + depth * 2.0**-24 * most)
    (dispatch,) = program.profile(x, weights, bias).dispatches
    assert dispatch.owner.startswith("linear")


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "kind", "result"),
    [(1, 96, 1632, "bf16", "bf16"), (5, 32, 2880, "bf16", "f32"), (40, 64, 3072, "f16", "f16")],
)
def test_results(rows: int, columns: int, depth: int, kind: str, result: str) -> None:
    """Of one row and of several, in all of whose units registers have room, and in turns of a loop."""
    check(rows, columns, depth, kind, result)


def check_several(rows: int, columns: int, few: int, depth: int) -> None:
    """Queries, keys and values in one dispatch, and a product with a residual in another."""
    program = mxcomp.compile(SEVERAL.substitute(m=rows, n=columns, few=few, k=depth), strict=True)
    rng = np.random.default_rng(rows * columns + depth)
    shapes: list[tuple[int, ...]] = [(rows, depth)]
    shapes += [shape for n in (columns, few, few) for shape in ((n, depth), (n,))]
    shapes += [(rows, depth), (columns, depth), (columns,), (1, rows, columns)]
    given = [(rng.standard_normal(each) * np.exp2(rng.integers(-2, 3, each))).astype(TYPES["bf16"]) for each in shapes]
    found = program.run(*given)
    x, wq, bq, wk, bk, wv, bv, y, wo, bo, residual = (each.astype(np.float64) for each in given)
    for value, (a, weights, bias) in zip(found, ((x, wq, bq), (x, wk, bk), (x, wv, bv), (y, wo, bo)), strict=True):
        expected, error = a @ weights.T + bias, 2**-8
        most = np.abs(a) @ np.abs(weights).T + np.abs(bias)
        allowed = error * np.abs(expected) + depth * 2.0**-24 * most
        if value.ndim == 3:
            expected = expected + residual
            allowed = allowed + error * np.abs(expected) + error * allowed
        assert np.all(np.abs(value.astype(np.float64) - expected) <= allowed)
    owners = [each.owner for each in program.profile(*given).dispatches]
    assert len([each for each in owners if each.startswith("linear")]) == 2


@pytest.mark.parametrize(
    "sizes", [(5, 64, 32, 320), *(pytest.param(each, marks=pytest.mark.slow) for each in _SEVERAL)]
)
def test_several(sizes: tuple[int, int, int, int]) -> None:
    check_several(*sizes)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(1, 64), st.integers(2, 12), st.integers(1, 140), st.sampled_from(["bf16", "f16"]),
    st.sampled_from(["bf16", "f16", "f32"]),
)  # fmt: skip
def test_any_size(rows: int, columns: int, depth: int, kind: str, result: str) -> None:
    check(rows, 16 * columns, 32 * depth, kind, kind if result != "f32" else result)


def test_width() -> None:
    """No compute unit has two workgroups where that can be; of many rows IREE's tiles are faster for many columns."""
    sizes = ((1, 32), (1, 2880), (1, 5120), (64, 2880), (64, 5120), (16, 128256), (64, 128256))
    found = [Linear(rows, columns, 2880, "bf16", "bf16").spread(256) for rows, columns in sizes]
    assert [each and (each.wide, each.each) for each in found] == [
        (1, 4), (1, 12), (2, 16), (1, 12), (2, 16), (4, 16), None,
    ]  # fmt: skip
