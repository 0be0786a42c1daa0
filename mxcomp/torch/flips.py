"""Checks a product of quantised activations and MX weights, up to activations next to a rounding boundary.

Two right programs sum in other orders, so that an activation may differ in its last bits; where a boundary between two
codes, or two scales, lies between, its code flips, by half a step of its element or more. What such flips may do is
known beforehand, row by row: a few multiples of columns of the weights. A result is right if some choice of flips
explains all its columns at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mxcomp.formats import E8M0_BIAS, MX_BLOCK, dequantise, encode, quantise
from mxcomp.ir.quantisation import UNQUANTISED

Array = NDArray[np.float64]

_MOST = 2048
"""The largest number of flips of one row that are examined together."""


@dataclass(frozen=True)
class Quantiser:
    """The element format and mode in which activations are quantised."""

    format: str
    mode: str

    def codes(self, x: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        return quantise(x, self.format, self.mode)

    def values(self, x: NDArray[np.float32]) -> Array:
        """Returns the numbers that are multiplied."""
        if self.format == UNQUANTISED:
            import ml_dtypes

            return x.astype(ml_dtypes.bfloat16).astype(np.float64)
        return dequantise(*self.codes(x), self.format, dtype=np.float64)

    def at_scales(self, x: NDArray[np.float32], scales: NDArray[np.uint8]) -> Array:
        """Returns the numbers that are multiplied with given scales."""
        exponents = np.repeat(E8M0_BIAS - scales.astype(np.int32), MX_BLOCK, axis=-1)
        return dequantise(encode(np.ldexp(x, exponents), self.format), scales, self.format, dtype=np.float64)


@dataclass(frozen=True)
class Product:
    """A result [M, N] of rows [M, K] and weights [N, K]: its expected value, and the tolerance of each number.

    `slack` [M, K] is how far each activation may be off.
    """

    rows: NDArray[np.float32]
    slack: NDArray[np.float32]
    weights: Array
    bias: Array
    quantiser: Quantiser
    result: Array
    eps: float

    @cached_property
    def values(self) -> Array:
        return self.quantiser.values(self.rows)

    @cached_property
    def expected(self) -> Array:
        return self.values @ self.weights.T

    @cached_property
    def bound(self) -> Array:
        """Returns the error of f32 sums, some units in the last place of the terms, and of two roundings."""
        summed = 4 * np.sqrt(self.rows.shape[1]) * 2.0**-24 * (np.abs(self.values) @ np.abs(self.weights).T)
        return summed + 0.75 * self.eps * (np.abs(self.expected) + np.abs(self.result))

    @cached_property
    def error(self) -> Array:
        return self.result - (self.expected + self.bias)

    def wrong(self) -> NDArray[np.bool_]:
        """Returns which numbers of the result no flips explain, [M, N]; NaN is right where NaN is expected."""
        found = ~(np.abs(self.error) <= self.bound) & ~(np.isnan(self.result) & np.isnan(self.expected + self.bias))
        for row in map(int, np.flatnonzero(found.any(1))):
            effects = self.effects(row)
            if len(effects):
                found[row] = self._left(row, effects)
        return found

    def effects(self, row: int) -> Array:
        """Returns the possible effects of flips on a row of the result, [flips, N]: of one activation, or of the scale
        of a block."""
        x, slack, columns = self.rows[row], self.slack[row], self.weights.T
        found = [np.zeros((0, columns.shape[1]))]
        if np.isfinite(x).all() and self.quantiser.format != UNQUANTISED:
            _, scales = self.quantiser.codes(x[None])
            for moved in _moved(x, slack):
                _, others = self.quantiser.codes(moved[None])
                other = np.repeat(others[0] != scales[0], MX_BLOCK)  # blocks that may get another scale
                both = np.stack((x, moved))
                here, there = (self.quantiser.at_scales(both, each.repeat(2, 0)) for each in (scales, others))
                whole = (there[0] - here[0])[other, None] * columns[other]
                found.append(whole.reshape(-1, MX_BLOCK, columns.shape[1]).sum(1))
                for change in (here[1] - here[0], np.where(other, there[1] - there[0], 0)):
                    places = np.flatnonzero(change)
                    found.append(change[places, None] * columns[places])
        return np.concatenate(found)[:_MOST]

    def _left(self, row: int, effects: Array) -> NDArray[np.bool_]:
        """Returns the remaining error of a row after the flips that explain most of it.

        One after the other is made, or taken back, that brings the columns nearest together: the sum of their errors,
        not of squares, so that one wrong row of the weights does not look like many flips.
        """
        finite = np.isfinite(self.error[row])
        effects = (effects / self.bound[row])[:, finite]
        error, made = (self.error[row] / self.bound[row])[finite], np.zeros(len(effects), bool)
        for _ in range(2 * len(effects)):
            changed = error - np.where(made, -1, 1)[:, None] * effects
            sums = np.nan_to_num(np.abs(changed).sum(1), nan=np.inf)
            best = int(np.argmin(sums))
            if sums[best] >= np.abs(error).sum():
                break
            error, made[best] = changed[best], not made[best]
        wrong = ~finite
        wrong[finite] = np.abs(error) > 1
        return wrong


def _moved(x: NDArray[np.float32], slack: NDArray[np.float32]) -> tuple[NDArray[np.float32], ...]:
    """Returns rows whose magnitudes are as small, and as large, as they may be."""
    size = np.abs(x)
    return tuple(np.copysign(each, x).astype(np.float32) for each in (np.maximum(size - slack, 0), size + slack))
