"""Which orders of workgroups there are to choose from, and how many rows and columns of tiles an XCD needs in each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mxcomp.order import PLAIN, Order, place
from mxcomp.sim.timing.chip import XCDS

ORDERS = (PLAIN, *(Order(XCDS, band) for band in (1, 2, 3, 4, 5, 6, 8)))

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Shared:
    """Batches of workgroups that run at the same time: `running` of them, `count` batches alike.

    `fabric` are distinct (rows, columns) of tiles summed over XCDs, int64[orders, 2], `chip` those of all XCDs.
    """

    running: int
    count: int
    fabric: Counts
    chip: Counts


@cache
def batches(grid: tuple[int, int, int], capacity: int, orders: tuple[Order, ...]) -> tuple[Shared, ...]:
    """The first batch, those behind it, and the last, of a grid of matrices, rows and columns of tiles."""
    total = grid[0] * grid[1] * grid[2]
    whole, rest = divmod(total, capacity)
    starts = [(0, 1), (capacity * (whole // 2), whole - 1)] if whole else []
    ranges = [(range(start, start + capacity), count) for start, count in starts if count > 0]
    if rest:
        ranges.append((range(total - rest, total), 1))
    return tuple(_shared(ids, count, grid, orders) for ids, count in ranges)


def _shared(ids: range, count: int, grid: tuple[int, int, int], orders: tuple[Order, ...]) -> Shared:
    numbers = np.arange(ids.start, ids.stop)
    xcds, bands = (np.array(values)[:, None] for values in zip(*((o.xcds, o.band) for o in orders), strict=True))
    matrix, row, column = place(numbers, grid, xcds, bands, np.minimum)
    found = []
    for lines, size in ((matrix * grid[1] + row, grid[0] * grid[1]), (matrix * grid[2] + column, grid[0] * grid[2])):
        found.append((_distinct(numbers % XCDS * size + lines), _distinct(lines)))
    fabric, chip = (np.stack(counts, axis=1) for counts in zip(*found, strict=True))
    return Shared(len(ids), count, fabric, chip)


def _distinct(values: Counts) -> Counts:
    """How many different values there are in each row."""
    counts: Counts = 1 + np.count_nonzero(np.diff(np.sort(values, axis=1)), axis=1)
    return counts
