"""Experts of a single token with routing in front of gate and up: what is chosen, also of equal scores, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iree.compiler import ir
from iree.compiler.dialects import arith
from moe_parts import TYPES, Array, module
from test_gated_experts import BF16, Case

import mxcomp
import mxcomp.ir as mx
from mxcomp import moe
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import reduced, tabled
from mxcomp.routing import Routing


def top_k(scores: ir.Value, count: int) -> list[ir.Value]:
    """Returns the best scores of a row, and their numbers, as PyTorch's topk is exported: slices of a sort."""
    shape = build.static_sizes(scores)
    numbers = tabled("te", shape, "i32", [], lambda _: s.loop_index(1))
    operands = [scores, numbers]
    at = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)
    kinds = [value.type for value in operands]
    told = {"dimension": at, "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 2])}
    sort = ir.Operation.create("iree_linalg_ext.sort", kinds, operands, told, regions=1)
    elements = [build.element(value) for value in operands for _ in range(2)]
    block = sort.regions[0].blocks.append(*elements)
    with ir.InsertionPoint(block):
        is_before = arith.CmpFOp(arith.CmpFPredicate.OGE, *list(block.arguments)[:2]).result
        ir.Operation.create("iree_linalg_ext.yield", [], [is_before])
    return [build.part(value, [0, 0], [1, count]) for value in sort.results]


@dataclass(frozen=True)
class Routed(Case):
    """A token's experts, chosen by scores of bf16, of which so many are different."""

    levels: int = 1000

    scales = (3, 5)

    @cached_property
    def scores(self) -> Array:
        wide = self.rng.integers(self.levels, size=(1, self.experts)) / 64 - 1
        wide[0, self.rng.integers(self.experts)] = -np.inf
        return wide.astype(ml_dtypes.bfloat16)

    @cached_property
    def choice(self) -> Array:
        wide = self.scores.astype(np.float64)
        return np.lexsort((np.arange(self.experts)[None], -wide))[:, : self.top_k]

    @cached_property
    def routing(self) -> list[Array]:
        best = np.take_along_axis(self.scores.astype(np.float64), self.choice, 1)
        powers = np.exp(best - best.max())
        return [powers / powers.sum()]

    @property
    def arguments(self) -> list[Array]:
        x, _, *others = super().arguments
        return [x, self.scores, *others]

    def layer(self, x: ir.Value, scores: ir.Value, *given: ir.Value) -> ir.Value:
        (gu, gus, d, ds), biases = given[:4], given[4:]
        lhs, rhs = self.types
        pairs = zip(((gu, gus), (d, ds)), biases or (None, None), strict=True)
        gate_up, down = (moe.Experts(mx.operand(*stored, rhs), bias) for stored, bias in pairs)
        best, numbers = top_k(scores, self.top_k)
        shape = (1, self.top_k)
        powers = tabled("tj", shape, "f32", [("tj", best)], lambda v, _: s.exp(s.widened(v)))
        total = reduced("tj", "t", (1,), "f32", [("tj", powers)], s.added, lambda v: v)
        weights = tabled("tj", shape, "f32", [("tj", powers), ("t", total)], lambda v, w, _: s.quotient(v, w))
        slots = tabled("tj", shape, "i32", [], lambda _: s.loop_index(1))
        rows = build.expand(build.flat(slots), (self.top_k, 1), [[0, 1]])
        routing = Routing(rows, build.flat(numbers), slots, weights)
        return moe.gated_layer(mx.quantise(x, lhs), gate_up, down, routing, lhs, self.activation, self.result)

    def module(self) -> ir.Module:
        return module(self.layer, self.arguments)


F4, F8_F4, F8 = TYPES
QUICK = Routed(F4, 1, tokens=1, model=576, inner=352, experts=16, top_k=3, result=BF16, source=BF16)


def check(case: Routed, joined: bool | None = None) -> None:
    program = mxcomp.compile(case.module())
    (found,) = program.run(*case.arguments)
    assert (np.abs(found.astype(np.float64) - case.expected()) <= case.tolerance).all()
    if joined is None:
        return
    owners = [each.owner for each in program.profile(*case.arguments, execute=False).dispatches]
    assert any(owner.startswith("routing") for owner in owners) != joined


@pytest.mark.slow
def test_zeros_of_the_sum_are_those_of_a_product_in_front() -> None:
    case = replace(QUICK, source="f32")
    x, *others = case.arguments
    weights = case.rng.standard_normal((case.model, case.model)).astype(np.float32)

    def product(x: ir.Value, w: ir.Value) -> ir.Value:
        return mx.scaled_matmul(mx.quantise(x, case.types[0]), mx.quantise(w, case.types[0]))

    def both(x: ir.Value, *given: ir.Value) -> ir.Value:
        return case.layer(product(x, given[-1]), *given[:-1])

    program = mxcomp.compile(module(both, [x, *others, weights]), strict=True)
    (found,) = program.run(x, *others, weights)
    (between,) = mxcomp.compile(module(product, [x, weights])).run(x, weights)
    np.testing.assert_array_equal(found, mxcomp.compile(case.module()).run(between, *others)[0])


def test_right() -> None:
    check(replace(QUICK, model=96, inner=64, experts=130, top_k=2, levels=40))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        QUICK,
        replace(QUICK, model=160, inner=64, experts=6, top_k=2),
        replace(QUICK, levels=2),
        replace(QUICK, model=96, inner=64, experts=256, top_k=8),
        replace(QUICK, types=F8_F4, experts=32, activation="gelu"),
        replace(QUICK, types=F8, experts=5, top_k=2, has_bias=False),
    ],
    ids=str,
)
def test_others_are_right(case: Routed) -> None:
    check(case, joined=True)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.integers(3, 40) | st.integers(100, 300),
    st.integers(2, 6),
    st.integers(1, 5),
    st.integers(1, 20),
    st.sampled_from([1, 3, 1000]),
)
def test_any_size(experts: int, top_k: int, model: int, inner: int, levels: int) -> None:
    """Experts of equal scores are chosen in their order."""
    sizes = {"model": 32 * model + 32, "inner": 32 * inner, "top_k": min(top_k, experts - 1)}
    check(replace(QUICK, experts=experts, levels=levels, seed=experts, **sizes))
