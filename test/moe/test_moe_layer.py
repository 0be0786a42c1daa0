"""The experts of a layer: few dispatches, and right on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import pytest
from iree.compiler import ir
from moe_parts import TYPES, Array, Matrix, matrix, module

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, moe
from mxcomp.measuring.dispatches import modelled


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
    seed: int = 5

    scales = (2, 4, 6)
    """Which arguments are scales of weights."""

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def choice(self) -> Array:
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
            mine = np.flatnonzero(self.choice.ravel() == expert)
            for first in range(0, len(mine), self.rows):
                part = mine[first : first + self.rows]
                positions.ravel()[part] = len(slots) * self.rows + np.arange(len(part))
                slots.append(np.pad(part, (0, self.rows - len(part)), constant_values=padding))
                ids.append(expert)
        slots.append(np.full(self.rows, padding))
        return [np.stack(slots).astype(np.int32), np.array([*ids, -1], np.int32), positions]

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
            for expert, weight in zip(self.choice[token], self.weights[token], strict=True):
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
    """Rows are quantised where they are packed, biases and activation are part of the products: two quantisations,
    three products and the sum, beside packing the weights."""
    program = compiled(case)
    assert len(modelled(program.vmfb, case.arguments)) == 2 + 3 + 1 + 6
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


@pytest.mark.slow
def test_every_product_of_a_layer_may_have_any_ukernel() -> None:
    """What routing is made of is no sign that both sides of a product are one tensor."""
    program = mxcomp.compile(LAYERS[0].module(), ukernels="fastest")
    assert [str(matmul.note).startswith("modelled") for matmul in program.report.matmuls] == [True] * 3
