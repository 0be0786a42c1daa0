"""Code shared by attention kernels: addressing operands, and one step of softmax and both products.

    scores[32 keys, queries] = keys · queriesᵀ          two fragments of 16 keys
    sums[sizes, queries]    += valuesᵀ · exp2(scores − the largest so far)

A lane has scores of one query in both fragments, of four keys each, which are its factor of the second product: so they
stay in registers. A lane reads values of eight keys, in whole pieces of rows, and transposes them in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Protocol

from iree.compiler import ir
from iree.compiler.dialects import arith, vector
from iree.compiler.dialects import math as math_

from mxcomp.formats import element_format
from mxcomp.mlir import build
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index, Values, element, load, mfma, most, part, select
from mxcomp.ukernels.softmax import LOWEST, added, exp2, inverse, largest, number, of_column, splat, tree
from mxcomp.ukernels.waves import BEYOND

KEYS = 32
"""The number of keys of a step: two fragments of scores are one of the second product."""
COLUMNS = 16
"""The number of queries of a fragment."""
LANE = 8
"""The number of elements of a factor in a lane."""
_LOAD = 128
"""The bits of the longest load of a lane."""
DEPTH = 32
"""The number of elements along the sizes of queries and keys that a matrix instruction takes."""


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
    in which the slice begins at the element `offset`.
    """

    element: str
    sizes: tuple[int | None, ...]
    subscripts: tuple[Subscript, ...]
    format: str = ""
    scales: Stored | None = None
    offset: int = 0

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
        return {"f32": 4, "i32": 4, "i8": 1}.get(self.element, 2)

    @property
    def bits(self) -> int:
        """The number of bits of an element."""
        return element_format(self.format).bits if self.format else 8 * self.element_bytes

    def piece(self, size: int) -> int:
        """Returns how many consecutive elements of a row of keys a lane loads: as many as it can, or eight."""
        sizes = (_LOAD // self.bits >> shift for shift in range(8))
        return next(each for each in sizes if each == LANE or size % (4 * each) == 0)

    @property
    def most(self) -> int:
        """The largest product of dynamic sizes for which a buffer has room."""
        return builder.MOST_BYTES // self.bytes

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
        is_whole = self.sizes == tuple(each.extent for each in self.subscripts) and not self.offset
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


class Spec(Protocol):
    """The parameters that kernels are written for."""

    @property
    def query(self) -> Stored: ...
    @property
    def key(self) -> Stored: ...
    @property
    def value(self) -> Stored: ...
    @property
    def mask(self) -> Stored | None: ...
    @property
    def reach(self) -> Reach | None: ...
    @property
    def sink(self) -> Stored | None: ...
    @property
    def pages(self) -> Paged | None: ...


def inputs(spec: Spec) -> list[Stored]:
    """Returns the operands in order."""
    positions = () if spec.reach is None else spec.reach.positions
    scales = spec.key.scales, spec.value.scales
    table = None if spec.pages is None else spec.pages.table
    others = (each for each in (*scales, table, spec.mask, spec.sink) if each)
    return [spec.query, spec.key, spec.value, *others, *positions]


class Others:
    """The operands after queries, keys and values: an optional mask, an optional sink, and positions."""

    def __init__(self, spec: Spec, operands: Sequence[Operand]) -> None:
        masks, sinks = (0 if each is None else 1 for each in (spec.mask, spec.sink))
        self.mask, self.positions = operands[:masks], operands[masks + sinks :]
        self._sink = operands[masks] if sinks else None

    def start(self, head: Index, is_counted: ir.Value, fragments: int, size: int = 4) -> Values:
        """Returns the state of a lane's query before any key: what the sink of its head makes of it, where it is
        counted. `size`: of a fragment."""
        high, power = number(LOWEST), number(0.0)
        if self._sink is not None:
            sink = element(self._sink.load(self._sink.place(n=head), 1), 0)
            f32 = ir.F32Type.get()
            sink = sink if sink.type == f32 else arith.ExtFOp(f32, sink).result
            high = largest(high, arith.MulFOp(sink, number(math.log2(math.e))).result)
            power = chosen(is_counted, 1.0, 0.0)
        return [high, power, *(builder.f32_zeros(size) for _ in range(fragments))]


def last(keys: Index) -> Index:
    """Returns the last of so many keys, or the first where there is none."""
    return select(keys < 1, 0, keys + -1)


def chosen(condition: ir.Value | None, yes: float, no: float) -> ir.Value:
    """Returns one number where a condition holds, and another where not, or where there is no condition."""
    return number(no) if condition is None else arith.SelectOp(condition, number(yes), number(no)).result


def kept(sizes: Sequence[int]) -> list[int]:
    """Removes sizes of 1, as IREE drops them, and with them the name of the kernel."""
    return [size for size in sizes if size > 1]


def times(one: Index, other: Index) -> Index:
    """Returns the product of an index by a number where one of them is constant."""
    for a, b in ((one, other), (other, one)):
        if not b.terms:
            return a * b.number
    return one.times(other)


class Operand:
    """An operand in memory."""

    def __init__(
        self,
        stored: Stored,
        value: ir.Value,
        totals: Mapping[str, int | None],
        known: Mapping[str, Index] = MappingProxyType({}),
    ) -> None:
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
        """Loads so many consecutive elements."""
        return load(self._buffer, [place], size, alignment=self.stored.element_bytes * size)


class VisibleKeys:
    """The keys that queries of a head see."""

    def __init__(self, reach: Reach | None, keys: Index, head: Index, positions: Sequence[Operand]) -> None:
        self._reach, self._keys = reach, keys
        self._positions = [clamped(each.load(each.place(n=head), 2)) for each in positions]

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
    """Returns an integer in halves as an i32, to which a number of keys can be added."""
    kind = ir.IntegerType.get_signless(2 * ir.IntegerType(ir.VectorType(number_.type).element_type).width)
    value = element(builder.bitcast(number_, str(kind), 1), 0)
    low, high = (arith.ConstantOp(kind, each).result for each in (-(2**30), 2**30 - 1))
    value = arith.MinSIOp(arith.MaxSIOp(value, low).result, high).result
    i32 = ir.IntegerType.get_signless(32)
    return value if kind == i32 else arith.TruncIOp(i32, value).result


@dataclass(frozen=True)
class Pieces:
    """The elements of a value: `count` pieces, of each of which 16 lanes have `width` consecutive ones.

    As a part of sums a lane has `width` fragments of each, whose elements are `4 * width` neighbours.
    """

    count: int
    width: int

    @staticmethod
    def of(size: int) -> Pieces:
        width = math.gcd(size // COLUMNS, LANE)
        return Pieces(size // COLUMNS // width, width)

    @property
    def fragments(self) -> int:
        return self.count * self.width

    @property
    def shape(self) -> list[int]:
        """The shape of a row of results: pieces, the part of each in a quarter of the lanes, and its elements."""
        return [*kept([self.count]), 4, 4 * self.width]

    def part(self, quarter: Index) -> tuple[list[int], list[Index | int]]:
        """Returns the part of a row of results that a lane has, and where it begins."""
        pieces = kept([self.count])
        return [*pieces, 1, 4 * self.width], [*(0 for _ in pieces), quarter, 0]

    def elements(self, fragments: Values) -> Values:
        """Returns the elements of a lane, in the order of that part."""
        each = [fragments[i * self.width : (i + 1) * self.width] for i in range(self.count)]
        return [element(x, i) for piece in each for i in range(4) for x in piece]


def load_row(operand: Operand, place: Index, quarter: Index, size: int, piece: int = LANE) -> Values:
    """Loads factors of the first product from a row of queries or keys, with zeros beyond the last element.

    A lane has pieces of so many neighbours.
    """
    factors = []
    for start in range(0, size, 4 * piece):
        for at in (quarter * piece + (start + more) for more in range(0, piece, LANE)):
            if start + 4 * piece <= size:
                factors.append(operand.load(place + at, LANE))
            else:
                inside = at < size
                factors.append(builder.masked(inside, operand.load(place + select(inside, at, 0), LANE)))
    return factors


def load_values(operand: Operand, places: Sequence[Index], column: Index, pieces: Pieces) -> Values:
    """Loads a lane's part of the values of eight keys, piece by piece."""
    width = pieces.width
    return [
        operand.load(place + column * width + piece * width * COLUMNS, width)
        for piece in range(pieces.count)
        for place in places
    ]


def keys_of_lane(quarter: Index) -> list[Index]:
    """Returns the eight keys of a step whose scores, and values, a lane has."""
    return [quarter * 4 + (j // 4 * COLUMNS + j % 4) for j in range(LANE)]


def transposed(values: Values, pieces: Pieces) -> Values:
    """Returns factors of the second product from pieces of values."""
    factors: Values = []
    for number_ in range(pieces.count):
        rows = values[number_ * LANE : (number_ + 1) * LANE]
        order = [k for i in range(pieces.width) for k in (i, pieces.width + i)]
        pairs = [vector.ShuffleOp(*two, order).vector for two in zip(rows[::2], rows[1::2], strict=True)]
        factors += [builder.joined([part(pair, 2 * i, 2) for pair in pairs]) for i in range(pieces.width)]
    return factors


def scores(keys: Values, queries: Values, scale: ir.Value | None, cap: float | None) -> Values:
    """Returns the scores of a lane's eight keys with its query, times a scale, and capped if there is a cap."""
    found: Values = []
    for half in range(2):
        fragment = builder.f32_zeros(4)
        for key, query in zip(keys[half * len(queries) :], queries, strict=False):
            fragment = mfma((COLUMNS, COLUMNS, DEPTH), key, query, fragment)
        found += [element(fragment, i) for i in range(4)]
    return found if scale is None else scaled(found, scale, cap)


def scaled(found: Values, scale: ir.Value, cap: float | None) -> Values:
    """Returns scores times a scale, and capped if there is a cap."""
    found = [arith.MulFOp(score, scale).result for score in found]
    return found if cap is None else [_capped(score, cap) for score in found]


def _capped(score: ir.Value, cap: float) -> ir.Value:
    """Returns `cap` times tanh of a score: 1 - 2 / (1 + exp(2 score))."""
    more = added(exp2(added(score, score)), number(1.0))
    return arith.SubFOp(number(cap), arith.MulFOp(number(2 * cap), inverse(more)).result).result


def masked_by(mask: ir.Value, found: Values) -> Values:
    """Returns scores with eight numbers added, times log2(e)."""
    kind = ir.VectorType.get([LANE], ir.F32Type.get())
    wide = mask if mask.type == kind else arith.ExtFOp(kind, mask).result
    more = arith.MulFOp(wide, splat(number(math.log2(math.e)), LANE)).result
    return [added(score, element(more, i)) for i, score in enumerate(found)]


def seen(rows: Sequence[Index], start: Index | None, end: Index, found: Values) -> Values:
    """Replaces scores of keys outside of a range by ones without weight."""
    nothing = number(-math.inf)
    inside = [row < end for row in rows]
    if start is not None:
        inside = [builder.both(each, row >= start) for each, row in zip(inside, rows, strict=True)]
    return [arith.SelectOp(holds, score, nothing).result for holds, score in zip(inside, found, strict=True)]


@dataclass(frozen=True)
class State:
    """The running softmax of a lane's query: the largest score, the sum of powers, and sums of values."""

    high: ir.Value
    power: ir.Value
    sums: Values

    @classmethod
    def each(cls, flat: Values, fragments: int) -> list[State]:
        """Returns the states of so many fragments of queries from the values that a loop carries."""
        size = len(flat) // fragments
        parts = (flat[i : i + size] for i in range(0, len(flat), size))
        return [cls(high, power, sums) for high, power, *sums in parts]

    def rescaled(self, found: Values, scale: ir.Value | None = None) -> tuple[State, Values]:
        """Rescales the state to a new largest score, and returns it with the powers of new scores.

        `scale`, above 0, is what scores are yet to be multiplied by: together with the difference.
        """
        highest = of_column(tree(largest, found), largest)
        high = largest(self.high, highest if scale is None else arith.MulFOp(highest, scale).result)
        fades = exp2(arith.SubFOp(self.high, high).result)
        if scale is None:
            powers = [exp2(arith.SubFOp(score, high).result) for score in found]
        else:
            below = arith.NegFOp(high).result
            powers = [exp2(math_.FmaOp(score, scale, below).result) for score in found]
        power = added(arith.MulFOp(self.power, fades).result, tree(added, powers))
        return State(high, power, [arith.MulFOp(each, splat(fades, 4)).result for each in self.sums]), powers

    def plus(self, values: Values, powers: Values, type_: str) -> State:
        """Adds values of eight keys, weighted by their powers."""
        kind = ir.VectorType.get([LANE], ir.Type.parse(type_))
        factor = arith.TruncFOp(kind, builder.from_elements(powers)).result
        shape = (COLUMNS, COLUMNS, DEPTH)
        sums = [mfma(shape, value, factor, each) for value, each in zip(values, self.sums, strict=True)]
        return State(self.high, self.power, sums)


def divisor(total: ir.Value) -> ir.Value:
    """Returns the divisor of sums. It is 1 for a query that sees no key, whose sums are 0."""
    is_nothing = arith.CmpFOp(arith.CmpFPredicate.OEQ, total, number(0.0)).result
    return arith.SelectOp(is_nothing, number(1.0), total).result


def divided(values: ir.Value, by: ir.Value) -> ir.Value:
    """Divides a vector of f32 by a number."""
    inverse = arith.DivFOp(number(1.0), by).result
    return arith.MulFOp(values, splat(inverse, ir.VectorType(values.type).shape[0])).result


def widened(values: ir.Value) -> ir.Value:
    """Returns a vector of floats as f32."""
    kind = ir.VectorType(values.type)
    f32 = ir.F32Type.get()
    return values if kind.element_type == f32 else arith.ExtFOp(ir.VectorType.get(kind.shape, f32), values).result


def rounded(values: ir.Value, type_: str) -> ir.Value:
    """Rounds a vector of f32 to a type."""
    if type_ == "f32":
        return values
    kind = ir.VectorType.get(ir.VectorType(values.type).shape, ir.Type.parse(type_))
    return arith.TruncFOp(kind, values).result
