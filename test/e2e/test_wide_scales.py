"""Scales of f32, f16 and bf16: of them `arith.scaling_extf` and `scaling_truncf` take the exponent, wherever they are.

What stock IREE makes of it on a CPU is the same (`test_stock`), NaN, infinities, signs and zeros included.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from string import Template

import ml_dtypes
import numpy as np
import pytest
from modules import BITS, KINDS, VALUES, Bytes, Matmul, dequantise
from numpy.typing import NDArray
from spread import quick_if
from test_plugin import emitted, stock_compile

import mxcomp
from mxcomp.run.runtime import run

E8M0 = "f8E8M0FNU"
WIDE = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PAIRS = [(kind, other) for kind in WIDE for other in (kind, E8M0)]
QUICK = [("f8E4M3FN", ("f16", E8M0)), ("f6E3M2FN", ("f32", "f32"))]
CASES = [(kind, pair) for kind in KINDS for pair in PAIRS]
OPTIONS = [{"data_tiling": False}, {"ukernels": "none"}]
HERE = Path(__file__).parent


def text(kind: str, a_scale: str, b_scale: str, name: str = "wide_scales", rows: int = 5) -> str:
    template = Template((HERE / f"{name}.mlir.in").read_text())
    return template.substitute(t=kind, a_scale=a_scale, b_scale=b_scale, bytes=32 * BITS[kind] // 8, rows=rows)


def of_type(codes: Bytes, kind: str, seed: int) -> np.ndarray:
    """Scales of a type with the exponents of these E8M0 codes, none a power of two, of either sign."""
    if kind == E8M0:
        return codes.view(ml_dtypes.float8_e8m0fnu)
    rng = np.random.default_rng(seed)
    mantissa = rng.choice([1.25, 1.5, 1.75, 1.9921875], codes.shape) * rng.choice([-1, 1], codes.shape)
    return (np.exp2(codes.astype(np.float64) - 127) * mantissa).astype(WIDE[kind])


class Case:
    """Inputs of the program, and what it computes of them."""

    def __init__(self, kind: str, scales: tuple[str, str]) -> None:
        self.matmul = Matmul(5, 24, 96, types=(kind, kind))
        self.kind, self.text = kind, text(kind, *scales)
        lhs, rhs, lhs_scale, rhs_scale = self.matmul.operands
        self.powers = np.exp2(lhs_scale.astype(np.float64) - 127)[..., None]
        self.x = (np.random.default_rng(7).standard_normal((5, 3, 32)) * 3 * self.powers).astype(np.float32)
        packed = [codes.reshape(len(codes), 3, -1).view(np.int8) for codes in (lhs, rhs)]
        wide = [of_type(codes, of, i) for i, (codes, of) in enumerate(zip((lhs_scale, rhs_scale), scales, strict=True))]
        self.inputs = [*packed, *wide, self.x]

    @property
    def dequantised(self) -> NDArray[np.float64]:
        lhs, _, scales, _ = self.matmul.operands
        return dequantise(lhs, scales, self.kind).reshape(5, 3, 32)

    @property
    def quantised(self) -> NDArray[np.float64]:
        """What `x` becomes; saturated."""
        largest = float(np.nanmax(VALUES[self.kind][np.isfinite(VALUES[self.kind])]))
        return np.clip(self.x / self.powers, -largest, largest).astype(KINDS[self.kind]).astype(np.float64)

    def check(self, y: np.ndarray, z: np.ndarray, values: np.ndarray, packed: np.ndarray) -> None:
        assert self.matmul.error(y) <= self.matmul.bound
        assert self.matmul.error(z) <= 2 * self.matmul.bound
        np.testing.assert_array_equal(values, self.dequantised)
        ones = np.full((5, 3), 127, np.uint8)
        codes = dequantise(packed.view(np.uint8).reshape(5, -1), ones, self.kind).reshape(5, 3, 32)
        np.testing.assert_array_equal(codes, self.quantised)


@pytest.mark.parametrize("types", quick_if(QUICK.__contains__, CASES), ids=str)
def test_everywhere(types: tuple[str, tuple[str, str]]) -> None:
    """In a matmul, in a dequantisation that is used elsewhere too and then multiplied, and in a quantisation."""
    case = Case(*types)
    program = mxcomp.compile(case.text)
    fused, apart = program.report.matmuls
    assert fused.ukernel is not None
    assert apart.reason is not None and "also used" in apart.reason
    case.check(*program.run(*case.inputs))


@pytest.mark.parametrize("kind", quick_if(lambda kind: kind == "f8E5M2", KINDS))
@pytest.mark.parametrize("options", quick_if(lambda each: "ukernels" in each, OPTIONS), ids=str)
def test_left_to_iree(kind: str, options: dict[str, object]) -> None:
    case = Case(kind, ("f16", "f32"))
    case.check(*mxcomp.compile(case.text, **options).run(*case.inputs))


@pytest.mark.parametrize("kind", quick_if(lambda kind: kind == "f8E4M3FN", KINDS))
def test_verify(kind: str) -> None:
    """The reference on a CPU means the same."""
    case = Case(kind, ("f16", "bf16"))
    found = mxcomp.verify(case.text, case.inputs)
    assert found.ok and len(found.checks) == 1
    case.check(*found.results)


@pytest.mark.parametrize("kind", quick_if(lambda kind: kind == "f6E3M2FN", KINDS))
def test_plugin(kind: str, tmp_path: Path) -> None:
    case = Case(kind, ("f16", "bf16"))
    alone = text(kind, "f16", "bf16", "wide_scales_matmul")
    emitted(alone, tmp_path)
    stock_compile(alone, tmp_path, "-o", str(tmp_path / "model.vmfb"))
    (y,) = run((tmp_path / "model.vmfb").read_bytes(), "main", case.inputs[:4], "sim")
    assert case.matmul.error(y) <= case.matmul.bound


SPECIAL = [
    (0.0, 0),
    (-0.0, 0),
    (np.inf, 255),
    (-np.inf, 255),
    (np.nan, 255),
    (-3.0, 128),
    (1.9921875, 127),
    (-1.5, 127),
]
"""Scales, and the codes of f8E8M0FNU that stand for them."""


@pytest.mark.parametrize("scale", quick_if(lambda scale: scale == "f16", WIDE))
def test_what_has_no_exponent(scale: str) -> None:
    """Code 0 is 2^-127, and a NaN as a scale makes NaN of all its block."""
    matmul = Matmul(8, 24, 96, types=("f8E5M2", "f8E5M2"))
    lhs, rhs, _, rhs_scale = matmul.operands
    values, codes = (np.array(each) for each in zip(*SPECIAL, strict=True))
    order = np.add.outer(np.arange(8), [0, 5, 6]) % 8  # a row has other scales, too
    wide, lhs_scale = values[order].astype(WIDE[scale]), codes[order].astype(np.uint8)
    program = mxcomp.compile(text("f8E5M2", scale, "bf16", "wide_scales_matmul", rows=8))
    assert program.report.matmuls[0].ukernel is not None
    inputs = [lhs.reshape(8, 3, -1).view(np.int8), rhs.reshape(24, 3, -1).view(np.int8), wide]
    (y,) = program.run(*inputs, of_type(rhs_scale, "bf16", 2))
    a, b = dequantise(lhs, lhs_scale, "f8E5M2"), dequantise(rhs, rhs_scale, "f8E5M2")
    assert (np.isnan(y) == np.isnan(a @ b.T)).all() and not np.isnan(y).all()
    np.testing.assert_allclose(y, a @ b.T, rtol=0, atol=1e-4 * np.nanmax(np.abs(a) @ np.abs(b).T))


@pytest.mark.slow
@pytest.mark.parametrize("scale", WIDE)
def test_stock(scale: str, tmp_path: Path) -> None:
    """Of the two bare dequantisations, a stock iree-compile for this CPU gives the same."""
    case = Case("f8E4M3FN", (scale, scale))
    path = tmp_path / "model.mlir"
    path.write_text(case.text)
    flags = ["--iree-hal-target-backends=llvm-cpu", "--iree-llvmcpu-target-cpu=host"]
    subprocess.run(["iree-compile", *flags, str(path), "-o", str(tmp_path / "cpu.vmfb")], check=True)
    y, z, values, _ = run((tmp_path / "cpu.vmfb").read_bytes(), "main", case.inputs, "cpu")
    assert max(case.matmul.error(y), case.matmul.error(z)) <= case.matmul.bound
    np.testing.assert_array_equal(values, case.dequantised)
