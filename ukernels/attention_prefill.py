"""Attention of many queries: four or eight waves with queries of their own share keys and values in LDS.

A step has 128 keys. While all waves multiply the previous step, each of four waves loads 32 keys and their values as
factors of matrix instructions, transposes the values, and writes the factors to LDS, where the lanes of a factor are
contiguous. Of eight waves half load keys, and half values. Two of these share the registers of a SIMD, so that one
computes powers while the other multiplies; to have room, each computes scores of half a step at a time.
Keys that no query of the workgroup sees are not loaded. Scores are masked only in steps that some queries see in part,
and after the last key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels.attention import (
    COLUMNS,
    DEPTH,
    KEYS,
    LANE,
    Operand,
    Pieces,
    Reach,
    State,
    Stored,
    VisibleKeys,
    kept,
)
from mxcomp.ukernels.builder import (
    Index,
    Threads,
    Values,
    choose,
    either,
    lds_barrier,
    loop,
    read_lds,
    select,
    uniform,
    write_lds,
)
from mxcomp.ukernels.softmax import added, of_column
from mxcomp.ukernels.waves import LANES

GROUPS = 4
STEP = GROUPS * KEYS
"""The number of keys of a step."""


@dataclass(frozen=True)
class Prefill(attention.ManyQueries):
    """The kernel's parameters.

    Attributes:
        heads: Of queries, in all batches.
        queries: Of each head.
        size, value_size: Of a query or key, and of a value.
        keys: None if the program knows how many.
        scale: Of scores, times log2(e).
        query, key, value, mask: Operands.
        reach: Which keys a query sees; None: all.
        fragments: Of 16 queries that a wave has.
        waves: 4, each of which loads keys and values; or 8, half of which load keys, and half values.
        result: The type of results.
        cap: What tanh of scores is multiplied by, times log2(e); None: scores are as they are.
        sink: A score of each head that counts in the sum of powers, and has no value.
    """

    heads: int
    queries: int
    size: int
    value_size: int
    keys: int | None
    scale: float
    query: Stored
    key: Stored
    value: Stored
    mask: Stored | None
    reach: Reach | None
    fragments: int
    waves: int
    result: str
    cap: float | None = None
    sink: Stored | None = None

    @property
    def threads(self) -> int:
        return self.waves * LANES

    @property
    def llvm_func_attrs(self) -> dict[str, str]:
        """Attributes of the function for LLVM: two of 8 waves share the registers of a SIMD."""
        return {"amdgpu-waves-per-eu": "2"} if self.waves > GROUPS else {}

    @property
    def scales_late(self) -> bool:
        """Whether scores are scaled when their largest is subtracted, as nothing else is done with them."""
        is_same = self.reach is None or not self.reach.blind_sees_all
        return self.mask is None and self.cap is None and self.scale > 0 and is_same

    @property
    def tile(self) -> int:
        """The number of queries of a workgroup."""
        return self.waves * COLUMNS * self.fragments

    @property
    def name(self) -> str:
        """The name of the kernel: its purpose, and a digest of all parameters."""
        causal = "" if self.reach is None else "_causal"
        return f"mx_attention_prefill_m{self.tile}_d{self.size}{causal}_{builder.digest(self)}"

    @property
    def inputs(self) -> list[Stored]:
        return attention.inputs(self)

    def result_types(self, workgroups: int) -> list[ir.RankedTensorType]:
        """Returns the types of rows of each wave's fragments, in order."""
        row = Pieces.of(self.value_size).shape
        return [build.tensor_type([workgroups, self.waves, *kept([self.fragments]), COLUMNS, *row], self.result)]

    def text(self) -> str:
        """Returns the kernel's module. Needs a current context."""
        results = self.result_types(1)
        kinds = [*(each.type for each in self.inputs), *results]
        return attention.module(self.name, kinds, results, self.threads, lambda *given: _Prefill(self, *given).write())


class _Prefill:
    """Writes the kernel."""

    def __init__(self, spec: Prefill, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.threads = spec, threads
        self.pieces = Pieces.of(spec.value_size)
        self.depths = -(-spec.size // DEPTH)
        self.wave = uniform(threads.number // LANES)
        self.group = self.wave if spec.waves == GROUPS else (self.wave % GROUPS).here
        self.has_values = None if spec.waves == GROUPS else self.wave >= GROUPS
        self.lane = (threads.number % LANES).here
        self.column, self.quarter = (self.lane % COLUMNS).here, (self.lane // COLUMNS).here
        totals = {"n": spec.heads, "t": spec.queries}
        inputs = [Operand(each, value, totals) for each, value in zip(spec.inputs, given, strict=False)]
        self.query, self.key, self.value, *others = inputs
        self.others = attention.Others(spec, others)
        stored_keys = Index.of(spec.keys) if spec.keys is not None else self.key.keys
        self.head, self.first = (workgroup // spec.tiles).here, (workgroup % spec.tiles * spec.tile).here
        self.visible = VisibleKeys(spec.reach, stored_keys, self.head, self.others.positions)
        self.of_key, self.of_value = (each.place(n=self.head).here for each in (self.key, self.value))
        self.rows = [self._row(fragment).here for fragment in range(spec.fragments)]
        self.of_masks = [[each.place(n=self.head, t=row).here for each in self.others.mask] for row in self.rows]
        seen = [self.visible.of(row) for row in self.rows]
        self.bounds = [(start.here, end.here) for start, end, _ in seen]
        self.scales = [attention.chosen(is_blind, 0.0, spec.scale) for _, _, is_blind in seen]
        self.factors = 2 * self.depths + self.pieces.fragments
        self.lds = builder.lds(GROUPS * self.factors * LANES * LANE, spec.key.element)
        self._bound()

    def _row(self, fragment: int) -> Index:
        """Returns the query of a lane's column; columns beyond the last query repeat it."""
        spec = self.spec
        row = self.first + self.wave * (COLUMNS * spec.fragments) + self.column + fragment * COLUMNS
        return row if spec.queries % spec.tile == 0 else select(row < spec.queries, row, spec.queries - 1)

    def _bound(self) -> None:
        """Returns the first and last step, and the end of keys, of any query; and the steps all queries see whole."""
        spec = self.spec
        self.is_even = spec.keys is not None and spec.keys % STEP == 0
        last = self.first + (spec.tile - 1)
        if spec.queries % spec.tile:
            last = select(last < spec.queries, last, spec.queries - 1)
        start, self.keys = self.visible.around(self.first, last)
        self.begin = (start // STEP).here
        self.steps = ((self.keys + (STEP - 1)) // STEP).here
        whole = (self.visible.least(self.first) // STEP).here
        self.whole = whole if spec.reach is None or not spec.reach.starts else self.begin

    def write(self) -> None:
        spec = self.spec
        queries = [
            attention.load_row(self.query, self.query.place(n=self.head, t=row).here, self.quarter, spec.size)
            for row in self.rows
        ]
        state = [
            value
            for _ in range(spec.fragments)
            for value in self.others.start(self.head, self.quarter < 1, self.pieces.fragments)
        ]

        def turn(compares: bool) -> Callable[..., list[Values]]:
            def body(step: Index, loaded: Values, carried: Values) -> list[Values]:
                lds_barrier()
                self._share(loaded)
                following = self._load(step + 1)
                lds_barrier()
                masks = loaded[self._loads :]
                return [following, self._multiply(step, queries, masks, carried, compares)]

            return body

        loaded = self._load(self.begin)
        if self.whole is not self.begin:
            loaded, state = loop(self.whole, turn(False), loaded, state)
        _, state = loop(self.steps, turn(True), loaded, state, start=self.whole)
        self._store(State.each(state, self.spec.fragments))

    def _load(self, step: Index) -> Values:
        """Loads this wave's keys and values of a step, and the masks of its queries; nothing after the last step."""
        is_there = step < self.steps
        start, loaded = (step * STEP + self.group * KEYS).here, list[ir.Value]()
        mine = attention.keys_of_lane(self.quarter)
        if self.has_values is None:
            loaded += self._load_keys(start, is_there) + self._load_values(start, is_there)
        else:
            kind = ir.VectorType.get([LANE], ir.Type.parse(self.spec.key.element))
            loaded += either(
                self.has_values, [kind] * self._loads,
                lambda: self._load_values(start, is_there),
                lambda: self._load_keys(start, is_there),
            )  # fmt: skip
        for of_fragment in self.of_masks:
            for each, place in zip(self.others.mask, of_fragment, strict=True):
                for group in range(GROUPS):
                    rows = [self._clamped(step * STEP + group * KEYS + key) for key in mine]
                    there = select(is_there, place, each.beyond)
                    loaded.append(each.load_mask(there, rows, self.is_even))
        return loaded

    def _load_keys(self, start: Index, is_there: ir.Value) -> Values:
        of_key, loaded = select(is_there, self.of_key, self.key.beyond), list[ir.Value]()
        for half in range(2):
            row = self._clamped(start + self.column + half * COLUMNS)
            place = (of_key + row * self.key.step).here
            loaded += attention.load_row(self.key, place, self.quarter, self.spec.size)
        return loaded

    def _load_values(self, start: Index, is_there: ir.Value) -> Values:
        of_value, mine = select(is_there, self.of_value, self.value.beyond), attention.keys_of_lane(self.quarter)
        places = [(of_value + self._clamped(start + key) * self.value.step).here for key in mine]
        return attention.load_values(self.value, places, self.column, self.pieces)

    def _clamped(self, row: Index) -> Index:
        return row if self.is_even else select(row < self.keys, row, attention.last(self.keys))

    def _place(self, group: Index | int, factor: Index | int, lane: Index) -> Index:
        """Returns the index in LDS of a lane's part of a factor."""
        return (Index.of(group) * self.factors + factor) * (LANES * LANE) + lane * LANE

    @property
    def _loads(self) -> int:
        """The number of vectors of keys and values that a wave loads, before masks."""
        keys, values = 2 * self.depths, self.pieces.count * LANE
        return keys if self.has_values is not None else keys + values

    def _share(self, loaded: Values) -> None:
        keys, first = 2 * self.depths, Index.of(0)
        if self.has_values is None:
            factors = [*loaded[:keys], *attention.transposed(loaded[keys : self._loads], self.pieces)]
        else:
            mine = loaded[:keys]
            factors = choose(self.has_values, lambda: attention.transposed(mine, self.pieces), mine)
            first = select(self.has_values, keys, 0)
        for number_, factor in enumerate(factors):
            write_lds(factor, self.lds, self._place(self.group, first + number_, self.lane))

    def _read(self, group: int, first: int, count: int, lane: Index) -> Values:
        return [read_lds(self.lds, self._place(group, first + i, lane), LANE) for i in range(count)]

    def _multiply(self, step: Index, queries: list[Values], masks: Values, carried: Values, compares: bool) -> Values:
        """Multiplies the keys of a step, and returns the state that the loop carries."""
        spec, states, lane = self.spec, State.each(carried, self.spec.fragments), self.lane
        for part in self._parts():
            factors, found = self._factors(part, lane), [list[ir.Value]() for _ in queries]
            for group in part:
                keys = next(factors)
                for fragment, query in enumerate(queries):
                    scores = attention.scores(
                        keys, query, None if spec.scales_late else self.scales[fragment], spec.cap
                    )
                    if masks:
                        scores = attention.masked_by(masks[fragment * GROUPS + group], scores)
                    found[fragment] += self._seen(step, group, fragment, scores) if compares else scores
            builder.set_priority(0)
            scales = self.scales if spec.scales_late else [None] * spec.fragments
            rescaled = [state.rescaled(*each) for state, *each in zip(states, found, scales, strict=True)]
            states, powers = [each for each, _ in rescaled], [each for _, each in rescaled]
            lane = builder.behind(self.lane, states[-1].power)
            builder.set_priority(1)  # A wave that multiplies goes first: the other one has powers meanwhile.
            for group in range(len(part)):
                values, slice_ = next(factors), slice(group * LANE, (group + 1) * LANE)
                states = [
                    state.plus(values, each[slice_], spec.value.element)
                    for state, each in zip(states, powers, strict=True)
                ]
        return [value for state in states for value in (state.high, state.power, *state.sums)]

    def _parts(self) -> list[range]:
        """Returns the groups of keys whose scores are in registers at once."""
        size = GROUPS if self.has_values is None else GROUPS // 2
        return [range(start, start + size) for start in range(0, GROUPS, size)]

    def _factors(self, part: range, lane: Index) -> Iterator[Values]:
        """Yields the factors of a part's keys, then of its values, each read while the previous ones are multiplied."""
        keys, values = (0, 2 * self.depths), (2 * self.depths, self.pieces.fragments)
        places = [(group, *each) for each in (keys, values) for group in part]
        ahead = self._read(*places[0], lane)
        for following in places[1:]:
            here, ahead = ahead, self._read(*following, lane)
            yield here
        yield ahead

    def _seen(self, step: Index, group: int, fragment: int, scores: Values) -> Values:
        place, reach, (start, end) = (step * STEP + group * KEYS).here, self.spec.reach, self.bounds[fragment]
        rows = [place + key for key in attention.keys_of_lane(self.quarter)]
        return attention.seen(rows, start if reach is not None and reach.starts else None, end, scores)

    def _store(self, states: list[State]) -> None:
        spec, rows = self.spec, list[ir.Value]()
        for state in states:
            total = attention.divisor(of_column(state.power, added))
            shares = attention.divided(builder.from_elements(self.pieces.elements(state.sums)), total)
            rows.append(attention.rounded(shares, spec.result))
        shape, place = self.pieces.part(self.quarter)
        fragments = kept([spec.fragments])
        self.threads.store(
            rows, [1, 1, *fragments, 1, *shape], [0, self.wave, *(0 for _ in fragments), self.column, *place]
        )
