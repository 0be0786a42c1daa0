"""Static bytes whose sizes a tensor.cast hides before they are bitcast: the matmul knows them all the same."""

from __future__ import annotations

import numpy as np
import pytest
from modules import BITS, KINDS, Matmul
from spread import quick_if

import mxcomp

BATCH, ROWS, COLUMNS, BLOCKS = 3, 7, 8, 2
HIDDEN = {"rows": "s?s", "batch and rows": "??s", "all": "???", "columns": "ss?"}


def shape(hidden: str, *sizes: int) -> list[str]:
    return ["?" if mark == "?" else str(size) for mark, size in zip(hidden, sizes, strict=False)]


def text(kind: str, name: str, back: bool) -> str:
    """x [batch, rows, K] times w [columns, K], both cast; a dynamic result is cast back if so wanted."""
    hidden, last = HIDDEN[name], 4 * BITS[kind]
    b, m, n = shape(hidden, BATCH, ROWS, COLUMNS)

    def of(rows: list[str], *inner: int | str) -> str:
        return "tensor<" + "x".join([*rows, *map(str, inner)]) + ">"

    x, w = [str(BATCH), str(ROWS)], [str(COLUMNS)]
    lines, sizes = [], {}
    for operand, rows, wide in (("x", x, [b, m]), ("w", w, [n])):
        for part, inner, kinds in (
            ("", (BLOCKS, last), f"{BLOCKS}x32x{kind}"),
            ("s", (BLOCKS,), f"{BLOCKS}xf8E8M0FNU"),
        ):
            name_, stored = operand + part, (*inner, "i8")
            lines.append(f"%{name_}1 = tensor.cast %{name_}0 : {of(rows, *stored)} to {of(wide, *stored)}")
            dynamic = [i for i, size in enumerate(wide) if size == "?"]
            for i in dynamic:
                sizes[operand, i] = f"%{operand}_{i}"
                if not part:
                    lines.append(f"%{operand}_{i} = tensor.dim %{name_}1, %c{i} : {of(wide, *stored)}")
            given = ", ".join(sizes[operand, i] for i in dynamic)
            given = f"{{{given}}}" if given else ""
            result = of(wide, kinds)
            if part:
                lines.append(f"%{name_} = tensor.bitcast %{name_}1 : {of(wide, *stored)} to {result}")
            else:
                cast = f"{of(wide, *stored)}{given} -> {result}{given}"
                lines.append(f"%{name_} = iree_tensor_ext.bitcast %{name_}1 : {cast}")
    given = ", ".join(sizes[key] for key in (("x", 0), ("x", 1), ("w", 0)) if key in sizes)
    y, static = of([b, m, n], "f32"), of([*x, *w], "f32")
    result = static if back else y
    types = f"{of([b, m], BLOCKS, 32, kind)}, {of([n], BLOCKS, 32, kind)}, {of([b, m], BLOCKS, 'f8E8M0FNU')}"
    body = "\n  ".join(lines)
    end = f"%r = tensor.cast %y : {y} to {static}\n  return %r" if back and y != static else "return %y"
    return f"""
func.func @main(%x0: {of(x, BLOCKS, last, "i8")}, %xs0: {of(x, BLOCKS, "i8")}, %w0: {of(w, BLOCKS, last, "i8")},
                %ws0: {of(w, BLOCKS, "i8")}) -> {result} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  {body}
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty({given}) : {y}
  %z = linalg.fill ins(%zero : f32) outs(%e : {y}) -> {y}
  %y = linalg.generic {{
      indexing_maps = [affine_map<(c, m, n, k, i) -> (c, m, k, i)>, affine_map<(c, m, n, k, i) -> (n, k, i)>,
                       affine_map<(c, m, n, k, i) -> (c, m, k)>, affine_map<(c, m, n, k, i) -> (n, k)>,
                       affine_map<(c, m, n, k, i) -> (c, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}}
      ins(%x, %w, %xs, %ws : {types}, {of([n], BLOCKS, "f8E8M0FNU")}) outs(%z : {y}) {{
  ^bb0(%a: {kind}, %b: {kind}, %as: f8E8M0FNU, %bs: f8E8M0FNU, %o: f32):
    %0 = arith.scaling_extf %a, %as : {kind}, f8E8M0FNU to f32
    %1 = arith.scaling_extf %b, %bs : {kind}, f8E8M0FNU to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  }} -> {y}
  {end} : {result}
}}"""


CASES = [(kind, name, back) for kind in KINDS for name in HIDDEN for back in (False, True)]
QUICK = [("f8E4M3FN", "rows", False), ("f4E2M1FN", "batch and rows", True), ("f4E2M1FN", "all", False)]


@pytest.mark.parametrize("case", quick_if(QUICK.__contains__, CASES), ids=str)
def test_right_by_a_ukernel(case: tuple[str, str, bool]) -> None:
    kind, name, back = case
    program = mxcomp.compile(text(kind, name, back))
    (found,) = program.report.matmuls
    assert found.ukernel is not None
    assert (found.m, found.n) == (BATCH * ROWS, COLUMNS)
    matmul = Matmul(BATCH * ROWS, COLUMNS, 32 * BLOCKS, types=(kind, kind))
    lhs, rhs, lhs_scale, rhs_scale = (operand.view(np.int8) for operand in matmul.operands)
    x, xs = lhs.reshape(BATCH, ROWS, BLOCKS, -1), lhs_scale.reshape(BATCH, ROWS, BLOCKS)
    (y,) = program.run(x, xs, rhs.reshape(COLUMNS, BLOCKS, -1), rhs_scale)
    assert matmul.error(y.reshape(BATCH * ROWS, COLUMNS)) <= matmul.bound
