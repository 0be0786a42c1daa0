"""The order in which workgroups take the tiles of a result.

Workgroup i runs on XCD i % 8 of an MI355X, and each XCD has an L2 of its own. In the plain order, columns first, the
workgroups of an XCD share rows and columns of tiles only for some numbers of columns. In other orders each XCD gets
consecutive tiles, in bands of a few rows, column by column: the workgroups that run at the same time form a block of
tiles, which is as square as the band makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Order:
    """An order in which each of `xcds` gets equally many consecutive tiles (up to one), in bands of `band` rows."""

    xcds: int = 1
    band: int = 1

    def __str__(self) -> str:
        return "plain" if self == PLAIN_ORDER else f"{self.xcds} XCDs in bands of {self.band}"


PLAIN_ORDER = Order()
"""The order with columns innermost, then rows, then matrices of a batch."""


def tile_of(
    number: Any, grid: tuple[Any, Any, Any], xcds: Any, band: Any, least: Callable[[Any, Any], Any]
) -> tuple[Any, Any, Any]:
    """Returns matrix, row and column of the tile that workgroup `number` computes, in this order.

    `grid` counts matrices, rows and columns. Anything that has the arithmetic of whole numbers will do, among them
    arrays, and values of a program; `least` is the smaller of two. Each tile of the grid has one number.
    """
    matrices, rows, columns = grid
    tiles = rows * columns
    total = matrices * tiles
    xcd = number % xcds
    turn = xcd * (total // xcds) + least(xcd, total % xcds) + number // xcds
    matrix, tile = turn // tiles, turn % tiles
    first = tile // (band * columns) * band
    height = least(band, rows - first)
    within = tile - first * columns
    return matrix, first + within % height, within // height


@dataclass(frozen=True)
class HeadOrder:
    """The order in which workgroups take tiles of the queries of heads.

    Each of `xcds`, which divide the number of heads of keys, takes whole ones of these; and of each the tiles of all
    heads of queries that share it, side by side. The last tiles come first: where queries see the keys in front of
    them, these take longest, and short ones fill what is left at the end.
    """

    xcds: int
    shared: int
    tiles: Any

    def tile_of(self, number: Any) -> tuple[Any, Any]:
        """Returns the head of queries and the tile of workgroup `number`, which has the arithmetic of whole numbers."""
        turn, count = number // self.xcds, self.shared * self.tiles
        within = turn % count
        keys = number % self.xcds + turn // count * self.xcds
        return keys * self.shared + within % self.shared, within // self.shared * -1 + (self.tiles + -1)
