"""Small floats: ml_dtypes gives their values, encoding looks for the nearest."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from properties.exact import Number


@dataclass(frozen=True)
class Small:
    """A small float: its values by code without sign, up to the largest, and the codes of what is beyond.

    Without a code for overflow everything saturates, NaN included.
    """

    bits: int
    values: tuple[float, ...]
    overflow: int | None
    nan: int | None

    def decode(self, code: int) -> float:
        sign, magnitude = (-1.0 if code >> self.bits - 1 & 1 else 1.0), code & (1 << self.bits - 1) - 1
        if magnitude < len(self.values):
            return sign * self.values[magnitude]
        return sign * math.inf if self.overflow == magnitude != self.nan else math.nan

    def encode(self, x: Number, saturates: bool) -> int:
        """The nearest, of two the even code; signs stay, NaN's too."""
        negative = x < 0 or (isinstance(x, float) and math.copysign(1, x) < 0)
        magnitude: Number = -x if x < 0 else x
        return self._magnitude(magnitude, saturates) | negative << self.bits - 1

    def _magnitude(self, x: Number, saturates: bool) -> int:
        top = len(self.values) - 1
        if x != x:
            return top if self.nan is None else self.nan
        above = bisect_left(self.values, x)
        step = self.values[top] - self.values[top - 1]
        if above <= top:
            below = max(above - 1, 0)
            gaps = abs(Fraction(x) - Fraction(self.values[below])), abs(Fraction(self.values[above]) - Fraction(x))
            return below if gaps[0] < gaps[1] or (gaps[0] == gaps[1] and below % 2 == 0) else above
        rounds_down = x < self.values[top] + step / 2 or (x == self.values[top] + step / 2 and top % 2 == 0)
        return top if saturates or self.overflow is None or rounds_down else self.overflow


def _small(bits: int, dtype: Any, overflow: int | None = None, nan: int | None = None) -> Small:
    codes = np.arange(1 << bits - 1, dtype=np.uint8).view(dtype).astype(np.float64)
    return Small(bits, tuple(codes[np.isfinite(codes)].tolist()), overflow, nan)


SMALL = {
    "fp8": _small(8, ml_dtypes.float8_e4m3fn, 0x7F, 0x7F),
    "bf8": _small(8, ml_dtypes.float8_e5m2, 0x7C, 0x7F),
    "fp6": _small(6, ml_dtypes.float6_e2m3fn),
    "bf6": _small(6, ml_dtypes.float6_e3m2fn),
    "fp4": _small(4, ml_dtypes.float4_e2m1fn),
}
