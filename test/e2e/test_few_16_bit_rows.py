"""Products of a few rows of 16-bit floats, as of a router or a head that is not quantised."""

from __future__ import annotations

import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import mxcomp

FLAGS = ("--iree-hal-target-device=hip", "--iree-rocm-target=gfx950", "--compile-to=executable-configurations")
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
CASES = {
    "router": ("mk,nk->mn", {"m": 7, "n": 32, "k": 256}, "bf16"),
    "head": ("mk,nk->mn", {"m": 8, "n": 1000, "k": 128}, "f16"),
    "few columns": ("mk,nk->mn", {"m": 7, "n": 5, "k": 256}, "bf16"),
    "turned": ("km,nk->nm", {"m": 2, "n": 48, "k": 384}, "bf16"),
    "batch": ("bmk,bnk->bmn", {"b": 3, "m": 5, "n": 40, "k": 128}, "bf16"),
    "several loops": ("pmkl,nkl->pmn", {"p": 2, "m": 4, "n": 33, "k": 4, "l": 64}, "bf16"),
}


def module(equation: str, sizes: dict[str, int], kind: str) -> str:
    lhs, rhs, out = equation.replace("->", ",").split(",")
    loops = out + "".join(loop for loop in lhs if loop not in out)
    types = ["x".join([*(str(sizes[loop]) for loop in dims), kind]) for dims in (lhs, rhs)]
    result = "x".join([*(str(sizes[loop]) for loop in out), "f32"])
    maps = ", ".join(f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>" for dims in (lhs, rhs, out))
    iterators = ", ".join('"parallel"' if loop in out else '"reduction"' for loop in loops)
    return f"""
func.func @product(%a: tensor<{types[0]}>, %b: tensor<{types[1]}>) -> tensor<{result}> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<{result}>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<{result}>) -> tensor<{result}>
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
      ins(%a, %b : tensor<{types[0]}>, tensor<{types[1]}>) outs(%f : tensor<{result}>) {{
  ^bb0(%x: {kind}, %y: {kind}, %acc: f32):
    %0 = arith.extf %x : {kind} to f32
    %1 = arith.extf %y : {kind} to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %acc, %2 : f32
    linalg.yield %3 : f32
  }} -> tensor<{result}>
  return %r : tensor<{result}>
}}"""


@pytest.mark.parametrize("name", CASES)
def test_right(name: str) -> None:
    equation, sizes, kind = CASES[name]
    lhs, rhs = equation.split("->")[0].split(",")
    dice = np.random.default_rng(len(name))
    a, b = (dice.standard_normal([sizes[loop] for loop in dims]).astype(TYPES[kind]) for dims in (lhs, rhs))
    (found,) = mxcomp.compile(module(*CASES[name])).run(a, b)
    expected = np.einsum(equation, a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


NAMED = """
func.func @head(%x: tensor<1x512xbf16>, %w: tensor<512x40xbf16>) -> tensor<1x40xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x40xf32>) -> tensor<1x40xf32>
  %r = linalg.matmul ins(%x, %w : tensor<1x512xbf16>, tensor<512x40xbf16>)
      outs(%f : tensor<1x40xf32>) -> tensor<1x40xf32>
  return %r : tensor<1x40xf32>
}"""


def test_one_row_of_a_named_product() -> None:
    dice = np.random.default_rng(9)
    x, w = (dice.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((1, 512), (512, 40)))
    (found,) = mxcomp.compile(NAMED).run(x, w)
    np.testing.assert_allclose(found, x.astype(np.float64) @ w.astype(np.float64), rtol=1e-4, atol=1e-3)


def test_same_elements_and_an_offset() -> None:
    """A factor of ones: a sum of the other, from which different numbers are taken."""
    offsets = np.arange(40, dtype=np.float32)
    text = NAMED.replace("%x: tensor<1x512xbf16>, ", "").replace(
        "  return %r : tensor<1x40xf32>",
        f"""  %offsets = arith.constant dense<{[list(map(float, offsets))]}> : tensor<1x40xf32>
  %s = arith.subf %r, %offsets : tensor<1x40xf32>
  return %s : tensor<1x40xf32>""",
    )
    text = text.replace("  %zero =", "  %x = arith.constant dense<1.0> : tensor<1x512xbf16>\n  %zero =")
    w = np.random.default_rng(10).standard_normal((512, 40)).astype(ml_dtypes.bfloat16)
    (found,) = mxcomp.compile(text).run(w)
    np.testing.assert_allclose(found[0], w.astype(np.float64).sum(0) - offsets, rtol=1e-4, atol=1e-3)


def test_iree_fails(tmp_path: Path) -> None:
    """Once it does not, mxcomp-legalise-few-rows has nothing to do."""
    file = tmp_path / "product.mlir"
    file.write_text(module(*CASES["router"]))
    done = subprocess.run(["iree-compile", *FLAGS, str(file), "-o", "/dev/null"], capture_output=True, check=False)
    assert done.returncode != 0
    assert b"XorShuffle" in done.stderr
