"""The kernel that writes rows over those of a cache, at positions that the program computes, and touches nothing else.

A cache is groups of places for rows, such as the heads of sequences. A workgroup has a group, or shares it with others:
each has every so many places. Its threads take pieces of new rows by turns, and store those whose place is theirs. Of
rows that follow one another a workgroup knows its own; of many others it makes a list. Of a place beyond the cache
nothing is written.

Rows may be quantised as they are written: a piece is a block then, whose elements and scale are bytes of two caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import arith, memref, vector

from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.brought import QUANTISE_ROW
from mxcomp.ukernels.builder import Index, Threads, Values
from mxcomp.ukernels.waves import BLOCK, LANES, MFMA

_PIECE = 16
"""The largest number of bytes that a lane stores at once."""
_THREADS = 256
_MOST_LISTED = 8192
"""The largest number of rows of which there is a list, in LDS."""


@dataclass(frozen=True)
class Rows:
    """New rows for each of `groups`, at positions of a cache.

    Attributes:
        groups: Of places, in all batches.
        length: Places of a group.
        parts: Workgroups that share a group; each has the places of one remainder.
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
    def is_in_turn(self) -> bool:
        """Whether rows follow one another, so that a workgroup knows which are its own: every so many from one on."""
        return self.step == 1 and not self.by_row and self.parts > 1 and self.parts & (self.parts - 1) == 0

    @property
    def is_listed(self) -> bool:
        """Whether a workgroup first looks for the rows that are its own."""
        return not self.is_in_turn and self.parts > 1 and LANES < self.rows <= _MOST_LISTED

    @property
    def pieces(self) -> int:
        """The number that a workgroup goes through; of listed rows, as many as it has if all have as many."""
        rows = -(-self.rows // self.parts) if self.is_in_turn or self.is_listed else self.rows
        return rows * self.size // self.piece

    @property
    def threads(self) -> int:
        return min(_THREADS, -(-self.pieces // LANES) * LANES)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The new rows of each cache, contiguous, and the halves of integers."""
        new = build.tensor_type([self.groups * self.rows * self.size], self.element)
        halves = build.tensor_type([2 * self.table], ir.IntegerType.get_signless(self.table_bits // 2))
        return [new] * self.caches + [halves]

    @property
    def along(self) -> tuple[int, ...]:
        """The dimensions of caches that workgroups have parts of."""
        return (*([0] if self.groups > 1 else []), *([1 + (self.groups > 1)] if self.parts > 1 else []))

    def result_types(self, of_workgroup: bool = False) -> list[ir.RankedTensorType]:
        """Returns the types of caches, or of a workgroup's parts: IREE would drop dimensions of one group or part."""
        outer = {0: self.groups, 1: self.length // self.parts, 2: self.parts}
        sizes = [1 if of_workgroup and i != 1 else size for i, size in outer.items() if size > 1]
        return [build.tensor_type([*sizes, *each], kind) for *each, kind in self.stored] * self.caches

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        results = self.result_types(of_workgroup=True)

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
        group, part, parts = workgroup // self.parts, workgroup % self.parts, self.parts
        lanes = self.size // self.piece
        widths = [size // lanes for size, _ in self.stored] * len(new)
        # Places may be negative: the remainder of a power of two is that of the bits.
        turn = ((part + self.place(table, group) * -1).here % parts).here if self.is_in_turn else Index.of(0)
        own, count = self._own(thread, table, group, part) if self.is_listed else (None, Index.of(self.pieces // lanes))

        def put(item: Index, caches: Values) -> list[Values]:
            row, piece, start = item // lanes, item % lanes, item * self.piece
            if self.is_in_turn:
                row = (turn + row * parts).here
            elif own is not None:
                row = Index.of(builder.element(builder.read_lds(own, row, 1), 0))
            place = self.place(table, group, row).here
            is_here = place < self.length if self.is_in_turn or own is not None else self._is_own(place, part)
            if self.is_in_turn and self.rows % parts:
                is_here = builder.both(is_here, row < self.rows)
                row = builder.select(is_here, row, 0)
            if self.is_in_turn or own is not None:
                start = row * self.size + piece * self.piece
            inside = builder.select(is_here, place // parts, 0)
            at: list[Index | int] = [*[0] * (self.groups > 1), inside, *[0] * (parts > 1)]
            values = [value for of in new for value in self.made(of, start + first, alignment)]

            def stored(cache: ir.Value, width: int, value: ir.Value) -> ir.Value:
                return builder.inserted(cache, [*at, piece * width], width, lambda: value)

            def written() -> Values:
                return [stored(*each) for each in zip(caches, widths, [load() for load in values], strict=True)]

            return [builder.choose(is_here, written, caches)]

        (made,) = builder.loop(count * lanes, put, outs, start=thread, step=self.threads)
        return made

    def _is_own(self, place: Index, part: Index) -> ir.Value:
        is_here = place < self.length
        return is_here if self.parts == 1 else builder.both(is_here, (place % self.parts).is_value(part))

    def _own(self, thread: Index, table: ir.Value, group: Index, part: Index) -> tuple[ir.Value, Index]:
        """Returns a list of the rows whose places are a workgroup's, in any order, and how many they are."""
        own, count = builder.lds(self.rows, "i32"), builder.lds(1, "i32")
        with builder.when(thread.is_value(0)):
            builder.write_lds(builder.from_elements([builder.i32(0)]), count, Index.of(0))
        builder.lds_barrier()

        def look(row: Index) -> list[Values]:
            with builder.when(self._is_own(self.place(table, group, row).here, part)):
                number = memref.AtomicRMWOp(arith.AtomicRMWKind.addi, builder.i32(1), count, [build.constant_index(0)])
                builder.write_lds(builder.from_elements([builder.to_i32(row)]), own, Index.of(number.result))
            return []

        builder.loop(Index.of(self.rows), look, start=thread, step=self.threads)
        builder.lds_barrier()
        return own, builder.uniform(Index.of(builder.element(builder.read_lds(count, Index.of(0), 1), 0)))

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
