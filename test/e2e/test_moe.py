"""Matmuls grouped by expert: neither weights nor tokens are gathered, and results are right on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pytest
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, moe
from mxcomp.errors import InputError
from mxcomp.measuring.dispatches import modelled

Array = np.ndarray


@dataclass(frozen=True)
class Matrix:
    """Bytes of elements and scales, and the float64 values they mean."""

    elements: Array
    scales: Array
    values: Array


def matrix(rng: np.random.Generator, fmt: str, *shape: int, spread: int = 6) -> Matrix:
    """Random numbers whose rows are of very different sizes."""
    factors = np.exp2(rng.integers(-spread, spread + 1, (*shape[:-1], 1)))
    codes, scales = formats.quantise((rng.standard_normal(shape) * factors).astype(np.float32), fmt)
    values = formats.dequantise(codes, scales, fmt, dtype=np.float64)
    return Matrix(formats.pack_bits(codes, fmt).view(np.int8), scales.view(np.int8), values)


def module(function: Callable[..., ir.Value], arguments: list[Array]) -> ir.Module:
    names = {"int8": "i8", "int32": "i32", "float32": "f32"}
    types = ("x".join([*map(str, array.shape), names[array.dtype.name]]) for array in arguments)
    return mx.module(function, *types)


@dataclass(frozen=True)
class Grouped:
    """A product of B blocks of `rows` rows with experts' [n, k] weights, of `tokens` tokens with top-2 slots."""

    types: tuple[str, str]
    rows: int
    blocks: int = 4
    experts: int = 3
    tokens: int = 9
    n: int = 80
    k: int = 160

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(11)

    @cached_property
    def lhs(self) -> Matrix:
        return matrix(self.rng, self.types[0], self.tokens, self.k)

    @cached_property
    def rhs(self) -> Matrix:
        return matrix(self.rng, self.types[1], self.experts, self.n, self.k)

    @cached_property
    def slots(self) -> Array:
        """Of each row; some are padding."""
        return self.rng.integers(0, 2 * self.tokens + 3, (self.blocks, self.rows)).astype(np.int32)

    @cached_property
    def ids(self) -> Array:
        """Of experts, some of which do not exist."""
        return self.rng.integers(-1, self.experts + 1, self.blocks).astype(np.int32)

    @cached_property
    def arguments(self) -> list[Array]:
        unused = [np.zeros((self.tokens, 2), np.int32), np.ones((self.tokens, 2), np.float32)]
        matrices = (self.lhs, self.rhs)
        return [*(part for m in matrices for part in (m.elements, m.scales)), self.slots, self.ids, *unused]

    def module(self) -> ir.Module:
        def product(
            a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value,
            slots: ir.Value, ids: ir.Value, positions: ir.Value, weights: ir.Value,
        ) -> ir.Value:  # fmt: skip
            tokens, experts = mx.operand(a, a_scales, self.types[0]), mx.operand(b, b_scales, self.types[1])
            routing = moe.Routing(slots, ids, positions, weights)
            return moe.grouped_matmul(moe.rows(tokens, routing), moe.Experts(experts), routing)

        return module(product, self.arguments)

    def check(self, found: Array) -> None:
        """Against float64, within what f32 sums of so many products can be off."""
        a = self.lhs.values[np.clip(self.slots // 2, 0, self.tokens - 1)]
        b = self.rhs.values[np.clip(self.ids, 0, self.experts - 1)].swapaxes(1, 2)
        bound = np.abs(a) @ np.abs(b) * self.k * 2.0**-24
        assert (np.abs(found - a @ b) <= bound + np.abs(a @ b) * 2.0**-23).all()


PACKED = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]
TYPES = [("E2M1", "E2M1"), ("E4M3", "E2M1"), ("E4M3", "E4M3")]
QUICK = [(TYPES[0], 16), (TYPES[1], 64)]
REST = [(types, rows) for types in TYPES for rows in (16, 32, 64, 128) if (types, rows) not in QUICK]


def case_name(value: object) -> str:
    return "-".join(value) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(
    ("types", "rows"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)], ids=case_name
)
def test_grouped_matmul(types: tuple[str, str], rows: int) -> None:
    case = Grouped(types, rows)
    program = mxcomp.compile(case.module())
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == PACKED
    assert len(modelled(program.vmfb, case.arguments)) == len(PACKED)
    (found,) = program.run(*case.arguments)
    case.check(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Grouped(TYPES[0], 16, blocks=1),
        Grouped(TYPES[1], 32, experts=1),
        Grouped(TYPES[0], 64, n=300, k=1056),
        Grouped(TYPES[1], 16, blocks=9, experts=2, n=256),
    ],
    ids=str,
)
@pytest.mark.parametrize("ukernels", ["auto", "fastest", "none"])
def test_shapes_and_ukernels(case: Grouped, ukernels: str) -> None:
    """One block, one expert, padding everywhere, more blocks than experts; kernels of every kind."""
    program = mxcomp.compile(case.module(), ukernels=ukernels)
    assert program.report.matmuls[0].dispatches == PACKED
    (found,) = program.run(*case.arguments)
    case.check(found)


def test_ids_of_another_kind_are_refused() -> None:
    def gathered(source: ir.Value, ids: ir.Value) -> ir.Value:
        return moe.gather(source, ids)

    with pytest.raises(InputError, match="integer ids"):
        mx.module(gathered, "4x8xi8", "3xf32")
    with pytest.raises(InputError, match="static sizes"):
        mx.module(gathered, "?x8xi8", "3xi32")


@dataclass(frozen=True)
class Layer:
    """The experts of a layer: top-2 of 4 experts, routed at random; no token takes expert 2."""

    types: tuple[str, str]
    rows: int
    activation: str
    tokens: int = 9
    model: int = 96
    inner: int = 160
    experts: int = 4

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(5)

    @cached_property
    def chosen(self) -> Array:
        """The experts of each token."""
        used = [e for e in range(self.experts) if e != 2]
        return np.stack([self.rng.permutation(used)[:2] for _ in range(self.tokens)])

    @cached_property
    def weights(self) -> Array:
        return self.rng.random((self.tokens, 2)).astype(np.float32)

    @cached_property
    def routing(self) -> list[Array]:
        """Slots, experts, positions; one block more than there need be, whose expert does not exist."""
        padding, slots, ids = 2 * self.tokens, list[Array](), list[int]()
        positions = np.zeros((self.tokens, 2), np.int32)
        for expert in range(self.experts):
            mine = np.flatnonzero(self.chosen.ravel() == expert)
            for first in range(0, len(mine), self.rows):
                part = mine[first : first + self.rows]
                positions.ravel()[part] = len(slots) * self.rows + np.arange(len(part))
                slots.append(np.pad(part, (0, self.rows - len(part)), constant_values=padding))
                ids.append(expert)
        slots.append(np.full(self.rows, padding))
        return [np.stack(slots).astype(np.int32), np.array([*ids, self.experts], np.int32), positions]

    @cached_property
    def x(self) -> Array:
        return self.rng.standard_normal((self.tokens, self.model)).astype(np.float32)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """Gate, up and down."""
        sizes = ((self.inner, self.model), (self.inner, self.model), (self.model, self.inner))
        return [matrix(self.rng, self.types[1], self.experts, *size, spread=1) for size in sizes]

    @cached_property
    def biases(self) -> list[Array]:
        return [
            self.rng.standard_normal((self.experts, n)).astype(np.float32) for n in (self.inner, self.inner, self.model)
        ]

    @property
    def arguments(self) -> list[Array]:
        bytes_ = [part for m in self.matrices for part in (m.elements, m.scales)]
        return [self.x, *bytes_, *self.biases, *self.routing, self.weights]

    def module(self) -> ir.Module:
        def layer(
            x: ir.Value, g: ir.Value, gs: ir.Value, u: ir.Value, us: ir.Value, d: ir.Value, ds: ir.Value,
            bg: ir.Value, bu: ir.Value, bd: ir.Value,
            slots: ir.Value, ids: ir.Value, positions: ir.Value, weights: ir.Value,
        ) -> ir.Value:  # fmt: skip
            lhs, rhs = self.types
            parts = ((g, gs, bg), (u, us, bu), (d, ds, bd))
            gate, up, down = (moe.Experts(mx.operand(e, s, rhs), bias) for e, s, bias in parts)
            routing = moe.Routing(slots, ids, positions, weights)
            return moe.layer(mx.quantise(x, lhs), gate, up, down, routing, lhs, getattr(moe, self.activation), "f32")

        return module(layer, self.arguments)

    def expected(self) -> Array:
        """In float64, quantised where the program quantises."""
        x, result = self._quantised(self.x), np.zeros((self.tokens, self.model))
        gate, up, down = (m.values for m in self.matrices)
        b_gate, b_up, b_down = self.biases
        for token in range(self.tokens):
            for expert, weight in zip(self.chosen[token], self.weights[token], strict=True):
                g, u = gate[expert] @ x[token] + b_gate[expert], up[expert] @ x[token] + b_up[expert]
                hidden = self._quantised(ACTIVATIONS[self.activation](g, u)[None])[0]
                result[token] += weight * (down[expert] @ hidden + b_down[expert])
        return result

    def _quantised(self, values: Array) -> Array:
        fmt = self.types[0]
        return formats.dequantise(*formats.quantise(values.astype(np.float32), fmt), fmt, dtype=np.float64)


def clamped_swiglu(gate: Array, up: Array) -> Array:
    gate = np.minimum(gate, 7.0)
    return gate / (1 + np.exp(-1.702 * gate)) * (np.clip(up, -7.0, 7.0) + 1)


def gelu(gate: Array, up: Array) -> Array:
    return 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up


ACTIVATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "swiglu": lambda gate, up: gate / (1 + np.exp(-gate)) * up,
    "clamped_swiglu": clamped_swiglu,
    "gelu": gelu,
}


@cache
def compiled(case: Layer) -> mxcomp.Program:
    return mxcomp.compile(case.module())


ROWS = (16, 32, 64)
LAYERS = [Layer(types, rows, name) for types, rows in zip(TYPES, ROWS, strict=True) for name in ACTIVATIONS]


@pytest.mark.parametrize(
    "case", [LAYERS[1], *(pytest.param(case, marks=pytest.mark.slow) for case in LAYERS if case != LAYERS[1])], ids=str
)
def test_layer(case: Layer) -> None:
    """Rows are quantised where they are packed, biases and activation are part of the products: two quantisations (of
    8-bit elements and scales apart), three products and the sum, beside packing the weights."""
    program = compiled(case)
    halves = 2 if case.types[0] == "E4M3" else 1
    assert len(modelled(program.vmfb, case.arguments)) == 2 * halves + 3 + 1 + 6
    (found,) = program.run(*case.arguments)
    expected = case.expected()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_nan_and_infinity_stay_in_their_tokens() -> None:
    case = LAYERS[1]
    program = compiled(case)
    (clean,) = program.run(*case.arguments)
    x, *others = case.arguments
    spoilt = x.copy()
    spoilt[3, 5], spoilt[6, 40] = np.nan, np.inf
    (found,) = program.run(spoilt, *others)
    others_ = [token for token in range(case.tokens) if token not in (3, 6)]
    assert np.array_equal(found[others_], clean[others_])
    assert not np.array_equal(found[[3, 6]], clean[[3, 6]])
