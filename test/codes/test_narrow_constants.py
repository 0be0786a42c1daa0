"""Constants of 4-, 6- and 8-bit floats: packed when a program is compiled, as their bytes are."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from modules import BITS, KINDS, Matmul, dequantise
from spread import quick_if

import mxcomp
from mxcomp import formats
from mxcomp.errors import InputError
from mxcomp.options import Options
from mxcomp.plugin.emit import emit_plugin
from mxcomp.target import get_target

MAPS = {
    "a": "(m, n, k, b) -> (m, k, b)", "b": "(m, n, k, b) -> (n, k, b)", "as": "(m, n, k, b) -> (m, k)",
    "bs": "(m, n, k, b) -> (n, k)", "y": "(m, n, k, b) -> (m, n)",
}  # fmt: skip
ROWS, COLUMNS, BLOCKS = 4, 24, 2
FLAGS = get_target("gfx950").iree_flags


def hexadecimal(data: np.ndarray) -> str:
    return f'"0x{data.tobytes().hex()}"'


def text(kind: str, elements: str, scales: str, where: str) -> str:
    """A matmul whose RHS are constants, or globals that never change; and what they are as f32."""
    element, scale = f"tensor<{COLUMNS}x{BLOCKS}x32x{kind}>", f"tensor<{COLUMNS}x{BLOCKS}xf8E8M0FNU>"
    values = {"w": (elements, element), "ws": (scales, scale)}
    outside, inside = "", ""
    for name, (value, of) in values.items():
        if where == "globals":
            outside += f"util.global private @{name} = dense<{value}> : {of}\n"
            inside += f"  %{name} = util.global.load @{name} : {of}\n"
        else:
            inside += f"  %{name} = arith.constant dense<{value}> : {of}\n"
    maps = ", ".join(f"affine_map<{each}>" for each in MAPS.values())
    packed = f"tensor<{ROWS}x{BLOCKS}x{4 * BITS[kind]}xi8>"
    lhs, lhs_scale = f"tensor<{ROWS}x{BLOCKS}x32x{kind}>", f"tensor<{ROWS}x{BLOCKS}xf8E8M0FNU>"
    out, wide = f"tensor<{ROWS}x{COLUMNS}xf32>", f"tensor<{COLUMNS}x{BLOCKS}x32xf32>"
    return f"""{outside}func.func @main(%x8: {packed}, %xs8: tensor<{ROWS}x{BLOCKS}xi8>) -> ({out}, {wide}) {{
{inside}  %x = iree_tensor_ext.bitcast %x8 : {packed} -> {lhs}
  %xs = iree_tensor_ext.bitcast %xs8 : tensor<{ROWS}x{BLOCKS}xi8> -> {lhs_scale}
  %z = arith.constant dense<0.0> : {out}
  %y = linalg.generic {{indexing_maps = [{maps}],
                        iterator_types = ["parallel", "parallel", "reduction", "reduction"]}}
      ins(%x, %w, %xs, %ws : {lhs}, {element}, {lhs_scale}, {scale}) outs(%z : {out}) {{
  ^bb0(%a: {kind}, %b: {kind}, %s: f8E8M0FNU, %t: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %a, %s : {kind}, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %t : {kind}, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  }} -> {out}
  %f = arith.extf %w : {element} to {wide}
  return %y, %f : {out}, {wide}
}}"""


def stored(kind: str, packed: np.ndarray) -> np.ndarray:
    """One code a byte, as MLIR has them."""
    return formats.unpack_bits(packed, kind)


@pytest.mark.parametrize("where", quick_if(lambda each: each == "globals", ["constants", "globals"]))
@pytest.mark.parametrize("kind", quick_if(lambda each: each in ("f4E2M1FN", "f8E5M2"), KINDS))
def test_right(kind: str, where: str) -> None:
    matmul = Matmul(ROWS, COLUMNS, 32 * BLOCKS, types=(kind, kind))
    lhs, rhs, lhs_scale, rhs_scale = matmul.operands
    program = mxcomp.compile(text(kind, hexadecimal(stored(kind, rhs)), hexadecimal(rhs_scale), where))
    (found,) = program.report.matmuls
    assert found.ukernel is not None
    assert found.dispatches == ["pack_lhs", "pack_lhs_scale", "matmul"]
    y, values = program.run(lhs.reshape(ROWS, BLOCKS, -1).view(np.int8), lhs_scale.view(np.int8))
    assert matmul.error(y) <= matmul.bound
    ones = np.full((COLUMNS, BLOCKS), 127, np.uint8)
    np.testing.assert_array_equal(values.reshape(COLUMNS, -1), dequantise(rhs, ones, kind))


@pytest.mark.parametrize("kind", quick_if(lambda each: each == "f6E2M3FN", KINDS))
def test_all_the_same(kind: str) -> None:
    """As few values are written: 1.5, times 2."""
    matmul = Matmul(ROWS, COLUMNS, 32 * BLOCKS, types=(kind, kind))
    lhs, _, lhs_scale, _ = matmul.operands
    program = mxcomp.compile(text(kind, "1.5", "2.0", "constants"))
    assert program.report.matmuls[0].ukernel is not None
    y, values = program.run(lhs.reshape(ROWS, BLOCKS, -1).view(np.int8), lhs_scale.view(np.int8))
    expected = dequantise(lhs, lhs_scale, kind).sum(1, keepdims=True) * 3
    np.testing.assert_allclose(y, np.broadcast_to(expected, y.shape), rtol=0, atol=1e-4 * np.abs(expected).max())
    assert (values == 1.5).all()


@pytest.mark.parametrize("where", ["constants", "globals"])
@pytest.mark.parametrize("kind", ["f4E2M1FN", "f8E4M3FN"])
def test_a_plugin_is_refused(kind: str, where: str, tmp_path: Path) -> None:
    """A stock iree-compile asks for what it packs before it has evaluated it."""
    _, rhs, _, rhs_scale = Matmul(ROWS, COLUMNS, 32 * BLOCKS, types=(kind, kind)).operands
    source = text(kind, hexadecimal(stored(kind, rhs)), hexadecimal(rhs_scale), where).encode()
    with pytest.raises(InputError, match=rf"cannot pack constants of {kind}, only bytes .*with mxcomp-compile"):
        emit_plugin(source, Options.make(), tmp_path / "plugin", FLAGS, FLAGS)
    assert not (tmp_path / "plugin").exists()


def test_arguments_and_results() -> None:
    """Those of 4 and 6 bits are passed as bytes."""
    matmul = Matmul(5, 16, 32 * BLOCKS, types=("f4E2M1FN", "f6E2M3FN"))
    lhs, rhs, lhs_scale, rhs_scale = matmul.operands
    program = mxcomp.compile(Path(__file__).parent / "inputs" / "narrow_arguments.mlir")
    assert program.report.matmuls[0].ukernel is not None
    scales = [each.view(ml_dtypes.float8_e8m0fnu) for each in (lhs_scale, rhs_scale)]
    x, w = lhs.reshape(5, BLOCKS, -1).view(np.int8), rhs.reshape(16, BLOCKS, -1).view(np.int8)
    y, again = program.run(x, scales[0], w, scales[1])
    assert matmul.error(y) <= matmul.bound
    np.testing.assert_array_equal(again, x)
