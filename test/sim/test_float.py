"""Floating-point instructions against exact rationals, float64 NumPy and ml_dtypes."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from instructions import bits, floats, run

X, Y, Z = floats(0), floats(3), floats(7)
BF16 = ml_dtypes.bfloat16
F16 = np.float16


@pytest.fixture(autouse=True)
def _quiet() -> object:
    with np.errstate(all="ignore"):
        yield


def f32(wave_row: np.ndarray) -> np.ndarray:
    return wave_row.view(np.float32)


def same(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Equal values, signs of zero included; NaN equals NaN."""
    np.testing.assert_array_equal(actual, wanted)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(wanted[zero]))


def rounded(exact: Fraction) -> np.float32:
    """A rational to float32, nearest even, by neighbours."""
    near = np.float32(float(exact))
    candidates = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))


def test_fma_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(1 << 23, 1 << 24, 64).astype(np.float32) for _ in range(2))
    # products just beside a tie of float32, which float64 alone would round twice
    c = (rng.integers(-2, 3, 64) * 2.0 ** rng.integers(-40, 20, 64)).astype(np.float32)
    got = f32(run("v_fma_f32 v3, v0, v1, v2", {0: a, 1: b, 2: c}).v[3])
    wanted = [
        rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in zip(a, b, c, strict=True)
    ]
    same(got, np.array(wanted, np.float32))


def test_fma_f64_is_rounded_once() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(64) * 2.0 ** rng.integers(-30, 30, 64) for _ in range(3))
    words = [x.view(np.uint32).reshape(64, 2).T for x in (a, b, c)]
    v = {2 * k + h: words[k][h].copy() for k in range(3) for h in range(2)}
    wave = run("v_fma_f64 v[6:7], v[0:1], v[2:3], v[4:5]", v)
    got = np.stack((wave.v[6], wave.v[7]), 1).copy().view(np.float64)[:, 0]
    wanted = [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]
    same(got, np.array(wanted))


def test_arithmetic_and_modifiers() -> None:
    same(f32(run("v_add_f32 v3, v0, v1", {0: X, 1: Y}).v[3]), X + Y)
    same(f32(run("v_mul_f32_e64 v3, -v0, |v1|", {0: X, 1: Y}).v[3]), -X * np.abs(Y))
    product = X * Y * np.float32(4)
    wanted = np.where(np.isnan(product), 0, np.clip(product, 0, 1)).astype(np.float32)
    np.testing.assert_array_equal(f32(run("v_mul_f32_e64 v3, v0, v1 clamp mul:4", {0: X, 1: Y}).v[3]), wanted)
    same(f32(run("v_max3_f32 v3, v0, v1, v2", {0: X, 1: Y, 2: Z}).v[3]), np.fmax(np.fmax(X, Y), Z))
    got = run("v_add_f32 v3, v0, v1", {0: X, 1: Y}).v[3]
    assert set(got[np.isnan(X + Y)]) <= {np.uint32(0x7FC00000)}


def test_packed_f32_selects_and_negates() -> None:
    text = "v_pk_fma_f32 v[4:5], v[0:1], v[2:3], v[0:1] op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0]"
    x, y, z = (np.random.default_rng(k).integers(-64, 64, 64).astype(np.float32) for k in range(3))
    wave = run(text, {0: x, 1: y, 2: z, 3: x})
    same(f32(wave.v[4]), -y * z + x)
    same(f32(wave.v[5]), x * x + y)


def test_packed_f16() -> None:
    a, b = (np.stack((p, q), 1).astype(F16) for p, q in ((X, Y), (Y, Z)))
    wave = run("v_pk_mul_f16 v3, v0, v1 neg_lo:[1,0]", {0: a.view(np.uint32).ravel(), 1: b.view(np.uint32).ravel()})
    wanted = a * np.array([-1, 1], F16) * b
    same(wave.v[3].view(F16).reshape(64, 2), wanted)


def test_rounding_and_exponents() -> None:
    for name, function in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rndne", np.rint)):
        same(f32(run(f"v_{name}_f32 v3, v0", {0: X}).v[3]), function(X))
    n = np.arange(-160, 160, 5, dtype=np.int32)
    same(f32(run("v_ldexp_f32 v3, v0, v1", {0: X, 1: n}).v[3]), np.ldexp(X.astype(np.float64), n).astype(np.float32))
    finite = np.where(np.isfinite(X), X, 0)
    mantissa, exponent = np.frexp(finite)
    np.testing.assert_array_equal(run("v_frexp_exp_i32_f32 v3, v0", {0: X}).v[3].view(np.int32), exponent)
    same(f32(run("v_frexp_mant_f32 v3, v0", {0: finite}).v[3]), mantissa)


def test_division_sequence() -> None:
    """The sequence compilers emit for x / y is correctly rounded, special cases included."""
    text = """v_div_scale_f32 v4, s[4:5], v1, v1, v0
v_div_scale_f32 v5, vcc, v0, v1, v0
v_rcp_f32 v6, v4
v_fma_f32 v7, -v4, v6, 1.0
v_fma_f32 v6, v7, v6, v6
v_mul_f32 v7, v5, v6
v_fma_f32 v8, -v4, v7, v5
v_fma_f32 v7, v8, v6, v7
v_fma_f32 v8, -v4, v7, v5
v_div_fmas_f32 v8, v8, v6, v7
v_div_fixup_f32 v3, v8, v1, v0"""
    for x, y in ((X, Y), (bits(5).view(np.float32), bits(9).view(np.float32))):
        got = f32(run(text, {0: x, 1: y}).v[3])
        wanted = (x.astype(np.float64) / y.astype(np.float64)).astype(np.float32)
        same(got, wanted)


def test_classes() -> None:
    for k, wanted in ((1, np.isnan(X)), (6, (X == 0) & ~np.signbit(X)), (9, np.inf == X), (2, -np.inf == X)):
        wave = run("v_cmp_class_f32 s[4:5], v0, v1", {0: X, 1: np.full(64, 1 << k, np.uint32)})
        assert wave.s[4] | wave.s[5] << 32 == sum(1 << lane for lane in np.flatnonzero(wanted).tolist())


def test_float_to_integer_saturates() -> None:
    source = (X.astype(np.float64) * 1e9).astype(np.float32)
    clipped = np.clip(np.where(np.isnan(X), 0, source.astype(np.float64)), -(2.0**31), 2.0**31 - 1)
    np.testing.assert_array_equal(run("v_cvt_i32_f32 v3, v0", {0: source}).v[3].view(np.int32), np.trunc(clipped))
    clipped = np.clip(np.where(np.isnan(X), 0, source.astype(np.float64)), 0, 2.0**32 - 1)
    np.testing.assert_array_equal(run("v_cvt_u32_f32 v3, v0", {0: source}).v[3], np.trunc(clipped))


def test_16_bit_conversions() -> None:
    pair = np.stack((X, Y), 1)
    packed = run("v_cvt_pk_bf16_f32 v3, v0, v1", {0: X, 1: Y}).v[3].view(BF16).reshape(64, 2)
    same(packed.astype(np.float32), pair.astype(BF16).astype(np.float32))
    same(run("v_cvt_f16_f32 v3, v0", {0: X}).v[3].astype(np.uint16).view(F16), X.astype(F16))
    towards_zero = run("v_cvt_pkrtz_f16_f32 v3, v0, v1", {0: X, 1: Y}).v[3].view(F16).reshape(64, 2)
    finite = np.isfinite(pair)
    assert (np.abs(towards_zero[finite].astype(np.float64)) <= np.abs(pair[finite])).all()


FORMATS = {"fp4": ml_dtypes.float4_e2m1fn, "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2}
SCALES = np.array([2.0 ** (k % 9 - 4) for k in range(64)], np.float32)


def codes(values: np.ndarray, name: str) -> np.ndarray:
    """ml_dtypes' codes of float64 values within the format's range."""
    return values.astype(FORMATS[name]).view(np.uint8).astype(np.uint32) & (0xF if name == "fp4" else 0xFF)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_scaled_packs(name: str, source: str) -> None:
    limit = float(ml_dtypes.finfo(FORMATS[name]).max)
    rng = np.random.default_rng(4)
    x, y = (np.clip(rng.standard_normal(64) * 3, -limit, limit) for _ in range(2))
    x[:8], y[:8] = (0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5), (-0.0, -0.25, -0.75, 1e-3, -1e-9, 0.3, 0.125, -5)
    dtype = {"f32": np.float32, "f16": F16, "bf16": BF16}[source]
    a, b = (np.clip((v * SCALES).astype(dtype).astype(np.float64) / SCALES, -limit, limit) for v in (x, y))
    old = bits(8)
    if source == "f32":
        operands = "v0, v1, v2"
        v: dict[int, np.ndarray] = {0: (a * SCALES).astype(np.float32), 1: (b * SCALES).astype(np.float32)}
    else:
        pair = np.stack((a * SCALES, b * SCALES), 1).astype(dtype)
        operands, v = "v0, v2", {0: pair.view(np.uint16).view(np.uint32).ravel()}
    shift, sources = 16, 3 if source == "f32" else 2
    halves = sources if name != "fp4" else 3  # op_sel of a byte takes two bits, after a place for each source
    select = f" op_sel:[{'0,' * halves}1]"
    wave = run(f"v_cvt_scalef32_pk_{name}_{source} v3, {operands}{select}", {**v, 2: SCALES, 3: old})
    width = 4 if name == "fp4" else 8
    packed = codes(a, name) | codes(b, name) << width
    keep = np.uint32(~(((1 << 2 * width) - 1) << shift) & 0xFFFFFFFF)
    np.testing.assert_array_equal(wave.v[3], old & keep | packed << shift)


@pytest.mark.parametrize("name", FORMATS)
def test_scaled_unpacks(name: str) -> None:
    source = bits(6)
    wave = run(f"v_cvt_scalef32_pk_f32_{name} v[4:5], v0, v2", {0: source, 2: SCALES})
    width = 4 if name == "fp4" else 8
    for k in range(2):
        code = (source >> k * width & (1 << width) - 1).astype(np.uint8)
        same(f32(wave.v[4 + k]), code.view(FORMATS[name]).astype(np.float32) * SCALES)


def test_fp8_packs_without_scale() -> None:
    x, y = np.clip(X, -448, 448), np.clip(Y, -448, 448)
    wave = run("v_cvt_pk_fp8_f32 v3, v0, v1 op_sel:[0,0,1]", {0: x, 1: y, 3: bits(2)})
    pair = np.stack((x, y), 1).astype(FORMATS["fp8"]).view(np.uint8)
    got = (wave.v[3] >> 16).astype(np.uint16).view(np.uint8).reshape(64, 2)
    numbers = ~np.isnan(np.stack((x, y), 1))
    np.testing.assert_array_equal(got[numbers], pair[numbers])
    assert (got[~numbers] & 0x7F == 0x7F).all()
    np.testing.assert_array_equal(wave.v[3] & 0xFFFF, bits(2) & 0xFFFF)
