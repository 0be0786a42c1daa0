"""Attention of few queries: a kernel whose workgroups each take a part of the keys (split-KV).

All queries of one head of keys are the columns of a tile, so that each key is read once. A wave takes `1 / splits` of a
head's keys, 32 at a time, with the next ones in flight. Its results are undivided sums, the largest score, and the sum
of powers. A workgroup is one wave, and another kernel combines those of all in order (`attention_combine.py`); or, of
enough heads, it has all waves of one, which combine theirs through LDS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import scalars as s
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels.attention import COLUMNS, KEYS, Pieces, State
from mxcomp.ukernels.attention_cache import Cache
from mxcomp.ukernels.attention_decode_parameters import PIECE, Parameters
from mxcomp.ukernels.attention_memory import LANE, Operand, VisibleKeys, clamped, last, times
from mxcomp.ukernels.builder import Index, Threads, Values, element, loop, select
from mxcomp.ukernels.normalised_rows import put_block
from mxcomp.ukernels.softmax import added, exp2, largest, number, of_column, splat, tree
from mxcomp.ukernels.waves import BEYOND, INNER_ROWS, LANES

_PREFETCHED = 320
"""The sizes of a key and a value up to which two steps fit into registers."""
_CHUNK, _QUAD = 8, 4
"""The numbers of a result's neighbours that a thread combines, and of lanes that share a block."""


class Decode(Parameters):
    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        writer(self)(self, workgroup, given, threads).write()


Loads: TypeAlias = list[Values]
"""The values that each load of keys or values gives."""

Rows: TypeAlias = Callable[[], tuple[Sequence[Index], Sequence[Index]]]


class NewRow(Protocol):
    """The row of keys and values, and the queries, of a head that a workgroup computes itself."""

    def operands(self, totals: Mapping[str, int]) -> list[Operand]:
        """Returns queries, keys and values."""

    def make(self, head: Index) -> None:
        """Computes a thread's part of a head's; in registers."""

    def keep(self) -> None:
        """Gives them to all threads of the workgroup, and stores the row if that is for this one to do."""

    def is_stored(self, row: Index, is_there: ir.Value) -> ir.Value:
        """Returns whether a row that may be there is read from memory."""

    def put(self, loaded: list[Loads], start: Index, rows: Rows, column: Index, quarter: Index) -> list[Loads]:
        """Returns what a lane has loaded of keys and values, with the new row in its place.

        They are those of a step, which starts with this key; `rows` returns those that the lane has.
        """


class _Decode:
    def __init__(
        self, spec: Decode, workgroup: Index, given: Values, threads: Threads, new: NewRow | None = None
    ) -> None:
        self.spec, self.threads, self.new = spec, threads, new
        self.pieces = Pieces.of(spec.value_size)
        lane, self.wave = threads.number % LANES, builder.uniform(threads.number // LANES)
        self.column, self.quarter = (lane % COLUMNS).here, (lane // COLUMNS).here
        number_ = self.wave + workgroup * spec.waves
        self.head, split = (number_ // spec.splits).here, (number_ % spec.splits).here
        self.is_first = builder.both(split < 1, self.quarter < 1)
        totals = {"n": spec.heads, "t": spec.queries}
        made = [] if new is None else new.operands(totals)
        stored = spec.operands[len(made) :]
        inputs = [Operand(each, value, totals) for each, value in zip(stored, given, strict=False)]
        operands = iter([*made, *inputs])
        self.query, key, value = islice(operands, 3)
        rest = [next(operands)] if spec.key.rest else []
        key_scales, value_scales = ([next(operands)] if each.stored.scales else [] for each in (key, value))
        self.table = None if spec.pages is None else next(operands)
        self.others = attention.Others(spec, list(operands))
        keys = Index.of(spec.keys) if spec.keys is not None else key.size("l")
        first = (self.head * spec.group).here
        self.visible = VisibleKeys(spec.reach, keys, first, self.others.positions)
        self.start, self.keys = self.visible.around(Index.of(0), Index.of(spec.queries - 1))
        self.is_known = spec.keys is not None and spec.reach is None
        self._share(split)
        kind = spec.query.element
        page = 0 if spec.pages is None else spec.pages.size
        self.of_table = first
        self.key, own = Cache([key, *key_scales], kind, first, page), key.stored.row_size if rest else spec.size
        self.key_parts = [(self.key, own), *((Cache([each], kind, first, 0), spec.size - own) for each in rest)]
        self.value = Cache([value, *value_scales], kind, first, page)
        self.of_masks = [
            [each.place(n=n, t=t).here for each in self.others.mask] for n, t in map(self._query, range(spec.fragments))
        ]
        self.bounds, self.scales = [], []
        for _, t in map(self._query, range(spec.fragments)):
            start, end, is_blind = self.visible.of(t)
            self.bounds.append((start.here, end.here))
            self.scales.append(attention.chosen(is_blind, 0.0, spec.scale))

    def _share(self, split: Index) -> None:
        """Returns the keys of this workgroup: steps from `first` on, `count` of them, below `bound`."""
        spec = self.spec
        self.steps = ((self.keys + (KEYS - 1)) // KEYS).here
        before = (self.start // KEYS).here
        share = ((self.steps + before * -1 + (spec.splits - 1)) // spec.splits).here
        self.first = (before + times(split, share)).here
        self.is_even = self.is_known and (spec.keys or 0) % (KEYS * spec.splits) == 0
        end = (self.first + share).here
        if self.is_even:
            self.count, self.bound = share, None
        else:
            last = select(end < self.steps, end, self.steps)
            self.count = select(self.first < last, last + self.first * -1, 0)
            self.bound = select(end < self.steps, end * KEYS, self.keys)

    def _query(self, fragment: int) -> tuple[Index, Index]:
        """Returns batch and head, and query, of a lane's column; columns beyond the last query repeat it."""
        spec = self.spec
        row = self.column + fragment * COLUMNS
        if spec.rows % COLUMNS:
            row = select(row < spec.rows, row, spec.rows - 1)
        return self.head * spec.group + row // spec.queries, row % spec.queries

    def write(self) -> None:
        spec = self.spec
        is_prefetched, first = spec.size + spec.value_size <= _PREFETCHED, list[Any]()
        if self.new is not None:
            self.new.make(self.head)
            first = self._load(Index.of(0)) if is_prefetched else first
            self.new.keep()
        queries, heads = [self._load_queries(n) for n in range(spec.fragments)], map(self._query, range(spec.fragments))
        states = [self.others.start(head, self.is_first, self.pieces.fragments) for head, _ in heads]

        def turn(step: Index, loaded: list[Any], carried: list[Any]) -> list[Any]:
            ahead = self._load(step + 1, loaded[-1])
            builder.keep_loads()
            builder.sched_barrier()
            return [ahead, self._multiply(step, queries, loaded, carried)]

        def alone(step: Index, carried: list[Any]) -> list[Any]:
            return [self._multiply(step, queries, self._load(step), carried)]

        if is_prefetched:
            first = first or self._load(Index.of(0))
            builder.keep_loads()
            _, states = loop(self.count, turn, first, states)
        else:
            (states,) = loop(self.count, alone, states)
        self._store([State(*each) for each in states])

    def _load_queries(self, fragment: int) -> Values:
        n, t = self._query(fragment)
        place, piece = self.query.place(n=n, t=t).here, self.spec.key.piece(self.spec.size)

        def load(at: Index) -> Values:
            return [self.query.load(place + (at + more), LANE) for more in range(0, piece, LANE)]

        return [each for loaded in attention.load_row(self.quarter, self.spec.size, piece, load) for each in loaded]

    def _load(self, step: Index, ids: Values | None = None) -> list[Any]:
        """Loads keys, values and masks of a step, counted from the first one; nothing after the last step.

        Of keys in pages also the ids of the next step; `ids` are those of this one, by default loaded here.
        """
        is_there, start = step < self.count, ((self.first + step) * KEYS).here
        pages = self._ids(step) if ids is None else ids
        of_lane, rows = self._rows(start)
        keys, masks = Loads(), Values()
        for half, row in enumerate(of_lane):
            is_stored = self._is_stored(row, is_there)
            for part, size in self.key_parts:
                keys += part.load_row(part.row(row, is_stored, pages[half:]), self.quarter, size)
        places = [self.value.row(row, self._is_stored(row, is_there), pages[i // 4 :]) for i, row in enumerate(rows)]
        values = self.value.load_values(places, self.column, self.pieces)
        for of_fragment in self.of_masks:
            for each, place in zip(self.others.mask, of_fragment, strict=True):
                of_rows = [self._clamped(row) for row in rows]
                masks.append(each.load_mask(select(is_there, place, each.beyond), of_rows, self.is_even))
        return [keys, values, masks, self._ids(step + 1) if pages else []]

    def _rows(self, start: Index) -> tuple[list[Index], list[Index]]:
        """Returns the two rows of keys, and the eight of values, that a lane has of the step with this first key."""
        keys = [start + self.column + half * COLUMNS for half in range(2)]
        return keys, [start + key for key in attention.keys_of_lane(self.quarter)]

    def _is_stored(self, row: Index, is_there: ir.Value) -> ir.Value:
        """Returns whether a row is loaded: one that no query sees is 0, as no weight of 0 may meet an infinity."""
        if not self.is_even:
            is_there = builder.both(is_there, row < self.keys)
        return is_there if self.new is None else self.new.is_stored(row, is_there)

    def _ids(self, step: Index) -> Values:
        """Returns the pages of both halves of a step's keys, none of which is divided."""
        if self.table is None or self.spec.pages is None:
            return []
        found = []
        for half in range(2):
            key = self._clamped((self.first + step) * KEYS + half * COLUMNS)
            page = clamped(self.table.load(self.table.place(n=self.of_table, l=key), 1))
            more = s.plus(page, self.spec.pages.count)
            found.append(s.select(s.less(page, 0), more, page))
        return found

    def _clamped(self, row: Index) -> Index:
        return row if self.is_even else select(row < self.keys, row, last(self.keys))

    def _multiply(self, step: Index, queries: list[Values], loaded: list[Any], carried: list[Any]) -> list[State]:
        """Multiplies 32 keys, and returns the states that the loop carries."""
        keys, values, masks, _ = loaded
        if self.new is not None:
            start = ((self.first + step) * KEYS).here
            keys, values = self.new.put([keys, values], start, partial(self._rows, start), self.column, self.quarter)
        keys = self.key.factors(keys, self.spec.size)
        factors = attention.transposed(self.value.values(values, self.pieces.width), self.pieces)
        result = list[State]()
        for number_, (state, query) in enumerate(zip(carried, queries, strict=True)):
            found = attention.scores(keys, query, self.scales[number_], self.spec.cap)
            if masks:
                found = attention.masked_by(masks[number_], found)
            if self.bound is not None:
                bound, reach, (start, end) = self.bound, self.spec.reach, self.bounds[number_]
                if reach is not None and self.spec.queries > 1:
                    bound = select(bound < end, bound, end)
                place = (self.first + step) * KEYS
                lane = [place + key for key in attention.keys_of_lane(self.quarter)]
                found = attention.seen(lane, start if reach is not None and reach.starts else None, bound, found)
            rescaled, powers = State(*state).rescaled(found)
            result.append(rescaled.plus(factors, powers, self.spec.query.element))
        return result

    def _store(self, states: list[State]) -> None:
        """Stores all that a lane has. Padding is stored beyond the end of the buffer, where the hardware drops it."""
        spec, pieces = self.spec, self.pieces
        is_row = self.column < spec.rows
        values, numbers = self._values(states), self._numbers(states)
        shape, place = pieces.part(self.quarter)
        self.threads.store_each(
            self._part(values, spec.value_size, is_row, shape, place),
            self._part(numbers, 2, builder.both(is_row, self.quarter < 1), [2], [0]),
        )

    def _values(self, states: list[State]) -> Values:
        """Returns a lane's sums of each fragment."""
        values = [builder.from_elements(self.pieces.elements(each.sums)) for each in states]
        if self.spec.value_scale != 1.0:
            scale = splat(number(self.spec.value_scale), self.pieces.fragments * 4)
            values = [arith.MulFOp(each, scale).result for each in values]
        return values

    @staticmethod
    def _numbers(states: list[State]) -> Values:
        """Returns the largest score and the sum of powers of a lane's query of each fragment."""
        return [builder.from_elements([each.high, of_column(each.power, added)]) for each in states]

    def _part(
        self, values: Values, size: int, is_stored: ir.Value, shape: list[int], place: list[Index | int]
    ) -> builder.Part:
        """Returns the lane's part of a result whose rows have a given size."""
        fragments, _ = self.spec.stored
        return values, [1, fragments, 1, *shape], [0, 0, select(is_stored, self.column, BEYOND // (4 * size)), *place]


class _Whole(_Decode):
    """Writes the kernel of workgroups that have all parts of a head.

    In LDS runs of a row's sums that a lane has are a piece apart, so that lanes meet no bank twice.
    """

    def __init__(self, spec: Decode, *others: Any) -> None:
        super().__init__(spec, *others)
        self.run, self.row = spec.run, spec.run_row
        self.parts = builder.lds(spec.splits * spec.rows * self.row, "f32")
        self.numbers = builder.lds(spec.splits * spec.rows * 2, "f32")

    def _place(self, part: Index, row: Index, element_: Index) -> Index:
        run = element_ // self.run * (self.run + PIECE)
        return (part * self.spec.rows + row) * self.row + run + element_ % self.run

    def _store(self, states: list[State]) -> None:
        spec, run = self.spec, self.run
        for fragment, (sums, numbers) in enumerate(zip(self._values(states), self._numbers(states), strict=True)):
            row = self.column + fragment * COLUMNS
            with builder.when(row < spec.rows):
                for piece in range(self.pieces.count):
                    place = self._place(self.wave, row, (self.quarter + piece * 4) * run)
                    for at in range(0, run, PIECE):
                        builder.write_lds(builder.part(sums, piece * run + at, PIECE), self.parts, place + at)
                with builder.when(self.quarter < 1):
                    builder.write_lds(numbers, self.numbers, (self.wave * spec.rows + row) * 2)
        builder.lds_barrier()
        self._finish()

    def _finish(self) -> None:
        """Stores results, of which LDS has all parts."""
        spec = self.spec
        chunks = spec.rows * spec.value_size // _CHUNK
        for chunk, is_there in builder.shared_out(chunks, self.threads.number, spec.threads):
            self.threads.put(0, [0, chunk * _CHUNK], _CHUNK, partial(self._combined, chunk), is_there)
        self.threads.keep()

    def _combined(self, chunk: Index) -> ir.Value:
        """Returns elements of a row, from all parts in order."""
        spec = self.spec
        row, start = (chunk * _CHUNK // spec.value_size).here, chunk * _CHUNK % spec.value_size
        numbers = [builder.read_lds(self.numbers, (row + spec.rows * i) * 2, 2) for i in range(spec.splits)]
        high = tree(largest, [element(each, 0) for each in numbers])
        weights = [exp2(arith.SubFOp(element(each, 0), high).result) for each in numbers]
        powers = [arith.MulFOp(element(each, 1), weight).result for each, weight in zip(numbers, weights, strict=True)]
        by = attention.divisor(tree(added, powers))
        sums = builder.f32_zeros(_CHUNK)
        for i, weight in enumerate(weights):
            each = [
                builder.read_lds(self.parts, self._place(Index.of(i), row, start + at), PIECE)
                for at in range(0, _CHUNK, PIECE)
            ]
            share = splat(arith.DivFOp(weight, by).result, _CHUNK)
            sums = added(sums, arith.MulFOp(builder.joined(each), share).result)
        return builder.cast(sums, spec.result)


class _Packed(_Whole):
    """Writes the kernel of such workgroups that quantise their results."""

    def __init__(self, spec: Decode, workgroup: Index, *others: Any) -> None:
        head = workgroup % INNER_ROWS * (spec.workgroups // INNER_ROWS) + workgroup // INNER_ROWS
        super().__init__(spec, head.here, *others)

    def _finish(self) -> None:
        """Stores blocks, of which each lane of a quad makes a quarter."""
        spec = self.spec
        chunks = spec.rows * spec.value_size // _CHUNK
        for first in range(0, chunks, spec.threads):
            chunk = (self.threads.number + first).here
            there = chunk if first + spec.threads <= chunks else select(chunk < chunks, chunk, 0).here
            own = builder.words(self._combined(there))
            is_stored = builder.both(chunk < chunks, self.threads.number % _QUAD < 1)
            put_block(self.threads, [0], there // _QUAD, own, is_stored, None)
        self.threads.keep()


def writer(spec: Decode) -> type[_Decode]:
    return _Packed if spec.packed else _Whole if spec.result else _Decode
