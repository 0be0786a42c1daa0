"""Possible orders of workgroups, and the number of rows and columns of tiles that an XCD loads in each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from mxcomp.formats import element_format
from mxcomp.layout.order import PLAIN_ORDER, Order, tile_of
from mxcomp.layout.problem import Problem
from mxcomp.target import Target

_BANDS = (1, 2, 3, 4, 5, 6, 8)

Counts = NDArray[np.int64]


@cache
def orders(target: Target) -> tuple[Order, ...]:
    """Returns the possible orders on a GPU, the plain one first."""
    return (PLAIN_ORDER, *(Order(target.xcds, band) for band in _BANDS))


@dataclass(frozen=True)
class Shared:
    """Batches of workgroups that run at the same time: `running` of them, `count` equal batches.

    `fabric` are distinct (rows, columns) of tiles summed over XCDs, int64[orders, 2], `chip` those of all XCDs.
    """

    running: int
    count: int
    fabric: Counts
    chip: Counts


@cache
def batches(grid: tuple[int, int, int], resident: int, orders: tuple[Order, ...], target: Target) -> tuple[Shared, ...]:
    """Returns the first batch, those after it, and the last, of a grid of matrices, rows and columns of tiles.

    `resident` workgroups share a CU.
    """
    total = grid[0] * grid[1] * grid[2]
    found = []
    for ids, count in ranges(total, resident * target.cus):
        matrix, row, column = tiles_of(ids, grid, orders)
        found.append(of_lines(ids, count, matrix * grid[1] + row, matrix * grid[2] + column, target.xcds))
    return tuple(found)


def ranges(total: int, capacity: int) -> list[tuple[range, int]]:
    """Returns the workgroups of the first batch, a middle one and the last, with the number of equal batches."""
    whole, rest = divmod(total, capacity)
    starts = [(0, 1), (capacity * (whole // 2), whole - 1)] if whole else []
    found = [(range(start, start + capacity), count) for start, count in starts if count > 0]
    return [*found, (range(total - rest, total), 1)] if rest else found


def best_order(problem: Problem, tile: tuple[int, int, int], target: Target) -> Order:
    """Returns the order in which XCDs load the least, with one workgroup (M, N, K) on a CU. The plain one if that saves
    little.

    Where only the running program knows the sizes, one that does for most: 8 columns to 4 rows, of what runs together.
    """
    if problem.m is None or problem.n is None:
        return Order(target.xcds, 4)
    grid = problem.matrices, -(-problem.m // tile[0]), -(-problem.n // tile[1])
    step_bits = [step * element_format(kind).bits for step, kind in zip(tile[:2], problem.types, strict=False)]
    ways = orders(target)
    loaded = np.sum([each.count * (each.fabric @ step_bits) for each in batches(grid, 1, ways, target)], axis=0)
    best = int(np.argmin(loaded))
    return ways[best] if loaded[best] < 0.95 * loaded[0] else PLAIN_ORDER


def tiles_of(ids: range, grid: tuple[int, int, int], orders: tuple[Order, ...]) -> tuple[Counts, Counts, Counts]:
    """Returns matrix, row and column of these workgroups' tiles, int64[orders, workgroups] each."""
    xcds, bands = (np.array(values)[:, None] for values in zip(*((o.xcds, o.band) for o in orders), strict=True))
    matrix, row, column = tile_of(np.arange(ids.start, ids.stop), grid, xcds, bands, np.minimum)
    return matrix, row, column


def of_lines(ids: range, count: int, rows: Counts, columns: Counts, xcds: int) -> Shared:
    """Returns `count` batches like that of workgroups `ids`. Numbers of rows and of columns are equal for the same
    data."""
    xcd, found = np.arange(ids.start, ids.stop) % xcds, []
    for lines in (rows, columns):
        found.append((_distinct(xcd * (int(lines.max()) + 1) + lines), _distinct(lines)))
    fabric, chip = (np.stack(counts, axis=1) for counts in zip(*found, strict=True))
    return Shared(len(ids), count, fabric, chip)


def _distinct(values: Counts) -> Counts:
    """Returns the number of different values in each row."""
    counts: Counts = 1 + np.count_nonzero(np.diff(np.sort(values, axis=1)), axis=1)
    return counts
