"""One step of softmax and of both products, as attention kernels share it.

    scores[32 keys, queries] = keys · queriesᵀ          two fragments of 16 keys
    sums[sizes, queries]    += valuesᵀ · exp2(scores − the largest so far)

A lane has scores of one query in both fragments, of four keys each, which are its factor of the second product: so they
stay in registers. A lane reads values of eight keys, in whole pieces of rows, and transposes them in registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.dialects import arith, vector

from mxcomp.mlir import scalars as s
from mxcomp.ukernels import builder
from mxcomp.ukernels.attention_memory import LANE, Operand, Spec
from mxcomp.ukernels.builder import Index, Values, element, mfma, part, select
from mxcomp.ukernels.softmax import LOWEST, added, exp2, inverse, largest, number, of_column, splat, tree

KEYS = 32
"""The number of keys of a step: two fragments of scores are one of the second product."""
COLUMNS = 16
"""The number of queries of a fragment."""
DEPTH = 32
"""The number of elements along the sizes of queries and keys that a matrix instruction takes."""


class Others:
    """The operands after queries, keys and values: an optional mask, an optional sink, and positions."""

    def __init__(self, spec: Spec, operands: Sequence[Operand]) -> None:
        masks, sinks = (0 if each is None else 1 for each in (spec.mask, spec.sink))
        self.mask, self.positions = operands[:masks], operands[masks + sinks :]
        self._sink = operands[masks] if sinks else None

    def start(self, head: Index, is_counted: ir.Value, fragments: int, size: int = 4) -> State:
        """Returns the state of a lane's query before any key: what the sink of its head makes of it, where it is
        counted. `size`: of a fragment."""
        high, power = number(LOWEST), number(0.0)
        if self._sink is not None:
            sink = s.widened(element(self._sink.load(self._sink.place(n=head), 1), 0))
            high = largest(high, arith.MulFOp(sink, number(math.log2(math.e))).result)
            power = chosen(is_counted, 1.0, 0.0)
        return State(high, power, [builder.f32_zeros(size) for _ in range(fragments)])


def chosen(condition: ir.Value | None, yes: float, no: float) -> ir.Value:
    """Returns one number where a condition holds, and another where not, or where there is no condition."""
    return number(no) if condition is None else arith.SelectOp(condition, number(yes), number(no)).result


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
        return [self.count, 4, 4 * self.width]

    def part(self, quarter: Index) -> tuple[list[int], list[Index | int]]:
        """Returns the part of a row of results that a lane has, and where it begins."""
        return [self.count, 1, 4 * self.width], [0, quarter, 0]

    def elements(self, fragments: Values) -> Values:
        each = [fragments[i * self.width : (i + 1) * self.width] for i in range(self.count)]
        return [element(x, i) for piece in each for i in range(4) for x in piece]


def load_row(quarter: Index, size: int, piece: int, load: Callable[[Index], Values]) -> Iterator[Values]:
    """Loads a lane's pieces of a row of queries or keys by where they begin, with zeros beyond its last element."""
    for start in range(0, size, 4 * piece):
        at = quarter * piece + start
        if start + 4 * piece <= size:
            yield load(at)
        else:
            inside = at < size
            yield [builder.masked(inside, each) for each in load(select(inside, at, 0))]


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


def scores(keys: Values, queries: Values, scale: ir.Value, cap: float | None) -> Values:
    """Returns the scores of a lane's eight keys with its query, times a scale, and capped if there is a cap."""
    found: Values = []
    for half in range(2):
        fragment = builder.f32_zeros(4)
        for key, query in zip(keys[half * len(queries) :], queries, strict=False):
            fragment = mfma((COLUMNS, COLUMNS, DEPTH), key, query, fragment)
        found += [element(fragment, i) for i in range(4)]
    return scaled(found, scale, cap)


def scaled(found: Values, scale: ir.Value, cap: float | None) -> Values:
    found = [arith.MulFOp(score, scale).result for score in found]
    return found if cap is None else [_capped(score, cap) for score in found]


def _capped(score: ir.Value, cap: float) -> ir.Value:
    """Returns `cap` times tanh of a score: 1 - 2 / (1 + exp(2 score))."""
    more = added(exp2(added(score, score)), number(1.0))
    return arith.SubFOp(number(cap), arith.MulFOp(number(2 * cap), inverse(more)).result).result


def masked_by(mask: ir.Value, found: Values) -> Values:
    """Returns scores with eight numbers added, times log2(e)."""
    more = arith.MulFOp(builder.cast(mask, "f32"), splat(number(math.log2(math.e)), LANE)).result
    return [added(score, element(more, i)) for i, score in enumerate(found)]


def seen(rows: Sequence[Index], start: Index | None, end: Index, found: Values) -> Values:
    """Replaces scores of keys outside of a range by ones without weight."""
    nothing = number(-math.inf)
    inside = [row < end for row in rows]
    if start is not None:
        inside = [builder.both(each, row >= start) for each, row in zip(inside, rows, strict=True)]
    return [arith.SelectOp(holds, score, nothing).result for holds, score in zip(inside, found, strict=True)]


class State(NamedTuple):
    """The running softmax of a lane's query: the largest score, the sum of powers, and sums of values."""

    high: ir.Value
    power: ir.Value
    sums: Values

    def rescaled(self, found: Values) -> tuple[State, Values]:
        """Rescales the state to a new largest score, and returns it with the powers of new scores."""
        high = largest(self.high, of_column(tree(largest, found), largest))
        fades = exp2(arith.SubFOp(self.high, high).result)
        powers = [exp2(arith.SubFOp(score, high).result) for score in found]
        power = added(arith.MulFOp(self.power, fades).result, tree(added, powers))
        return State(high, power, [arith.MulFOp(each, splat(fades, 4)).result for each in self.sums]), powers

    def plus(self, values: Values, powers: Values, type_: str) -> State:
        """Adds values of eight keys, weighted by their powers."""
        factor, shape = builder.cast(builder.from_elements(powers), type_), (COLUMNS, COLUMNS, DEPTH)
        sums = [mfma(shape, value, factor, each) for value, each in zip(values, self.sums, strict=True)]
        return State(self.high, self.power, sums)


def divisor(total: ir.Value) -> ir.Value:
    """Returns the divisor of sums. It is 1 for a query that sees no key, whose sums are 0."""
    is_nothing = arith.CmpFOp(arith.CmpFPredicate.OEQ, total, number(0.0)).result
    return arith.SelectOp(is_nothing, number(1.0), total).result


def divided(values: ir.Value, by: ir.Value) -> ir.Value:
    inverse = arith.DivFOp(number(1.0), by).result
    return arith.MulFOp(values, splat(inverse, ir.VectorType(values.type).shape[0])).result
