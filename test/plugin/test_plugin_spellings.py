"""Plugins take matmuls however their operations are spelled and where they read; what they cannot take is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iree.compiler import ir
from modules import Matmul, dequantise, product, source
from spread import quick_if
from test_plugin import emitted, stock_compile

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats
from mxcomp.errors import InputError
from mxcomp.plugin.dags import Dag
from mxcomp.run.runtime import run

TYPES = ("f8E4M3FN", "f6E2M3FN")
SUM = "%sum = arith.addf %acc, %xy"
RHS, RHS_SCALES = "%b1 = iree_tensor_ext.bitcast %b_bytes1", "%bs1 = iree_tensor_ext.bitcast %bs_bytes1"
EDITS = {
    "order of a sum's terms": {SUM: ("%sum = arith.addf %xy, %acc", 1)},
    "slice of all": {
        RHS: ("%whole = iree_tensor_ext.bitcast %b_bytes1", 0),
        "%as1 = iree": (
            "%b1 = tensor.extract_slice %whole[0, 0, 0] [48, 4, 32] [1, 1, 1] "
            ": tensor<48x4x32xf6E2M3FN> to tensor<48x4x32xf6E2M3FN>\n  %as1 = iree",
            0,
        ),
    },
    "codes of another": {
        RHS: ("%b1 = iree_tensor_ext.bitcast %b_bytes0", 0),
        RHS_SCALES: ("%bs1 = iree_tensor_ext.bitcast %bs_bytes0", 0),
    },
    "sum of both": {"outs(%zeros1": ("outs(%r0", 0)},
}
"""What is replaced in two matmuls of the same types and sizes, by what, and which time that it occurs."""


def edited(text: str, edits: dict[str, tuple[str, int]]) -> str:
    for old, (new, which) in edits.items():
        parts = text.split(old)
        assert len(parts) > which + 1, old
        text = old.join(parts[: which + 1]) + new + old.join(parts[which + 1 :])
    return text


def results(text: str, inputs: list[Any], directory: Path, **options: Any) -> list[np.ndarray]:
    """What a stock iree-compile computes with a plugin."""
    emitted(text, directory, **options)
    stock_compile(text, directory, "-o", str(directory / "model.vmfb"))
    return list(run((directory / "model.vmfb").read_bytes(), "main", inputs, "sim"))


@pytest.mark.parametrize("options", quick_if(lambda each: not each, [{}, {"data_tiling": False}]), ids=str)
@pytest.mark.parametrize("name", EDITS)
def test_spellings(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    one, other = (Matmul(40, 48, 128, seed=seed, types=TYPES) for seed in (1, 2))
    found = results(edited(source(one, other), EDITS[name]), one.inputs + other.inputs, tmp_path, **options)
    expected, magnitude = [one.expected, other.expected], [one.magnitude, other.magnitude]
    if name == "codes of another":
        (lhs, _, lhs_scale, _), (_, rhs, _, rhs_scale) = other.operands, one.operands
        operands = lhs, rhs, lhs_scale, rhs_scale
        expected[1], magnitude[1] = product(*operands, types=TYPES), product(*operands, types=TYPES, absolute=True)
    if name == "sum of both":
        expected[1], magnitude[1] = expected[0] + expected[1], magnitude[0] + magnitude[1]
    for result, value, size in zip(found, expected, magnitude, strict=True):
        assert (np.abs(result - value) <= 2 * one.bound * size).all()


@pytest.mark.parametrize("data_tiling", [True, False])
def test_slices_of_scales(data_tiling: bool, tmp_path: Path) -> None:
    """A stock iree-compile reads other scales where a slice becomes part of a dispatch."""
    matmul = Matmul(1, 4, 64, types=("f8E4M3FN", "f8E4M3FN"))

    def main(x: ir.Value, w: ir.Value, w_scales: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.quantise(x, "E4M3"), mx.operand(w, w_scales, "E4M3"))

    text = str(mx.module(main, "1x64xf32", "4x64xi8", "4x2xi8"))
    narrow = "iree_tensor_ext.bitcast %arg2 : tensor<4x2xi8> -> tensor<4x2xf8E8M0FNU>"
    assert narrow in text
    sliced = (
        "tensor.extract_slice %wide[1, 2] [4, 2] [1, 1] : tensor<5x6xf8E8M0FNU> to tensor<4x2xf8E8M0FNU>",
        "%wide = iree_tensor_ext.bitcast %arg2 : tensor<5x6xi8> -> tensor<5x6xf8E8M0FNU>\n",
    )
    line = next(line for line in text.splitlines() if narrow in line)
    text = text.replace(line, sliced[1] + line.replace(narrow, sliced[0]))
    text = text.replace("%arg2: tensor<4x2", "%arg2: tensor<5x6")
    lhs, rhs, lhs_scales, rhs_scales = matmul.operands
    x = dequantise(lhs, lhs_scales, "f8E4M3FN").astype(np.float32)
    wide = np.pad(rhs_scales, ((1, 0), (2, 2)), constant_values=120)
    (found,) = results(text, [x, rhs.view(np.int8), wide.view(np.int8)], tmp_path, data_tiling=data_tiling)
    codes = formats.quantise(x, "E4M3")
    expected = formats.dequantise(*codes, "E4M3").astype(np.float64) @ dequantise(rhs, rhs_scales, "f8E4M3FN").T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


ROUTER = """
func.func @router(%x: tensor<4x128xbf16>, %w: tensor<32x128xbf16>) -> tensor<4x32xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x32xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x32xf32>) -> tensor<4x32xf32>
  %r = linalg.matmul indexing_maps = [#mk, #nk, #mn] ins(%x, %w : tensor<4x128xbf16>, tensor<32x128xbf16>)
    outs(%z : tensor<4x32xf32>) -> tensor<4x32xf32>
  return %r : tensor<4x32xf32>
}
"""
ROW = """
func.func @row(%x: tensor<3x128xf32>) -> tensor<1x128xf32> {
  %r = tensor.extract_slice %x[1, 0] [1, 128] [2, 1] : tensor<3x128xf32> to tensor<1x128xf32>
  return %r : tensor<1x128xf32>
}
"""
LOOKUP = """
func.func @lookup(%x: tensor<?x6xi32>, %n: index) -> tensor<?xi32> {
  %c0 = arith.constant 0 : index
  %s = tensor.extract_slice %x[0, 0] [%n, 2] [1, 1] : tensor<?x6xi32> to tensor<?x2xi32>
  %e = tensor.empty(%n) : tensor<?xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
    outs(%e : tensor<?xi32>) {
  ^bb0(%o: i32):
    %i = linalg.index 0 : index
    %v = tensor.extract %s[%i, %c0] : tensor<?x2xi32>
    linalg.yield %v : i32
  } -> tensor<?xi32>
  return %r : tensor<?xi32>
}
"""
SINGLE_KEY = """
func.func @single_key(%q: tensor<2x9x16xf32>, %k: tensor<2x1x16xf32>, %o: tensor<2x9x16xf32>) -> tensor<2x9x16xf32> {
  %scale = arith.constant 0.25 : f32
  %r = iree_linalg_ext.attention <indexing_maps = [affine_map<(n, t, v, d, l) -> (n, t, d)>,
      affine_map<(n, t, v, d, l) -> (n, l, d)>, affine_map<(n, t, v, d, l) -> (n, l, v)>,
      affine_map<(n, t, v, d, l) -> ()>, affine_map<(n, t, v, d, l) -> (n, t, v)>]>
      ins(%q, %k, %k, %scale : tensor<2x9x16xf32>, tensor<2x1x16xf32>, tensor<2x1x16xf32>, f32)
      outs(%o : tensor<2x9x16xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<2x9x16xf32>
  return %r : tensor<2x9x16xf32>
}
"""
PADDED = """
func.func @padded(%x: tensor<4x16xi8>) -> tensor<5x16xi8> {
  %zero = arith.constant 0.0 : f4E2M1FN
  %a = iree_tensor_ext.bitcast %x : tensor<4x16xi8> -> tensor<4x32xf4E2M1FN>
  %p = tensor.pad %a low[0, 0] high[1, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f4E2M1FN
  } : tensor<4x32xf4E2M1FN> to tensor<5x32xf4E2M1FN>
  %r = iree_tensor_ext.bitcast %p : tensor<5x32xf4E2M1FN> -> tensor<5x16xi8>
  return %r : tensor<5x16xi8>
}
"""
JOINED = """
func.func @joined(%x: tensor<4x24xi8>) -> tensor<4x48xi8> {
  %a = iree_tensor_ext.bitcast %x : tensor<4x24xi8> -> tensor<4x32xf6E2M3FN>
  %c = tensor.concat dim(1) %a, %a : (tensor<4x32xf6E2M3FN>, tensor<4x32xf6E2M3FN>) -> tensor<4x64xf6E2M3FN>
  %r = iree_tensor_ext.bitcast %c : tensor<4x64xf6E2M3FN> -> tensor<4x48xi8>
  return %r : tensor<4x48xi8>
}
"""
ARGUMENT = """
func.func @argument(%x: tensor<4x32xf4E2M1FN>) -> tensor<4x16xi8> {
  %r = iree_tensor_ext.bitcast %x : tensor<4x32xf4E2M1FN> -> tensor<4x16xi8>
  return %r : tensor<4x16xi8>
}
"""
REFUSED = {
    "argument": (ARGUMENT, "has no arguments and results of 4- and 6-bit floats"),
    "pad": (PADDED, "cannot pad elements of less than a byte"), "join": (JOINED, "cannot join 6-bit elements"),
    "rows": (ROUTER, "so few rows of 16-bit floats"), "step": (ROW, "fails over a step"),
    "single key": (SINGLE_KEY, "crashes over attention of a single key"),
    "lookup": (LOOKUP, "may look elements of a part of a tensor up in wrong rows"),
}  # fmt: skip


@pytest.mark.parametrize(("extra", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_a_stock_compiler_fails_over_is_refused(extra: str, reason: str, tmp_path: Path) -> None:
    matmul = Matmul(40, 48, 128)
    with pytest.raises(InputError, match=rf"{reason}.*with mxcomp-compile"):
        emitted(source(matmul, extra=extra), tmp_path)
    assert not (tmp_path / "plugin").exists()
    assert mxcomp.compile(source(matmul, extra=extra)).vmfb


def test_what_is_not_matched_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a stock iree-compile does before it matches: here, the matcher is for another matmul."""
    clone = Dag.clone

    def other(dag: Dag, arguments: Any, point: Any) -> Any:
        value = clone(dag, arguments, point)
        value.owner.attributes["other"] = ir.UnitAttr.get()
        return value

    monkeypatch.setattr(Dag, "clone", other)
    with pytest.raises(InputError, match=r":\d+:\d+: a stock iree-compile rewrites this scaled matmul"):
        emitted(source(Matmul(40, 48, 128)), tmp_path)
