"""Matmuls grouped by expert: neither weights nor tokens are gathered, and results are right on the simulated GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
from mxcomp import formats, moe

Bytes = np.ndarray


def matrix(rng: np.random.Generator, fmt: str, *shape: int) -> tuple[Bytes, Bytes, np.ndarray]:
    """Bytes of elements and scales of random numbers of very different sizes, and the float64 values they mean."""
    spread = np.exp2(rng.integers(-6, 6, (*shape[:-1], 1)))
    codes, scales = formats.quantise((rng.standard_normal(shape) * spread).astype(np.float32), fmt)
    values = formats.dequantise(codes, scales, fmt, dtype=np.float64)
    return formats.pack_bits(codes, fmt).view(np.int8), scales.view(np.int8), values


def argument_types(*arrays: np.ndarray) -> list[str]:
    names = {"int8": "i8", "int32": "i32", "float32": "f32"}
    return [f"{'x'.join(map(str, array.shape))}x{names[array.dtype.name]}" for array in arrays]


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
    def lhs(self) -> tuple[Bytes, Bytes, np.ndarray]:
        return matrix(self.rng, self.types[0], self.tokens, self.k)

    @cached_property
    def rhs(self) -> tuple[Bytes, Bytes, np.ndarray]:
        return matrix(self.rng, self.types[1], self.experts, self.n, self.k)

    @cached_property
    def slots(self) -> np.ndarray:
        """Of each row; some are padding."""
        return self.rng.integers(0, 2 * self.tokens + 3, (self.blocks, self.rows)).astype(np.int32)

    @cached_property
    def ids(self) -> np.ndarray:
        return self.rng.integers(0, self.experts, self.blocks).astype(np.int32)

    @property
    def arguments(self) -> list[np.ndarray]:
        return [*self.lhs[:2], *self.rhs[:2], self.slots, self.ids, self.positions, self.weights]

    @property
    def positions(self) -> np.ndarray:
        return np.zeros((self.tokens, 2), np.int32)

    @property
    def weights(self) -> np.ndarray:
        return np.ones((self.tokens, 2), np.float32)

    def product(self, *given: ir.Value) -> ir.Value:
        """The function of the program."""
        a, a_scales, b, b_scales, *routing = given
        tokens, experts = mx.operand(a, a_scales, self.types[0]), mx.operand(b, b_scales, self.types[1])
        where = moe.Routing(*routing)
        return moe.grouped_matmul(moe.rows(tokens, where), moe.Experts(experts), where)

    def module(self) -> ir.Module:
        def product(
            a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value,
            slots: ir.Value, ids: ir.Value, positions: ir.Value, weights: ir.Value,
        ) -> ir.Value:  # fmt: skip
            return self.product(a, a_scales, b, b_scales, slots, ids, positions, weights)

        return mx.module(product, *argument_types(*self.arguments))

    def check(self, found: np.ndarray) -> None:
        """Against float64, within what f32 sums of so many products can be off."""
        a = self.lhs[2][np.clip(self.slots // 2, 0, self.tokens - 1)]
        b = self.rhs[2][np.clip(self.ids, 0, self.experts - 1)].swapaxes(1, 2)
        bound = np.abs(a) @ np.abs(b) * self.k * 2.0**-24
        assert (np.abs(found - a @ b) <= bound + np.abs(a @ b) * 2.0**-23).all()


PACKED = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]
TYPES = [("E2M1", "E2M1"), ("E4M3", "E2M1"), ("E4M3", "E4M3")]
QUICK = [(TYPES[0], 16), (TYPES[1], 64), (TYPES[2], 128)]
REST = [(types, rows) for types in TYPES for rows in (16, 32, 64, 128) if (types, rows) not in QUICK]


@pytest.mark.parametrize(
    ("types", "rows"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else str(value),
)
def test_grouped_matmul(types: tuple[str, str], rows: int) -> None:
    case = Grouped(types, rows)
    program = mxcomp.compile(case.module())
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == PACKED
    (found,) = program.run(*case.arguments)
    case.check(found)
