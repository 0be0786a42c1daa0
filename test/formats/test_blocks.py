"""A format is a row of a table: what is recognised, and what is said of a format that no pass can take."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import mxcomp
from mxcomp.formats import E2M1, E8M0, ELEMENT_TYPES, BlockFormat, ScaleFormat, block_format, blocks, mx_format
from mxcomp.layout import INTRINSICS
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.target import targets

M, N, K, SIZE = 8, 16, 64, 16
NVFP4 = BlockFormat("NVFP4", E2M1, ScaleFormat("E4M3", "f8E4M3FN"), SIZE)

MODULE = f"""
func.func @main(%a: tensor<{M}x{K // SIZE}x{SIZE}xf4E2M1FN>, %b: tensor<{N}x{K // SIZE}x{SIZE}xf4E2M1FN>,
                %as: tensor<{M}x{K // SIZE}xf8E4M3FN>, %bs: tensor<{N}x{K // SIZE}xf8E4M3FN>) -> tensor<{M}x{N}xf32> {{
  %zeros = arith.constant dense<0.0> : tensor<{M}x{N}xf32>
  %y = linalg.generic {{
    indexing_maps = [affine_map<(m, n, k, b) -> (m, k, b)>, affine_map<(m, n, k, b) -> (n, k, b)>,
                     affine_map<(m, n, k, b) -> (m, k)>, affine_map<(m, n, k, b) -> (n, k)>,
                     affine_map<(m, n, k, b) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction", "reduction"]
  }} ins(%a, %b, %as, %bs : tensor<{M}x{K // SIZE}x{SIZE}xf4E2M1FN>, tensor<{N}x{K // SIZE}x{SIZE}xf4E2M1FN>,
                            tensor<{M}x{K // SIZE}xf8E4M3FN>, tensor<{N}x{K // SIZE}xf8E4M3FN>)
    outs(%zeros : tensor<{M}x{N}xf32>) {{
  ^bb0(%x: f4E2M1FN, %w: f4E2M1FN, %xs: f8E4M3FN, %ws: f8E4M3FN, %sum: f32):
    %0 = arith.extf %x : f4E2M1FN to f32
    %1 = arith.extf %xs : f8E4M3FN to f32
    %2 = arith.extf %w : f4E2M1FN to f32
    %3 = arith.extf %ws : f8E4M3FN to f32
    %4 = arith.mulf %0, %1 : f32
    %5 = arith.mulf %3, %2 : f32
    %6 = arith.mulf %4, %5 : f32
    %7 = arith.addf %sum, %6 : f32
    linalg.yield %7 : f32
  }} -> tensor<{M}x{N}xf32>
  return %y : tensor<{M}x{N}xf32>
}}
"""


@pytest.fixture
def nvfp4(monkeypatch: pytest.MonkeyPatch) -> BlockFormat:
    """The format, as one more row."""
    monkeypatch.setattr(blocks, "BLOCK_FORMATS", (*blocks.BLOCK_FORMATS, NVFP4))
    return NVFP4


def reason() -> str | None:
    (found,) = mxcomp.compile(MODULE, compile_to="input").report.matmuls
    return found.reason


def test_what_is_no_row_is_not_recognised() -> None:
    assert reason() == "scale type f8E4M3FN: expected f8E8M0FNU"


def test_what_is_a_row_is_recognised_and_the_one_rule_says_what_it_lacks(nvfp4: BlockFormat) -> None:
    assert block_format("f4E2M1FN", "f8E4M3FN") == nvfp4
    assert block_format("f4E2M1FN") == mx_format("E2M1") != nvfp4
    assert reason() == "NVFP4 has scales of E4M3: expected E8M0"


def test_a_problem_has_the_blocks_of_its_formats(nvfp4: BlockFormat) -> None:
    scale = nvfp4.scale.mlir_type
    assert Problem(M, N, K, ("f4E2M1FN", "f4E2M1FN", scale, scale, "f32")).block == SIZE
    assert Problem(M, N, K, ("bf16", "f4E2M1FN", scale, scale, "f32")).formats == (None, nvfp4)
    assert Problem(M, N, K, ("f4E2M1FN", "f8E5M2", *SCALES_AND_RESULT)).block == 32


def test_the_formats_of_a_matrix_instruction_are_those_that_it_lays_out() -> None:
    """Instructions of every GPU take rows of the table, in blocks as their lanes have."""
    for target in targets().values():
        for each in target.matrix_instructions:
            for element in each.lhs | each.rhs if each.scale else ():
                found = block_format(element, each.scale or "")
                assert found is not None
                assert found.size == each.block == INTRINSICS[each.name].block


def test_mx_formats_are_those_of_all_elements() -> None:
    assert {mx_format(kind).element.mlir_type for kind in ELEMENT_TYPES} == set(ELEMENT_TYPES)
    assert {mx_format(kind).scale for kind in ELEMENT_TYPES} == {E8M0}
    assert [mx_format(kind).block_bytes for kind in ELEMENT_TYPES] == [16, 24, 24, 32, 32]


def test_what_is_left_to_iree_is_right(nvfp4: BlockFormat) -> None:
    rng = np.random.default_rng(7)
    codes = [rng.integers(0, 16, (rows, K), np.uint8) for rows in (M, N)]
    scales = [rng.integers(0x30, 0x48, (rows, K // SIZE), np.uint8) for rows in (M, N)]
    packed = [each[:, ::2] | each[:, 1::2] << 4 for each in codes]
    given = [each.reshape(-1, K // SIZE, SIZE // 2).view(np.int8) for each in packed]
    given += [each.view(ml_dtypes.float8_e4m3fn) for each in scales]
    (y,) = mxcomp.compile(MODULE).run(*given)
    values = [mxcomp.formats.decode(each, "E2M1").astype(np.float64) for each in codes]
    factors = [mxcomp.formats.decode(each, "E4M3").astype(np.float64).repeat(SIZE, -1) for each in scales]
    a, b = (value * factor for value, factor in zip(values, factors, strict=True))
    np.testing.assert_allclose(y, a @ b.T, rtol=1e-5)
