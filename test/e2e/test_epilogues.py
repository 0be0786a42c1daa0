"""Consumers of a scaled matmul, fused into its dispatch: one kernel without scratch memory, and right numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from assembly import FLAG, read_dump
from modules import Matmul, source
from spread import quick_if

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.formats import E2M1

HERE = Path(__file__).parent
MAPS = """#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (m)>
#column = affine_map<(m, n) -> (n)>
"""
_erf = np.vectorize(math.erf)


@dataclass(frozen=True)
class Epilogue:
    """What `name`.mlir.in computes from the product times `factor_of` and further arguments, whose types are given."""

    name: str
    result: type
    function: Callable[..., np.ndarray]
    arguments: str = ""

    def __str__(self) -> str:
        return self.name


EPILOGUES = (
    Epilogue("bias_relu", np.float32, lambda x, bias: np.maximum(x + bias, 0), ", %bias: tensor<${n}xf32>"),
    Epilogue("gelu_truncf", ml_dtypes.bfloat16, lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    Epilogue(
        "silu_multiply_truncf",
        np.float16,
        lambda x, other: x / (1 + np.exp(-x)) * other,
        ", %other: tensor<${m}x${n}xf32>",
    ),
    Epilogue(
        "row_factor_residual",
        np.float32,
        lambda x, rows, other: x * rows[:, None] + other,
        ", %rows: tensor<${m}xf32>, %other: tensor<${m}x${n}xf32>",
    ),
)
MATMULS = (
    Matmul(256, 512, 256),
    Matmul(100, 200, 96),
    Matmul(33, 70, 512),
    Matmul(1, 256, 64),
    Matmul(200, 300, 256, types=("f8E5M2", "f4E2M1FN")),
)


def factor_of(matmul: Matmul) -> float:
    """A power of two that brings products to the order of 1."""
    return 2.0 ** -round(np.log2(np.abs(matmul.expected).mean()))


def text_of(matmul: Matmul, epilogue: Epilogue, factor: float) -> str:
    """The matmul's module with the epilogue before its return."""
    m = "?" if matmul.dynamic_m else matmul.m
    sizes = {"m": m, "n": matmul.n, "dynamic": "%m" if matmul.dynamic_m else ""}
    body = Template((HERE / "epilogues" / f"{epilogue.name}.mlir.in").read_text()).substitute(sizes)
    if matmul.dynamic_m:
        body = f"  %m = tensor.dim %r0, %c0 : tensor<?x{matmul.n}xf32>\n{body}"
    kind = {np.float32: "f32", np.float16: "f16"}.get(epilogue.result, "bf16")
    plain, final = f"tensor<{m}x{matmul.n}xf32>", f"tensor<{m}x{matmul.n}x{kind}>"
    text = source(matmul).replace(f"return %r0 : {plain}", f"{body}  return %y : {final}")
    arguments = Template(epilogue.arguments).substitute(sizes)
    text = text.replace(f") -> ({plain})", f"{arguments}) -> ({final})")
    constants = f"  %factor = arith.constant {factor:e} : f32\n  %zero = "
    return MAPS + text.replace("  %zero = ", constants, 1)


def check(program: mxcomp.Program, matmul: Matmul, epilogue: Epilogue, factor: float) -> None:
    rng = np.random.default_rng(3)
    shapes = {"%bias": (matmul.n,), "%rows": (matmul.m,), "%other": (matmul.m, matmul.n)}
    others = [
        rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items() if name in epilogue.arguments
    ]
    (result,) = program.run(*matmul.inputs, *sorted(others, key=lambda x: x.ndim))
    with np.errstate(over="ignore"):  # e^-x for large negative x
        expected = epilogue.function(matmul.expected * factor, *(other.astype(np.float64) for other in others))
    rounding = {np.float32: 2.0**-23, np.float16: 2.0**-11}.get(epilogue.result, 2.0**-8)
    scale = max(1.0, *(float(np.abs(other).max()) for other in others)) if others else 1.0
    allowed = 4 * scale * matmul.bound * matmul.magnitude * factor + 2 * rounding * np.abs(expected) + 2e-6 * scale
    error = np.abs(result.astype(np.float64) - expected)
    assert (error <= allowed).all(), f"{(error > allowed).sum()} of {error.size} are wrong"


CASES = [(e, m, u) for e in EPILOGUES for m in MATMULS for u in ("fastest", "none")]


def is_quick(case: tuple[Epilogue, Matmul, str]) -> bool:
    """Each epilogue with another matmul; the first without a ukernel."""
    epilogue, matmul, ukernels = case
    number = EPILOGUES.index(epilogue)
    return MATMULS.index(matmul) == number + (number > 0) and ukernels == ("fastest" if number else "none")


@pytest.mark.parametrize("case", quick_if(is_quick, CASES), ids=lambda case: "-".join(map(str, case)))
def test_epilogue(case: tuple[Epilogue, Matmul, str], tmp_path: Path) -> None:
    epilogue, matmul, ukernels = case
    factor = factor_of(matmul)
    program = mxcomp.compile(text_of(matmul, epilogue, factor), ukernels=ukernels, iree_flags=(f"{FLAG}={tmp_path}",))
    kernels = read_dump(tmp_path)
    assert len(kernels) == 5
    assert all(kernel.scratch_bytes == kernel.spills == 0 for kernel in kernels)
    check(program, matmul, epilogue, factor)


@pytest.mark.parametrize("epilogue", quick_if(lambda epilogue: epilogue.result is np.float32, EPILOGUES), ids=str)
def test_dynamic_m(epilogue: Epilogue) -> None:
    """By default those without transcendental functions, which take the simulator long."""
    factor = factor_of(Matmul(64, 320, 128))
    program = mxcomp.compile(text_of(Matmul(64, 320, 128, dynamic_m=True), epilogue, factor))
    for m in (1, 77, 256):
        check(program, Matmul(m, 320, 128, dynamic_m=True), epilogue, factor)


def test_loads_of_a_residual() -> None:
    """A lane loads what it has of a row of whole tiles in one piece, also in 16 bits."""
    rng = np.random.default_rng(0)
    m, n, k = 64, 128, 512
    codes = [rng.integers(0, 256, (rows, k // 2), np.uint8) for rows in (m, n)]
    scales = [np.full((rows, k // 32), 127, np.uint8) for rows in (m, n)]
    residual = rng.standard_normal((m, n)).astype(ml_dtypes.bfloat16)

    def layer(*given: Any) -> Any:
        left, left_scales, right, right_scales, other = given
        product = mx.scaled_matmul(mx.operand(left, left_scales, E2M1), mx.operand(right, right_scales, E2M1))
        return mx.elementwise(mx.add, other, product, result="bf16")

    operands = [f"{rows}x{size}xi8" for rows in (m, n) for size in (k // 2, k // 32)]
    module = mx.module(layer, *operands, f"{m}x{n}xbf16")
    program = mxcomp.compile(module, ukernels="mx_f4E2M1FN_f4E2M1FN_f32_m64_n128_k512")
    given = [each.view(np.int8) for pair in zip(codes, scales, strict=True) for each in pair]
    (result,) = program.run(*given, residual)
    lhs, rhs = (
        formats.dequantise(formats.unpack_bits(each, E2M1), of, E2M1) for each, of in zip(codes, scales, strict=True)
    )
    expected = lhs @ rhs.T + residual.astype(np.float32)  # in f32, which has products
    np.testing.assert_array_equal(result, expected.astype(ml_dtypes.bfloat16))
    counters = program.profile(*given, residual, execute=False).dispatches[-1].counters
    assert counters["global.load"] * 1024 == counters["global.load.bytes"]
