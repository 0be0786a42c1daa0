"""The permutation of one operand tile in memory, as plain data.

Every source dimension of the tile is expanded into instruction-internal, cross-thread and cross-intrinsic factors, and
the expanded tile is permuted: IREE's TileSwizzle (GPUTileSwizzleUtils.cpp in IREE).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

ROWS, COLUMNS = 0, 1
"""The source dimensions of a tile: rows are M or N, columns are K blocks (for the accumulator: M and N)."""


class Dim(NamedTuple):
    """One factor of an expanded tile dimension."""

    kind: str  # "Internal", "CrossThread" or "CrossIntrinsic"
    size: int


@dataclass(frozen=True)
class TileSwizzle:
    """`expand_shape[i]` are the factors of source dimension i, outermost first; `permutation` orders them all.

    Of source dimension i there are `multiples[i]` tiles, or 2 · `multiples[i]`, and so on.
    """

    expand_shape: tuple[tuple[Dim, ...], ...]
    permutation: tuple[int, ...]
    multiples: tuple[int, int] = (1, 1)

    @cached_property
    def dims(self) -> tuple[Dim, ...]:
        """All factors in source order."""
        return tuple(dim for dims in self.expand_shape for dim in dims)

    @cached_property
    def tile_shape(self) -> tuple[int, ...]:
        """The shape of the tile before expansion."""
        return tuple(math.prod(dim.size for dim in dims) for dims in self.expand_shape)

    @cached_property
    def packed_shape(self) -> tuple[int, ...]:
        """The shape of the tile after expansion and permutation."""
        return tuple(self.dims[i].size for i in self.permutation)

    @cached_property
    def factors(self) -> list[list[int]]:
        """The packed dimensions that each source dimension is made of, outermost first."""
        numbers = iter(range(len(self.dims)))
        return [[self.permutation.index(next(numbers)) for _ in dims] for dims in self.expand_shape]

    def tiles(self, source_dim: int, size: int | None) -> int | None:
        """Returns the number of tiles that cover `size` of a source dimension, including padding; None if dynamic."""
        multiple = self.multiples[source_dim]
        return None if size is None else -(-size // (self.tile_shape[source_dim] * multiple)) * multiple

    def strides(self, source_dim: int) -> tuple[int, ...]:
        """Returns, for each packed dimension, the distance of one step along `source_dim` of the tile (0: none)."""
        flat: list[int] = []
        for index, dims in enumerate(self.expand_shape):
            stride = self.tile_shape[index]
            for dim in dims:
                stride //= dim.size
                flat.append(stride if index == source_dim else 0)
        return tuple(flat[i] for i in self.permutation)

    def expand(self, source_dim: int, dim: Dim) -> TileSwizzle:
        """Adds `dim` as the outermost factor of `source_dim` and of the packed tile; a factor of 1 adds nothing."""
        if dim.size == 1:
            return self
        at = sum(len(dims) for dims in self.expand_shape[:source_dim])
        shape = list(self.expand_shape)
        shape[source_dim] = (dim, *shape[source_dim])
        return replace(self, expand_shape=tuple(shape), permutation=(at, *(p + (p >= at) for p in self.permutation)))

    def over_inner_tiles(self, rows: int, columns: int) -> TileSwizzle:
        """Returns so many of these tiles as one: [rows, columns] become its outermost packed dimensions, even if 1."""
        first, second = self.expand_shape
        places = [p + 1 + (p >= len(first)) for p in self.permutation]
        dims = (Dim("CrossIntrinsic", rows), *first), (Dim("CrossIntrinsic", columns), *second)
        return replace(self, expand_shape=dims, permutation=(0, 1 + len(first), *places))

    def interleave(self) -> TileSwizzle:
        """Moves the outermost packed dimension to just inside the innermost cross-thread dimension."""
        innermost = max(i for i, p in enumerate(self.permutation) if self.dims[p].kind == "CrossThread")
        first, *rest = self.permutation
        rest.insert(innermost, first)
        return replace(self, permutation=tuple(rest))

    def pack(self, source: np.ndarray) -> np.ndarray:
        """Packs an array into tiles, padding with zeros.

        `source` has one dimension per source dimension of the tile, in any dtype; a trailing dimension of the source
        that the tile holds whole (the 32 elements of a block) may have any size, so that bytes pack as codes do.
        Returns shape (outer tiles per source dimension …, packed tile …).
        """
        tile = self._tile_shape_for(source.shape)
        rows_and_columns = (self.tiles(dim, size) or 0 for dim, size in enumerate(source.shape[:2]))
        outer = (*rows_and_columns, *(1 for _ in source.shape[2:]))
        padded = np.zeros([o * t for o, t in zip(outer, tile, strict=True)], source.dtype)
        padded[tuple(slice(size) for size in source.shape)] = source
        sizes: list[int] = []
        for index, dims in enumerate(self.expand_shape):
            factors = [dim.size for dim in dims] if tile[index] == self.tile_shape[index] else [tile[index]]
            sizes += [outer[index], *factors]
        starts = np.cumsum([0, *(1 + len(dims) for dims in self.expand_shape)])[:-1]
        inner = [i for i in range(len(sizes)) if i not in starts]
        order = [*starts, *(inner[p] for p in self.permutation)]
        return np.ascontiguousarray(padded.reshape(sizes).transpose(order))

    def unpack(self, packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Inverts `pack` for a source of the given shape; padding is dropped."""
        positions = self.pack(np.arange(math.prod(shape), dtype=np.int64).reshape(shape) + 1)
        if positions.shape != packed.shape:
            raise ValueError(f"packed shape {packed.shape} does not belong to source shape {shape}: {positions.shape}")
        source = np.empty(math.prod(shape), packed.dtype)
        kept = positions > 0
        source[positions[kept] - 1] = packed[kept]
        return source.reshape(shape)

    def _tile_shape_for(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != len(self.tile_shape):
            raise ValueError(f"expected a source of rank {len(self.tile_shape)}, got shape {shape}")
        if len(shape) < 3:
            return self.tile_shape
        return (*self.tile_shape[:-1], shape[-1])


def split(swizzle: TileSwizzle, at: int, parts: list[Dim]) -> TileSwizzle:
    """Returns `swizzle` with factor `at` of its first source dimension split into adjacent `parts`."""
    rows, *others = swizzle.expand_shape
    more = len(parts) - 1
    permutation: list[int] = []
    for p in swizzle.permutation:
        permutation += range(at, at + len(parts)) if p == at else [p + more * (p > at)]
    return replace(
        swizzle, expand_shape=((*rows[:at], *parts, *rows[at + 1 :]), *others), permutation=tuple(permutation)
    )
