"""Attention of one token's queries whose workgroups compute these, and the new row of keys and values, themselves.

Queries and the row are in LDS. The row is stored in place by one workgroup of its head; none reads it from memory, as
all have it: a lane puts it in the place of what it has loaded, which is nothing then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import arith, vector

from mxcomp.mlir import build
from mxcomp.ukernels import attention, builder, standing
from mxcomp.ukernels.attention import DEPTH, KEYS, LANE, Operand, Pieces, Stored
from mxcomp.ukernels.attention_decode import Decode, Rows, writer
from mxcomp.ukernels.builder import Index, Threads, Values
from mxcomp.ukernels.rotated_rows import Element, RotatedRows

CACHES = 2
"""Keys and values, the first results."""


@dataclass(frozen=True)
class RotatedDecode:
    """Attention, and what computes its queries and the new row of its keys and values."""

    attention: Decode
    rows: RotatedRows

    @property
    def name(self) -> str:
        return f"{self.attention.name}_rotated"

    @property
    def threads(self) -> int:
        return self.attention.threads

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The operands: what queries and rows are computed from, where rows go, and the others of attention."""
        return [*self.rows.inputs, *(each.type for each in self.attention.inputs[1 + CACHES :])]

    @property
    def part(self) -> int:
        """The elements of a cache that a workgroup is given; it reads others."""
        rows = self.rows
        return rows.groups * rows.length * rows.size // self.attention.workgroups

    @property
    def along(self) -> list[tuple[int, ...]]:
        """The dimensions of workgroups of each result: those of packed results are two."""
        made = len(self.attention.result_types(1))
        if self.attention.packed:
            return [*[(0, 1)] * CACHES, *[(0, 2)] * made]
        return [(0,)] * (CACHES + made)

    def of_all(self, made: Sequence[ir.RankedTensorType]) -> list[ir.RankedTensorType]:
        """Returns the types of caches, and those of results of attention: of all workgroups, or of one."""
        outer = [made[0].shape[dim] for dim in self.along[-1]]
        return [*([build.tensor_type([*outer, self.part], self.rows.element)] * CACHES), *made]

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        results, write = self.of_all(self.attention.result_types(1)), writer(self.attention)
        kinds = [*self.inputs, *results]

        def written(workgroup: Index, given: Values, threads: Threads) -> None:
            new = _NewRow(self, workgroup, given, threads.number)
            own = Threads(threads.number, threads.outs[CACHES:], threads.results)
            write(self.attention, workgroup, given[len(self.rows.inputs) :], own, new).write()

        return standing.module(self.name, kinds, results, self.threads, written, self.rows.functions, in_place=CACHES)


class _Cache(Operand):
    """A cache of which a workgroup is given a part that begins behind so many elements."""

    def __init__(self, stored: Stored, value: ir.Value, totals: Mapping[str, int | None], first: Index) -> None:
        self._first = first
        super().__init__(stored, value, totals)

    def _memory(self, value: ir.Value, strides: Sequence[int | None]) -> tuple[ir.Value, Index]:
        *outer, size = ir.RankedTensorType(value.type).shape
        memory, start = super()._memory(value, [*(size for _ in outer), 1])
        return memory, (start + self._first * -1).here

    def store(self, start: Index, value: ir.Value, item: Index) -> None:
        """Stores an element in place. IREE knows of no store: what it has is the same cache before and after."""
        vector.StoreOp(value, self._buffer, [(start + item).value])


class _InLds(Operand):
    """Rows of a head in LDS, of which queries number heads."""

    def __init__(self, rows: int, size: int, element: str) -> None:
        self.memory, self._rows, self._size = builder.lds(rows * size, element), rows, size

    def place(self, **axes: Index) -> Index:
        return axes["n"] % self._rows * self._size

    def load(self, place: Index, size: int) -> ir.Value:
        return builder.read_lds(self.memory, place, size, 2 * size)


class _NewRow:
    """Writes what computes queries and the new row, and puts the latter where it is read."""

    def __init__(self, spec: RotatedDecode, workgroup: Index, given: Values, thread: Index) -> None:
        self._spec, self._thread, self._given = spec, thread, given
        rows, decode = spec.rows, spec.attention
        *self._taken, self._table = (builder.whole_buffer(each, [1]) for each in given[: len(rows.inputs)])
        self._is_owner = workgroup % (decode.splits // decode.waves) < 1
        self._first = workgroup * spec.part
        self._queries = _InLds(decode.rows, rows.size, rows.element)
        self._rows = [_InLds(1, rows.size, rows.element) for _ in range(CACHES)]

    def operands(self, totals: Mapping[str, int]) -> list[Operand]:
        decode, first = self._spec.attention, len(self._spec.inputs)
        given = zip((decode.key, decode.value), self._given[first:], strict=False)
        self._caches = [_Cache(stored, value, totals, self._first) for stored, value in given]
        return [self._queries, *self._caches]

    def make(self, head: Index) -> None:
        rows, decode = self._spec.rows, self._spec.attention
        place = rows.place(self._table, head).here
        self._place = builder.uniform(builder.select(place < rows.length, place, rows.length))
        self._starts = [each.place(n=head * decode.group, l=self._place).here for each in self._caches]
        *new, queries = rows.elements
        self._made = [self._elements(each, head, rows.size) for each in new]
        self._made_queries = self._elements(queries, head, rows.other)

    def _elements(self, element: Element, head: Index, count: int) -> Values:
        """Returns a thread's elements of so many of a head; threads that are too many repeat those of others.

        Threads have the same columns of each row where they can, of which LLVM computes a sine once.
        """
        threads = self._spec.threads
        items = [self._thread + first for first in range(0, count, threads)]
        return [element(self._taken, head * count + (item % count if threads > count else item)) for item in items]

    def keep(self) -> None:
        rows = self._spec.rows
        self._write(self._made_queries, self._queries, rows.other)
        for values, to in zip(self._made, self._rows, strict=True):
            self._write(values, to, rows.size)
        with builder.when(builder.both(self._is_owner, self._place < rows.length)):
            for values, cache, start in zip(self._made, self._caches, self._starts, strict=True):
                self._each(values, rows.size, partial(cache.store, start))
        builder.lds_barrier()

    def _write(self, values: Values, to: _InLds, count: int) -> None:
        self._each(values, count, lambda value, item: builder.write_lds(value, to.memory, item))

    def _each(self, values: Values, count: int, write: Callable[[ir.Value, Index], None]) -> None:
        """Writes a thread's elements of so many."""
        threads = self._spec.threads
        for number, value in enumerate(values):
            item = (self._thread + number * threads).here
            with builder.when(item < count) if (number + 1) * threads > count else nullcontext():
                write(builder.from_elements([value]), item)

    def is_stored(self, row: Index, is_there: ir.Value) -> ir.Value:
        is_other = arith.CmpIOp(arith.CmpIPredicate.ne, row.value, self._place.value).result
        return builder.both(is_there, is_other)

    def put(self, loaded: Values, start: Index, rows: Rows, column: Index, quarter: Index) -> Values:
        decode, pieces = self._spec.attention, Pieces.of(self._spec.attention.value_size)
        count = 2 * -(-decode.size // DEPTH) + LANE * pieces.count

        def renewed() -> Values:
            key, value = self._rows
            keys, values = ([row.is_value(self._place) for row in each] for each in rows())
            own = attention.load_row(key, Index.of(0), quarter, decode.size)
            of_value = attention.load_values(value, [Index.of(0)], column, pieces)
            chosen = [(is_new, each) for is_new in keys for each in own]
            chosen += [(is_new, each) for each in of_value for is_new in values]
            pairs = zip(chosen, loaded, strict=False)
            return [arith.SelectOp(is_new, new, before).result for (is_new, new), before in pairs]

        is_here = (self._place // KEYS).is_value(start // KEYS)
        return [*builder.choose(is_here, renewed, loaded[:count]), *loaded[count:]]
