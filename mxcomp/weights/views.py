"""Views of an operand in a tensor that is stored in another order, or contains more: nested loops over its bits.

The rows of expert 2 in [experts 4, K/32 3, rows 100, 16 bytes] of MXFP4, 4800 bytes an expert:

    View(offset=76800, batch=(), rows=((100, 128),), k=((3, 12800), (128, 1)))

Row 7 begins 7 · 128 bits behind the offset; of its 384 bits the first 128 follow each other, the next are 12800 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from mxcomp.formats import element_format, pack_bits, unpack_bits

Bytes = NDArray[np.uint8]
Steps = tuple[tuple[Annotated[int, Meta(gt=1)], Annotated[int, Meta(ge=0)]], ...]
"""Counts and steps in bits of nested loops, outermost first. A step of 0 repeats; counts of 1 are left out."""

_AXES = ("batch", "rows", "k")


@dataclass(frozen=True)
class View:
    """The positions of the bits of an operand, [(batch,) rows, bits of a row]: `offset` plus a step of each axis.

    Two views of the same bits are equal, as `steps_of` makes them.
    """

    offset: Annotated[int, Meta(ge=0)]
    batch: Steps
    rows: Steps
    k: Steps

    @staticmethod
    def row_major(batch: int, rows: int, bits: int) -> View:
        """Returns the view of contiguous rows of so many bits."""
        axes = ((batch, rows * bits), (rows, bits), (bits, 1))
        return View(0, *(((count, step),) if count > 1 else () for count, step in axes))

    @property
    def end(self) -> int:
        """The offset after the last bit."""
        return self.offset + sum((count - 1) * step for count, step in (*self.batch, *self.rows, *self.k)) + 1

    def unit(self, bits: int) -> int | None:
        """Returns the number of bits that can be moved together: 8, or those of an element; None if some element begins
        inside of another."""
        *others, (run, step) = *self.batch, *self.rows, *self.k
        lengths = [self.offset, run, *(length for _, length in others)]
        return next((unit for unit in (8, bits) if step == 1 and not any(length % unit for length in lengths)), None)

    def take(self, source: Bytes, element: str | None) -> Bytes:
        """Returns the operand's bytes, uint8[batch · rows, bytes], from the source's. `element` is its type, None for
        scales.

        Raises ValueError where the source is too short, or elements do not begin at whole ones.
        """
        bits = element_format(element).bits if element else 8
        unit = self.unit(bits)
        if unit is None:
            raise ValueError(f"elements of {bits} bits do not begin at whole ones")
        if self.end > 8 * source.size:
            raise ValueError(f"{source.size} bytes, the view has {-(-self.end // 8)}")
        word = math.lcm(unit, 8)  # what is decoded together; what lies before the offset is not
        first = self.offset // word
        fields = np.ascontiguousarray(source).reshape(-1)[first * word // 8 : -(-self.end // word) * word // 8]
        if unit < 8:
            whole = fields if fields.size * 8 % word == 0 else np.pad(fields, (0, -fields.size % (word // 8)))
            fields = _piecewise(unpack_bits, whole.reshape(-1, word // 8), element).reshape(-1)
        *others, (run, _) = *self.batch, *self.rows, *self.k
        shape, strides = [*(count for count, _ in others), run // unit], [*(step // unit for _, step in others), 1]
        # One strided view, and no table of indices, which would take eight times the memory. NumPy checks its bounds.
        picked = np.ndarray(shape, np.uint8, fields, (self.offset - first * word) // unit, strides)
        rows = picked.reshape(-1, math.prod(count for count, _ in self.k) // unit)
        return rows if unit == 8 else _piecewise(pack_bits, rows, element)

    def misfit(self, whole: View, bits: int, size: int) -> str:
        """Returns why this is no view of an operand as large as `whole` in a source of `size` bytes. Elements have
        `bits`."""
        for axis in _AXES:
            found, expected = (math.prod(count for count, _ in getattr(view, axis)) for view in (self, whole))
            if found != expected:
                return f"{axis} of {found}, expected {expected}"
        if self.k[-1][0] % bits or self.unit(bits) is None:
            return f"expected whole elements of {bits} bits"
        return f"it has {size} bytes, the view {-(-self.end // 8)}" if self.end > 8 * size else ""


def _piecewise(convert: Callable[[Bytes, str], Bytes], rows: Bytes, element: str | None) -> Bytes:
    """Converts between codes and bytes piece by piece: NumPy takes eight times their memory in between."""
    pieces = np.array_split(rows, min(len(rows), 1 + rows.size // 2**22))
    return np.concatenate([convert(piece, element or "") for piece in pieces])


def steps_of(table: NDArray[np.int64]) -> Steps | None:
    """Returns the nested loops that produce these positions, the first of which is 0; None if there are none."""
    found: list[tuple[int, int]] = []
    while len(table) > 1:
        step = table[1]
        uneven = np.flatnonzero(np.diff(table) != step)
        count = int(uneven[0]) + 1 if len(uneven) else len(table)
        if step < 0 or len(table) % count:
            return None
        loops = table.reshape(-1, count)
        if (loops != loops[:, :1] + np.arange(count) * step).any():
            return None
        found.append((count, int(step)))
        table = loops[:, 0]
    return tuple(reversed(found))
