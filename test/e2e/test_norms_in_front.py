"""Norms that a kernel for few rows computes in front of what it quantises: values of float64, and the bits of a
dispatch of their own where the order of sums makes no difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iree.compiler import ir
from iree.compiler.dialects import math as math_
from ml_dtypes import bfloat16
from numpy.typing import NDArray

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.compiler import Program
from mxcomp.formats import E2M1, element_format
from mxcomp.mlir import build

EPSILON = 2.0**-17
NORMALISED = "LHS is normalised and quantised by "


@dataclass(frozen=True)
class Case:
    """A norm of rows, and one matrix, or two whose products are multiplied, behind it."""

    rows: int
    n: int
    k: int
    kind: str = "rms"
    weights: str = "bf16"
    matrices: int = 1
    lhs: str = "E2M1"

    @property
    def vectors(self) -> int:
        return 2 if self.kind == "layer" else 1

    @property
    def kernel(self) -> str:
        """One of those that can: which is the fastest is no matter here."""
        lhs = element_format(self.lhs).mlir_type
        return f"mx_fused_quant16_once_{'dual_' * (self.matrices > 1)}{lhs}_f4E2M1FN_f32_m16_n32_k512"


def summed(x: ir.Value) -> ir.Value:
    """The sum of each row, [rows, 1]."""
    loops = [ir.AffineExpr.get_dim(0), ir.AffineExpr.get_constant(0)]
    maps = [ir.AffineMap.get_identity(2), ir.AffineMap.get(2, 0, loops)]
    kind = build.tensor_type((build.static_sizes(x)[0], 1), "f32")
    zeros = build.zero_filled(kind, build.dynamic_sizes(x))
    return build.generic(kind, [x], zeros, maps, ["parallel", "reduction"], mx.add).results[0]


def norm(case: Case, x: ir.Value, *vectors: ir.Value) -> ir.Value:
    """A norm as PyTorch's models spell it."""

    def root(total: ir.Value) -> ir.Value:
        return math_.RsqrtOp(mx.add(mx.divide(total, float(case.k)), EPSILON)).result

    def square(value: ir.Value) -> ir.Value:
        return mx.multiply(value, value)

    if case.kind == "rms":
        total = summed(mx.elementwise(square, x, result="f32"))
        return mx.elementwise(mx.multiply, mx.elementwise(mx.multiply, x, mx.elementwise(root, total)), *vectors)
    total = summed(mx.elementwise(lambda value: value, x, result="f32"))
    total = summed(mx.elementwise(lambda value: value, x, result="f32"))
    mean = mx.elementwise(lambda each: mx.divide(each, float(case.k)), total)
    centred = mx.elementwise(mx.subtract, x, mean, result="f32")
    of_rows = mx.elementwise(root, summed(mx.elementwise(square, centred)))

    def finished(value: ir.Value, by: ir.Value, weight: ir.Value, bias: ir.Value) -> ir.Value:
        return mx.add(mx.multiply(mx.multiply(value, by), weight), bias)

    return mx.elementwise(finished, centred, of_rows, *vectors, result="bf16")


def program(case: Case, returns_norm: bool = False, is_dynamic: bool = False, **how: Any) -> Program:
    def layer(x: ir.Value, *given: ir.Value) -> list[ir.Value]:
        y = norm(case, x, *given[: case.vectors])
        matrices = given[case.vectors :]
        pairs, lhs = zip(matrices[::2], matrices[1::2], strict=True), mx.quantise(y, case.lhs)
        each = [mx.scaled_matmul(lhs, mx.operand(*pair, E2M1)) for pair in pairs]
        product = each[0] if len(each) == 1 else mx.elementwise(mx.multiply, *each)
        return [mx.elementwise(lambda value: value, product, result="bf16"), *[y] * returns_norm]

    matrix = (f"{case.n}x{case.k // 2}xi8", f"{case.n}x{case.k // 32}xi8")
    vectors = [f"{case.k}x{case.weights}"] * case.vectors
    rows = "?" if is_dynamic else case.rows
    return mxcomp.compile(mx.module(layer, f"{rows}x{case.k}xbf16", *vectors, *matrix * case.matrices), **how)


def arguments(case: Case, seed: int, is_exact: bool) -> list[NDArray[Any]]:
    """Rows of different sizes; `is_exact`: whose sums, and those of their squares, f32 has exactly."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((case.rows, case.k)) * np.exp2(rng.integers(-4, 5, (case.rows, 1)))
    if is_exact:
        x = rng.integers(-8, 9, (case.rows, case.k)) / 4
        x[:, case.k // 2 :] = -x[:, : case.k // 2]
    dtype = bfloat16 if case.weights == "bf16" else np.float32
    vectors = [rng.standard_normal(case.k).astype(dtype) for _ in range(case.vectors)]
    matrices = [
        each
        for _ in range(case.matrices)
        for each in (
            rng.integers(0, 256, (case.n, case.k // 2), np.uint8).view(np.int8),
            rng.integers(120, 130, (case.n, case.k // 32), np.uint8).view(np.int8),
        )
    ]
    return [x.astype(bfloat16), *vectors, *matrices]


def expected(case: Case, given_: list[NDArray[Any]]) -> NDArray[np.float64]:
    x, *vectors = (each.astype(np.float64) for each in given_[: 1 + case.vectors])
    if case.kind == "rms":
        rows = (x / np.sqrt((x * x).mean(1, keepdims=True) + EPSILON)).astype(bfloat16).astype(np.float64)
        y = rows * vectors[0]
    else:
        y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + EPSILON) * vectors[0] + vectors[1]
    elements, scales = formats.quantise(y.astype(bfloat16).astype(np.float32), case.lhs)
    lhs = formats.dequantise(elements, scales, case.lhs).astype(np.float64)
    product = np.ones((case.rows, case.n))
    matrices = [each.view(np.uint8) for each in given_[1 + case.vectors :]]
    for codes, scale in zip(matrices[::2], matrices[1::2], strict=True):
        product *= lhs @ formats.dequantise(formats.unpack_bits(codes, E2M1), scale, E2M1).astype(np.float64).T
    return product


def check(case: Case, seed: int = 0) -> None:
    fused, apart = program(case, ukernels=case.kernel), program(case, returns_norm=True, fuse_quantisers="off")
    assert any(NORMALISED + case.kernel in (each.note or "") for each in fused.report.matmuls)
    assert len(fused.report.matmuls[0].dispatches) < len(apart.report.matmuls[0].dispatches)
    exact, drawn = (arguments(case, seed, is_exact) for is_exact in (True, False))
    np.testing.assert_array_equal(*(each.run(*exact)[0].view(np.uint16) for each in (fused, apart)))
    y, values = fused.run(*drawn)[0].astype(np.float64), expected(case, drawn)
    assert np.linalg.norm(y - values) <= 4e-3 * np.linalg.norm(values)


@pytest.mark.parametrize(
    "case",
    [
        Case(16, 64, 544),
        Case(70, 256, 544),
        *(
            pytest.param(case, marks=pytest.mark.slow)
            for case in (Case(9, 64, 8192, "layer", "f32"), Case(300, 512, 1024, "layer"))
        ),
    ],
    ids=str,
)
def test_rows_that_are_packed(case: Case) -> None:
    """One dispatch of more than four rows normalises, quantises and packs them, in inner tiles, with zeros behind."""
    packed, apart = (program(case, returns_norm=reads, fuse_quantisers="off") for reads in (False, True))
    assert len(packed.report.launches) == len(apart.report.launches) - 1
    exact, drawn = (arguments(case, 0, is_exact) for is_exact in (True, False))
    np.testing.assert_array_equal(*(each.run(*exact)[0].view(np.uint16) for each in (packed, apart)))
    y, values = packed.run(*drawn)[0].astype(np.float64), expected(case, drawn)
    assert np.linalg.norm(y - values) <= 4e-3 * np.linalg.norm(values)


@pytest.mark.parametrize("kind", ["rms", pytest.param("layer", marks=pytest.mark.slow)])
def test_any_number_of_rows_that_are_packed(kind: str) -> None:
    case = Case(1, 288, 544, kind)
    packed, apart = (
        program(case, returns_norm=reads, is_dynamic=True, versions="off", fuse_quantisers="off")
        for reads in (False, True)
    )
    assert len(packed.report.launches) == len(apart.report.launches) - 1
    for rows in (1, 70):
        of = replace(case, rows=rows)
        exact, drawn = (arguments(of, 0, is_exact) for is_exact in (True, False))
        np.testing.assert_array_equal(*(each.run(*exact)[0].view(np.uint16) for each in (packed, apart)))
        y, values = packed.run(*drawn)[0].astype(np.float64), expected(of, drawn)
        assert np.linalg.norm(y - values) <= 4e-3 * np.linalg.norm(values)


@pytest.mark.slow
def test_only_few_rows_have_a_norm_of_their_own() -> None:
    """Where a version quantises a few rows itself, their norm is not run for more of them."""
    case = Case(1, 288, 544, matrices=2)
    compiled = program(case, is_dynamic=True)
    for rows, first in ((3, "norm"), (40, "quantise_lhs")):
        launches = compiled.profile(*arguments(replace(case, rows=rows), 0, False), execute=False).dispatches
        owners = [each.owner.split(" ")[0] for each in launches if not each.owner.startswith("pack_")]
        assert owners == [first, f"matmul{'_up_to_16' * (rows == 3)}"]


@pytest.mark.parametrize("case", [Case(1, 64, 1056), Case(3, 64, 512, "layer", "f32", matrices=2)], ids=str)
def test_bits_of_a_dispatch_of_its_own(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(1, 96, 4096),
        Case(4, 64, 4096, matrices=2),
        Case(2, 64, 8192, "layer"),
        Case(1, 64, 14336, "layer", "f32"),
        Case(1, 128, 2880),
        Case(2, 64, 1024, lhs="E4M3"),
        Case(4, 64, 544, "layer", lhs="E4M3"),
    ],
    ids=str,
)
def test_more_sizes(case: Case) -> None:
    check(case, 1)


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(1, 4), st.integers(2, 100), st.sampled_from(["rms", "layer"]), st.integers(1, 2), st.integers(0, 99))
def test_drawn_sizes(rows: int, blocks: int, kind: str, matrices: int, seed: int) -> None:
    check(Case(rows, 64, 32 * blocks, kind, matrices=matrices), seed)


def notes(case: Case, **how: Any) -> str:
    return str([each.note for each in program(case, compile_to="input", **how).report.matmuls])


def test_where_it_is_left_a_dispatch() -> None:
    """Where something else reads it as well, of more rows than such kernels take, and where that is asked for."""
    case = Case(1, 256, 4096)
    assert NORMALISED in notes(case)
    assert NORMALISED not in notes(case, returns_norm=True)
    assert NORMALISED not in notes(case, fuse_quantisers="off")
    assert NORMALISED not in notes(replace(case, rows=16))
    assert NORMALISED not in notes(replace(case, k=32768, kind="layer"))
