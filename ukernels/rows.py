"""The kernel that writes rows over those of a cache, at positions that the program computes, and touches nothing else.

A cache is groups of places for rows, such as the heads of sequences. A workgroup has so many rows, and the whole cache:
where its rows go only the program knows. Its threads store pieces of them. Of a place beyond the cache nothing is
written. Of a dynamic number of rows a workgroup has one of each group.

Rows may be quantised as they are written: a piece is a block then, whose elements and scale are bytes of two caches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import memref

from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.brought import QUANTISE_ROW, quantised
from mxcomp.ukernels.builder import Index, Threads, Values
from mxcomp.ukernels.waves import BLOCK, LANES, MFMA

_PIECE = 16
"""The largest number of bytes that a lane stores at once."""
_THREADS = 256

Row: TypeAlias = tuple[Index, Index, list[Index]]
"""A group, the number of one of its new rows, and where a piece of that begins in a buffer."""


@dataclass(frozen=True)
class Rows(standing.Kernel):
    """New rows for each of `groups`, at positions of a cache.

    Attributes:
        groups: Of places, in all batches.
        length: Places of a group.
        rows: New ones of each group; 0: a dynamic number.
        size: Elements of a new row.
        element: Their type.
        bits: Of an element.
        table: How many integers say where rows go; 0: one for each of a dynamic number of rows.
        table_bits: Of each of them.
        sharing: Groups that share the integers of a sequence.
        by_row: Each row has an integer of its own.
        step, number: What is added to it: the row's number times one, and the other.
        caches: Written alike, each with rows of its own.
        workgroups: Each has as many rows.
        format: The type that rows are quantised to; "": none.
        functions: A module's text with `@quantise0`, which returns the bytes of a block and its scale.
    """

    groups: int
    length: int
    rows: int
    size: int
    element: str
    bits: int
    table: int
    table_bits: int
    sharing: int
    by_row: bool
    step: int
    number: int
    caches: int = 1
    workgroups: int = 1
    format: str = ""
    functions: str = ""

    @property
    def name(self) -> str:
        return f"mx_write_rows_r{self.rows}_d{self.size}_{builder.digest(self)}"

    @property
    def stored(self) -> list[tuple[int, str]]:
        """The elements that a row is in the cache, or in that of elements and that of scales, and their type."""
        if not self.format:
            return [(self.size, self.element)]
        blocks = self.size // BLOCK
        return [(blocks * MFMA.lane_bytes(self.format), "i8"), (blocks, "i8")]

    @property
    def piece(self) -> int:
        """Elements that a lane stores at once."""
        piece = BLOCK if self.format else _PIECE * 8 // self.bits
        while self.size % piece:
            piece //= 2
        return piece

    @property
    def own(self) -> int:
        """Elements of the new rows of one cache that a workgroup has."""
        return self.groups * (self.rows or 1) // self.workgroups * self.size

    @property
    def shared(self) -> int:
        """The dimension of new rows that workgroups have parts of."""
        return 0 if self.rows or self.groups == 1 else 1

    @property
    def threads(self) -> int:
        return min(_THREADS, -(-self.own // self.piece // LANES) * LANES)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """A workgroup's new rows of each cache, contiguous, and integers."""
        shape = [self.groups, 1, self.size] if self.shared else [1, self.own]
        new = build.tensor_type(shape, self.element)
        return [*[new] * self.caches, build.tensor_type([self.table or None], f"i{self.table_bits}")]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([self.groups, self.length, *each], kind) for *each, kind in self.stored] * self.caches

    @property
    def along(self) -> list[tuple[int, ...]]:
        return [()] * self.in_place

    @property
    def divided(self) -> Sequence[int]:
        return [self.shared] * self.caches

    @property
    def in_place(self) -> int:
        return self.caches * len(self.stored)

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        operands = given[: len(self.inputs)]
        buffers = [builder.whole_buffer(each, [None] * (each.type.rank - 1) + [1]) for each in operands]
        self._put(threads, workgroup, buffers)
        threads.keep()

    def _put(self, threads: Threads, workgroup: Index, buffers: Values) -> None:
        """Puts a thread's pieces of rows into caches."""
        *new, table = buffers
        count, lanes = self.own // self.size, self.size // self.piece

        def row(item: Index) -> Row:
            if self.rows:
                number = (workgroup * count + item // lanes).here
                return number // self.rows, number % self.rows, [Index.of(0), item * self.piece]
            group = (item // lanes).here
            return group, workgroup, [*[group] * self.shared, Index.of(0), item % lanes * self.piece]

        self._put_pieces(threads, threads.number, count, row, new, table)

    def _put_pieces(
        self, threads: Threads, thread: Index, count: int, row: Callable[[Index], Row], new: Values, table: ir.Value,
        first: int = 0, alignment: int | None = None,
    ) -> None:  # fmt: skip
        """Puts a thread's pieces of so many rows into caches from one on; `row` says which one a piece is of."""
        lanes = self.size // self.piece
        widths = [size // lanes for size, _ in self.stored] * len(new)
        caches = slice(first, first + len(widths))

        def put(item: Index) -> None:
            group, number, start = row(item)
            group, piece = group.here, item % lanes
            at, is_here = self.row_at(table, group, number)
            values = [load for each in new for load in self.made(each, start, alignment)]

            def put_here() -> None:
                pairs = zip(widths, [load() for load in values], strict=True)
                for number, (width, value) in enumerate(pairs, first):
                    threads.put(number, [*at, piece * width], width, value)

            threads.where(is_here, put_here, caches)

        threads.each(Index.of(count * lanes), put, self.threads, thread, caches)

    def row_at(self, table: ir.Value, group: Index, row: Index | int = 0) -> tuple[list[Index | int], ir.Value]:
        """Returns the place of a row in a cache, and whether it is one of it."""
        place = self.place(table, group, row).here
        is_here = place < self.length
        return [group, builder.select(is_here, place, 0)], is_here

    def place(self, table: ir.Value, group: Index, row: Index | int = 0) -> Index:
        """Returns the position of a row, from a signed integer."""
        row = Index.of(row)
        number = group // self.sharing * (self.rows if self.by_row else 1) + (row if self.by_row else 0)
        if not self.table:
            rows = Index.of(memref.DimOp(table, build.constant_index(0)).result) // (self.groups // self.sharing)
            number = (group // self.sharing).times(rows) + row
        if self.table == 1:
            number = Index.of(0)
        return Index.of(builder.element(builder.load(table, [number], 1), 0)) + row * self.step + self.number

    def made(self, new: ir.Value, start: Sequence[Index], alignment: int | None) -> list[Callable[[], ir.Value]]:
        """Returns what loads a piece of a new row, or has elements and the scale of a block."""
        load = partial(builder.load, new, start, self.piece, alignment)
        if not self.format:
            return [load]
        made, scale = quantised(self.format, builder.words(load()), QUANTISE_ROW)
        return [lambda: made, lambda: builder.from_elements([scale])]
