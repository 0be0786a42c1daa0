"""Experts chosen already, of which some are on another device: tables and layers, with sizes of 1 among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from iree import compiler as ireec
from iree.compiler import ir
from moe_parts import Array, module
from spread import quick_if
from test_gated_experts import BF16, Case
from test_routing import CPU

import mxcomp
import mxcomp.ir as mx
from mxcomp import moe, routing
from mxcomp.routing import Extent
from mxcomp.run import runtime

RANDOM, NONE, ONE_HERE = "random", "none here", "one expert here"


def drawn_ids(rng: np.random.Generator, how: str, shape: tuple[int, int], experts: int) -> Array:
    """A token's experts, different ones where they are here; the others are -1, or some other number out of range."""
    absent = rng.choice([-1, -1, -1, -7, experts, experts + 9, 2**31 - 1, -(2**31)], shape)
    if how == NONE:
        return absent.astype(np.int32)
    if how == ONE_HERE:
        ids = absent
        ids[:: 2 if len(ids) > 1 else 1, 0] = experts - 1
        return ids.astype(np.int32)
    many = np.stack([rng.permutation(max(shape[1], experts) + 2)[: shape[1]] for _ in range(shape[0])])
    ids = np.where(many < experts, many, absent)
    ids[0] = absent[0]  # of this token none is here
    ids[-1, -1] = 0
    return ids.astype(np.int32)


@dataclass(frozen=True)
class Tables:
    """Sizes of a routing."""

    tokens: int
    experts: int
    top_k: int
    block_m: int
    how: str = RANDOM

    @property
    def extent(self) -> Extent:
        return Extent(self.tokens, self.experts, self.top_k, self.block_m)

    def ids(self) -> Array:
        return drawn_ids(np.random.default_rng(3), self.how, (self.tokens, self.top_k), self.experts)

    def built(self, regions: bool = True) -> str:
        def tables(chosen: ir.Value, weights: ir.Value) -> tuple[Any, ...]:
            made = routing.given(chosen, weights, self.experts, self.block_m, regions)
            return made.slots, made.experts, made.positions, made.valid_blocks

        shape = f"{self.tokens}x{self.top_k}"
        return str(mx.module(tables, f"{shape}xi32", f"{shape}xf32"))

    def check(self, found: list[Array]) -> None:
        """Checks what tables are for: slots are in order by expert, each in one row, and other rows are padding; each
        slot of a single token has a block."""
        (slots, experts, positions, (valid,)), ids = found, self.ids().ravel()
        is_here = (ids >= 0) & (ids < self.experts)
        expected: list[int] = []
        blocks: list[int] = []
        alone = [(int(ids[i]) if here else -1, [i] if here else []) for i, here in enumerate(is_here)]
        sorted_ = [(expert, [i for i in range(len(ids)) if ids[i] == expert]) for expert in range(self.experts)]
        for expert, mine in alone if self.tokens == 1 else sorted_:
            for start in range(0, len(mine) or self.tokens == 1, self.block_m):
                part = mine[start : start + self.block_m]
                expected += part + [len(ids)] * (self.block_m - len(part))
                blocks.append(expert)
        assert valid == len(blocks)
        assert experts.tolist() == blocks + [-1] * (len(experts) - valid)
        assert slots.ravel().tolist() == expected + [len(ids)] * (slots.size - len(expected))
        assert (slots.ravel()[positions.ravel()[is_here]] == np.flatnonzero(is_here)).all()
        assert (positions.ravel()[~is_here] == slots.size + np.flatnonzero(~is_here)).all()


ONE_WORKGROUP, SEVERAL_DISPATCHES, ONE_SLOT = (
    Tables(40, 5, 3, 4),
    Tables(600, 8, 2, 1024),
    Tables(1, 1, 1, 16, ONE_HERE),
)
TABLES = [
    ONE_WORKGROUP, SEVERAL_DISPATCHES, ONE_SLOT, Tables(9, 1, 4, 16), Tables(65, 1, 1, 128), Tables(1, 8, 1, 16, NONE),
    Tables(1, 3, 1, 2, ONE_HERE), Tables(1, 8, 4, 2), Tables(2, 1, 1, 8), Tables(1100, 4, 2, 16),
    Tables(2500, 6, 2, 64), Tables(1, 1, 1, 2048, ONE_HERE), Tables(1031, 1, 1, 2048), Tables(40, 5, 3, 4, NONE),
    Tables(600, 8, 2, 1024, NONE),
]  # fmt: skip


@pytest.mark.parametrize("case", quick_if((ONE_WORKGROUP, SEVERAL_DISPATCHES, ONE_SLOT).__contains__, TABLES), ids=str)
def test_tables(case: Tables) -> None:
    weights = np.ones((case.tokens, case.top_k), np.float32)
    case.check(mxcomp.compile(case.built(), strict=True).run(case.ids(), weights, checks="all"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [ONE_WORKGROUP, SEVERAL_DISPATCHES, Tables(2, 1, 1, 8), Tables(1100, 4, 2, 16)], ids=str
)
def test_on_a_cpu(case: Tables) -> None:
    """Stock IREE compiles the same module for a CPU."""
    inputs = [case.ids(), np.ones((case.tokens, case.top_k), np.float32)]
    case.check(runtime.run(ireec.compile_str(case.built(regions=False), extra_args=CPU), None, inputs, "cpu"))


@dataclass(frozen=True)
class Given(Case):
    """Experts of a layer, which the program is given for each token."""

    where: str = RANDOM

    @cached_property
    def choice(self) -> Array:
        return drawn_ids(np.random.default_rng(self.seed), self.where, (self.tokens, self.top_k), self.experts)

    @cached_property
    def routing(self) -> list[Array]:
        """Ids and weights: of what is not here they are NaN."""
        weights = self.rng.random(self.choice.shape).astype(np.float32)
        return [self.choice, np.where((self.choice < 0) | (self.choice >= self.experts), np.float32("nan"), weights)]

    def module(self) -> ir.Module:
        def layer(
            x: ir.Value, chosen: ir.Value, weights: ir.Value,
            gu: ir.Value, gus: ir.Value, d: ir.Value, ds: ir.Value, *biases: ir.Value,
        ) -> ir.Value:  # fmt: skip
            lhs, rhs = self.types
            pairs = zip(((gu, gus), (d, ds)), biases or (None, None), strict=True)
            gate_up, down = (moe.Experts(mx.operand(*stored, rhs), bias) for stored, bias in pairs)
            found = routing.given(chosen, weights, self.experts, self.rows)
            if lhs == BF16:
                return moe.gated_layer(x, gate_up, down, found, None, self.activation, self.result)
            return moe.gated_layer(mx.quantise(x, lhs), gate_up, down, found, lhs, self.activation, self.result)

        return module(layer, self.arguments)


@cache
def compiled(case: Given) -> mxcomp.Program:
    return mxcomp.compile(case.module(), strict=True)


def check(case: Given) -> None:
    """All ids that a program may be given: some here, none, or all of one expert."""
    program = compiled(case)
    assert [matmul.reason for matmul in program.report.matmuls] == [None, None]
    for where in (RANDOM, NONE, ONE_HERE):
        drawn = replace(case, where=where)
        (found,) = program.run(*drawn.arguments, checks="all")
        assert (np.abs(found.astype(np.float64) - drawn.expected()) <= drawn.tolerance).all()
        nothing = ~((drawn.choice >= 0) & (drawn.choice < case.experts)).any(axis=1)
        assert (found[nothing] == 0).all()
        assert nothing.all() if where == NONE else not nothing.all() and np.abs(found).max() > 0.1


ONE_EXPERT = Given(("E5M2", "E4M3"), 128, tokens=65, experts=1, top_k=1)
SOME = Given(("E4M3", "E2M1"), 16, experts=3, top_k=2, tokens=9)
LAYERS = [
    ONE_EXPERT, SOME,
    Given(("E2M1", "E2M1"), 16, experts=1, top_k=4),
    Given(("E2M1", "E2M1"), 16, experts=2, top_k=1),
    Given(("E2M1", "E2M1"), 2, experts=1, top_k=1, tokens=1),
    Given(("E4M3", "E4M3"), 8, experts=2, top_k=2, tokens=1),
    Given(("E4M3", "E2M1"), 32, experts=8, top_k=1, tokens=40, result=BF16),
    Given((BF16, "E2M1"), 16, experts=1, top_k=1, model=544),
    Given((BF16, "E4M3"), 16, experts=3, top_k=2, model=544, has_bias=False),
    Given(("E4M3", "E4M3"), 16, experts=1, top_k=1, tokens=40, has_bias=False),
]  # fmt: skip


@pytest.mark.parametrize("case", quick_if((ONE_EXPERT, SOME).__contains__, LAYERS), ids=str)
def test_layers(case: Given) -> None:
    check(case)
