"""The kernel that writes rows over those of a cache, at positions that the program computes, and touches nothing else.

A cache is groups of places for rows, such as the heads of sequences. A workgroup has a group, or a part of its places;
its threads take pieces of new rows by turns, and store those whose place is in their part. A row without a place there
is nowhere: of a place beyond the cache nothing is written.

Rows may be quantised as they are written: a piece is a block then, whose elements and scale are bytes of two caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import vector

from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.brought import QUANTISE_ROW
from mxcomp.ukernels.builder import Index, Threads, Values
from mxcomp.ukernels.waves import BLOCK, LANES, MFMA

_PIECE = 16
"""The largest number of bytes that a lane stores at once."""
_THREADS = 256


@dataclass(frozen=True)
class Rows:
    """New rows for each of `groups`, at positions of a cache.

    Attributes:
        groups: Of places, in all batches.
        length: Places of a group.
        parts: Workgroups that share a group.
        rows: New ones of each group.
        size: Elements of a new row.
        element: Their type.
        bits: Of an element.
        table: How many integers say where rows go.
        table_bits: Of each of them.
        sharing: Groups that share the integers of a sequence.
        by_row: Each row has an integer of its own.
        step, number: What is added to it: the row's number times one, and the other.
        caches: Written alike, each with rows of its own.
        format: The type that rows are quantised to; "": none.
        functions: A module's text with `@quantise0`, which returns the bytes of a block and its scale.
    """

    groups: int
    length: int
    parts: int
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
    format: str = ""
    functions: str = ""

    @property
    def name(self) -> str:
        """The name of the kernel: its purpose, and a digest of all parameters."""
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
    def threads(self) -> int:
        pieces = self.rows * self.size // self.piece
        return min(_THREADS, -(-pieces // LANES) * LANES)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The new rows of each cache, contiguous, and the halves of integers."""
        new = build.tensor_type([self.groups * self.rows * self.size], self.element)
        halves = build.tensor_type([2 * self.table], ir.IntegerType.get_signless(self.table_bits // 2))
        return [new] * self.caches + [halves]

    def result_types(self, workgroups: int) -> list[ir.RankedTensorType]:
        """Returns the types of caches, as so many workgroups see them."""
        places = self.length // self.parts
        return [build.tensor_type([workgroups, places, *each], kind) for *each, kind in self.stored] * self.caches

    @property
    def workgroups(self) -> int:
        return self.groups * self.parts

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        results = self.result_types(1)

        def write(workgroup: Index, given: Values, threads: Threads) -> None:
            buffers = [builder.whole_buffer(each, [1]) for each in given[: len(self.inputs)]]
            threads.keep(self._by_thread(threads.number, workgroup, buffers, threads.outs))

        kinds = [*self.inputs, *results]
        return standing.module(
            self.name, kinds, results, self.threads, write, [self.functions], in_place=self.caches * len(self.stored)
        )

    def _by_thread(self, thread: Index, workgroup: Index, buffers: Values, outs: Values) -> Values:
        """Returns caches with a thread's pieces of rows."""
        *new, table = buffers
        return self._with_pieces(thread, workgroup, new, table, outs, workgroup // self.parts * (self.rows * self.size))

    def _with_pieces(
        self, thread: Index, workgroup: Index, new: Values, table: ir.Value, outs: Values, first: Index | int,
        alignment: int | None = None,
    ) -> Values:  # fmt: skip
        """Returns caches with a thread's pieces of rows, which begin at the element `first` of their buffers."""
        group, part = workgroup // self.parts, workgroup % self.parts
        lanes, places = self.size // self.piece, self.length // self.parts
        widths = [size // lanes for size, _ in self.stored] * len(new)

        def put(item: Index, caches: Values) -> list[Values]:
            row, piece = item // lanes, item % lanes
            place = (self.place(table, group, row) + part * -places).here
            is_here = place < places
            is_part: list[Index | int] = [0, builder.select(is_here, place, 0)]
            values = [value for of in new for value in self.made(of, item * self.piece + first, alignment)]
            made = [
                builder.inserted(cache, [*is_part, piece * width], width, value, is_here)
                for cache, width, value in zip(caches, widths, values, strict=True)
            ]
            return [made]

        (made,) = builder.loop(Index.of(self.rows * lanes), put, outs, start=thread, step=self.threads)
        return made

    def place(self, table: ir.Value, group: Index, row: Index | int = 0) -> Index:
        """Returns the position of a row, from a signed integer."""
        row = Index.of(row)
        number = group // self.sharing * (self.rows if self.by_row else 1) + (row if self.by_row else 0)
        if self.table == 1:
            number = Index.of(0)
        halves = builder.load(table, [number * 2], 2)
        kind = ir.IntegerType.get_signless(self.table_bits)
        whole = vector.BitCastOp(ir.VectorType.get([1], kind), halves).result
        return Index.of(builder.element(whole, 0)) + row * self.step + self.number

    def made(self, new: ir.Value, start: Index, alignment: int | None) -> list[Callable[[], ir.Value]]:
        """Returns what loads a piece of a new row, or has elements and the scale of a block."""
        load = partial(builder.load, new, [start], self.piece, alignment)
        if not self.format:
            return [load]
        byte = ir.IntegerType.get_signless(8)
        elements = ir.VectorType.get([MFMA.lane_bytes(self.format)], byte)
        words = builder.bitcast(load(), "i32", BLOCK * self.bits // 32)
        made, scale = builder.call(QUANTISE_ROW, [words], elements, byte)
        return [lambda: made, lambda: builder.from_elements([scale])]
