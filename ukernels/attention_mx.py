"""Attention of MX operands: both products by scaled MFMA, weights quantised in registers.

A step has 128 keys. A wave has one or two fragments of 16 queries, and computes scores[keys, queries] = keys ·
queriesᵀ, whose rows are in the order in which a lane has the 32 weights of a query that it gives as a factor of values
· weights: they go through no memory. The matrix instruction begins with what a query's weights are relative to, so that
scores come out relative to it.

Waves take turns: while one of a SIMD multiplies values by weights of a step, and keys of the next by queries, another
makes weights of scores. All of them copy keys and values to LDS, a step before they are multiplied.

Weights are powers of 2, in MX by blocks of 32 keys. A query's sums are scaled by an integer power of 2, which is known
from the first step on and changes only where a block's scale is far above it; scales of weights have the rest
(`mxcomp.ir.attention` defines the result). A fragment of ones in place of values sums the weights.

Of few queries workgroups take a part of the keys each; their sums are combined as those of `attention_decode`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any, NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, rocdl
from iree.compiler.dialects import math as mlir_math

from mxcomp.formats import ElementFormat, element_format
from mxcomp.layout.inner_tiles import BLOCK, LANES, SCALE
from mxcomp.mlir import scalars as s
from mxcomp.ukernels import attention, builder
from mxcomp.ukernels.attention_mx_parameters import NEIGHBOURS, SIZES, Parameters, key_unit
from mxcomp.ukernels.attention_mx_rows import GROUPS, MFMA, ROWS, STEP, VALUES, Rows
from mxcomp.ukernels.attention_turns import STAGGERED, exhaust, fall_behind, is_anywhere, meet, read_ahead
from mxcomp.ukernels.builder import Factor, Index, Threads, Values, element, least, loop, select, uniform
from mxcomp.ukernels.conversions import CONVERSIONS, exponent
from mxcomp.ukernels.operands import factor
from mxcomp.ukernels.softmax import LOWEST, added, exp2, maximum, number, of_column, splat, swapped, tree
from mxcomp.ukernels.waves import BEYOND, INNER_PIECES

_AHEAD = 3
"""Fragments that are read from LDS before they are multiplied."""
_ROOM = 16
"""The largest distance, as a power of 2, of a block's largest weight above the scale of a query's sums."""
_BIAS = 127


class MxAttention(Parameters):
    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        _Kernel(self, workgroup, given, threads).write()


class State(NamedTuple):
    """The numbers that a lane has of a query: what its weights are relative to, negative; their sum; sums of values."""

    base: ir.Value
    total: ir.Value
    sums: Values

    def lowered(self, by: ir.Value, units: int) -> State:
        """Returns the state relative to a larger power of 2, from which scores fall by so much."""
        fades = splat(exp2(arith.MulFOp(element(by, 0), number(1 / units)).result), VALUES)
        total, *sums = (arith.MulFOp(each, fades).result for each in (self.total, *self.sums))
        return State(added(self.base, by), total, sums)


class _Kernel:
    def __init__(self, spec: MxAttention, workgroup: Index, given: Values, threads: Threads) -> None:
        self.spec, self.threads = spec, threads
        self.qk, self.v, self.w = spec.elements
        self.weights: ElementFormat = element_format(self.w)
        self.wave = uniform(threads.number // LANES)
        self.lane = (threads.number % LANES).here
        self.column, self.group = (self.lane % ROWS).here, (self.lane // ROWS).here
        head, tile = (workgroup // spec.splits, Index.of(0)) if spec.splits > 1 else spec.order.tile_of(workgroup)
        self.head, self.split, self.first = head.here, workgroup % spec.splits, (tile * spec.tile).here
        self.moved = (head * spec.tiles + tile + workgroup * -1).here if spec.splits == 1 else Index.of(0)
        self.sources = [builder.whole(builder.whole_buffer(value))[0] for value in given[: len(spec.inputs)]]
        own = self.first + self.wave * (spec.columns * ROWS) + self.column
        rows = [own + i * ROWS for i in range(spec.columns)]
        last = Index.of(spec.queries - 1)
        self.rows = [(row if spec.queries % spec.tile == 0 else least(row, last)).here for row in rows]
        self._bound()
        key_head = (self.head // spec.shared).here
        of = key_head, spec.stored_steps, self.steps, self.wave, self.lane
        keys, values = spec.staged
        self.keys = Rows(keys, spec.slots, self.sources[2:4], *of)
        self.values = Rows(values, spec.slots, self.sources[4:], *of)

    def _bound(self) -> None:
        """Finds the end of each query's keys; the first step, their end, and that of steps that are seen whole."""
        spec, keys = self.spec, Index.of(self.spec.keys)
        if not spec.is_causal:
            share = -(-spec.steps // spec.splits)
            self.begin = (self.split * share).here
            self.steps = least(self.begin + share, Index.of(spec.steps))
            self.bounds, self.whole = [keys] * spec.columns, least(self.steps, keys // STEP)
            return
        self.begin = Index.of(0)
        self.bounds = [least(row + 1, keys) for row in self.rows]
        self.steps = ((least(self.first + spec.tile, keys) + (STEP - 1)) // STEP).here
        self.whole = (least(self.first + 1, keys) // STEP).here

    def write(self) -> None:
        """Phases, in turns: weights of scores; then values by weights, and the next keys by queries."""
        spec, first = self.spec, self.begin
        queries = [self._load_query(row) for row in self.rows]
        zeros = builder.f32_zeros(VALUES)
        states = [State(zeros, zeros, [zeros] * spec.staged[1].fragments)] * spec.columns
        self.keys.copy(first)
        meet(0)
        self.keys.copy(first + 1)
        self.values.copy(first)
        scores = self._scores(read_ahead(self.keys.reads(first), _AHEAD), queries, self.keys.scales(first), states)
        states = [self._begun(*each) for each in zip(self._seen(first, scores), states, strict=True)]
        if self.spec.is_folded:
            scores = [[added(each, state.base) for each in found] for found, state in zip(scores, states, strict=True)]
        for i in range(1, spec.slots - 1):
            self.keys.copy(first + i + 1)
            self.values.copy(first + i)
        meet(2 * (spec.slots - 2))
        if spec.waves == STAGGERED:
            fall_behind(self.wave >= STAGGERED // 2)

        def turn(compares: bool, step: Index, scores: list[Values], carried: list[Any]) -> list[Any]:
            states = [State(*each) for each in carried]
            if compares:
                scores = self._seen(step, scores)
            weights, states = self._weighed(scores, states)
            builder.fenced_barrier()
            builder.set_priority(1)
            totals = [_mfma(self._ones(), *each) for each in zip(weights, (x.total for x in states), strict=True)]
            (scales,), key_scales = self.values.scales(step), self.keys.scales(step + 1)
            fragments = read_ahead([*self.values.reads(step), *self.keys.reads(step + 1)], _AHEAD)
            sums = self._added(fragments, weights, scales, [state.sums for state in states], step)
            states = [State(state.base, *each) for state, *each in zip(states, totals, sums, strict=True)]
            scores = self._scores(fragments, queries, key_scales, states)
            builder.set_priority(0)
            meet(2 * (spec.slots - 2))
            return [scores, states]

        carried = loop(self.whole, partial(turn, False), scores, states, start=first)
        *_, states = loop(self.steps, partial(turn, True), *carried, start=self.whole)
        if spec.waves == STAGGERED:
            fall_behind(self.wave < STAGGERED // 2)
        self._store([State(*each) for each in states])

    def _load_query(self, row: Index) -> list[Factor]:
        """Loads a query's factors, with zeros behind its last element."""
        spec, size = self.spec, MFMA.lane_bytes(self.qk)
        at, blocks = (self.head * spec.queries + row).here, spec.size // BLOCK
        row_bytes, pieces, factors = blocks * size, INNER_PIECES[size], list[Factor]()
        for depth in range(spec.staged[0].depths):
            block, parts = (self.group + depth * GROUPS).here, []
            place = select(block < blocks, at * blocks + block, BEYOND)
            scale = builder.load(self.sources[1], [place], 1)
            for piece in range(pieces.count):
                if MFMA.holds_blocks(self.qk):
                    byte = block * size + piece * pieces.size
                else:
                    byte = (self.group + (piece + depth * 2) * GROUPS) * pieces.size
                place = select(byte < row_bytes, at * row_bytes + byte, BEYOND)
                parts.append(builder.load(self.sources[0], [place], pieces.size, alignment=4))
            factors.append(factor(builder.joined(parts), self.qk, scale, 0))
        return factors

    # Products

    def _scores(
        self, fragments: Iterator[ir.Value], queries: list[list[Factor]], scales: Values, states: list[State]
    ) -> list[Values]:
        """Returns keys of a step by the queries of each fragment."""
        found = list[Values]()
        for number_ in range(self.keys.staged.fragments):
            zeros = builder.f32_zeros(VALUES)
            each = [state.base if self.spec.is_folded else zeros for state in states]
            for depth, scale in enumerate(scales):
                key = factor(next(fragments), self.qk, scale, number_)
                each = [_mfma(key, query[depth], score) for query, score in zip(queries, each, strict=True)]
            found.append(each)
        return [list(each) for each in zip(*found, strict=True)]

    def _added(
        self, fragments: Iterator[ir.Value], weights: list[Factor], scales: ir.Value, sums: list[Values], step: Index
    ) -> list[Values]:
        """Adds values of a step by weights to sums. Copies begin behind the first products, one at a time."""
        copies = chain(self.keys.copies(step + self.spec.slots), self.values.copies(step + (self.spec.slots - 1)))
        found = list[Values]()
        for i, each in enumerate(zip(*sums, strict=True)):
            value = factor(next(fragments), self.v, scales, i)
            found.append([_mfma(value, weight, so_far) for weight, so_far in zip(weights, each, strict=True)])
            next(copies, None)
        exhaust(copies)
        return [list(each) for each in zip(*found, strict=True)]

    def _ones(self) -> Factor:
        kind = ir.VectorType.get([BLOCK], ir.Type.parse("f4E2M1FN"))
        one = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 1.0))
        scale = ir.VectorType.get([4], ir.IntegerType.get_signless(8))
        bias = ir.DenseElementsAttr.get_splat(scale, ir.IntegerAttr.get(scale.element_type, _BIAS))
        scales = builder.bitcast(arith.ConstantOp(scale, bias).result, SCALE, 4)
        return arith.ConstantOp(kind, one).result, (scales, 0)

    def _seen(self, step: Index, scores: list[Values]) -> list[Values]:
        """Returns scores, without weight for keys that a query does not see."""
        nothing, row = number(-math.inf), self.keys.staged.row
        of_fragments = range(len(scores[0]))
        keys = [[step * STEP + row(n, self.group * VALUES + i) for i in range(VALUES)] for n in of_fragments]

        def kept(score: ir.Value, own: list[Index], bound: Index) -> ir.Value:
            each = (arith.SelectOp(key < bound, element(score, i), nothing).result for i, key in enumerate(own))
            return builder.from_elements(list(each))

        return [[*map(kept, found, keys, repeat(bound))] for found, bound in zip(scores, self.bounds, strict=True)]

    # Weights

    def _begun(self, scores: Values, state: State) -> State:
        """Returns the state that weights of a query's first scores are relative to."""
        scores = self._relative(scores, state)
        top = of_column(tree(maximum, [element(each, i) for each in scores for i in range(VALUES)]), maximum)
        base = added(number(float(self.spec.offset)), self._fall(top, LOWEST / self.spec.units))
        return state._replace(base=splat(base, VALUES))

    def _fall(self, top: ir.Value, least: float) -> ir.Value:
        """Returns by what scores fall so that the largest one is at most 0, and the one less than a power of 2 so."""
        powers = arith.MulFOp(top, number(1 / self.spec.units)).result
        rise = maximum(mlir_math.CeilOp(powers).result, number(least))
        return arith.MulFOp(rise, number(-float(self.spec.units))).result

    def _relative(self, scores: Values, state: State) -> Values:
        """Returns scores as powers of 2, relative to the state."""
        if self.spec.is_folded:
            return scores
        scale, base = number(self.spec.scale), element(state.base, 0)
        return [
            builder.from_elements([_alone("v_fma_f32", element(each, i), scale, base) for i in range(VALUES)])
            for each in scores
        ]

    def _weighed(self, scores: list[Values], states: list[State]) -> tuple[list[Factor], list[State]]:
        """Returns a lane's weights, with the scales of its own blocks, and the states changed to fit them."""
        scores = [self._relative(*each) for each in zip(scores, states, strict=True)]
        tops = [self._top(each) for each in scores]
        tops, scores, states = self._made_room(tops, scores, states)
        return [self._converted(*each) for each in zip(scores, tops, strict=True)], states

    def _top(self, scores: Values) -> ir.Value:
        """Returns the largest score of the block whose scale a lane has."""
        count = key_unit(self.w) // VALUES
        own = [
            tree(maximum, [element(each, i) for each in scores[first : first + count] for i in range(VALUES)])
            for first in range(0, len(scores), count)
        ]
        if len(own) > 1 and not self.spec.offset:  # halves of two blocks: of each block four lanes have halves
            own = list(swapped(rocdl.Permlane16SwapOp, *swapped(rocdl.Permlane32SwapOp, *own)))
        return tree(maximum, own)

    def _made_room(self, tops: Values, scores: list[Values], states: list[State]) -> Any:
        """Makes a state relative to a larger power of 2 where a block is too far above it."""
        most = number(float(self.weights.max_code if self.spec.offset else _ROOM))
        above = [arith.CmpFOp(arith.CmpFPredicate.UGT, top, most).result for top in tops]
        far = tree(s.either, above)

        def raised() -> list[Any]:
            highest = [arith.SubFOp(of_column(top, maximum), number(float(self.spec.offset))).result for top in tops]
            falls = [self._fall(top, 0.0) for top in highest]
            less = [splat(fall, VALUES) for fall in falls]
            return [
                [added(top, fall) for top, fall in zip(tops, falls, strict=True)],
                [[added(each, by) for each in found] for found, by in zip(scores, less, strict=True)],
                [state.lowered(by, self.spec.units) for state, by in zip(states, less, strict=True)],
            ]

        tops, scores, states = builder.choose(is_anywhere(far), raised, [tops, scores, states])
        return tops, scores, [State(*each) for each in states]

    def _converted(self, scores: Values, top: ir.Value) -> Factor:
        """Returns weights of a query, with the scale of a lane's own block."""
        if self.spec.offset:
            return self._coded(scores)
        code = self._scale(top)
        scale = exponent(code)
        count, scales = key_unit(self.w) // VALUES, [scale]
        if count < len(scores):
            scales = list(swapped(rocdl.Permlane32SwapOp, *swapped(rocdl.Permlane16SwapOp, scale, scale)))
        powers = [exp2(element(each, i)) for each in scores for i in range(VALUES)]
        conversion, any_ = CONVERSIONS[self.w, "f32"], llvm.UndefOp(code.type).res
        pairs, turns = [powers[i : i + 2] for i in range(0, len(powers), 2)], conversion.turns
        words = [
            conversion.word(pairs[i : i + turns], scales[2 * i // (count * VALUES)], any_)
            for i in range(0, len(pairs), turns)
        ]
        elements = builder.bitcast(builder.from_elements(words), "i8", MFMA.lane_bytes(self.w))
        return factor(elements, self.w, builder.bitcast(builder.from_elements([code]), "i8", 4), 0)

    def _coded(self, scores: Values) -> Factor:
        """Returns weights whose codes are scores, with scales of 1."""
        i32, words = builder.i32_type(), list[ir.Value]()
        for each in scores:
            word = builder.i32(0)
            for i in range(VALUES):
                given = [element(each, i), builder.i32(i), word]
                word = llvm.call_intrinsic(i32, "llvm.amdgcn.cvt.pk.u8.f32", given, [], [])
            words.append(word)
        return builder.bitcast(builder.from_elements(words), self.w, BLOCK), self._ones()[1]

    def _scale(self, top: ir.Value) -> ir.Value:
        """Returns the code of a block's scale in an i32."""
        above = _alone("v_add_f32", top, number(_BIAS - math.log2(self.weights.max_finite)))
        return arith.FPToUIOp(builder.i32_type(), mlir_math.CeilOp(above).result).result

    def _store(self, states: list[State]) -> None:
        """Stores results; or a part's sums, what they are relative to, and the sum of weights."""
        spec = self.spec
        shape, behind = [1, 1, spec.columns, 1], [spec.value_size // SIZES, 1, NEIGHBOURS]
        wave = self.wave + self.moved * spec.waves  # not in this workgroup's part, but in its tile's
        own: list[Index | int] = [0, wave, 0, self.column]
        place: list[Index | int] = [*own, 0, self.group, 0]
        if spec.splits == 1:
            shares = [_rounded(each, state.total, spec.result) for state in states for each in state.sums]
            self.threads.store(shares, [*shape, *behind], place)
            return
        numbers = list[Values]()
        for each in states:  # exponents are relative to the offset, and in units
            high = arith.SubFOp(number(float(spec.offset)), element(each.base, 0)).result
            numbers.append([arith.MulFOp(high, number(1 / spec.units)).result, element(each.total, 0)])
        self.threads.store_each(
            ([each for state in states for each in state.sums], [*shape, *behind], place),
            ([builder.from_elements(each) for each in numbers], [*shape, 2], [*own, 0]),
        )


def _rounded(sums: ir.Value, total: ir.Value, kind: str) -> ir.Value:
    return builder.cast(attention.divided(sums, element(total, 0)), kind)


def _mfma(one: Factor, other: Factor, sums: ir.Value) -> ir.Value:
    """Returns the product added to sums. LLVM moves nothing past it, in either direction."""
    result = builder.scaled_mfma(MFMA, one, other, sums)
    builder.sched_barrier()
    return result


def _alone(name: str, *operands: ir.Value) -> ir.Value:
    """Writes an instruction on f32. LLVM would pack two of them, which wait for matrix instructions of other waves."""
    text = f"{name} {', '.join(f'${i}' for i in range(len(operands) + 1))}"
    constraints = ",".join(["=v"] + ["v"] * len(operands))
    return llvm.InlineAsmOp(operands[0].type, list(operands), text, constraints, has_side_effects=False).res
