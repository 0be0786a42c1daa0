"""Experts whose gate and up are one product, quantised in its tile: few dispatches, right, and apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

import ml_dtypes
import numpy as np
import pytest
import routing_reference as reference
from iree.compiler import ir
from moe_parts import TYPES, Array, Matrix, matrix, module
from spread import every
from test_moe_layer import ACTIVATIONS, Layer

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, moe
from mxcomp.errors import InputError
from mxcomp.measuring.dispatches import modelled
from mxcomp.routing import Extent, Routing

BF16 = "bf16"
RANDOM, ONE_EXPERT = "random", "one expert"


@dataclass(frozen=True)
class Case:
    """Experts of a layer, of which the last but one has no token where that can be."""

    types: tuple[str, str]
    rows: int
    activation: str = "clamped_swiglu"
    tokens: int = 9
    model: int = 96
    inner: int = 160
    experts: int = 4
    top_k: int = 2
    chosen: str = RANDOM
    has_bias: bool = True
    seed: int = 5
    result: str = "f32"
    source: str = "f32"

    scales = (6, 8)
    """Which arguments are scales of weights."""

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def choice(self) -> Array:
        """The experts of each token."""
        used = [e for e in range(self.experts) if e != self.experts - 2 or self.top_k == self.experts]
        if self.chosen == ONE_EXPERT:
            return np.tile(np.arange(self.top_k), (self.tokens, 1)) + 1
        return np.stack([self.rng.permutation(used)[: self.top_k] for _ in range(self.tokens)])

    @cached_property
    def routing(self) -> list[Array]:
        """Slots, experts, positions, weights."""
        extent = Extent(self.tokens, self.experts, self.top_k, self.rows)
        tables = reference.sort(self.choice.astype(np.int32), extent)
        positions = np.argsort(tables.slots, kind="stable")[: extent.slots].astype(np.int32)
        weights = self.rng.random(self.choice.shape).astype(np.float32)
        return [tables.slots.reshape(-1, self.rows), tables.experts, positions.reshape(self.choice.shape), weights]

    @cached_property
    def x(self) -> Array:
        kind = ml_dtypes.bfloat16 if BF16 in (self.types[0], self.source) else np.float32
        return self.rng.standard_normal((self.tokens, self.model)).astype(kind)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Gate and up, rows of which alternate, and down."""
        sizes = ((2 * self.inner, self.model), (self.model, self.inner))
        return [matrix(self.rng, self.types[1], self.experts, *size, spread=1) for size in sizes]

    @cached_property
    def biases(self) -> list[Array]:
        sizes = (2 * self.inner, self.model) if self.has_bias else ()
        return [self.rng.standard_normal((self.experts, n)).astype(np.float32) for n in sizes]

    @property
    def arguments(self) -> list[Array]:
        return [self.x, *self.routing, *(part for m in self.matrices for part in (m.elements, m.scales)), *self.biases]

    def module(self) -> ir.Module:
        def layer(
            x: ir.Value, slots: ir.Value, experts: ir.Value, positions: ir.Value, weights: ir.Value,
            gu: ir.Value, gus: ir.Value, d: ir.Value, ds: ir.Value, *biases: ir.Value,
        ) -> ir.Value:  # fmt: skip
            lhs, rhs = self.types
            pairs = zip(((gu, gus), (d, ds)), biases or (None, None), strict=True)
            gate_up, down = (moe.Experts(mx.operand(*stored, rhs), bias) for stored, bias in pairs)
            routing = Routing(slots, experts, positions, weights)
            if lhs == BF16:
                return moe.gated_layer(x, gate_up, down, routing, None, self.activation, self.result)
            return moe.gated_layer(mx.quantise(x, lhs), gate_up, down, routing, lhs, self.activation, self.result)

        return module(layer, self.arguments)

    def expected(self) -> Array:
        """In float64, quantised where the program quantises."""
        return self._shares.sum(axis=1)

    @cached_property
    def _shares(self) -> Array:
        """What each expert of a token adds to its result: [tokens, top_k, model]."""
        x, result, weights = self._quantised(self.x), np.zeros((*self.choice.shape, self.model)), self.routing[-1]
        gate_up, down = (m.values for m in self.matrices)
        b_gate_up, b_down = self.biases or (np.zeros((self.experts, 1)),) * 2
        for token in range(self.tokens):
            for i, (expert, weight) in enumerate(zip(self.choice[token], weights[token], strict=True)):
                if not 0 <= expert < self.experts:
                    continue
                both = gate_up[expert] @ x[token] + b_gate_up[expert]
                hidden = self._quantised(ACTIVATIONS[self.activation](both[::2], both[1::2])[None])[0]
                result[token, i] = weight * (down[expert] @ hidden + b_down[expert])
        return result

    @property
    def tolerance(self) -> Array:
        """Of f32 sums, and of one hidden bf16 activation rounded the other way; of results of bf16, rounded for each
        expert and once more."""
        largest = (1e-5 + (2.0**-9 if self.types[0] == BF16 else 0.0)) * np.abs(self.expected()).max()
        if self.result != BF16:
            return np.asarray(largest)
        return largest + 1.01 * 2.0**-8 * (np.abs(self._shares).sum(axis=1) + np.abs(self.expected()))

    def _quantised(self, values: Array) -> Array:
        fmt = self.types[0]
        if fmt == BF16:
            return values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
        return formats.dequantise(*formats.quantise(values.astype(np.float32), fmt), fmt, dtype=np.float64)


@cache
def compiled(case: Case) -> mxcomp.Program:
    return mxcomp.compile(case.module())


@cache
def result(case: Case) -> Array:
    """What a program gives for its arguments: some tests change these, and compare."""
    (found,) = compiled(case).run(*case.arguments)
    found.setflags(write=False)
    return found


def check(case: Case) -> None:
    found = result(case)
    assert (np.abs(found.astype(np.float64) - case.expected()) <= case.tolerance).all()


def without_first(case: Case | Layer) -> list[Array]:
    """Arguments in which all weights of the first expert are NaN."""
    spoilt = [array.copy() for array in case.arguments]
    for i in case.scales:
        spoilt[i][0] = -1  # scale 255
    return spoilt


F4, F8_F4, F8 = TYPES
QUICK = Case(F4, 16)
SHORT = Case(F8_F4, 32, result=BF16)
"""What experts give is kept in 16 bits."""
PLAIN = Case((BF16, "E2M1"), 16, model=544)
"""Activations that are not quantised."""
TOKEN = Case(F4, 1, tokens=1, model=576, inner=1056, result=BF16, source=BF16)
"""A token that the product of gate and up quantises, as down does hidden activations."""
REST = [
    replace(TOKEN, experts=8, top_k=6),
    replace(TOKEN, types=F8_F4, top_k=3, activation="gelu", model=2080, inner=64),
    replace(TOKEN, rows=2),
    Case((BF16, "E2M1"), 1, model=544, tokens=1),
    Case(F8_F4, 1, tokens=1, top_k=1),
    replace(TOKEN, types=F8, has_bias=False),
    *(Case(types, rows) for types in TYPES for rows in (16, 32, 64, 128) if (types, rows) != (F4, 16)),
    *(Case(F4, 16, name) for name in ACTIVATIONS if name != "clamped_swiglu"),
    *(Case(types, rows, result=BF16) for types in (F4, F8) for rows in (16, 64, 128)),
    *(Case(types, 16, chosen=ONE_EXPERT, top_k=1, tokens=40) for types in (F4, F8_F4)),
    *(Case(types, 32, top_k=4) for types in (F4, F8_F4)),
    Case(F4, 16, experts=1, top_k=1),
    Case(F4, 16, tokens=1),
    Case(F4, 160, tokens=200, top_k=1),
    Case(F8_F4, 256, tokens=300, top_k=1, result=BF16),
    Case(F4, 16, inner=32),
    Case(F8, 16, inner=32),
    Case(F4, 64, model=288, inner=384, tokens=33),
    Case(F8_F4, 64, model=288, inner=256, tokens=33),
    Case(F4, 16, "swiglu", has_bias=False),
    *(Case((BF16, name), rows, model=544) for name in ("E4M3", "E3M2") for rows in (16, 48)),
    Case((BF16, "E2M1"), 64, model=1056, inner=544, tokens=40, chosen=ONE_EXPERT, top_k=1),
    Case((BF16, "E2M1"), 32, "swiglu", model=576, inner=1056, experts=1, top_k=1, has_bias=False),
    Case((BF16, "E2M1"), 128, model=544, inner=544),
    Case((BF16, "E2M1"), 16, inner=256),
]


@pytest.mark.parametrize(
    "case", [QUICK, SHORT, PLAIN, TOKEN, *(pytest.param(case, marks=pytest.mark.slow) for case in REST)], ids=str
)
def test_right(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("case", "experts", "note"),
    [
        (QUICK, 4, "gate and up are quantised in their tile"),
        (Case(F8_F4, 32), 4, "gate and up are quantised in their tile"),
        (PLAIN, 5, "RHS is dequantised by mx_bf16_f4E2M1FN_"),
        (TOKEN, 2, "a token's experts are two dispatches: modelled "),
    ],
    ids=str,
)
def test_dispatches(case: Case, experts: int, note: str) -> None:
    """Tokens, gate and up, down, the sum; of one token gate and up, and down, alone.
    Two more pack each of both weights. Nothing wider than quantised activations is written between the products. Tokens
    that are not quantised are gathered, and activations computed, in dispatches of their own."""
    program = compiled(case)
    assert len(modelled(program.vmfb, case.arguments)) == experts + 4
    gate_up, _ = program.report.matmuls
    assert str(gate_up.note).startswith(note)


@pytest.mark.parametrize("case", [QUICK, PLAIN], ids=str)
def test_experts_are_apart(case: Case) -> None:
    """NaN and infinity in an expert's weights and biases change only tokens that go to it, in their tokens only."""
    clean = result(case)
    spoilt = [array.copy() for array in case.arguments]
    spoilt[6][1, 7, 1] = -1  # scale 255
    spoilt[8][1, 5, 2] = -1
    spoilt[9][1, 3], spoilt[10][1, 4] = np.inf, np.nan
    (found,) = compiled(case).run(*spoilt)
    touched = (case.choice == 1).any(axis=1)
    assert touched.any() and not touched.all()
    assert np.array_equal(found[~touched], clean[~touched])
    assert np.isnan(found[touched]).any(axis=1).all()


@pytest.mark.parametrize("types", [F4, pytest.param(F8, marks=pytest.mark.slow)], ids=str)
def test_nothing_is_loaded_past_the_last_k_tile(types: tuple[str, str]) -> None:
    """K of 5 tiles, where a tile that is not there would be one of the expert before: its NaN would come along."""
    case = Case(types, 16, model=256, inner=640, tokens=20)
    program = compiled(case)
    clean = result(case)
    (found,) = program.run(*without_first(case))
    others = (case.choice != 0).all(axis=1)
    assert others.any() and np.isnan(found[~others]).all()
    assert np.array_equal(found[others], clean[others])


def test_tokens_are_apart() -> None:
    clean = result(QUICK)
    x, *others = QUICK.arguments
    spoilt = x.copy()
    spoilt[3, 5], spoilt[6, 40] = np.nan, np.inf
    (found,) = compiled(QUICK).run(spoilt, *others)
    rest = [token for token in range(QUICK.tokens) if token not in (3, 6)]
    assert np.array_equal(found[rest], clean[rest])
    assert not np.array_equal(found[[3, 6]], clean[[3, 6]])


@pytest.mark.parametrize("case", every(2, [QUICK, PLAIN]), ids=str)
def test_ids_out_of_range(case: Case) -> None:
    """Of blocks that have tokens, too: the last expert is taken for one that is too large, nothing else is read."""
    arguments = list(case.arguments)
    arguments[2] = np.where(arguments[2] == case.experts - 1, 2**31 - 1, arguments[2]).astype(np.int32)
    (found,) = compiled(case).run(*arguments)
    assert np.array_equal(found, result(case))


def test_blocks_without_an_expert() -> None:
    """Of blocks that have tokens, too: of their products nothing is left but the bias, the first expert's."""
    arguments, weights = list(QUICK.arguments), QUICK.routing[-1]
    first = QUICK.choice == 0
    assert first.any()
    (others,) = compiled(QUICK).run(*arguments[:4], np.where(first, 0, weights).astype(np.float32), *arguments[5:])
    arguments[2] = np.where(arguments[2] == 0, -5, arguments[2]).astype(np.int32)
    (found,) = compiled(QUICK).run(*arguments)
    bias = (weights * first).sum(axis=1)[:, None] * QUICK.biases[-1][0]
    np.testing.assert_allclose(found, others + bias, rtol=1e-5, atol=1e-5 * np.abs(others).max())


@pytest.mark.parametrize(
    "types",
    [
        TYPES[0],
        pytest.param(("E4M3", "E4M3"), marks=pytest.mark.slow),
        pytest.param(PLAIN.types, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_blocks_without_an_expert_are_not_computed(types: tuple[str, str]) -> None:
    """Kernels hold the first K tile at most: all others are not multiplied."""
    case = Case(types, 16, model=1024, inner=1024, tokens=4)
    arguments, program = list(case.arguments), mxcomp.compile(case.module())

    def multiplied() -> list[int]:
        dispatches = program.profile(*arguments, execute=False).dispatches
        return [each.counters["mfma"] for each in dispatches if each.counters.get("mfma")]

    whole = multiplied()
    assert len(whole) == 2
    arguments[2] = np.full_like(arguments[2], -1)
    assert all(mine * 2 < all_ for mine, all_ in zip(multiplied() or [0, 0], whole, strict=True))


def test_bad_input() -> None:
    with pytest.raises(InputError, match="activation 'relu': expected one of swiglu, clamped_swiglu, gelu"):
        Case(F4, 16, "relu").module()
    with pytest.raises(InputError, match="gate and up in 161 rows: expected an even number"):
        odd = Case(F4, 16)
        arguments = odd.arguments
        arguments[5], arguments[6], arguments[9] = (arguments[i][:, :161] for i in (5, 6, 9))
        sizes = [
            "x".join([*map(str, a.shape), {"i": f"i{8 * a.itemsize}", "f": "f32"}[a.dtype.kind]]) for a in arguments
        ]

        def layer(*given: ir.Value) -> ir.Value:
            x, slots, experts, positions, weights, gu, gus, d, ds, bgu, bd = given
            gate_up, down = (moe.Experts(mx.operand(e, s, "E2M1"), b) for e, s, b in ((gu, gus, bgu), (d, ds, bd)))
            routing = Routing(slots, experts, positions, weights)
            return moe.gated_layer(mx.quantise(x, "E2M1"), gate_up, down, routing, "E2M1")

        mx.module(layer, *sizes)


@pytest.mark.slow  # of one matmul by default: test_packed_hidden.py
@pytest.mark.parametrize("case", every(3, [QUICK, SHORT, Case(F8, 2, inner=288, tokens=5)]), ids=str)
def test_quantised_apart(case: Case) -> None:
    """Hidden activations are one dispatch, which reads gate and up where they are."""
    program = mxcomp.compile(case.module(), fuse_quantisers="off")
    (found,) = program.run(*case.arguments)
    assert (np.abs(found.astype(np.float64) - case.expected()) <= case.tolerance).all()
    assert len(modelled(program.vmfb, case.arguments)) == 5 + 4


@pytest.mark.slow
def test_scales_in_a_dispatch_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden activations of 8 bits and many rows are quantised in two dispatches."""
    monkeypatch.setattr("mxcomp.packing.quantised_operand.FEW_ROWS", 1)
    case = Case(F8, 2, inner=288, tokens=5)
    program = mxcomp.compile(case.module(), fuse_quantisers="off")
    (found,) = program.run(*case.arguments)
    assert (np.abs(found - case.expected()) <= case.tolerance).all()
    assert len(modelled(program.vmfb, case.arguments)) == 6 + 4


@pytest.mark.slow
def test_other_ukernels() -> None:
    """Without those for it, gate and up are one product all the same, and what they make is quantised apart."""
    for ukernels in ("none", "mx_f4E2M1FN_f4E2M1FN_f32_m64_n128_k256"):
        program = mxcomp.compile(QUICK.module(), ukernels=ukernels)
        (found,) = program.run(*QUICK.arguments)
        expected = QUICK.expected()
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_verified() -> None:
    assert mxcomp.verify(QUICK.module(), QUICK.arguments).ok
