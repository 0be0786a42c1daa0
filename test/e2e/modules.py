"""MLIR modules with scaled matmuls, inputs for them, and what they compute.

Written apart from mxcomp: nothing here shares code with what is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
HERE = Path(__file__).parent

FP4 = "f4E2M1FN"
KINDS = {
    FP4: ml_dtypes.float4_e2m1fn,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}
BITS = {name: int(ml_dtypes.finfo(kind).bits) for name, kind in KINDS.items()}
VALUES = {
    name: np.arange(1 << BITS[name], dtype=np.uint8).view(kind).astype(np.float64) for name, kind in KINDS.items()
}
"""Values by code (OCP MX v1.0, tables 1 to 5)."""


@dataclass(frozen=True)
class Matmul:
    """A scaled matmul [m, k] × [n, k]ᵀ, its four operands as bytes (random, no zeros, no two scales alike in a row)."""

    m: int
    n: int
    k: int
    dynamic_m: bool = False
    constant_rhs: bool = False
    form: str = "fused"
    seed: int = 0
    types: tuple[str, str] = (FP4, FP4)

    @cached_property
    def operands(self) -> tuple[Bytes, Bytes, Bytes, Bytes]:
        """LHS and RHS codes without gaps, the first in the lowest bits; LHS and RHS scales."""
        rng = np.random.default_rng((self.seed, self.m, self.n, self.k))
        codes = [_codes(rng, rows, self.k, kind) for rows, kind in zip((self.m, self.n), self.types, strict=True)]
        scales = [_scales(rng, rows, self.k // 32) for rows in (self.m, self.n)]
        return codes[0], codes[1], scales[0], scales[1]

    @property
    def inputs(self) -> list[NDArray[np.int8]]:
        """The operands that are arguments, in order."""
        lhs, rhs, lhs_scale, rhs_scale = (operand.view(np.int8) for operand in self.operands)
        return [lhs, lhs_scale] if self.constant_rhs else [lhs, rhs, lhs_scale, rhs_scale]

    @cached_property
    def expected(self) -> NDArray[np.float64]:
        return product(*self.operands, types=self.types)

    @cached_property
    def magnitude(self) -> NDArray[np.float64]:
        """Σ|a·b|, what rounding errors of a sum are measured by."""
        return product(*self.operands, types=self.types, absolute=True)

    def errors(self, result: np.ndarray) -> NDArray[np.float64]:
        """Error of each element of `result` in units of Σ|a·b|."""
        return np.abs(result - self.expected) / self.magnitude

    def error(self, result: np.ndarray) -> float:
        return float(self.errors(result).max())

    @property
    def bound(self) -> float:
        """Error of K f32 additions and of rounding each product (Higham, Accuracy and Stability, §3.1)."""
        return self.k * 2.0**-24

    def __str__(self) -> str:
        marks = ["dynamic"] * self.dynamic_m + ["constant"] * self.constant_rhs + [self.form] * (self.form != "fused")
        marks += [*self.types] * (self.types != (FP4, FP4))
        return "-".join([f"{self.m}x{self.n}x{self.k}", *marks])


def _codes(rng: np.random.Generator, rows: int, k: int, kind: str) -> Bytes:
    finite = np.flatnonzero(np.isfinite(VALUES[kind]) & (VALUES[kind] != 0)).astype(np.uint8)
    codes = rng.choice(finite, (rows, k))
    bits = np.unpackbits(codes[..., None], axis=-1, count=BITS[kind], bitorder="little")
    return np.packbits(bits.reshape(rows, -1), axis=-1, bitorder="little")


def _scales(rng: np.random.Generator, rows: int, blocks: int) -> Bytes:
    """2^-12 … 2^11: a scale in the wrong place changes the result far beyond rounding."""
    first = rng.integers(0, 24, (rows, 1))
    steps = rng.integers(1, 24, (rows, blocks)).cumsum(axis=1)
    return (115 + (first + steps) % 24).astype(np.uint8)


def dequantise(packed: Bytes, scales: Bytes, kind: str = FP4) -> NDArray[np.float64]:
    """[rows, K] values of packed codes and E8M0 scales; scale 0xFF is NaN."""
    bits = np.unpackbits(packed, axis=-1, bitorder="little").reshape(len(packed), -1, BITS[kind])
    codes = np.packbits(bits, axis=-1, bitorder="little")[..., 0]
    factors = np.where(scales == 255, np.nan, np.exp2(scales.astype(np.float64) - 127))
    return VALUES[kind][codes] * factors.repeat(32, axis=1)


def product(
    lhs: Bytes,
    rhs: Bytes,
    lhs_scale: Bytes,
    rhs_scale: Bytes,
    types: tuple[str, str] = (FP4, FP4),
    absolute: bool = False,
) -> NDArray[np.float64]:
    a, b = dequantise(lhs, lhs_scale, types[0]), dequantise(rhs, rhs_scale, types[1])
    return np.abs(a) @ np.abs(b).T if absolute else a @ b.T


def outside(result: np.ndarray, expected: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Elements that no value within `error` of `expected` gives when rounded once to the type of `result`.

    NaN is expected where `expected` is NaN, and nowhere else.
    """
    with np.errstate(over="ignore"):
        low, high = ((expected + sign * error).astype(result.dtype).astype(np.float64) for sign in (-1, 1))
    found = result.astype(np.float64)
    within = (low <= found) & (found <= high)
    return np.where(np.isnan(expected), ~np.isnan(found), ~within)


def source(*matmuls: Matmul, name: str = "main", dialect: str = "func", extra: str = "") -> str:
    """A module with one function that computes `matmuls` and returns their results, and the text `extra`."""
    values = {"func": "func.func", "return": "return"}
    if dialect == "util":
        values = {"func": "util.func public", "return": "util.return"}
    arguments, bodies = [], []
    for index, matmul in enumerate(matmuls):
        types = _types(matmul)
        for operand, kind in types.items():
            if operand in ("b", "bs") and matmul.constant_rhs:
                data = matmul.operands[1 if operand == "b" else 3].tobytes().hex().upper()
                bodies.append(f'  %{operand}_bytes{index} = arith.constant dense<"0x{data}"> : {kind}\n')
            else:
                arguments.append(f"%{operand}_bytes{index}: {kind}")
        bodies.append(_body(index, matmul))
    return (
        _template("module").substitute(
            values,
            name=name,
            arguments=", ".join(arguments),
            body="".join(bodies),
            results=", ".join(f"%r{i}" for i in range(len(matmuls))),
            types=", ".join(f"tensor<{_m(matmul)}x{matmul.n}xf32>" for matmul in matmuls),
        )
        + extra
    )


def inputs(matmuls: Sequence[Matmul]) -> list[Bytes]:
    """Arguments of the function that `source` makes."""
    return [array for matmul in matmuls for array in matmul.inputs]


def _m(matmul: Matmul) -> str:
    return "?" if matmul.dynamic_m else str(matmul.m)


def _types(matmul: Matmul) -> dict[str, str]:
    m, n, k = _m(matmul), matmul.n, matmul.k
    a, b = (k * BITS[kind] // 8 for kind in matmul.types)
    columns = {"a": (m, a), "b": (n, b), "as": (m, k // 32), "bs": (n, k // 32)}
    return {name: f"tensor<{rows}x{cols}xi8>" for name, (rows, cols) in columns.items()}


def _body(index: int, matmul: Matmul) -> str:
    size = f"%m{index}" if matmul.dynamic_m else ""
    values = {
        "i": index,
        "m": _m(matmul),
        "n": matmul.n,
        "k": matmul.k,
        "a": matmul.types[0],
        "b": matmul.types[1],
        "a_bytes": matmul.k * BITS[matmul.types[0]] // 8,
        "b_bytes": matmul.k * BITS[matmul.types[1]] // 8,
        "blocks": matmul.k // 32,
        "size": size,
        "dims": f"{{{size}}}" if size else "",
        "scale_dims": f"{{%ms{index}}}" if size else "",
    }
    dims = [
        f"  {value} = tensor.dim %{operand}_bytes{index}, %c0 : {_types(matmul)[operand]}\n"
        for value, operand in ((size, "a"), (f"%ms{index}", "as"))
        if size
    ]
    return "".join(dims) + _template(matmul.form).substitute(values)


def _template(name: str) -> Template:
    return Template((HERE / f"{name}.mlir.in").read_text())
