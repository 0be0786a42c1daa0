"""Matmuls grouped by expert: neither weights nor tokens are gathered, and results are right on the simulated GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest
from iree.compiler import ir
from moe_parts import TYPES, Array, Matrix, matrix, module

import mxcomp
import mxcomp.ir as mx
from mxcomp import moe, routing
from mxcomp.errors import InputError
from mxcomp.measuring.dispatches import modelled


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

    def check(self, found: Array, ids: Array | None = None) -> None:
        """Against float64, within what f32 sums of so many products can be off."""
        ids = self.ids if ids is None else ids
        a = self.lhs.values[np.clip(self.slots // 2, 0, self.tokens - 1)]
        b = self.rhs.values[np.clip(ids, 0, self.experts - 1)].swapaxes(1, 2)
        bound = np.abs(a) @ np.abs(b) * self.k * 2.0**-24
        assert (np.abs(found - a @ b) <= bound + np.abs(a @ b) * 2.0**-23).all()


PACKED = ["pack_lhs", "pack_rhs", "pack_lhs_scale", "pack_rhs_scale", "matmul"]
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
@pytest.mark.parametrize("ukernels", ["benefit", "fastest", "none"])
def test_shapes_and_ukernels(case: Grouped, ukernels: str) -> None:
    """One block, one expert, padding everywhere, more blocks than experts; kernels of every kind."""
    program = mxcomp.compile(case.module(), ukernels=ukernels)
    assert program.report.matmuls[0].dispatches == PACKED
    (found,) = program.run(*case.arguments)
    case.check(found)


@pytest.mark.parametrize("block_m", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_an_inner_size_of_256(block_m: int) -> None:
    """Gathered as half inner tiles, which 256 fills."""
    case = Grouped(TYPES[0], block_m, n=256, k=256)
    program = mxcomp.compile(case.module(), ukernels="fastest")
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == PACKED
    assert "_k256" in (matmul.ukernel or "")
    (found,) = program.run(*case.arguments)
    case.check(found)


@pytest.mark.parametrize(
    ("types", "block_m"),
    [
        (TYPES[1], 2),
        pytest.param(TYPES[0], 2, marks=pytest.mark.slow),
        pytest.param(TYPES[1], 8, marks=pytest.mark.slow),
    ],
    ids=case_name,
)
def test_blocks_of_few_rows(types: tuple[str, str], block_m: int) -> None:
    """Blocks of fewer rows than there are tokens, by kernels that load no others."""
    case = Grouped(types, block_m, blocks=3, tokens=block_m + 3, n=96, k=1024)
    program = mxcomp.compile(case.module(), ukernels="fastest")
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == PACKED
    assert f"_max_m{block_m}" in (matmul.ukernel or "")
    (found,) = program.run(*case.arguments)
    case.check(found)


@pytest.mark.parametrize(
    ("tokens", "experts", "top_k", "rows"),
    [
        (1, 128, 4, 1), (2, 1, 1, 2), (3, 1, 1, 8), (32, 256, 8, 2), (33, 256, 8, 8), (96, 256, 8, 8), (97, 256, 8, 16),
        (16, 4, 4, 16), (18, 4, 4, 16), (19, 4, 4, 32), (512, 128, 4, 16), (513, 128, 3, 16), (2048, 128, 4, 128),
        (38_400, 128, 4, 128), (38_401, 128, 4, 256),
    ],
)  # fmt: skip
def test_rows_of_a_block(tokens: int, experts: int, top_k: int, rows: int) -> None:
    """No more than there are tokens need; few experts with more than fit."""
    assert routing.block_m(tokens, experts, top_k) == rows


def test_ids_of_another_kind_are_refused() -> None:
    def gathered(source: ir.Value, ids: ir.Value) -> ir.Value:
        return moe.gather(source, ids)

    with pytest.raises(InputError, match="integer ids"):
        mx.module(gathered, "4x8xi8", "3xf32")
    with pytest.raises(InputError, match="static sizes"):
        mx.module(gathered, "?x8xi8", "3xi32")


def test_expert_ids_that_are_calculated_with() -> None:
    """Experts by half an id: gathered where they are packed, which is right, and the report says why."""
    case = Grouped(TYPES[1], 16)

    def product(
        a: ir.Value, a_scales: ir.Value, b: ir.Value, b_scales: ir.Value, slots: ir.Value, ids: ir.Value
    ) -> ir.Value:
        (lhs, lhs_scales), (rhs, rhs_scales) = (
            [moe.gather(part, given, 2) for part in parts]
            for parts, given in (((a, a_scales), slots), ((b, b_scales), ids))
        )
        return mx.scaled_matmul(mx.operand(lhs, lhs_scales, "E4M3"), mx.operand(rhs, rhs_scales, "E2M1"))

    arguments = case.arguments[:6]
    program = mxcomp.compile(module(product, arguments))
    (matmul,) = program.report.matmuls
    assert matmul.dispatches == PACKED
    assert "its ids are neither as they are nor clamped to the experts" in str(matmul.unfused)
    (found,) = program.run(*arguments)
    case.check(found, case.ids // 2)
