"""Chooses the top k experts of each token in one dispatch, in linalg: a chain of reductions over experts, with a wave
per token.

Scores become unsigned integers in their order, and with the expert behind them keys that are all different; the j-th
choice is the largest key below the one before. So the choice is exact: equal scores go to the expert with the lowest
number, -0.0 equals 0.0, and NaN is below everything else. IREE keeps the keys in the registers of a wave (its vector
distribution), as for a softmax: T · E · top_k comparisons, logits are read once.

    %k  = keys [T, E]: (order of the score) << 31 | (E - 1 - expert)
    %m0 = max over e of %k            [T]
    %m1 = max over e of (%k < %m0 ? %k : 0)
    …
    experts, weights [T, top_k] from %m0, %m1, …, which have the logits in them

Each reduction uses the last one only once: IREE's distribution to workgroups takes a time that goes with the number of
paths through a dispatch, which is 2^top_k if a choice is two values.
"""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.layout.inner_tiles import LANES
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import reduced, tabled, tabled_twice
from mxcomp.routing.rules import SIGMOID, Rule

_OUT, _NAN = 0, 1
"""Sort keys below those of all numbers: -inf has 0x007FFFFF. An expert with `_OUT` is never chosen."""
_NAN_BITS = 0x7FC00000
_LEAST_SUM = 1e-20
"""A term added to sums of sigmoids before weights are divided by them, as DeepSeek does: they may all be 0."""


@dataclass(frozen=True)
class Choice:
    """The experts of each token, i32 [T, top_k], best first, and their weights f32 [T, top_k]."""

    experts: ir.Value
    weights: ir.Value


def choose(logits: ir.Value, rule: Rule, bias: ir.Value | None = None, regions: bool = True) -> Choice:
    """Returns a router's choice from its logits [T, E] of f32, f16 or bf16, and a bias f32 [E] for the choice alone.

    Without a bias logits are compared, with one the scores with it, as f32. `regions`: as one dispatch.
    """
    tokens, experts = _sizes(logits)
    kept = None if rule.groups == 1 else _kept_groups(logits, rule, bias, regions)
    shape = (tokens, rule.top_k)
    with build.dispatch_region([build.tensor_type(shape, kind) for kind in ("i32", "f32")], [], regions) as region:
        x = _padded(logits) if kept is None else _as_f32(logits)
        experts = _sizes(x)[1]
        scores = None if bias is None else _scores(x, rule)
        ranked = x if scores is None or bias is None else _with_bias(scores, bias)
        chosen = _best(_keys(ranked, kept, experts // rule.groups), rule.top_k)
        values = [] if scores is None else [_of_expert(scores, key, experts) for key in chosen]
        is_partial = rule.score != SIGMOID and not rule.renormalise and scores is None
        total = [_sum_of_exponentials(x, chosen[0])] if is_partial else []
        inputs = [("t", each) for each in (*chosen, *values, *total)]

        def body(*given: ir.Value) -> tuple[ir.Value, ir.Value]:
            keys, rest = given[: rule.top_k], given[rule.top_k : -2]
            found = list(rest) if scores is not None else [s.of_order(s.high(key)) for key in keys]
            weights = _weights(found, rule, scores is None, rest[0] if is_partial else None)
            return _column([_expert(key, experts) for key in keys]), _column(weights)

        region.returned = tabled_twice("tj", shape, ("i32", "f32"), inputs, body)
    return Choice(*region.results)


def _sizes(value: ir.Value) -> list[int]:
    return [size or 0 for size in build.static_sizes(value)]


def _as_f32(logits: ir.Value) -> ir.Value:
    return tabled("te", _sizes(logits), "f32", [("te", logits)], lambda v, _: s.widened(v))


def _padded(logits: ir.Value) -> ir.Value:
    """Returns logits as f32, padded to whole waves with NaN, which are never chosen.

    IREE takes a minute to compile 385 experts, as that is no multiple of 64, and a second for 448.
    """
    tokens, experts = _sizes(logits)
    if experts < LANES or experts % LANES == 0:
        return _as_f32(logits)

    def element(_: ir.Value) -> ir.Value:
        is_expert = s.less(s.loop_index(1), experts)
        value = s.at(logits, s.loop_index(0), s.select(is_expert, s.loop_index(1), experts - 1))
        return s.select(is_expert, s.widened(value), s.number(s.i32(_NAN_BITS)))

    return tabled("te", (tokens, -(-experts // LANES) * LANES), "f32", [], element)


def _keys(ranked: ir.Value, kept: ir.Value | None, group: int) -> ir.Value:
    """Returns keys i64 [T, E], the larger the better; `kept` are groups i32 [T, groups] of `group` experts, 1 or 0."""
    tokens, experts = _sizes(ranked)

    def key(value: ir.Value, _: ir.Value) -> ir.Value:
        order, expert = s.ordered(value, _NAN), s.loop_index(1)
        if kept is not None:
            is_out = s.equal(s.at(kept, s.loop_index(0), s.divided(expert, group)), 0)
            order = s.select(is_out, _OUT, order)
        return s.packed(order, s.minus(experts - 1, expert))

    return tabled("te", (tokens, experts), "i64", [("te", ranked)], key)


def _expert(key: ir.Value, experts: int) -> ir.Value:
    return s.minus(experts - 1, s.low(key))


def _best(keys: ir.Value, count: int) -> list[ir.Value]:
    """Returns the `count` largest keys of each row, i64 [T] each."""
    best: list[ir.Value] = []
    for _ in range(count):
        inputs = [("te", keys), *(("t", each) for each in best[-1:])]

        def below(key: ir.Value, *last: ir.Value) -> ir.Value:
            return s.select(s.less(key, last[0]), key, 0) if last else key

        best.append(reduced("te", "t", _sizes(keys)[:-1], "i64", inputs, s.largest, below))
    return best


def _of_expert(scores: ir.Value, key: ir.Value, experts: int) -> ir.Value:
    """Returns the score f32 [T] of the expert of a key, as a sum with one term."""

    def term(score: ir.Value, chosen: ir.Value) -> ir.Value:
        return s.select(s.equal(s.loop_index(1), _expert(chosen, experts)), s.bits(score), 0)

    tokens, _ = _sizes(scores)
    found = reduced("te", "t", (tokens,), "i32", [("te", scores), ("t", key)], s.plus, term)
    return tabled("t", (tokens,), "f32", [("t", found)], lambda bits, _: s.number(bits))


def _scores(x: ir.Value, rule: Rule) -> ir.Value:
    """Returns the scores f32 [T, E] of logits f32."""
    if rule.score == SIGMOID:
        return tabled("te", _sizes(x), "f32", [("te", x)], lambda v, _: s.sigmoid(v))
    (most,) = _best(_keys(x, None, 1), 1)
    inputs = [("te", x), ("t", most), ("t", _sum_of_exponentials(x, most))]
    return tabled("te", _sizes(x), "f32", inputs, lambda v, top, total, _: s.quotient(_exponential(v, top), total))


def _exponential(value: ir.Value, most: ir.Value) -> ir.Value:
    """Returns e to the power of a logit minus that of the key `most`."""
    return s.exp(s.subtracted(value, s.of_order(s.high(most))))


def _sum_of_exponentials(x: ir.Value, most: ir.Value) -> ir.Value:
    """Returns the denominator of a softmax, f32 [T]; NaN are left out."""

    def term(value: ir.Value, top: ir.Value) -> ir.Value:
        return s.select(s.is_nan(value), 0.0, _exponential(value, top))

    return reduced("te", "t", _sizes(most), "f32", [("te", x), ("t", most)], s.added, term)


def _with_bias(scores: ir.Value, bias: ir.Value) -> ir.Value:
    (experts,) = _sizes(bias)
    if experts == _sizes(scores)[1]:
        pairs = [("te", scores), ("e", bias)]
        return tabled("te", _sizes(scores), "f32", pairs, lambda score, b, _: s.added(score, b))

    def with_bias(score: ir.Value, _: ir.Value) -> ir.Value:
        is_expert = s.less(s.loop_index(1), experts)
        return s.added(score, s.at(bias, s.select(is_expert, s.loop_index(1), experts - 1)))

    return tabled("te", _sizes(scores), "f32", [("te", scores)], with_bias)


def _weights(found: list[ir.Value], rule: Rule, from_logits: bool, total: ir.Value | None) -> list[ir.Value]:
    """Returns the weights of all choices of a token, from their logits, or else scores. `total` is the softmax'
    denominator."""
    if from_logits and rule.score == SIGMOID:
        found = [s.sigmoid(value) for value in found]
    elif from_logits:
        found = [s.exp(s.subtracted(value, found[0])) for value in found]
    if rule.renormalise:
        total = found[0]
        for value in found[1:]:
            total = s.added(total, value)
        total = s.added(total, _LEAST_SUM) if rule.score == SIGMOID else total
    if total is not None:
        found = [s.quotient(value, total) for value in found]
    return found if rule.scale == 1.0 else [s.multiplied(value, rule.scale) for value in found]


def _column(values: list[ir.Value]) -> ir.Value:
    """Returns the score at the index of the second loop."""
    column, found = s.loop_index(1), values[0]
    for j, value in enumerate(values[1:], 1):
        found = s.select(s.equal(column, j), value, found)
    return found


def _kept_groups(logits: ir.Value, rule: Rule, bias: ir.Value | None, regions: bool) -> ir.Value:
    """Returns which groups are kept, i32 [T, groups] of 1 and 0, in two dispatches."""
    tokens, experts = _sizes(logits)
    size = experts // rule.groups
    shape = (tokens * rule.groups, size)
    rows = build.collapse(build.expand(logits, (tokens, rule.groups, size), [[0], [1, 2]]), [[0, 1], [2]])

    def key(x: ir.Value, _: ir.Value) -> ir.Value:
        score = s.sigmoid(s.widened(x))
        if bias is not None:
            first = s.times(s.remainder(s.loop_index(0), rule.groups), size)
            score = s.added(score, s.at(bias, s.plus(first, s.loop_index(1))))
        return s.packed(s.ordered(score, _NAN), s.minus(size - 1, s.loop_index(1)))

    def both(first: ir.Value, second: ir.Value, _: ir.Value) -> ir.Value:
        return s.ordered(s.added(s.of_order(s.high(first)), s.of_order(s.high(second))), _NAN)

    with build.dispatch_region([build.tensor_type(shape[:1], "i32")], [], regions) as region:
        pairs = [("t", each) for each in _best(tabled("te", shape, "i64", [("te", rows)], key), 2)]
        region.returned = [tabled("t", shape[:1], "i32", pairs, both)]
    worth = build.expand(region.results[0], (tokens, rule.groups), [[0, 1]])

    def is_better(mine: ir.Value, other: ir.Value) -> ir.Value:
        earlier = s.both(s.equal(other, mine), s.less(s.loop_index(2), s.loop_index(1)))
        return s.select(s.either(s.above(other, mine), earlier), 1, 0)

    pairs = [("tg", worth), ("th", worth)]
    better = reduced("tgh", "tg", (tokens, rule.groups), "i32", pairs, s.plus, is_better)
    return tabled(
        "tg", _sizes(better), "i32", [("tg", better)], lambda n, _: s.select(s.less(n, rule.kept_groups), 1, 0)
    )
