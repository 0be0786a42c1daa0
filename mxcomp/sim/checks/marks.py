"""Marks bytes of LDS: which of them an access touches, and which waves have."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MANY = 0xFF
"""Marks a byte that several waves have accessed; other marks are a wave's number + 1."""

SPREAD = 0x01010101


class Cells:
    """The bytes an access touches, as whole dwords or one by one."""

    __slots__ = ("at", "lanes", "whole")

    def __init__(self, addresses: NDArray[np.int64], size: int, lanes: NDArray[np.int64]) -> None:
        self.lanes = lanes
        self.whole = size % 4 == 0 and not (addresses & 3).any()
        if self.whole:
            self.at = (addresses >> 2)[:, None] + np.arange(size >> 2)
        else:
            self.at = addresses[:, None] + np.arange(size)

    def byte(self, flat: int) -> tuple[int, int]:
        """Returns the lane and byte address of an element of `at`."""
        row = flat // self.at.shape[1]
        return int(self.lanes[row]), int(self.at.flat[flat]) * (4 if self.whole else 1)

    def bytes(self, flat: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the lanes and addresses of bytes, by their number among all those that are touched."""
        unit = 4 if self.whole else 1
        return self.lanes[flat // (unit * self.at.shape[1])], self.at.reshape(-1)[flat // unit] * unit + flat % unit


class Marks:
    """One uint8 per byte of LDS, also accessible as dwords."""

    __slots__ = ("bytes", "words")

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.words = self.bytes.view(np.uint32)

    def get(self, cells: Cells) -> NDArray[Any]:
        return (self.words if cells.whole else self.bytes)[cells.at]

    def set(self, cells: Cells, mark: int) -> None:
        if cells.whole:
            self.words[cells.at] = mark * SPREAD
        else:
            self.bytes[cells.at] = mark

    def put(self, cells: Cells, values: NDArray[Any]) -> None:
        (self.words if cells.whole else self.bytes)[cells.at] = values

    def join(self, cells: Cells, mark: int) -> None:
        """Adds a mark: bytes with another one get `MANY`."""
        known = self.get(cells)
        own, many = (m * SPREAD if cells.whole else m for m in (mark, MANY))
        self.put(cells, np.where((known == 0) | (known == own), known.dtype.type(own), known.dtype.type(many)))

    def others(self, cells: Cells, mark: int) -> NDArray[np.bool_] | None:
        """Returns the elements with a byte marked by another wave, or None."""
        values = self.get(cells)
        own = mark * SPREAD if cells.whole else mark
        suspect = (values != 0) & (values != own)
        if not suspect.any():
            return None
        if cells.whole:  # bytes of one dword may differ
            split = np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, 4)
            suspect = ((split != 0) & (split != mark)).any(-1)
        return suspect if suspect.any() else None
