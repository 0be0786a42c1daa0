"""Values of a program: the IR that computes one, what it is in float64, and how far off a right computation may be.

As long as every sum of a program is a whole number of steps that fits into its type's significand, in whatever order it
is made, nothing is off: such values are exact, and can be quantised, compared or returned as bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from iree.compiler import ir
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

BLOCK = 32
ELEMENTS = {
    "f4E2M1FN": ml_dtypes.float4_e2m1fn,
    "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
}
SCALE = "f8E8M0FNU"
BITS = {kind: int(ml_dtypes.finfo(dtype).bits) for kind, dtype in ELEMENTS.items()} | {SCALE: 8, "i8": 8, "i4": 4}
VALUES = {
    kind: np.arange(1 << BITS[kind], dtype=np.uint8).view(dtype).astype(np.float64) for kind, dtype in ELEMENTS.items()
} | {SCALE: np.where(np.arange(256) == 255, np.nan, np.exp2(np.arange(256) - 127.0))}
"""Values by code."""
LARGEST = {kind: float(ml_dtypes.finfo(dtype).max) for kind, dtype in ELEMENTS.items()}
EMAX = {kind: int(np.floor(np.log2(largest))) for kind, largest in LARGEST.items()}
FLOATS = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
DIGITS = {"f32": 24, "f16": 11, "bf16": 8}
SMALLEST = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
"""The smallest normal numbers."""


@dataclass(frozen=True, eq=False)
class Node:
    """A tensor of MLIR type `kind`: float64 values, codes of narrow floats, or integers; no `error` if it is exact.

    An error of NaN says that nothing is known of a number.
    """

    ir: ir.Value
    data: np.ndarray
    kind: str
    error: Floats | None = None

    @property
    def exact(self) -> bool:
        return self.error is None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.data).all())

    @property
    def static(self) -> bool:
        kind = ir.RankedTensorType(self.ir.type)
        return not any(kind.is_dynamic_dim(i) for i in range(kind.rank))

    def at(self, value: ir.Value, change: Callable[[np.ndarray], np.ndarray] = lambda array: array) -> Node:
        """Another tensor, of the same numbers in other places: `change` says which."""
        return Node(value, change(self.data), self.kind, None if self.error is None else change(self.error))


def float_node(value: ir.Value | None, data: Floats, kind: str, error: Floats | None = None) -> Node:
    """The result of one operation in `kind`, whose operands are off by what makes the result off by `error`.

    Values that are no f32 are taken for inexact: who knows what they are contracted with.
    """
    with np.errstate(all="ignore"):
        single = data.astype(np.float32).astype(np.float64)
        rounded = data.astype(FLOATS[kind]).astype(np.float64)
    same = (single == data) | np.isnan(data)
    if error is None and same.all():
        return Node(value, rounded, kind)
    known = np.zeros_like(data) if error is None else error
    bound = known + (np.abs(clean(data)) + known) * 2.0 ** -DIGITS[kind] + SMALLEST[kind]
    if kind == "f16":  # which of both sides of its largest number the exact value is on is not known
        bound = np.where(np.isfinite(data) & (np.abs(data) + known >= 65504), np.inf, bound)
    return Node(value, data, kind, bound)


def clean(data: Floats) -> Floats:
    """Without NaN and infinities, which have no error."""
    return np.where(np.isfinite(data), data, 0.0)


def steps(data: Floats, axes: tuple[int, ...]) -> Floats:
    """The largest powers of two that all numbers along these axes are multiples of; infinite for zeros."""
    mantissa, exponent = np.frexp(clean(data))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = (whole & -whole).astype(np.float64)
    found = np.where(whole == 0, np.inf, np.ldexp(lowest, exponent - 53))
    return found.min(axis=axes, initial=np.inf)


def summed(value: ir.Value | None, data: Floats, magnitude: Floats, step: Floats, terms: int, kind: str) -> Node:
    """Sums of `terms` terms, multiples of `step`, made in `kind` in any order; `magnitude` are those of all terms."""
    digits = DIGITS[kind]
    exact = (magnitude <= step * 2.0**digits) & ((step >= SMALLEST[kind]) | (magnitude == 0))
    if kind == "f16":
        exact &= magnitude < 65504
    if exact.all():
        return Node(value, data, kind)
    bound = terms * 2.0**-digits * magnitude + SMALLEST[kind]
    if kind == "f16":  # parts of a sum may be infinities of both signs, in one order or another
        bound = np.where(magnitude >= 65504, np.nan, bound)
    return Node(value, data, kind, np.where(exact, 0.0, bound))


def outside(found: np.ndarray, node: Node) -> NDArray[np.bool_]:
    """Which numbers of a result no right computation gives."""
    if node.kind not in FLOATS:
        return found != node.data
    error = np.zeros_like(node.data) if node.error is None else node.error
    with np.errstate(all="ignore"):
        low, high = ((node.data + sign * error).astype(found.dtype).astype(np.float64) for sign in (-1, 1))
    actual = found.astype(np.float64)
    wrong = np.where(np.isnan(node.data), ~np.isnan(actual), ~((low <= actual) & (actual <= high)))
    return wrong & ~np.isnan(error)


def packed(codes: Bytes, bits: int) -> Bytes:
    """Codes without gaps, the first in the lowest bits, as flat bytes."""
    every = np.unpackbits(codes.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    return np.packbits(every.reshape(-1), bitorder="little")


def unpacked(data: Bytes, bits: int) -> Bytes:
    """The inverse."""
    every = np.unpackbits(data.reshape(-1), bitorder="little").reshape(-1, bits)
    return np.packbits(every, axis=1, bitorder="little")[:, 0]
