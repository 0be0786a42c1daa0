"""Dynamic quantisation in front of a scaled matmul: packed where it happens, bit for bit what `mxcomp.formats` says."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from builders import module, scaled_matmul, stored
from iree.compiler import ir
from iree.compiler.dialects import arith
from kernels import compiled
from modules import BITS, KINDS, Matmul, dequantise
from spread import every

import mxcomp
import mxcomp.ir as mx
from mxcomp.errors import InputError
from mxcomp.formats import FORMATS, SCALE_MODES, pack_bits, quantise, unpack_bits
from mxcomp.ir import quantisation
from mxcomp.layout import LHS, LHS_SCALE, DataTiledLayout
from mxcomp.matching import quantiser
from mxcomp.mlir import build
from mxcomp.packing import quantised_operand
from mxcomp.packing.stored_operand import Dynamic

SOURCES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
CASES = list(itertools.product(KINDS, SCALE_MODES, SOURCES))
SPREAD = [CASES[12 * f + 3 * ((f + step) % 4) + (f + step) % 3] for f in range(5) for step in (0, 2)]
"""Every format, every mode and every source, not every combination."""
INTERLEAVED = DataTiledLayout(
    intrinsics_m=4,
    intrinsics_k=2,
    subgroups_m=2,
    operands_interleaving_intrinsics_m=(2,),
    operands_interleaving_intrinsics_k=(2,),
)
LAYOUTS = {
    "16x16x128": INTERLEAVED,
    "32x32x64": DataTiledLayout("MFMA_SCALE_F32_32x32x64_B32", intrinsics_m=2, intrinsics_k=2, subgroups_m=2),
}


def activations(m: int, k: int, source: str, seed: int = 0) -> np.ndarray:
    """[m, k] of all magnitudes, with blocks of zeros, NaN, infinities, denormals and the largest numbers."""
    rng = np.random.default_rng((seed, m, k))
    magnitude = np.exp2(rng.integers(-20, 14, (m, k // 32)).repeat(32, axis=1))
    x = (rng.standard_normal((m, k)) * magnitude).astype(np.float32)
    kind = SOURCES[source]
    info = ml_dtypes.finfo(kind)
    x = np.clip(x, float(info.min), float(info.max)).astype(kind)
    for row, value in enumerate((0.0, -0.0, np.nan, np.inf, -np.inf, float(info.max), float(info.smallest_subnormal))):
        x[row * 2 % m, 32:64] = kind(value)
        x[(row * 2 + 1) % m, 5] = kind(value)
    return x


def packed_program(m: int, k: int, source: str, element: str, mode: str, layout: DataTiledLayout) -> str:
    """A function from activations to packed LHS elements and scales, as bytes."""

    def body(x: ir.Value) -> list[ir.Value]:
        elements, scales = quantisation.quantise(x, element, mode)
        producer = quantiser.find(elements, scales)
        assert producer is not None
        packed, packed_scales = quantised_operand.pack(producer, layout, LHS, elements, Dynamic())
        return [packed, build.bitcast(packed_scales, build.tensor_type(build.static_sizes(packed_scales), "i8"))]

    return module(body, [((m, k), source)])


def check_bits(element: str, mode: str, source: str, layout: DataTiledLayout, m: int = 100, k: int = 352) -> None:
    x = activations(m, k, source)
    program = mxcomp.compile(packed_program(m, k, source, element, mode, layout))
    packed, packed_scales = (result.view(np.uint8) for result in program.run(x))
    codes, scales = quantise(x, element, mode)

    swizzle, unit = layout.swizzle(LHS, element), layout.shape.lane_unit(element)
    size = unit * BITS[element] // 8
    packed = packed.reshape(*packed.shape[:2], 1, *swizzle.packed_shape[:-1], size)
    stored = swizzle.unpack(packed, (m, k // unit, size)).reshape(m, -1)
    wrong = np.argwhere(unpack_bits(stored, element) != codes)
    assert len(wrong) == 0, f"{len(wrong)} codes are wrong, the first at {wrong[0]}: {x[tuple(wrong[0])]}"
    np.testing.assert_array_equal(layout.swizzle(LHS_SCALE).unpack(packed_scales, scales.shape), scales)


@pytest.mark.parametrize("case", every(2, SPREAD), ids="-".join)
def test_bits(case: tuple[str, str, str]) -> None:
    """By default one of each format."""
    check_bits(*case, INTERLEAVED)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("element", "mode", "source"), CASES)
def test_all_bits(element: str, mode: str, source: str, layout: str) -> None:
    check_bits(element, mode, source, LAYOUTS[layout])
    check_bits(element, mode, source, LAYOUTS[layout], m=128, k=512)


def linear(matmul: Matmul, mode: str, source: str) -> str:
    """Activations [m, k], weights as bytes: quantised and multiplied."""

    def body(x: ir.Value, w: ir.Value, ws: ir.Value) -> list[ir.Value]:
        activations = quantisation.quantise(x, matmul.types[0], mode)
        return [scaled_matmul(activations, stored(w, ws, matmul.types[1]))]

    m = None if matmul.dynamic_m else matmul.m
    w_bytes = matmul.k * BITS[matmul.types[1]] // 8
    return module(body, [((m, matmul.k), source), ((matmul.n, w_bytes), "i8"), ((matmul.n, matmul.k // 32), "i8")])


def quantised(x: np.ndarray, element: str, mode: str) -> np.ndarray:
    codes, scales = quantise(x, element, mode)
    return dequantise(pack_bits(codes, element), scales, element)


LINEARS = (
    Matmul(128, 256, 512),
    Matmul(37, 200, 160, types=("f8E4M3FN", "f4E2M1FN")),
    Matmul(130, 64, 544, types=("f6E3M2FN", "f4E2M1FN"), dynamic_m=True),
    Matmul(1, 96, 96, types=("f4E2M1FN", "f8E5M2")),
    Matmul(200, 300, 96, types=("f8E5M2", "f6E2M3FN"), dynamic_m=True),
)
ONCE = ["quantise_lhs", "pack_rhs", "pack_rhs_scale", "matmul"]
TWICE, INSIDE = ["quantise_lhs", *ONCE], ONCE[1:]
"""8-bit elements of more than 64 rows, or of a dynamic M, and their scales are packed apart; few rows are not."""


@pytest.mark.parametrize("matmul", LINEARS, ids=str)
def test_linear(matmul: Matmul) -> None:
    """At most two dispatches between activations and matmul, and float64's numbers."""
    source = list(SOURCES)[LINEARS.index(matmul) % 3]
    program, kernels = compiled(linear(matmul, "even", source))
    apart = TWICE if BITS[matmul.types[0]] == 8 and (matmul.dynamic_m or matmul.m > 64) else ONCE
    assert program.report.matmuls[0].dispatches == (INSIDE if matmul.m <= 16 else apart)
    assert all(kernel.assembly.scratch_bytes == 0 for kernel in kernels)
    x = np.random.default_rng(1).standard_normal((matmul.m, matmul.k)).astype(SOURCES[source])
    weights = dequantise(matmul.operands[1], matmul.operands[3], matmul.types[1])
    values = quantised(x, matmul.types[0], "even")
    (y,) = program.run(x, matmul.operands[1].view(np.int8), matmul.operands[3].view(np.int8))
    error = np.abs(y - values @ weights.T) / (np.abs(values) @ np.abs(weights).T)
    assert error.max() <= matmul.bound


@pytest.mark.parametrize("rows", [17, 80])
def test_activations_of_4_bits(rows: int) -> None:
    """IREE cannot gather such in packed order; they are extended first."""
    n, k = 40, 96

    def layer(x: ir.Value, weights: ir.Value, scales: ir.Value) -> ir.Value:
        codes = build.bitcast(x, build.tensor_type((rows, k), "f4E2M1FN"))
        wide = build.elementwise(
            build.tensor_type((rows, k), "f32"), [codes], lambda v: arith.ExtFOp(ir.F32Type.get(), v).result
        )
        return mx.scaled_matmul(mx.quantise(wide, "E4M3"), mx.operand(weights, scales, "E2M1"))

    dice = np.random.default_rng(rows)
    x, weights = (dice.integers(0, 16, (size, k), np.uint8) for size in (rows, n))
    scales = dice.integers(120, 134, (n, k // 32), np.uint8)
    text = mx.module(layer, f"{rows}x{k // 2}xi8", f"{n}x{k // 2}xi8", f"{n}x{k // 32}xi8")
    packed = [pack_bits(codes, "E2M1").view(np.int8) for codes in (x, weights)]
    (found,) = mxcomp.compile(text).run(*packed, scales.view(np.int8))
    plain = dequantise(packed[0].view(np.uint8), np.full((rows, k // 32), 127, np.uint8), "f4E2M1FN").astype(np.float32)
    expected = quantised(plain, "f8E4M3FN", "even") @ dequantise(packed[1].view(np.uint8), scales, "f4E2M1FN").T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_conversion_instructions() -> None:
    """128-bit accesses, and the hardware converts."""
    _, (kernel, *_) = compiled(linear(Matmul(256, 256, 1024), "even", "bf16"))
    assert kernel.loads == {"dwordx4"}
    assert kernel.stores == {"dwordx4", "byte"}
    assert kernel.assembly.count("v_cvt_scalef32_pk_fp4_f32") == 16
    assert kernel.assembly.scratch_bytes == 0


def test_a_nan_is_its_own_rows_only() -> None:
    """In padded K, where activations are read again, nothing of them counts."""
    matmul = Matmul(40, 64, 96)
    x = activations(40, 96, "f32")
    program = mxcomp.compile(linear(matmul, "floor", "f32"))
    (y,) = program.run(x, matmul.operands[1].view(np.int8), matmul.operands[3].view(np.int8))
    np.testing.assert_array_equal(np.isnan(y).all(axis=1), ~np.isfinite(x.astype(np.float32)).all(axis=1))
    np.testing.assert_array_equal(np.isnan(y).any(axis=1), ~np.isfinite(x.astype(np.float32)).all(axis=1))


@pytest.mark.parametrize(
    ("shape", "element", "mode", "message"),
    [
        ((4, 64), "f4E2M1FN", "nearest", "unknown scale mode 'nearest': expected one of floor, even, ceil, rceil"),
        ((4, 64), "f5", "even", "unknown element format 'f5'"),
        ((4, 65), "f4E2M1FN", "even", "expected [M, K] with K a multiple of 32"),
        ((4, 2, 32), "f4E2M1FN", "even", "expected [M, K]"),
    ],
)
def test_errors(shape: tuple[int, ...], element: str, mode: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        module(lambda x: list(quantisation.quantise(x, element, mode)), [(shape, "f32")])
    assert message in str(error.value)


def test_source_type() -> None:
    with pytest.raises(InputError, match="expected elements of f32, f16, bf16"):
        module(lambda x: list(quantisation.quantise(x, "f4E2M1FN", "even")), [((4, 64), "f64")])


def test_every_format_and_mode_is_in_the_spread() -> None:
    assert {element for element, *_ in SPREAD} == set(KINDS) == {fmt.mlir_type for fmt in FORMATS.values()}
    assert {mode for _, mode, _ in SPREAD} == set(SCALE_MODES)
    assert {source for *_, source in SPREAD} == set(SOURCES)


@pytest.mark.parametrize("matmul", every(2, [LINEARS[2], LINEARS[0]]), ids=str)
def test_verify(matmul: Matmul) -> None:
    """Activations of 6 bits are stored as bytes there."""
    x = np.random.default_rng(1).standard_normal((matmul.m, matmul.k)).astype(np.float32)
    inputs = [x, matmul.operands[1].view(np.int8), matmul.operands[3].view(np.int8)]
    assert mxcomp.verify(linear(matmul, "even", "f32"), inputs).ok
