"""Whole programs of mxcomp, run by IREE's runtime on the simulator with all checks on, against float64 NumPy."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest
from corpus.operands import check_product, pack
from modules import FP4, VALUES, Matmul, dequantise, source
from spread import every

import mxcomp
from mxcomp.errors import InputError
from mxcomp.run.runtime import RunError


@cache
def built(matmul: Matmul, data_tiling: bool = True, ukernels: str = "fastest") -> mxcomp.Program:
    return mxcomp.compile(source(matmul), data_tiling=data_tiling, ukernels=ukernels)


def check(matmul: Matmul, program: mxcomp.Program) -> None:
    (result,) = program.run(*matmul.inputs)
    assert result.shape == (matmul.m, matmul.n)
    assert matmul.error(result) <= matmul.bound


@pytest.mark.parametrize("ukernels", every(2, ["fastest", "none"]))
@pytest.mark.parametrize("data_tiling", [True, False], ids=["tiled", "row-major"])
@pytest.mark.parametrize("matmul", every(2, [Matmul(100, 300, 384), Matmul(256, 512, 512)]), ids=["padded", "exact"])
def test_four_configurations(matmul: Matmul, data_tiling: bool, ukernels: str) -> None:
    check(matmul, built(matmul, data_tiling, ukernels))


def test_constant_weights() -> None:
    matmul = Matmul(200, 300, 544, constant_rhs=True)
    program = built(matmul)
    check(matmul, program)
    check(matmul, program)


def test_dynamic_m() -> None:
    """One program, several M, one of them beyond the limit of 2 GiB, which leaves the others alone."""
    program = built(Matmul(64, 4096, 64, dynamic_m=True))
    for m in (1, 130):
        check(Matmul(m, 4096, 64, dynamic_m=True), program)
    with pytest.raises(RunError, match="M must be between 1 and 131056"):
        program.run(*Matmul(132000, 4096, 64, dynamic_m=True).inputs)
    few = Matmul(33, 4096, 64, dynamic_m=True)
    a, b, a_scales, b_scales = few.inputs
    with pytest.raises(InputError, match="has no elements"):
        program.run(a[:0], b, a_scales[:0], b_scales)
    check(few, program)


@pytest.mark.parametrize("types", every(2, [("f4E2M1FN", "f6E2M3FN"), ("f8E4M3FN", "f4E2M1FN")]), ids="-".join)
def test_mixed_types(types: tuple[str, str]) -> None:
    """A dynamic M, and constant weights."""
    program = built(Matmul(64, 320, 256, dynamic_m=True, types=types))
    for m in (1, 150):
        check(Matmul(m, 320, 256, dynamic_m=True, types=types), program)
    constant = Matmul(96, 320, 256, constant_rhs=True, types=types)
    check(constant, built(constant))


@pytest.mark.parametrize("sizes", every(2, [(2, 50, 100, 96), (3, 64, 128, 256)]), ids=str)
def test_batch_of_lhs(sizes: tuple[int, int, int, int]) -> None:
    """[batch, m, k] × [n, k]ᵀ: the batch counts as rows."""
    batch, m, n, k = sizes
    matmul = Matmul(batch * m, n, k)
    program = mxcomp.compile(BATCH.format(b=batch, m=m, n=n, kb=k // 32, kh=k // 2))
    assert len(program.report.matmuls) == 1
    a, b, a_scales, b_scales = matmul.inputs
    (result,) = program.run(a.reshape(batch, m, -1), b, a_scales.reshape(batch, m, -1), b_scales)
    assert result.shape == (batch, m, n)
    assert matmul.error(result.reshape(batch * m, n)) <= matmul.bound


def test_quantised_between_two_matmuls() -> None:
    """(A · Bᵀ quantised) · Cᵀ; the scales let the first product be exact, so that both sides quantise the same."""
    m, k, n, p = 64, 256, 128, 96
    rng = np.random.default_rng(5)
    a, b, c = (pack(_codes(rng, rows, columns)) for rows, columns in ((m, k), (n, k), (p, n)))
    a_scales, b_scales, c_scales, between = (
        rng.integers(low, high, (rows, columns // 32), dtype=np.uint8)
        for low, high, rows, columns in ((125, 130, m, k), (125, 130, n, k), (120, 135, p, n), (132, 138, m, n))
    )
    text = CHAIN.format(m=m, k=k, n=n, p=p, kb=k // 32, nb=n // 32, kh=k // 2, nh=n // 2)
    program = mxcomp.compile(text)
    assert len(program.report.matmuls) == 2
    arguments = [x.view(np.int8) for x in (a, b, a_scales, b_scales, between, c, c_scales)]
    (result,) = program.run(*arguments)
    first = dequantise(a, a_scales) @ dequantise(b, b_scales).T
    factors = np.exp2(between.astype(float) - 127).repeat(32, axis=1)
    codes = np.clip(first / factors, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    check_product(result, VALUES[FP4][codes] * factors, dequantise(c, c_scales))


def _codes(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """FP4 codes, none of them zero."""
    return (
        rng.integers(1, 8, (rows, columns), dtype=np.uint8) | rng.integers(0, 2, (rows, columns), dtype=np.uint8) << 3
    )


def test_among_other_dispatches() -> None:
    """softmax(product · 2^-24 + bias), and the sums of its columns: IREE's own kernels around ours."""
    matmul = Matmul(100, 200, 256)
    bias = np.random.default_rng(3).standard_normal(200).astype(np.float32)
    plain = "%r0 : tensor<100x200xf32>"
    text = source(matmul).replace(f"return {plain}", AROUND).replace(") -> (tensor<100x200xf32>)", AROUND_TYPES)
    program = mxcomp.compile(text)
    probabilities, sums = program.run(*matmul.inputs, bias)
    logits = matmul.expected * 2.0**-24 + bias
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected, rtol=2e-4, atol=1e-7)
    np.testing.assert_allclose(sums, expected.sum(axis=0), rtol=2e-4)


AROUND_TYPES = ", %bias: tensor<200xf32>) -> (tensor<100x200xf32>, tensor<200xf32>)"
AROUND = """
  %factor = arith.constant 5.9604644775390625e-08 : f32
  %logits_empty = tensor.empty() : tensor<100x200xf32>
  %logits = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%r0, %bias : tensor<100x200xf32>, tensor<200xf32>) outs(%logits_empty : tensor<100x200xf32>) {
  ^bb0(%x: f32, %b: f32, %out: f32):
    %scaled = arith.mulf %x, %factor : f32
    %sum = arith.addf %scaled, %b : f32
    linalg.yield %sum : f32
  } -> tensor<100x200xf32>
  %softmax_empty = tensor.empty() : tensor<100x200xf32>
  %softmax = linalg.softmax dimension(1) ins(%logits : tensor<100x200xf32>)
      outs(%softmax_empty : tensor<100x200xf32>) -> tensor<100x200xf32>
  %sums_empty = tensor.empty() : tensor<200xf32>
  %sums_zero = linalg.fill ins(%zero : f32) outs(%sums_empty : tensor<200xf32>) -> tensor<200xf32>
  %sums = linalg.generic {
    indexing_maps = [affine_map<(n, m) -> (m, n)>, affine_map<(n, m) -> (n)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%softmax : tensor<100x200xf32>) outs(%sums_zero : tensor<200xf32>) {
  ^bb0(%x: f32, %acc: f32):
    %sum = arith.addf %x, %acc : f32
    linalg.yield %sum : f32
  } -> tensor<200xf32>
  return %softmax, %sums : tensor<100x200xf32>, tensor<200xf32>"""

CHAIN = """
#lhs = affine_map<(m, n, ko, kb) -> (m, ko, kb)>
#rhs = affine_map<(m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(m, n, ko, kb) -> (m, ko)>
#rhs_scale = affine_map<(m, n, ko, kb) -> (n, ko)>
#result = affine_map<(m, n, ko, kb) -> (m, n)>
func.func @main(%a_bytes: tensor<{m}x{kh}xi8>, %b_bytes: tensor<{n}x{kh}xi8>, %as_bytes: tensor<{m}x{kb}xi8>,
    %bs_bytes: tensor<{n}x{kb}xi8>, %ys_bytes: tensor<{m}x{nb}xi8>, %c_bytes: tensor<{p}x{nh}xi8>,
    %cs_bytes: tensor<{p}x{nb}xi8>) -> tensor<{m}x{p}xf32> {{
  %zero = arith.constant 0.0 : f32
  %a = iree_tensor_ext.bitcast %a_bytes : tensor<{m}x{kh}xi8> -> tensor<{m}x{kb}x32xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b_bytes : tensor<{n}x{kh}xi8> -> tensor<{n}x{kb}x32xf4E2M1FN>
  %c = iree_tensor_ext.bitcast %c_bytes : tensor<{p}x{nh}xi8> -> tensor<{p}x{nb}x32xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as_bytes : tensor<{m}x{kb}xi8> -> tensor<{m}x{kb}xf8E8M0FNU>
  %bs = iree_tensor_ext.bitcast %bs_bytes : tensor<{n}x{kb}xi8> -> tensor<{n}x{kb}xf8E8M0FNU>
  %cs = iree_tensor_ext.bitcast %cs_bytes : tensor<{p}x{nb}xi8> -> tensor<{p}x{nb}xf8E8M0FNU>
  %ys = iree_tensor_ext.bitcast %ys_bytes : tensor<{m}x{nb}xi8> -> tensor<{m}x{nb}xf8E8M0FNU>
  %empty0 = tensor.empty() : tensor<{m}x{n}xf32>
  %zeros0 = linalg.fill ins(%zero : f32) outs(%empty0 : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %x = linalg.generic {{
    indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #result],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  }} ins(%a, %b, %as, %bs : tensor<{m}x{kb}x32xf4E2M1FN>, tensor<{n}x{kb}x32xf4E2M1FN>, tensor<{m}x{kb}xf8E8M0FNU>,
      tensor<{n}x{kb}xf8E8M0FNU>) outs(%zeros0 : tensor<{m}x{n}xf32>) {{
  ^bb0(%l: f4E2M1FN, %r: f4E2M1FN, %ls: f8E8M0FNU, %rs: f8E8M0FNU, %acc: f32):
    %lf = arith.scaling_extf %l, %ls : f4E2M1FN, f8E8M0FNU to f32
    %rf = arith.scaling_extf %r, %rs : f4E2M1FN, f8E8M0FNU to f32
    %lr = arith.mulf %lf, %rf : f32
    %sum = arith.addf %acc, %lr : f32
    linalg.yield %sum : f32
  }} -> tensor<{m}x{n}xf32>
  %blocks = tensor.expand_shape %x [[0], [1, 2]] output_shape [{m}, {nb}, 32]
      : tensor<{m}x{n}xf32> into tensor<{m}x{nb}x32xf32>
  %y_empty = tensor.empty() : tensor<{m}x{nb}x32xf4E2M1FN>
  %y = linalg.generic {{
    indexing_maps = [affine_map<(m, o, b) -> (m, o, b)>, affine_map<(m, o, b) -> (m, o)>,
                     affine_map<(m, o, b) -> (m, o, b)>],
    iterator_types = ["parallel", "parallel", "parallel"]
  }} ins(%blocks, %ys : tensor<{m}x{nb}x32xf32>, tensor<{m}x{nb}xf8E8M0FNU>)
      outs(%y_empty : tensor<{m}x{nb}x32xf4E2M1FN>) {{
  ^bb0(%v: f32, %s: f8E8M0FNU, %out: f4E2M1FN):
    %q = arith.scaling_truncf %v, %s : f32, f8E8M0FNU to f4E2M1FN
    linalg.yield %q : f4E2M1FN
  }} -> tensor<{m}x{nb}x32xf4E2M1FN>
  %empty1 = tensor.empty() : tensor<{m}x{p}xf32>
  %zeros1 = linalg.fill ins(%zero : f32) outs(%empty1 : tensor<{m}x{p}xf32>) -> tensor<{m}x{p}xf32>
  %z = linalg.generic {{
    indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #result],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  }} ins(%y, %c, %ys, %cs : tensor<{m}x{nb}x32xf4E2M1FN>, tensor<{p}x{nb}x32xf4E2M1FN>, tensor<{m}x{nb}xf8E8M0FNU>,
      tensor<{p}x{nb}xf8E8M0FNU>) outs(%zeros1 : tensor<{m}x{p}xf32>) {{
  ^bb0(%l: f4E2M1FN, %r: f4E2M1FN, %ls: f8E8M0FNU, %rs: f8E8M0FNU, %acc: f32):
    %lf = arith.scaling_extf %l, %ls : f4E2M1FN, f8E8M0FNU to f32
    %rf = arith.scaling_extf %r, %rs : f4E2M1FN, f8E8M0FNU to f32
    %lr = arith.mulf %lf, %rf : f32
    %sum = arith.addf %acc, %lr : f32
    linalg.yield %sum : f32
  }} -> tensor<{m}x{p}xf32>
  return %z : tensor<{m}x{p}xf32>
}}
"""

BATCH = """
#lhs = affine_map<(b, m, n, ko, kb) -> (b, m, ko, kb)>
#rhs = affine_map<(b, m, n, ko, kb) -> (n, ko, kb)>
#lhs_scale = affine_map<(b, m, n, ko, kb) -> (b, m, ko)>
#rhs_scale = affine_map<(b, m, n, ko, kb) -> (n, ko)>
#result = affine_map<(b, m, n, ko, kb) -> (b, m, n)>
func.func @main(%a_bytes: tensor<{b}x{m}x{kh}xi8>, %b_bytes: tensor<{n}x{kh}xi8>, %as_bytes: tensor<{b}x{m}x{kb}xi8>,
    %bs_bytes: tensor<{n}x{kb}xi8>) -> tensor<{b}x{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %a = iree_tensor_ext.bitcast %a_bytes : tensor<{b}x{m}x{kh}xi8> -> tensor<{b}x{m}x{kb}x32xf4E2M1FN>
  %b = iree_tensor_ext.bitcast %b_bytes : tensor<{n}x{kh}xi8> -> tensor<{n}x{kb}x32xf4E2M1FN>
  %as = iree_tensor_ext.bitcast %as_bytes : tensor<{b}x{m}x{kb}xi8> -> tensor<{b}x{m}x{kb}xf8E8M0FNU>
  %bs = iree_tensor_ext.bitcast %bs_bytes : tensor<{n}x{kb}xi8> -> tensor<{n}x{kb}xf8E8M0FNU>
  %empty = tensor.empty() : tensor<{b}x{m}x{n}xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<{b}x{m}x{n}xf32>) -> tensor<{b}x{m}x{n}xf32>
  %r = linalg.generic {{indexing_maps = [#lhs, #rhs, #lhs_scale, #rhs_scale, #result],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}}
      ins(%a, %b, %as, %bs : tensor<{b}x{m}x{kb}x32xf4E2M1FN>, tensor<{n}x{kb}x32xf4E2M1FN>,
          tensor<{b}x{m}x{kb}xf8E8M0FNU>, tensor<{n}x{kb}xf8E8M0FNU>) outs(%zeros : tensor<{b}x{m}x{n}xf32>) {{
  ^bb0(%x: f4E2M1FN, %y: f4E2M1FN, %xs: f8E8M0FNU, %ys: f8E8M0FNU, %acc: f32):
    %0 = arith.scaling_extf %x, %xs : f4E2M1FN, f8E8M0FNU to f32
    %1 = arith.scaling_extf %y, %ys : f4E2M1FN, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  }} -> tensor<{b}x{m}x{n}xf32>
  return %r : tensor<{b}x{m}x{n}xf32>
}}
"""
