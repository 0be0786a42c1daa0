"""A scaled matmul to be timed: its program, operands for it, and a check of its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from iree.compiler import ir
from numpy.typing import NDArray

import mxcomp.ir as mx
from mxcomp.formats import decode, dequantise, element_format, unpack_bits
from mxcomp.layout.problem import Problem
from mxcomp.run.signature import ELEMENTS

Bytes = NDArray[np.uint8]
RESULT_BYTES = {name: ELEMENTS[name].itemsize for name in ("f32", "f16", "bf16")}
"""The bytes of an element of the result, by type."""

_SCALES = {"f32": (115, 139), "bf16": (115, 139), "f16": (105, 121)}
"""The range of random scale codes: a misplaced scale changes a result far beyond rounding. f16 has few exponents."""
_ALL = 1 << 28
"""The number of products up to which every element of a result is checked; beyond, some rows and columns are."""
_SAMPLED, _AT_A_TIME = 16, 1024


@dataclass(frozen=True)
class Subject:
    """A problem of static sizes, and the element type of the stored result."""

    problem: Problem
    result: str = "f32"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N and K. Raises ValueError where one is dynamic."""
        m, n, k = self.problem.sizes.values()
        if m is None or n is None or k is None:
            raise ValueError("a size is dynamic")
        return m, n, k

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arguments in bytes: LHS, its scales, RHS, its scales."""
        m, n, k = self.sizes
        kinds = (element_format(kind) for kind in self.problem.types[:2])
        sides = ((rows, k * kind.bits // 8) for rows, kind in zip((m, n), kinds, strict=True))
        blocks = k // self.problem.block
        return tuple((*self.problem.batch, rows, columns) for rows, width in sides for columns in (width, blocks))

    def source(self) -> str:
        """Returns a module whose only function multiplies its arguments, and rounds the product to `result`."""
        lhs, rhs = self.problem.types[:2]

        def matmul(a: ir.Value, a_scale: ir.Value, b: ir.Value, b_scale: ir.Value) -> ir.Value:
            product = mx.scaled_matmul(mx.operand(a, a_scale, lhs), mx.operand(b, b_scale, rhs))
            return product if self.result == "f32" else mx.elementwise(lambda x: x, product, result=self.result)

        return str(mx.module(matmul, *(f"{'x'.join(map(str, shape))}xi8" for shape in self.shapes)))

    def nothing(self) -> list[NDArray[np.int8]]:
        """Returns the arguments of the right shapes that take no memory, for a program that is not computed."""
        return [np.broadcast_to(np.int8(0), shape) for shape in self.shapes]

    def operands(self, seed: int = 0) -> list[NDArray[np.int8]]:
        """Returns random arguments: any finite elements, and scales that differ."""
        rng = np.random.default_rng(seed)
        found = []
        for index, shape in enumerate(self.shapes):
            if index % 2:
                found.append(rng.integers(*_SCALES[self.result], shape, np.uint8).view(np.int8))
            else:
                kind = self.problem.types[index // 2]
                found.append(_finite(rng.integers(0, 256, shape, np.uint8), kind).view(np.int8))
        return found

    def objection(self, arguments: list[NDArray[np.int8]], result: np.ndarray) -> str:
        """Returns how a result differs from float64, or "".

        Errors may be those of K additions in f32, K · 2^-24 of Σ|a·b| (Higham, Accuracy and Stability of Numerical
        Algorithms, §3.1), and one rounding to the type of the result.
        """
        m, n, k = self.sizes
        found = result.reshape(-1, m, n)
        if self.result == "bf16":
            found = found.view(ELEMENTS["bf16"])
        a, a_scale, b, b_scale = (each.view(np.uint8).reshape(-1, *each.shape[-2:]) for each in arguments)
        for batch, out in enumerate(found):
            for rows, columns in _parts(m, n, k):
                lhs = _values(a[batch, rows], a_scale[batch, rows], self.problem.types[0])
                rhs = _values(b[batch, columns], b_scale[batch, columns], self.problem.types[1])
                if wrong := _wrong(lhs, rhs, out[np.ix_(rows, columns)]):
                    row, column, text = wrong
                    return f"element ({rows[row]}, {columns[column]}) {text}"
        return ""


def _values(packed: Bytes, scales: Bytes, kind: str) -> NDArray[np.float64]:
    """Returns the values [rows, K] of bytes [rows, K · bits / 8] and scales [rows, K / 32]."""
    return dequantise(unpack_bits(packed, kind), scales, kind, dtype=np.float64)


def _finite(codes: Bytes, kind: str) -> Bytes:
    """Returns bytes of elements, with zeros for 8-bit codes that are no finite number."""
    if element_format(kind).bits < 8:
        return codes
    all_codes = np.arange(256, dtype=np.uint8)
    return np.where(np.isfinite(decode(all_codes, kind)), all_codes, np.uint8(0)).astype(np.uint8)[codes]


def _parts(m: int, n: int, k: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Returns the rows and columns whose elements are checked: all, or some spread over the whole range."""
    rows, columns = np.arange(m), np.arange(n)
    if m * n * k <= _ALL:
        yield rows, columns
        return
    some_rows, some_columns = (np.unique(np.linspace(0, size - 1, _SAMPLED).astype(np.int64)) for size in (m, n))
    yield from ((some_rows, part) for part in _pieces(columns))
    yield from ((part, some_columns) for part in _pieces(rows))


def _pieces(numbers: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [numbers[start : start + _AT_A_TIME] for start in range(0, len(numbers), _AT_A_TIME)]


def _wrong(a: NDArray[np.float64], b: NDArray[np.float64], found: np.ndarray) -> tuple[int, int, str] | None:
    """Returns a message about the first element of a result that is not a · bᵀ."""
    expected, error = a @ b.T, a.shape[1] * 2.0**-24 * (np.abs(a) @ np.abs(b).T)
    with np.errstate(over="ignore"):
        low, high = ((expected + sign * error).astype(found.dtype).astype(np.float64) for sign in (-1, 1))
    value = found.astype(np.float64)
    bad = np.argwhere(~((low <= value) & (value <= high)))
    if not len(bad):
        return None
    row, column = map(int, bad[0])
    return row, column, f"is {value[row, column]:.6g}, expected {expected[row, column]:.6g} ± {error[row, column]:.2g}"
