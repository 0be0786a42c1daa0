"""Few rows whose LHS is quantised in the matmul's own dispatch: float64's numbers, and bits of quantising elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest
from builders import elementwise, module, scaled_matmul, stored
from iree.compiler import ir
from iree.compiler.dialects import arith, tensor
from kernels import compiled
from modules import BITS, KINDS, Matmul, dequantise
from spread import every
from test_producers import SOURCES, activations, quantised

import mxcomp
from mxcomp.formats import SCALE_MODES
from mxcomp.ir import quantisation
from mxcomp.mlir import build
from mxcomp.run import runtime
from mxcomp.ukernels import quantising

FP4, FP8 = "f4E2M1FN", "f8E4M3FN"
INSIDE = ["pack_rhs", "pack_rhs_scale", "matmul"]
APART = ["quantise_lhs", *INSIDE]
SLOWER = "it would take"
"""A note's words where quantising inside of the matmul is not the faster way."""


def program(matmul: Matmul, mode: str, source: str, before: Callable[[ir.Value], ir.Value] = lambda x: x) -> str:
    """Activations [m, k], weights as bytes, a bias: quantised, multiplied, added, and cast to bf16."""

    def body(x: ir.Value, w: ir.Value, ws: ir.Value, bias: ir.Value) -> list[ir.Value]:
        lhs = quantisation.quantise(before(x), matmul.types[0], mode)
        y = scaled_matmul(lhs, stored(w, ws, matmul.types[1]))
        bf16 = ir.BF16Type.get()
        return [elementwise(lambda a, b: arith.TruncFOp(bf16, arith.AddFOp(a, b).result).result, y, [bias], "bf16")]

    m = None if matmul.dynamic_m else matmul.m
    w_bytes = matmul.k * BITS[matmul.types[1]] // 8
    return module(
        body,
        [
            ((m, matmul.k), source),
            ((matmul.n, w_bytes), "i8"),
            ((matmul.n, matmul.k // 32), "i8"),
            ((matmul.n,), "f32"),
        ],
    )


def inputs(matmul: Matmul, x: np.ndarray) -> list[np.ndarray]:
    bias = np.random.default_rng(2).standard_normal(matmul.n).astype(np.float32)
    return [x, matmul.operands[1].view(np.int8), matmul.operands[3].view(np.int8), bias]


def check(
    matmul: Matmul,
    mode: str,
    source: str,
    dispatches: list[str] = INSIDE,
    slower: str = "",
    schedules: Sequence[str] = ("forward",),
    ukernels: str = "fastest",
) -> None:
    """The program's dispatches, unless by its report they would be `slower`; and float64's numbers in all `schedules`.

    Those are within rounding of what float64 makes of the quantised operands.
    """
    made = mxcomp.compile(program(matmul, mode, source), ukernels=ukernels)
    (found,) = made.report.matmuls
    assert found.dispatches == dispatches or (slower and slower in (found.note or "")), found.note
    x = np.random.default_rng(1).standard_normal((matmul.m, matmul.k)).astype(SOURCES[source])
    given = inputs(matmul, x)
    (y, *others) = (runtime.run(made.vmfb, None, given, "sim", schedule=each, seed=1)[0] for each in schedules)
    assert all(np.array_equal(other, y) for other in others)
    values = quantised(x, matmul.types[0], mode)
    weights = dequantise(matmul.operands[1], matmul.operands[3], matmul.types[1])
    expected, scale = values @ weights.T + given[3], np.abs(values) @ np.abs(weights).T + np.abs(given[3])
    rounded = np.abs(y.astype(np.float64) - expected) - 2.0**-8 * np.abs(expected)
    assert (rounded <= matmul.bound * scale).all()


CASES = [
    (Matmul(1, 96, 1056), "even", "bf16"),
    (Matmul(16, 80, 2048, types=(FP8, FP4)), "rceil", "f32"),
    (Matmul(5, 64, 544, types=("f8E5M2", FP8)), "floor", "f16"),
    (Matmul(7, 208, 1024, types=(FP4, "f6E3M2FN")), "ceil", "f16"),
    (Matmul(2, 512, 512 + 32, types=(FP8, FP8)), "even", "bf16"),
    (Matmul(3, 48, 512), "even", "bf16"),
    (Matmul(6, 33, 96, types=(FP8, FP4)), "even", "f32"),
]
ALL = [
    (Matmul(1 + i % 16, 48 + 16 * i, 544 + 96 * i, types=(lhs, rhs)), mode, source)
    for i, (lhs, rhs, mode, source) in enumerate(
        (lhs, rhs, mode, source)
        for lhs in (FP4, FP8, "f8E5M2")
        for rhs in KINDS
        for mode in SCALE_MODES
        for source in SOURCES
    )
]


@pytest.mark.parametrize(
    ("matmul", "mode", "source"),
    [case if i % 2 == 0 else pytest.param(*case, marks=pytest.mark.slow) for i, case in enumerate(CASES)],
    ids=str,
)
def test_one_dispatch(matmul: Matmul, mode: str, source: str) -> None:
    check(matmul, mode, source)


HALVES = [
    Matmul(40, 96, 1056, types=(FP8, FP8)),
    Matmul(17, 64, 544, types=("f8E5M2", FP4)),
    Matmul(64, 80, 1024, types=(FP8, FP4)),
]


@pytest.mark.parametrize("matmul", [HALVES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in HALVES[1:])])
def test_two_dispatches(matmul: Matmul) -> None:
    """Of more rows, elements of 8 bits and their scales are quantised in one."""
    check(matmul, "even", "bf16", APART)


@pytest.mark.slow
@pytest.mark.parametrize(("matmul", "mode", "source"), ALL, ids=str)
def test_every_pair_mode_and_source(matmul: Matmul, mode: str, source: str) -> None:
    check(matmul, mode, source, slower=SLOWER)


@pytest.mark.parametrize("types", every(2, [(FP4, FP4), (FP8, FP4), ("f8E5M2", FP8)]), ids="-".join)
def test_bits(types: tuple[str, str]) -> None:
    """Of all magnitudes, with zeros, NaN, infinities and denormals: as quantised in a dispatch of its own."""
    matmul = Matmul(16, 64, 1056, types=types)
    for source in ("bf16", "f32"):
        x = activations(matmul.m, matmul.k, source)
        text = program(matmul, "even", source)
        name = f"mx_quantising{quantising.SOURCE_BITS[source]}_{types[0]}_{types[1]}_f32_m16_n16_k512"
        inside, apart = (mxcomp.compile(text, ukernels=ukernel) for ukernel in (name, name_apart(types)))
        assert inside.report.matmuls[0].dispatches == INSIDE
        assert "quantise_lhs" in apart.report.matmuls[0].dispatches
        (one,), (other,) = (made.run(*inputs(matmul, x)) for made in (inside, apart))
        np.testing.assert_array_equal(one.view(np.uint16), other.view(np.uint16))


def name_apart(types: tuple[str, str]) -> str:
    """The ukernel that adds up the same products in the same order, of an LHS that is packed."""
    return f"mx_{types[0]}_{types[1]}_f32_m16_n16_k512"


def doubled(x: ir.Value) -> ir.Value:
    return elementwise(lambda a: arith.AddFOp(a, a).result, x)


def gated(x: ir.Value) -> ir.Value:
    """A product of two halves of it, read at different places."""
    turned = build.transpose(x, [1, 0])
    back = build.transpose(turned, [1, 0])
    return elementwise(lambda a, b: arith.MulFOp(a, b).result, x, [back])


def test_activations_are_computed_on_the_way() -> None:
    """What is done to them alone is done in registers, too."""
    matmul = Matmul(3, 96, 1024)
    made = mxcomp.compile(program(matmul, "even", "bf16", doubled), ukernels="fastest")
    assert made.report.matmuls[0].dispatches == INSIDE
    x = np.random.default_rng(1).standard_normal((3, 1024)).astype(ml_dtypes.bfloat16)
    check_doubled(made, matmul, "bf16", x)


def check_doubled(made: mxcomp.Program, matmul: Matmul, source: str, x: np.ndarray) -> None:
    """A program gives for x what the plain one gives for 2x."""
    (y,) = made.run(*inputs(matmul, x))
    (plain,) = mxcomp.compile(program(matmul, "even", source)).run(*inputs(matmul, x + x))
    np.testing.assert_allclose(y.astype(np.float32), plain.astype(np.float32), rtol=2**-7, atol=1e-3)


def by_the_first(x: ir.Value) -> ir.Value:
    """Times one of its elements, which is no operand of what multiplies, but a number from outside."""
    zero = build.constant_index(0)
    first = tensor.ExtractOp(x, [zero, zero]).result
    return elementwise(lambda a: arith.MulFOp(a, first).result, x)


def test_numbers_from_outside() -> None:
    """No ukernel can be brought them: activations are quantised apart."""
    matmul = Matmul(3, 96, 1024)
    made = mxcomp.compile(program(matmul, "even", "f32", by_the_first), ukernels="fastest")
    assert made.report.matmuls[0].dispatches == APART
    assert "computed with a value that is no operand" in (made.report.matmuls[0].note or "")
    x = np.random.default_rng(1).standard_normal((3, 1024)).astype(np.float32)
    x[0, 0] = 2.0
    check_doubled(made, matmul, "f32", x)


@pytest.mark.parametrize(
    ("matmul", "reason"),
    [
        (Matmul(17, 96, 1024), None),
        (Matmul(1, 64, 32), "and 1x64x32"),
        (Matmul(4, 96, 1024, types=("f6E2M3FN", FP4)), "no conversion of vectors gives f6E2M3FN"),
        (Matmul(4, 96, 1024, dynamic_m=True), None),
    ],
    ids=str,
)
def test_what_is_quantised_apart(matmul: Matmul, reason: str | None) -> None:
    made = mxcomp.compile(program(matmul, "even", "bf16"), ukernels="fastest", compile_to="executable-sources")
    (found,) = made.report.matmuls
    assert "quantise_lhs" in found.dispatches
    assert reason is None or reason in (found.note or "")


def test_nothing_is_spilled() -> None:
    """Elements are made in registers, 16 instructions a block; scratch memory is not used."""
    name = f"mx_fused_quant16_{FP4}_{FP4}_f32_m16_n32_k512"
    *_, kernel = compiled(program(Matmul(1, 256, 8192), "even", "bf16"), ukernels=name)[1]
    assert kernel.assembly.scratch_bytes == kernel.assembly.spills == 0
    assert kernel.assembly.count("v_cvt_scalef32_pk_fp4_bf16") == 2 * 4 * 16, "in front of the loop, and in it"
    assert kernel.assembly.count("v_pk_max_u16") > 0


@pytest.mark.slow
@pytest.mark.parametrize("instance", quantising.SINGLES, ids=lambda instance: instance.name)
def test_no_instance_spills(instance: quantising.Instance) -> None:
    source = next(kind for kind, bits in quantising.SOURCE_BITS.items() if bits == instance.bits)
    matmul = Matmul(16, 256, 8192, types=instance.elements)
    *_, kernel = compiled(program(matmul, "even", source), ukernels=instance.name)[1]
    assert kernel.assembly.count("v_mfma_scale") > 0
    assert kernel.assembly.scratch_bytes == kernel.assembly.spills == 0


def test_what_fusion_narrows() -> None:
    """A result that is f32 until its cast is fused: the ukernel that is chosen is that for activations of bf16."""
    first, second = Matmul(2, 64, 64, types=("f6E2M3FN", FP4)), Matmul(2, 128, 64, types=(FP4, "f6E2M3FN"))

    def relu(x: ir.Value) -> ir.Value:
        return arith.MaximumFOp(x, arith.ConstantOp(x.type, 0.0).result).result

    def body(x: ir.Value, *matrices: ir.Value) -> list[ir.Value]:
        y = scaled_matmul(quantisation.quantise(x, "f6E2M3FN", "ceil"), stored(matrices[0], matrices[1], FP4))
        narrow = elementwise(lambda a: arith.TruncFOp(ir.BF16Type.get(), a).result, y, [], "bf16")
        lhs = quantisation.quantise(elementwise(relu, narrow, [], "bf16"), FP4, "ceil")
        return [scaled_matmul(lhs, stored(matrices[2], matrices[3], "f6E2M3FN"))]

    weights = [array.view(np.int8) for each in (first, second) for array in (each.operands[1], each.operands[3])]
    compiled_ = mxcomp.compile(module(body, [((2, 64), "bf16"), *((array.shape, "i8") for array in weights)]))
    assert compiled_.report.matmuls[1].dispatches == INSIDE
    assert "quantised by mx_fused_quant16_f4E2M1FN_f6E2M3FN" in str(compiled_.report.matmuls[1].note)
    assert compiled_.report.matmuls[1].unfused == []

    x = np.random.default_rng(3).standard_normal((first.m, first.k)).astype(ml_dtypes.bfloat16)
    (result,) = compiled_.run(x, *weights)
    y = quantised(x, "f6E2M3FN", "ceil") @ dequantise(first.operands[1], first.operands[3], FP4).T
    z = np.maximum(y.astype(np.float32).astype(ml_dtypes.bfloat16), 0)
    expected = quantised(z, FP4, "ceil") @ dequantise(second.operands[1], second.operands[3], "f6E2M3FN").T
    assert np.abs(result - expected).max() <= 1e-6 * np.abs(expected).max()
