"""Products of one column by quantisers that read rows of elements, not of blocks, where IREE computes both together."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxcomp

BLOCK = 32
FP4, SCALE = "f4E2M1FN", "f8E8M0FNU"


def _module(rows: int, blocks: int, rows_first: bool) -> str:
    """A product of a quantised matrix by one row, which is the second operand or the first."""
    k = blocks * BLOCK
    quantised = f"%q, %w, %s, %ws : tensor<{rows}x{blocks}x{BLOCK}x{FP4}>, tensor<1x{blocks}x{BLOCK}x{FP4}>"
    scales = f"tensor<{rows}x{blocks}x{SCALE}>, tensor<1x{blocks}x{SCALE}>"
    m, n = ("d0", "d1") if rows_first else ("d1", "d0")
    loops = "d0, d1, b, i"
    operands = [f"({m}, b, i)", f"({n}, b, i)", f"({m}, b)", f"({n}, b)", "(d0, d1)"]
    maps = ", ".join(f"affine_map<({loops}) -> {each}>" for each in operands)
    result = f"tensor<{rows}x1xf32>" if rows_first else f"tensor<1x{rows}xf32>"
    return f"""
#blocks = affine_map<(m, b, i) -> (m, b, i)>
func.func @product(%x: tensor<{rows}x{k}xbf16>, %sb: tensor<{rows}x{blocks}xi8>, %wb: tensor<1x{blocks}x16xi8>,
                   %wsb: tensor<1x{blocks}xi8>) -> {result} {{
  %s = iree_tensor_ext.bitcast %sb : tensor<{rows}x{blocks}xi8> -> tensor<{rows}x{blocks}x{SCALE}>
  %w = iree_tensor_ext.bitcast %wb : tensor<1x{blocks}x16xi8> -> tensor<1x{blocks}x{BLOCK}x{FP4}>
  %ws = iree_tensor_ext.bitcast %wsb : tensor<1x{blocks}xi8> -> tensor<1x{blocks}x{SCALE}>
  %qe = tensor.empty() : tensor<{rows}x{blocks}x{BLOCK}x{FP4}>
  %q = linalg.generic {{indexing_maps = [affine_map<(m, b, i) -> (m, b * {BLOCK} + i)>,
                                         affine_map<(m, b, i) -> (m, b)>, #blocks],
                        iterator_types = ["parallel", "parallel", "parallel"]}}
      ins(%x, %s : tensor<{rows}x{k}xbf16>, tensor<{rows}x{blocks}x{SCALE}>)
      outs(%qe : tensor<{rows}x{blocks}x{BLOCK}x{FP4}>) {{
  ^bb0(%a: bf16, %b: {SCALE}, %o: {FP4}):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.scaling_truncf %0, %b : f32, {SCALE} to {FP4}
    linalg.yield %1 : {FP4}
  }} -> tensor<{rows}x{blocks}x{BLOCK}x{FP4}>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {result}
  %z = linalg.fill ins(%zero : f32) outs(%e : {result}) -> {result}
  %r = linalg.generic {{indexing_maps = [{maps}],
                        iterator_types = ["parallel", "parallel", "reduction", "reduction"]}}
      ins({quantised}, {scales}) outs(%z : {result}) {{
  ^bb0(%a: {FP4}, %b: {FP4}, %as: {SCALE}, %bs: {SCALE}, %o: f32):
    %0 = arith.scaling_extf %a, %as : {FP4}, {SCALE} to f32
    %1 = arith.scaling_extf %b, %bs : {FP4}, {SCALE} to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  }} -> {result}
  return %r : {result}
}}"""


@pytest.mark.parametrize(("rows", "blocks", "rows_first"), [(5, 2, True), (33, 4, False)])
def test_right(rows: int, blocks: int, rows_first: bool) -> None:
    dice = np.random.default_rng(rows)
    scales, weight_scales = (dice.integers(124, 131, (each, blocks), np.uint8) for each in (rows, 1))
    factors, weight_factors = (np.exp2(each.astype(np.float32) - 127)[..., None] for each in (scales, weight_scales))
    x = dice.uniform(-6, 6, (rows, blocks, BLOCK)).astype(np.float32) * factors
    x = x.astype(ml_dtypes.bfloat16)
    codes = dice.integers(0, 16, (1, blocks, BLOCK), np.uint8)
    packed = codes[..., ::2] | codes[..., 1::2] << 4
    quantised = (x.astype(np.float32) / factors).astype(ml_dtypes.float4_e2m1fn).astype(np.float64) * factors
    weights = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64) * weight_factors
    expected = np.einsum("mbi,nbi->mn", quantised, weights)

    program = mxcomp.compile(_module(rows, blocks, rows_first), data_tiling=False, ukernels="none")
    given = (x.reshape(rows, -1), scales.view(np.int8), packed.view(np.int8), weight_scales.view(np.int8))
    (found,) = program.run(*given)

    expected = expected if rows_first else expected.T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
