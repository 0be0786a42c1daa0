"""Operands of attention kernels in memory: how they are addressed, and which keys a query sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import element_format
from mxcomp.mlir import build
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.builder import Index, element, load, most, select
from mxcomp.ukernels.waves import BEYOND

LANE = 8
"""The number of elements of a factor in a lane."""
_LOAD = 128
"""The bits of the longest load of a lane."""


@dataclass(frozen=True)
class Subscript:
    """`(axis // stride) % extent`, of "n", the batch and head; "t", the query; "l", the key; "d", the element.

    An extent of None is a size that the program knows.
    """

    axis: str
    stride: int
    extent: int | None


@dataclass(frozen=True)
class Stored:
    """The layout of an operand in memory: its type, and the subscripts of each element. No dimension is of size 1.

    Narrow elements are bytes of a `format`, perhaps with `scales` of blocks. Of a slice it is that of the whole tensor,
    in which the slice begins at the element `offset`. The elements of rows behind its own may be in another: `rest`.
    """

    element: str
    sizes: tuple[int | None, ...]
    subscripts: tuple[Subscript, ...]
    format: str = ""
    scales: Stored | None = None
    offset: int = 0
    rest: Stored | None = None

    @property
    def is_flat(self) -> bool:
        """Whether the kernel gets it as one dimension: of two dynamic sizes IREE would not know that they fit."""
        return self.sizes.count(None) > 1

    @property
    def type(self) -> ir.RankedTensorType:
        return build.tensor_type([None] if self.is_flat else self.sizes, self.element)

    @property
    def bytes(self) -> int:
        """The bytes of all elements, with dynamic sizes of 1."""
        return math.prod(size or 1 for size in self.sizes) * self.element_bytes

    @property
    def read_bytes(self) -> int:
        """The bytes of those elements that subscripts reach."""
        return math.prod(each.extent or 1 for each in self.subscripts) * self.element_bytes

    @property
    def element_bytes(self) -> int:
        return {"i64": 8, "f32": 4, "i32": 4, "i8": 1}.get(self.element, 2)

    @property
    def bits(self) -> int:
        return element_format(self.format).bits if self.format else 8 * self.element_bytes

    def piece(self, size: int) -> int:
        """Returns how many consecutive elements of a row of keys a lane loads: as many as it can, or eight."""
        sizes = (_LOAD // self.bits >> shift for shift in range(8))
        return next(each for each in sizes if each == LANE or size % (4 * each) == 0)

    @property
    def most(self) -> int:
        """The largest product of dynamic sizes for which a buffer has room."""
        return builder.MOST_BYTES // self.bytes

    @property
    def row_size(self) -> int:
        """The number of elements of a row that it has."""
        return self.subscripts[-1].extent or 0

    def step(self, axis: str) -> int:
        """Returns the stride along an axis, or 0 where no subscript depends on it."""
        step = 1
        for size, each in zip(reversed(self.sizes), reversed(self.subscripts), strict=True):
            if each.axis == axis and each.stride == 1:
                return step
            step *= size or 0
        return 0

    def has_heads(self, group: int, inner: tuple[str, ...]) -> bool:
        """Returns whether groups of so many heads follow one another in it, each with these axes, and nothing else."""
        outer = self.subscripts[: -len(inner)]
        strides = [group * math.prod(each.extent or 0 for each in outer[i + 1 :]) for i in range(len(outer))]
        in_order = [(each.axis, each.stride) for each in outer] == [("n", stride) for stride in strides]
        is_inner = [(each.axis, each.stride) for each in self.subscripts[len(outer) :]] == [(axis, 1) for axis in inner]
        is_whole = self.sizes == tuple(each.extent for each in self.subscripts) and not self.offset and not self.rest
        return in_order and is_inner and is_whole


@dataclass(frozen=True)
class Bound:
    """An index among the keys: a number, plus the query's own index, plus one of the integers in memory."""

    number: int
    of_query: bool
    position: int | None = None


@dataclass(frozen=True)
class Reach:
    """A query sees the keys below all ends, from all starts on.

    `positions`: integers in memory, of a batch and head. `blind_sees_all`: of a query that sees none by that, all keys
    count alike; else nothing is its result.
    """

    ends: tuple[Bound, ...]
    starts: tuple[Bound, ...] = ()
    positions: tuple[Stored, ...] = ()
    blind_sees_all: bool = False


@dataclass(frozen=True)
class Paged:
    """Keys lie in pages of `size`, whose numbers are in a table; `count` is what is added to negative ones."""

    table: Stored
    size: int
    count: int = 0


@dataclass(frozen=True)
class Spec(standing.Plain):
    """The parameters that all kernels of attention of 16-bit elements have.

    Attributes:
        heads: Of queries, in all batches; None if the program knows how many.
        queries: Of each head; None likewise.
        size, value_size: Of a query or key, and of a value.
        keys: None if the program knows how many.
        scale: Of scores, times log2(e).
        query, key, value, mask: Operands.
        reach: Which keys a query sees; None: all.
        cap: What tanh of scores is multiplied by, times log2(e); None: scores are as they are.
        sink: A score of each head that counts in the sum of powers, and has no value.
        result: The type of results.
        packed: Results are quantised, and packed in inner tiles.
        pages: Which keys and values are in.
    """

    heads: int | None
    queries: int | None
    size: int
    value_size: int
    keys: int | None
    scale: float
    query: Stored
    key: Stored
    value: Stored
    mask: Stored | None = None
    reach: Reach | None = None
    cap: float | None = None
    sink: Stored | None = None
    result: str = ""
    packed: bool = False
    pages: Paged | None = None

    @property
    def operands(self) -> list[Stored]:
        positions = () if self.reach is None else self.reach.positions
        table = None if self.pages is None else self.pages.table
        others = self.key.rest, self.key.scales, self.value.scales, table, self.mask, self.sink
        return [self.query, self.key, self.value, *(each for each in others if each), *positions]

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [each.type for each in self.operands]


def last(keys: Index) -> Index:
    """Returns the last of so many keys, or the first where there is none."""
    return select(keys < 1, 0, keys + -1)


def times(one: Index, other: Index) -> Index:
    """Returns the product of an index by a number where one of them is constant."""
    for a, b in ((one, other), (other, one)):
        if not b.terms:
            return a * b.number
    return one.times(other)


class Operand:
    def __init__(
        self, stored: Stored, value: ir.Value, totals: Mapping[str, int | None],
        known: Mapping[str, Index] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Finds it in memory, by dynamic sizes of axes that are `known`, or by those of the tensor."""
        self.stored, self._totals = stored, totals
        dims = enumerate(zip(stored.sizes, stored.subscripts, strict=True))
        self._sizes = sizes = [
            Index.of(size) if size is not None else known.get(each.axis) or Index.of(build.dim(value, i)).here
            for i, (size, each) in dims
        ]
        steps = [1 if size is None else size for size in (*stored.sizes[1:], 1)]
        static = [None if None in stored.sizes[i + 1 :] else math.prod(steps[i:]) for i in range(len(sizes))]
        static = [1] if stored.is_flat else static
        self._buffer, start = self._memory(value, static)
        self._start = start + stored.offset
        self._steps = [reduce(times, sizes[i + 1 :], Index.of(1)) for i in range(len(sizes))]

    def _memory(self, value: ir.Value, strides: Sequence[int | None]) -> tuple[ir.Value, Index]:
        """Returns the memory that it is in, and where it begins."""
        return builder.whole(builder.whole_buffer(value, strides))

    def place(self, **axes: Index) -> Index:
        """Returns the index of the element with these subscripts. Those that are not given are 0."""
        place = self._start
        for each, step in zip(self.stored.subscripts, self._steps, strict=True):
            if each.axis not in axes:
                continue
            at = axes[each.axis] // each.stride
            total = self._totals.get(each.axis, 0)
            if each.extent is not None and (total is None or each.extent * each.stride < total):
                at = at % each.extent
            place = place + times(at, step)
        return place

    def size(self, axis: str) -> Index:
        """Returns the size of the only dimension along an axis."""
        return self._sizes[[each.axis for each in self.stored.subscripts].index(axis)]

    @property
    def step(self) -> int:
        """The stride of keys."""
        return self.stored.step("l")

    @property
    def beyond(self) -> int:
        """An index beyond the buffer: loads from there give 0, and take no time."""
        assert self.stored.bytes <= builder.MOST_BYTES, "no buffer, which would check indices"
        return BEYOND // self.stored.element_bytes

    def load_mask(self, place: Index, rows: Sequence[Index], is_even: bool) -> ir.Value:
        """Loads the mask of a lane's eight keys; `is_even`: the number of keys is a multiple of four."""
        if self.step == 1 and is_even:
            return builder.joined([self.load(place + rows[j], 4) for j in (0, 4)])
        return builder.from_elements([element(self.load(place + row * self.step, 1), 0) for row in rows])

    def copy_to_lds(self, place: Index, to: ir.Value, at: Index, size: int) -> None:
        """Copies so many consecutive elements of each lane to LDS."""
        builder.copy_to_lds(self._buffer, [place], to, at, size)

    def load(self, place: Index, size: int) -> ir.Value:
        return load(self._buffer, [place], size, alignment=self.stored.element_bytes * size)


class VisibleKeys:
    """The keys that queries of a head see."""

    def __init__(self, reach: Reach | None, keys: Index, head: Index, positions: Sequence[Operand]) -> None:
        self._reach, self._keys = reach, keys
        self._positions = [clamped(each.load(each.place(n=head), 1)) for each in positions]

    def of(self, query: Index) -> tuple[Index, Index, ir.Value | None]:
        """Returns the first key and the end of keys of a query, and whether it sees none and so takes all."""
        if self._reach is None:
            return Index.of(0), self._keys, None
        zero, keys = builder.i32(0), builder.to_i32(self._keys)
        ends = (self._place(each, query) for each in self._reach.ends)
        starts = (self._place(each, query) for each in self._reach.starts)
        end = reduce(lambda one, other: arith.MinSIOp(one, other).result, ends, keys)
        start = reduce(lambda one, other: arith.MaxSIOp(one, other).result, starts, zero)
        if not self._reach.blind_sees_all:
            end = arith.MaxSIOp(end, zero).result
            return builder.unsigned(arith.MinSIOp(start, end).result), builder.unsigned(end), None
        is_blind = arith.CmpIOp(arith.CmpIPredicate.sle, end, start).result
        none, all_ = (builder.unsigned(each) for each in (start, end))
        return select(is_blind, 0, none), select(is_blind, self._keys, all_), is_blind

    def _place(self, bound: Bound, query: Index) -> ir.Value:
        """Returns an i32, which may be negative."""
        place = builder.i32(bound.number)
        if bound.of_query:
            place = arith.AddIOp(place, builder.to_i32(query)).result
        return place if bound.position is None else arith.AddIOp(self._positions[bound.position], place).result

    def around(self, first: Index, last: Index) -> tuple[Index, Index]:
        """Returns the first key, and the end of keys, that any of a range of queries sees.

        What a query sees begins and ends no earlier than for one before; if one between sees none, one of both does.
        """
        (start, end, is_blind), (other_start, other_end, _) = self.of(first), self.of(last)
        if is_blind is None:
            return start, end if self._reach is None else most(end.here, other_end.here)
        low, high = (each.here for each in (start, other_start))
        return select(low < high, low, high), most(end.here, other_end.here)

    def by_all(self, first: Index, last: Index) -> tuple[Index, Index]:
        """Returns the first key, and the end of keys, that all of a range of queries see."""
        (start, _, is_last_blind), (_, end, is_blind) = self.of(last), self.of(first)
        if is_blind is None or is_last_blind is None:
            return start, end
        return select(is_last_blind, self._keys, start), select(is_blind, 0, end)


def clamped(number_: ir.Value) -> ir.Value:
    """Returns the only integer of a vector as an i32, to which a number of keys can be added."""
    value = element(number_, 0)
    kind = value.type
    low, high = (arith.ConstantOp(kind, each).result for each in (-(2**30), 2**30 - 1))
    value = arith.MinSIOp(arith.MaxSIOp(value, low).result, high).result
    i32 = ir.IntegerType.get_signless(32)
    return value if kind == i32 else arith.TruncIOp(i32, value).result
