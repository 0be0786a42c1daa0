"""Attention of one token's queries whose workgroups compute these, and the new row of keys and values, themselves.

Queries and the row are in LDS, the row as a cache stores it: where that is quantised, a thread makes a block. The row
is stored in place by one workgroup of its head; none reads it from memory, as all have it: a lane puts it in the place
of what it has loaded, which is nothing then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, product

from iree.compiler import ir
from iree.compiler.dialects import arith, vector

from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.attention import KEYS, Pieces
from mxcomp.ukernels.attention_cache import Cache
from mxcomp.ukernels.attention_decode import Decode, Loads, Rows, writer
from mxcomp.ukernels.attention_memory import Operand, Stored
from mxcomp.ukernels.builder import Index, Threads, Values
from mxcomp.ukernels.rotated_rows import Element, RotatedRows
from mxcomp.ukernels.waves import BLOCK

CACHES = 2
"""Keys and values."""
_ALIGNMENT = 16
"""The alignment of rows in LDS in bytes."""


@dataclass(frozen=True)
class RotatedDecode(standing.Kernel):
    """Attention, and what computes its queries and the new row of its keys and values.

    `functions` is a module of those that attention calls; "": none.
    """

    attention: Decode
    rows: RotatedRows
    functions: str = ""

    @property
    def name(self) -> str:
        return f"{self.attention.name}_rotated"

    @property
    def threads(self) -> int:
        return self.attention.threads

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        """The operands: what queries and rows are computed from, where rows go, and the others of attention."""
        return [*self.rows.inputs, *self.attention.inputs[1 + len(self.caches) :]]

    @property
    def caches(self) -> list[Stored]:
        return self.attention.caches

    @property
    def parts(self) -> list[int]:
        """The elements of each cache that a workgroup is given; it reads others."""
        return [math.prod(size or 0 for size in each.sizes) // self.attention.workgroups for each in self.caches]

    @property
    def along(self) -> list[tuple[int, ...]]:
        own = self.attention.places
        return [tuple(range(len(own[0])))] * self.in_place + own

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of caches in parts, and those of results of attention."""
        first, *_ = made = self.attention.results
        outer, pairs = [first.shape[dim] for dim in self.attention.along], zip(self.caches, self.parts, strict=True)
        return [*(build.tensor_type([*outer, part], each.element) for each, part in pairs), *made]

    @property
    def in_place(self) -> int:
        return len(self.caches)

    @property
    def modules(self) -> list[str]:
        return [self.rows.functions, self.functions]

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        new = _NewRow(self, workgroup, given, threads.number)
        own = Threads(threads.number, threads.outs[self.in_place :], threads.results)
        writer(self.attention)(self.attention, workgroup, given[len(self.rows.inputs) :], own, new).write()


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
        """Stores elements in place. IREE knows of no store: what it has is the same cache before and after."""
        vector.StoreOp(value, self._buffer, [(start + item).value])


class _InLds(Operand):
    """Rows of a head in LDS: its queries, or a row of keys and one of values."""

    def __init__(self, rows: int, size: int, stored: Stored) -> None:
        self.memory, self._rows, self._size = builder.lds(rows * size, stored.element), rows, size
        self.stored = stored

    def place(self, **axes: Index) -> Index:
        return axes["n"] % self._rows * self._size

    def load(self, place: Index, size: int) -> ir.Value:
        return builder.read_lds(self.memory, place, size, self.stored.element_bytes * size)


class _NewRow:
    """Writes what computes queries and the new row, and puts the latter where it is read."""

    def __init__(self, spec: RotatedDecode, workgroup: Index, given: Values, thread: Index) -> None:
        self._spec, self._thread, self._given = spec, thread, given
        rows, decode = spec.rows, spec.attention
        *self._taken, self._table = (builder.whole_buffer(each) for each in given[: len(rows.inputs)])
        self._is_owner = workgroup % (decode.splits // decode.waves) < 1
        self._workgroup = workgroup
        self._queries = _InLds(decode.rows, rows.size, decode.query)
        stored = (each for each in (decode.key, decode.key.scales) if each)
        self._rows = [_InLds(CACHES, size, each) for (size, _), each in zip(rows.stored, stored, strict=True)]
        self._own = [Cache(self._rows, decode.query.element, Index.of(number), 0) for number in range(CACHES)]
        self._new = builder.lds(CACHES * rows.size, rows.element) if rows.format else self._rows[0].memory

    def operands(self, totals: Mapping[str, int]) -> list[Operand]:
        given = zip(self._spec.caches, self._given[len(self._spec.inputs) :], self._spec.parts, strict=False)
        self._caches = [_Cache(stored, value, totals, self._workgroup * part) for stored, value, part in given]
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
        rows, here = self._spec.rows, builder.both(self._is_owner, self._place < self._spec.rows.length)
        self._each(self._made_queries, rows.other, partial(self._write, self._queries.memory, 0))
        for number, values in enumerate(self._made):
            self._each(values, rows.size, partial(self._write, self._new, number * rows.size))
        if rows.format:
            self._quantise(here)
        else:
            with builder.when(here):
                for values, cache, start in zip(self._made, self._caches, self._starts, strict=True):
                    self._each(values, rows.size, partial(cache.store, start))
        builder.lds_barrier()

    def _quantise(self, is_stored: ir.Value) -> None:
        """Quantises a block of the rows in LDS in each of the first threads."""
        rows, block = self._spec.rows, self._thread
        blocks = rows.size // BLOCK
        builder.lds_barrier()
        with builder.when(block < CACHES * blocks):
            made = [make() for make in rows.made(self._new, [block * BLOCK], _ALIGNMENT)]
            widths = [size // blocks for size, _ in rows.stored]
            for value, to, width in zip(made, self._rows, widths, strict=True):
                self._write(to.memory, 0, value, block * width)
            for number in range(CACHES):
                with builder.when(builder.both(is_stored, (block // blocks).is_value(number))):
                    of_cache = zip(self._caches[number::CACHES], self._starts[number::CACHES], strict=True)
                    for (cache, start), value, width in zip(of_cache, made, widths, strict=True):
                        cache.store(start, value, block % blocks * width)

    @staticmethod
    def _write(to: ir.Value, first: int, value: ir.Value, item: Index) -> None:
        builder.write_lds(value, to, item + first)

    def _each(self, values: Values, count: int, write: Callable[[ir.Value, Index], None]) -> None:
        items = builder.shared_out(count, self._thread, self._spec.threads)
        for value, (item, is_there) in zip(values, items, strict=True):
            with nullcontext() if is_there is None else builder.when(is_there):
                write(builder.from_elements([value]), item)

    def is_stored(self, row: Index, is_there: ir.Value) -> ir.Value:
        is_other = arith.CmpIOp(arith.CmpIPredicate.ne, row.value, self._place.value).result
        return builder.both(is_there, is_other)

    def put(self, loaded: list[Loads], start: Index, rows: Rows, column: Index, quarter: Index) -> list[Loads]:
        decode, pieces = self._spec.attention, Pieces.of(self._spec.attention.value_size)

        def renewed() -> Loads:
            key, value = self._own
            keys, values = ([row.is_value(self._place) for row in each] for each in rows())
            new = [*product(keys, key.load_row(key.starts, quarter, decode.size))]
            new += [(is_new, each) for each in value.load_values([value.starts], column, pieces) for is_new in values]
            return [
                [arith.SelectOp(is_new, *pair).result for pair in zip(each, before, strict=True)]
                for (is_new, each), before in zip(new, chain(*loaded), strict=True)
            ]

        is_here = (self._place // KEYS).is_value(start // KEYS)
        return builder.choose(is_here, renewed, loaded)
