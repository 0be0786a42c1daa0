"""What models seldom have: a slice from where a program finds out, operands that go through loops and functions, or are
joined; a vector and a matrix, or two vectors, by batch."""

from __future__ import annotations

from pathlib import Path
from string import Template

import numpy as np
import pytest
from modules import BITS, Matmul

import mxcomp
from mxcomp import formats

HERE = Path(__file__).parent
TYPES = ["f4E2M1FN", "f6E2M3FN", pytest.param("f8E4M3FN", marks=pytest.mark.slow)]


def program(name: str, kind: str) -> mxcomp.compiler.Program:
    text = Template((HERE / f"{name}.mlir.in").read_text())
    return mxcomp.compile(text.substitute(t=kind, bytes=32 * BITS[kind] // 8))


@pytest.mark.parametrize("kind", TYPES)
def test_slice_at_a_dynamic_offset(kind: str) -> None:
    """IREE cannot copy elements of less than a byte from there, but bytes."""
    matmul = Matmul(16, 40, 96, types=(kind, kind))
    lhs, rhs, lhs_scale, rhs_scale = matmul.operands
    around = np.random.default_rng(1).integers(0, 256, (24, lhs.shape[1]), dtype=np.uint8)
    around[5:21] = lhs
    inputs = [around.reshape(24, 3, -1), rhs.reshape(40, 3, -1), lhs_scale, rhs_scale]
    compiled = program("dynamic_slice", kind)
    assert compiled.report.matmuls[0].ukernel is not None
    (y,) = compiled.run(*(x.view(np.int8) for x in inputs), np.array([5], np.int32))
    assert matmul.error(y) <= matmul.bound


@pytest.mark.parametrize("kind", TYPES)
def test_elements_that_a_loop_and_a_function_pass_on(kind: str) -> None:
    """Operands change places in a loop; a function that others may call, too, multiplies them, padded and joined."""
    matmul, compiled = Matmul(16, 16, 96, types=(kind, kind)), program("passed", kind)
    assert compiled.report.matmuls[0].ukernel is not None
    operands = [x.view(np.int8) for x in matmul.operands]
    (y,) = compiled.run(*(x.reshape(16, 3, -1) for x in operands[:2]), *operands[2:], 3, function="main")
    for found in (y[:16, 1:].T, y[17:, 1:].T):  # an odd number of steps
        assert matmul.error(found) <= matmul.bound
    assert not y[16].any() and not y[:, 0].any()


@pytest.mark.parametrize("kind", TYPES)
def test_vector_and_matrix_of_each_batch(kind: str) -> None:
    """There is no M: the vector is a column of its own."""
    matmuls = [Matmul(1, 40, 96, types=(kind, kind), seed=seed) for seed in range(3)]
    elements = [
        np.stack([matmul.operands[i].reshape(-1, 3, 32 * BITS[kind] // 8) for matmul in matmuls]) for i in (0, 1)
    ]
    scales = [np.stack([matmul.operands[i] for matmul in matmuls]) for i in (2, 3)]
    compiled = program("vectors", kind)
    assert compiled.report.matmuls[0].ukernel is not None
    (y,) = compiled.run(*(x.view(np.int8) for x in (elements[0][:, 0], elements[1], scales[0][:, 0], scales[1])))
    for matmul, row in zip(matmuls, y, strict=True):
        assert matmul.error(row[None]) <= matmul.bound


@pytest.mark.parametrize("kind", TYPES)
def test_two_vectors_of_each_batch(kind: str) -> None:
    """There is neither M nor N: left to IREE, elements and scales as f32."""
    matmuls = [Matmul(1, 1, 96, types=(kind, kind), seed=seed) for seed in range(3)]
    a, b, a_scale, b_scale = (np.concatenate([matmul.operands[i] for matmul in matmuls]) for i in range(4))
    compiled = program("dots", kind)
    assert compiled.report.matmuls[0].reason == "1 parallel dimensions: expected M and N"
    (y,) = compiled.run(*(x.view(np.int8) for x in (a.reshape(3, 3, -1), b.reshape(3, 3, -1), a_scale, b_scale)))
    for matmul, value in zip(matmuls, y, strict=True):
        assert matmul.error(value[None, None]) <= matmul.bound


def test_expert_of_six_bit_weights() -> None:
    """Read at places that no layout has, behind a slice: the sum must not gather bytes itself."""
    rng, lhs, rhs = np.random.default_rng(0), formats.element_format("E5M2"), formats.element_format("E3M2")
    codes, scales = formats.quantise(rng.standard_normal((1, 128)).astype(np.float32), lhs)
    stack = rng.integers(0, 64, (3, 32, 4, 2, 32)).astype(np.uint8)
    stack_scales = rng.integers(120, 132, (32, 4, 2)).astype(np.uint8)
    a = formats.dequantise(codes, scales, lhs, dtype=np.float64).reshape(4, 32)
    b = formats.dequantise(stack[2].reshape(-1, 32), stack_scales.reshape(-1, 1), rhs, dtype=np.float64)
    expected = np.einsum("kl,nkbl->bn", a, b.reshape(32, 4, 2, 32))[:, None]
    given = (codes, scales, formats.pack_bits(stack, rhs), stack_scales)
    (y,) = mxcomp.compile((HERE / "six_bit_expert.mlir.in").read_text()).run(*(each.view(np.int8) for each in given))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-3)
