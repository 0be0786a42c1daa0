"""Attention of many queries: waves with 32 queries of their own share keys and values in LDS.

    scores[64 keys, 32 queries] = keys · queriesᵀ          two fragments of 32x32
    sums[sizes, 32 queries]    += valuesᵀ · exp2(scores − a reference)

A lane has scores of one query, of the keys that it gives as a factor of the second product: they stay in registers.
Keys and values of a step are copied to LDS as they are stored, in an order of chunks by which no bank is met twice, a
step before they are multiplied; values are transposed as they are read from there.

Eight waves take turns: of two on a SIMD one multiplies values by powers of a step, and keys of the next by queries,
while the other makes powers of scores. The reference is the largest score, but of an earlier step as long as none
exceeds it by more than a small power of 2, which results do not depend on: so sums are rarely scaled.

Keys that no query of the workgroup sees are not loaded. Scores are masked only in steps that some queries see in part,
and after the last key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, repeat

from iree.compiler import ir
from iree.compiler.dialects import arith, rocdl

from mxcomp.formats import E2M1
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels import attention_prefill_rows as staging
from mxcomp.ukernels.attention_memory import LANE, Operand, VisibleKeys, last, times
from mxcomp.ukernels.attention_prefill_parameters import Parameters
from mxcomp.ukernels.attention_prefill_rows import DEPTH, FRAGMENTS, GROUPS, QUADS, ROWS, STEP, SUMS, Lane
from mxcomp.ukernels.attention_turns import STAGGERED, exhaust, fall_behind, is_anywhere, meet, read_ahead
from mxcomp.ukernels.brought import BLOCKS_IN_ROW, CODE_BYTES, MULTIPLE, quantised
from mxcomp.ukernels.builder import Index, Threads, Values, element, least, loop, most, part, select
from mxcomp.ukernels.softmax import added, exp2, largest, maximum, number, plus_pair, powers, splat, swapped, tree
from mxcomp.ukernels.waves import BEYOND, BLOCK, BLOCKS, INNER_ROWS, LANES, STEPS

_AHEAD = 4
"""The number of fragments that are read from LDS before they are multiplied."""
_EXCESS = 8.0
"""The distance up to which a score may be above the reference: powers are at most 256 then."""


NONE: Iterator[None] = iter(())
"""No moves."""


class Prefill(Parameters):
    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        (_Packed if self.packed else _Prefill)(self, workgroup, given, threads).write()


class _Prefill:
    def __init__(self, spec: Prefill, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.threads = spec, threads
        lane = Lane(threads)
        self.wave, self.lane, self.column, self.group = lane.wave, lane.number, lane.column, lane.group
        self.own, self.part = self.wave % (spec.tile // ROWS), self.wave // (spec.tile // ROWS)
        totals = {"n": spec.heads, "t": spec.queries}
        pairs = list(zip(spec.operands, given, strict=False))
        count = len(pairs) - len(spec.counted)
        counted = {axis: Operand(*each, {}).size(axis) for axis, each in zip(spec.counted, pairs[count:], strict=True)}
        self.query, key, value = (Operand(*each, totals, counted) for each in pairs[:3])
        self.queries = self.query.size("t") if spec.queries is None else Index.of(spec.queries)
        stored_keys = Index.of(spec.keys) if spec.keys is not None else key.size("l")
        known = {"t": self.queries, "l": stored_keys}
        self.rows = self._rows().here
        self.workgroup, self.tiles = workgroup, ((self.rows + (spec.tile - 1)) // spec.tile).here
        self.others = attention.Others(spec, [Operand(*each, totals, known) for each in pairs[3:count]])
        head, tile = spec.order(self.tiles).tile_of(workgroup)
        self.head, self.first = head.here, (tile * spec.tile).here
        self.visible = VisibleKeys(spec.reach, stored_keys, self.head, self.others.positions)
        self.row = self._query(self.column)
        self.start, self.end, is_blind = self.visible.of(self.row)
        self.scale = attention.chosen(is_blind, 0.0, spec.scale)
        self._bound()
        staged = zip((staging.KeyRows, staging.ValueRows), spec.staged, (key, value), strict=True)
        self.keys, self.values = (
            rows(each, spec.slots, source, self.head, self.key_end, self.part, lane) for rows, each, source in staged
        )
        self.of_masks = [each.place(n=self.head, t=self.row).here for each in self.others.mask]

    def _bound(self) -> None:
        """Finds the steps that any query sees, the end of their keys, and the steps that all see whole."""
        spec = self.spec
        last = self._existing(self.first + (spec.tile - 1))
        start, self.key_end = self.visible.around(self.first, last)
        self.begin = (start // spec.span).here
        self.rounds = ((self.key_end + (spec.span - 1)) // spec.span).here
        inner, end = self.visible.by_all(self.first, last)
        has_starts = spec.reach is not None and bool(spec.reach.starts)
        first = (inner + (spec.span - 1)) // spec.span
        self.inner = least(first, self.rounds).here if has_starts else self.begin
        self.outer = least(end // spec.span, self.rounds).here

    def write(self) -> None:
        """Phases, in turns: powers of scores; then values by powers, and the next keys by queries."""
        spec, begin = self.spec, self.begin
        query = self._queries()
        self.values.copy(begin)
        for ahead in range(2, spec.slots):
            if ahead >= spec.first_keys:
                self.keys.copy(begin + ahead)
            self.values.copy(begin + (ahead - 1))
        meet(2 * (spec.slots - 1))
        scores = self._scores(read_ahead(self.keys.reads(begin), _AHEAD), query)
        masks = self._load_masks(begin)
        if spec.is_staggered:
            meet(spec.slots - 3)
            fall_behind(self.wave >= STAGGERED // 2)
        else:
            builder.fenced_barrier()

        def turn(compares: bool, step: Index, scores: Values, masks: Values, state: Values) -> list[Values]:
            found = self._changed(step, scores, masks, compares)
            keys, values = self.keys.copies(step + spec.slots), self.values.copies(step + (spec.slots - 1))
            weights, state = self._weighed(found, state, NONE if spec.is_staggered else keys)
            if not spec.is_staggered:
                meet(2 * spec.slots - 3)
            fragments = read_ahead([*self.values.reads(step), *self.keys.reads(step + 1)], _AHEAD)
            if spec.is_staggered:
                builder.fenced_barrier()
                builder.set_priority(1)
            following = self._load_masks(step + 1)
            moves = self._moves(keys, values)
            state = self._added(fragments, weights, state, moves)
            if spec.is_staggered:
                scores = self._scores(fragments, query)
                builder.set_priority(0)
                meet(2 * (spec.slots - 3))
            else:
                multiply = partial(self._scores, fragments, query, moves)
                scores = builder.choose(step + 1 < self.rounds, multiply, scores)
                builder.fenced_barrier()
            return [scores, following, state]

        is_counted = builder.both(self.group < 1, self.part < 1)
        reference, power, sums = self.others.start(self.head, is_counted, spec.sums, SUMS)
        carried = [scores, masks, [arith.NegFOp(reference).result, power, *sums]]
        if self.inner is not self.begin:
            carried = loop(self.inner, partial(turn, True), *carried, start=begin)
        carried = loop(self.outer, partial(turn, False), *carried, start=self.inner)
        following = self.outer if self.inner is self.begin else most(self.inner, self.outer)
        *_, state = loop(self.rounds, partial(turn, True), *carried, start=following)
        if spec.is_staggered:
            fall_behind(self.wave < STAGGERED // 2)
        self._store(state if spec.splits == 1 else self._combined(state))

    def _first_key(self, step: Index) -> Index:
        return step * self.spec.span + self.part * STEP

    # Memory

    def _queries(self) -> Values:
        """Returns the factors of a lane's query, and begins to copy keys.

        As neighbours load parts of different queries, whole ones are copied to where values will be, if that is large
        enough.
        """
        spec, staged = self.spec, staging.Staged(self.spec.size // LANE, 1, 1)
        if spec.size > spec.value_size:
            self._copy_keys()
            place = self.query.place(n=self.head, t=self.row).here + self.group * LANE
            return [self.query.load(place + depth * DEPTH, LANE) for depth in range(spec.depths)]
        mine = (self.own * (ROWS * staged.row)).here
        for turn in range(0, ROWS * staged.chunks // LANES, spec.splits):
            chunk = (self.lane + (self.part + turn) * LANES).here
            row = (chunk // staged.chunks).here
            query = self._query(row)
            place = self.query.place(n=self.head, t=query) + (chunk % staged.chunks ^ staged.exchanged(row)) * LANE
            self.query.copy_to_lds(place, self.values.lds, mine + (self.part + turn) * (LANES * LANE), LANE)
        builder.async_group()
        self._copy_keys()
        builder.wait_groups(spec.first_keys)
        if spec.splits > 1:
            builder.fenced_barrier()
        found = [builder.read_lds(self.values.lds, mine + place, LANE, 2 * LANE) for place in self.keys.places]
        builder.lds_barrier()
        return found

    def _copy_keys(self) -> None:
        for ahead in range(self.spec.first_keys):
            self.keys.copy(self.begin + ahead)

    def _query(self, row: Index) -> Index:
        """Returns the query of a wave's row; those beyond the last query repeat it."""
        return self._existing(self.first + self.own * ROWS + row)

    def _existing(self, query: Index) -> Index:
        """Returns a query of a tile, or the last one in the place of those beyond it."""
        queries = 0 if self.spec.packed else self.spec.queries
        return (query if queries and queries % self.spec.tile == 0 else least(query, self.queries + -1)).here

    def _moves(self, keys: Iterator[None], values: Iterator[None]) -> Iterator[None]:
        """Starts copies behind matrix instructions: values at regular distances, or of staggered waves all at once."""
        if self.spec.is_staggered:
            for copies in (keys, values):
                exhaust(copies)
                yield
            return
        products = QUADS * self.spec.sums + FRAGMENTS * self.spec.depths
        for _ in values:
            yield from repeat(None, products // self.spec.staged[1].turns)

    def _load_masks(self, step: Index) -> Values:
        """Loads the masks of a lane's query for its keys of a step, by eights; nothing behind the last step."""
        is_even = self.spec.keys is not None and self.spec.keys % self.spec.span == 0
        loaded = list[ir.Value]()
        for each, place in zip(self.others.mask, self.of_masks, strict=True):
            there = select(step < self.rounds, place, each.beyond)
            for quad in range(QUADS):
                rows = [self._first_key(step) + (self.group * 4 + key) for key in _keys_of_group(quad)]
                rows = rows if is_even else [select(row < self.key_end, row, last(self.key_end)) for row in rows]
                loaded.append(each.load_mask(there, rows, is_even))
        return loaded

    # Products

    def _scores(self, fragments: Iterator[ir.Value], query: Values, moves: Iterator[None] = NONE) -> Values:
        """Multiplies keys of a step by the queries."""
        found = [builder.f32_zeros(SUMS) for _ in range(FRAGMENTS)]
        for each in query:
            for i in range(FRAGMENTS):
                found[i] = _mfma(next(fragments), each, found[i])
                next(moves, None)
        exhaust(moves)
        return found

    def _added(self, fragments: Iterator[ir.Value], weights: Values, state: Values, moves: Iterator[None]) -> Values:
        """Adds values of a step by weights to the state."""
        below, power, *sums = state
        for weight in weights:
            for i in range(self.spec.sums):
                sums[i] = _mfma(next(fragments), weight, sums[i])
                next(moves, None)
        return [below, power, *sums]

    # Powers

    def _changed(self, step: Index, scores: Values, masks: Values, compares: bool) -> list[Values]:
        """Returns scores by eights, as far as they are changed before the reference is subtracted."""
        spec, found = self.spec, [
            [element(scores[quad // FRAGMENTS], quad % FRAGMENTS * LANE + i) for i in range(LANE)]
            for quad in range(QUADS)
        ]  # fmt: skip
        if not spec.scales_late:
            found = [attention.scaled(each, self.scale, spec.cap) for each in found]
        if masks:
            found = [attention.masked_by(*each) for each in zip(masks, found, strict=True)]
        if compares:
            found = self._seen(step, found)
        return found

    def _seen(self, step: Index, found: list[Values]) -> list[Values]:
        """Replaces scores of keys that the query does not see by ones without weight."""
        reach, first = self.spec.reach, builder.to_i32((self._first_key(step) + self.group * 4).here)
        left = arith.SubIOp(builder.to_i32(self.end), first).result
        before = arith.SubIOp(builder.to_i32(self.start), first).result
        nothing = number(-math.inf)

        def kept_(key: int, score: ir.Value) -> ir.Value:
            holds = arith.CmpIOp(arith.CmpIPredicate.sgt, left, builder.i32(key)).result
            if reach is not None and reach.starts:
                holds = builder.both(holds, arith.CmpIOp(arith.CmpIPredicate.sle, before, builder.i32(key)).result)
            return arith.SelectOp(holds, score, nothing).result

        return [[*map(kept_, _keys_of_group(quad), each)] for quad, each in enumerate(found)]

    def _weighed(self, found: list[Values], state: Values, moves: Iterator[None]) -> tuple[Values, Values]:
        """Returns factors of the second product from scores, and the state with their sum, rescaled to fit them."""
        scale = number(self.spec.scale if self.spec.scales_late else 1.0)
        top = arith.MulFOp(tree(maximum, [score for each in found for score in each]), scale).result
        below, power, *sums = self._made_room(top, state)
        weights = list[ir.Value]()
        for each in found:
            weight = builder.cast(builder.from_elements(powers(each, scale, below)), self.spec.value.element)
            for i in range(0, LANE, 2):
                power = plus_pair(part(weight, i, 2), power)
            weights.append(weight)
            for _ in islice(moves, -(-self.spec.staged[0].turns // QUADS)):
                builder.sched_barrier()
        exhaust(moves)
        return weights, [below, power, *sums]

    def _made_room(self, top: ir.Value, state: Values) -> Values:
        """Rescales the state to the largest score where a lane's is too far above the reference.

        The state begins with the negative of the reference.
        """
        below, *sums = state
        is_far = arith.CmpFOp(arith.CmpFPredicate.OGT, added(top, below), number(_EXCESS)).result

        def scaled() -> Values:
            highest = largest(*swapped(rocdl.Permlane32SwapOp, top, top))
            lower = arith.MinNumFOp(below, arith.NegFOp(highest).result).result
            fades = exp2(arith.SubFOp(lower, below).result)
            power, *others = sums
            rest = (arith.MulFOp(each, splat(fades, SUMS)).result for each in others)
            return [lower, arith.MulFOp(power, fades).result, *rest]

        return builder.choose(is_anywhere(is_far), scaled, state)

    # Results

    def _rows(self) -> Index:
        return self.queries

    def _combined(self, state: Values) -> Values:
        """Returns sums of all keys, of which each of two waves with the same queries gets half of a value's sizes.

        It gives the other half of what it has to the other wave through LDS, where values of the last round were.
        """
        spec, (below, power, *sums) = self.spec, state
        half, kind, apart = len(sums) // 2, spec.value.element, spec.waves // 2
        is_first, others = self.part < 1, self.wave ^ Index.of(apart)
        own, given = (
            [arith.SelectOp(is_first, *pair).result for pair in zip(*halves, strict=True)]
            for halves in ((sums[:half], sums[half:]), (sums[half:], sums[:half]))
        )
        slot = ((self.rounds + (spec.slots - 1)) % spec.slots * spec.staged[1].elements).here
        mine, theirs = (
            [slot + ((wave * half * SUMS + i) * LANES + self.lane * 4) * 2 for i in range(0, half * SUMS, 4)]
            for wave in (self.wave, others)
        )
        numbers = builder.lds(spec.threads * 2, "f32")
        of_lanes = [(wave * LANES + self.lane) * 2 for wave in (self.wave, others)]
        for i, place in enumerate(mine):
            run = part(given[i * 4 // SUMS], i * 4 % SUMS, 4)
            builder.write_lds(builder.bitcast(run, kind, LANE), self.values.lds, place)
        builder.write_lds(builder.from_elements([below, power]), numbers, of_lanes[0])
        builder.lds_barrier()
        found = builder.read_lds(numbers, of_lanes[1], 2)
        read = [builder.bitcast(builder.read_lds(self.values.lds, place, LANE, 2 * LANE), "f32", 4) for place in theirs]
        lower = arith.MinNumFOp(below, element(found, 0)).result
        fades = [exp2(arith.SubFOp(lower, each).result) for each in (below, element(found, 0))]
        rest = [builder.joined(read[i : i + SUMS // 4]) for i in range(0, len(read), SUMS // 4)]
        pairs = [(power, element(found, 1)), *zip(own, rest, strict=True)]
        return [lower, *(_weighted(pair, fades) for pair in pairs)]

    def _store(self, state: Values) -> None:
        spec, (_, power, *sums) = self.spec, state
        total = attention.divisor(added(*swapped(rocdl.Permlane32SwapOp, power, power)))
        elements = [element(each, i) for each in sums for i in range(SUMS)][: spec.value_size // spec.splits // GROUPS]
        self._keep(builder.cast(attention.divided(builder.from_elements(elements), total), spec.result))

    def _keep(self, shares: ir.Value) -> None:
        """Stores a lane's results: of each 16 elements of a query those that its group has.

        They are counted from this workgroup's part of the result, which is another tile's. Of what is no query they are
        beyond the result, if that is a buffer, or else not stored.
        """
        spec, query, (result,) = self.spec, self.first + self.own * ROWS + self.column, self.spec.outputs
        row, is_there = times(self.head, self.rows) + query + self._before() * -1, query < self.rows
        before, chunks = [Index.of(0) for _ in spec.tiled[1:]], spec.row[0] // spec.splits

        def within(chunk: int) -> list[Index]:
            return [self.part * chunks + chunk, self.group, Index.of(0)]

        def put() -> None:
            for chunk in range(chunks):
                share = partial(part, shares, chunk * LANE, LANE)
                self.threads.put(0, [*before, row, *within(chunk)], LANE, share)

        if result.bytes > builder.MOST_BYTES or result.is_flat:
            self.threads.where(is_there, put)
            return self.threads.keep()
        beyond = -(-BEYOND // (spec.value_size * result.element_bytes))
        place = [*before, select(is_there, row, beyond), *within(0)]
        self.threads.store([shares], [*[1] * (len(before) + 1), chunks, 1, LANE], place)

    def _before(self) -> Index:
        """Returns the number of rows in front of this workgroup's part of the result."""
        head, tile = self.workgroup // self.tiles, self.workgroup % self.tiles
        return (times(head, self.rows) + tile * self.spec.tile).here


class _Packed(_Prefill):
    """Writes the kernel that quantises its results, and packs them in inner tiles.

    A lane has half of each block of its query. Of two blocks each group of lanes gets a whole one.
    """

    def _rows(self) -> Index:
        multiple = Index.of(*builder.call(MULTIPLE, [self.queries.value], ir.IndexType.get()))
        return ((self.queries + multiple + -1) // multiple).times(multiple)

    def _keep(self, shares: ir.Value) -> None:
        spec, count = self.spec, BLOCK // GROUPS // 2
        (in_row,) = map(Index.of, builder.call(BLOCKS_IN_ROW, [], ir.IndexType.get()))
        heads, query = in_row // spec.blocks, self.first + self.own * ROWS + self.column
        inner_tile = (self.head // heads).times(self.rows // INNER_ROWS) + query // INNER_ROWS
        blocks = spec.blocks // spec.splits
        block = self.head % heads * spec.blocks + self.part * blocks + self.group
        words = builder.words(shares)
        halves = [[element(words, i * count + k) for k in range(count)] for i in range(blocks)]
        for first in range(0, blocks, GROUPS):
            one, other = halves[first], halves[min(first + 1, blocks - 1)]
            parts = [swapped(rocdl.Permlane32SwapOp, *each) for each in zip(one, other, strict=True)]
            runs = [parts[: count // 2], parts[count // 2 :]]
            whole = [part[group] for run in runs for group in range(GROUPS) for part in run]
            is_there = builder.both(query < self.rows, self.group + first < blocks)
            self._put(inner_tile.times(in_row), block + first, whole, is_there)
        self.threads.keep()

    def _put(self, inner_tile: Index, block: Index, words: Values, is_there: ir.Value) -> None:
        """Puts a block of a lane's query; `inner_tile`: the blocks in front of its inner tile's."""
        row, before = self.column % INNER_ROWS, self._before() * -self.spec.blocks
        tile, step, group = block // (STEPS * BLOCKS), block // BLOCKS % STEPS, block % BLOCKS
        place = ((inner_tile + block) * INNER_ROWS + row + before) * CODE_BYTES
        of_scale = (inner_tile + (tile * BLOCKS + group) * STEPS) * INNER_ROWS + row * STEPS + step + before
        code, scale = quantised(E2M1.mlir_type, builder.from_elements(words))
        byte = builder.from_elements([scale])
        self.threads.put(0, [0, 0, select(is_there, place, BEYOND)], CODE_BYTES, code)
        self.threads.put(1, [0, 0, select(is_there, of_scale, BEYOND)], 1, byte)


def _weighted(values: Sequence[ir.Value], weights: Sequence[ir.Value]) -> ir.Value:
    """Returns the sum of two values, or vectors of them, times weights."""
    is_vector = isinstance(values[0].type, ir.VectorType)
    each = [splat(weight, SUMS) for weight in weights] if is_vector else weights
    return added(*(arith.MulFOp(*pair).result for pair in zip(values, each, strict=True)))


def _keys_of_group(quad: int) -> list[int]:
    """Returns the keys of a step in the factor `quad` from powers that the first group of lanes has; others follow."""
    return [quad * DEPTH + i // 4 * LANE + i % 4 for i in range(LANE)]


def _mfma(one: ir.Value, other: ir.Value, sums: ir.Value) -> ir.Value:
    """Returns the product added to sums. LLVM moves nothing past it, in either direction."""
    result = builder.mfma((ROWS, ROWS, DEPTH), one, other, sums)
    builder.sched_barrier()
    return result
