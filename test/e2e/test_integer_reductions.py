"""Reductions of integers, which IREE gets wrong where a wave shares them."""

from __future__ import annotations

import numpy as np
import pytest

import mxcomp

COLUMNS = 320
WRONG = [(op, bits) for op in ("maxsi", "minsi") for bits in (8, 16, 32)]
WRONG += [("maxui", 64), ("minui", 64), ("maxui", 8), ("addi", 8), *(("andi", bits) for bits in (8, 16, 32, 64))]
LEAST = {"maxsi": -1, "minsi": 1, "maxui": 0, "minui": -1, "addi": 0, "andi": -1}
"""Where a reduction begins: of maxsi and minsi, half-way up or down, so that this number is the result of some rows."""


def _function(op: str, bits: int, columns: int | str) -> str:
    kind, start = f"i{bits}", LEAST[op] << (bits - 2) if op in ("maxsi", "minsi") else LEAST[op]
    return f"""
func.func @{op}_{bits}(%x: tensor<3x{columns}x{kind}>) -> tensor<3x{kind}> {{
  %start = arith.constant {start} : {kind}
  %e = tensor.empty() : tensor<3x{kind}>
  %f = linalg.fill ins(%start : {kind}) outs(%e : tensor<3x{kind}>) -> tensor<3x{kind}>
  %r = linalg.generic {{indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>],
                       iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<3x{columns}x{kind}>) outs(%f : tensor<3x{kind}>) {{
  ^bb0(%in: {kind}, %out: {kind}):
    %s = arith.{op} %in, %out : {kind}
    linalg.yield %s : {kind}
  }} -> tensor<3x{kind}>
  return %r : tensor<3x{kind}>
}}"""


def _numbers(op: str, bits: int) -> np.ndarray:
    """Rows whose result differs from what IREE starts with: the greatest is negative, the least unsigned is large."""
    numbers = np.random.default_rng(bits).integers(-(2 ** (bits - 1)), 0, (3, COLUMNS), np.int64)
    numbers[0] >>= 1
    return {"minsi": ~numbers, "maxui": ~numbers, "andi": numbers | 0x55}.get(op, numbers).astype(f"int{bits}")


def _expected(op: str, x: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    unsigned = x.view(f"uint{bits}")
    start = np.array(LEAST[op] << (bits - 2) if op in ("maxsi", "minsi") else LEAST[op]).astype(x.dtype)
    match op:
        case "maxsi":
            return np.maximum(x.max(1), start)
        case "minsi":
            return np.minimum(x.min(1), start)
        case "maxui":
            return unsigned.max(1).view(x.dtype)
        case "minui":
            return unsigned.min(1).view(x.dtype)
        case "addi":
            return x.sum(1, dtype=x.dtype)
    return np.bitwise_and.reduce(x, 1)


@pytest.mark.parametrize("columns", [COLUMNS, "?"])
def test_reductions(columns: int | str) -> None:
    program = mxcomp.compile("".join(_function(op, bits, columns) for op, bits in WRONG))
    for op, bits in WRONG:
        x = _numbers(op, bits)
        (found,) = program.run(x, function=f"{op}_{bits}")
        np.testing.assert_array_equal(found, _expected(op, x), err_msg=f"{op} of {bits} bits")
