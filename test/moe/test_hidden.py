"""Few rows of hidden activations, computed and quantised by the product behind them: float64's numbers, those
of quantising elsewhere, and what is not computed there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from iree.compiler import ir
from moe_parts import TYPES
from spread import every
from test_gated_experts import Case, check, compiled, result, without_first

import mxcomp
import mxcomp.ir as mx
from mxcomp import moe
from mxcomp.formats import element_format
from mxcomp.measuring.dispatches import modelled
from mxcomp.run import runtime
from mxcomp.ukernels import swiglu

F4, F8_F4, F8 = TYPES
INSIDE = "LHS is computed and quantised by mx_fused_swiglu_"
QUICK = Case(F4, 2)
REST = [
    *(Case(types, rows, result="bf16") for types in TYPES for rows in (1, 2, 8)),
    *(Case(F4, 2, name) for name in moe.ACTIVATIONS),
    Case(F4, 2, tokens=1),
    Case(F8_F4, 8, experts=1, top_k=1),
    Case(F4, 2, inner=32),
    Case(F8, 2, inner=1056, tokens=4),
    Case(F8_F4, 3, model=544, inner=544, has_bias=False),
]


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="gate and up of a single block of all are two operands: a dispatch more")
def test_a_single_block() -> None:
    test_experts(Case(F8_F4, 8, experts=1, top_k=1, tokens=3))


@pytest.mark.parametrize("case", [QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in REST)], ids=str)
def test_experts(case: Case) -> None:
    """As fast kernels are chosen: in front of the sum there are a dispatch for tokens, and two products."""
    check(case)
    _, down = compiled(case).report.matmuls
    assert (down.note or "").startswith(INSIDE), down.note
    assert len(modelled(compiled(case).vmfb, case.arguments)) == 4 + 4  # two pack each of both weights


def test_nan_of_an_expert_stays_in_its_tokens() -> None:
    program = compiled(QUICK)
    clean, (found,) = result(QUICK), program.run(*without_first(QUICK))
    others = (QUICK.choice != 0).all(axis=1)
    assert others.any() and np.isnan(found[~others]).all()
    assert np.array_equal(found[others], clean[others])


def test_blocks_without_an_expert_are_not_computed() -> None:
    """Neither hidden activations are, nor are they multiplied."""
    case = replace(QUICK, model=1024, inner=1024, tokens=4)
    program, arguments = mxcomp.compile(case.module()), list(case.arguments)
    assert (program.report.matmuls[1].note or "").startswith(INSIDE)

    def down_counters() -> Mapping[str, int]:
        """Counters of the last dispatch but the sum."""
        return program.profile(*arguments, execute=False).dispatches[-2].counters

    whole = down_counters()
    arguments[2] = np.full_like(arguments[2], -1)
    nothing = down_counters()
    assert whole["mfma"] > 0 and not nothing.get("mfma")
    assert 2 * nothing["valu"] < whole["valu"]


SHAPES = ((2, 48, 1056), (1, 80, 32), (8, 33, 1024), (5, 144, 288), (7, 16, 544))


NAMED = [
    (instance, next(each for each in (*SHAPES[i % 5 :], *SHAPES) if instance.covers(*each)))
    for i, instance in enumerate(swiglu.INSTANCES)
]


def down(
    instance: swiglu.Instance,
    shape: tuple[int, int, int],
    activation: Callable[..., ir.Value] = moe.swiglu,
    kind: str = "f32",
    first: int = 0,
) -> ir.Module:
    """Two matrices of f32 gate and up in turns, an activation of both, or up alone, times matrices of weights."""
    (m, n, k), weights = shape, element_format(instance.elements[1])

    def function(both: ir.Value, elements: ir.Value, scales: ir.Value) -> ir.Value:
        rows = mx.elementwise(activation, *moe.gate_and_up(both)[first:], result=kind)
        return mx.scaled_matmul(moe.requantised(rows, instance.elements[0]), mx.operand(elements, scales, weights))

    return mx.module(
        function, f"2x{m}x{2 * k}xf32", f"2x{n}x{k * weights.bits // 8}xi8", f"2x{n}x{k // 32}xi8"
    )  # fmt: skip


def arguments(instance: swiglu.Instance, shape: tuple[int, int, int]) -> list[np.ndarray]:
    (m, n, k), bits = shape, element_format(instance.elements[1]).bits
    rng = np.random.default_rng(m + n + k)
    both = rng.standard_normal((2, m, 2 * k)) * 2.0 ** rng.integers(-6, 3, (2, m, 2 * k))
    elements = rng.integers(0, 256, (2, n, k * bits // 8), dtype=np.uint8)
    if bits == 8:
        elements = np.where(elements & 0x7F == 0x7F, 0x35, elements).astype(np.uint8)  # no NaN
    return [both.astype(np.float32), elements.view(np.int8), rng.integers(118, 130, (2, n, k // 32)).astype(np.int8)]


@pytest.mark.parametrize("case", every(15, NAMED), ids=lambda case: case[0].name)
def test_values_of_quantising_elsewhere(case: tuple[swiglu.Instance, tuple[int, int, int]]) -> None:
    """And so of a product in another order, up to its rounding, in every schedule."""
    instance, shape = case
    module, given = down(instance, shape), arguments(instance, shape)
    program = mxcomp.compile(module, ukernels=instance.name, strict=True)
    (found,) = program.report.matmuls
    assert (found.note or "").endswith(instance.name)
    schedules = ("forward", "random")
    mine, other = (runtime.run(program.vmfb, None, given, "sim", schedule=name, seed=3)[0] for name in schedules)
    assert np.array_equal(mine, other)
    (elsewhere,) = mxcomp.compile(module, ukernels="none").run(*given)
    largest = np.abs(elsewhere).max(axis=(1, 2), keepdims=True)
    assert (np.abs(mine - elsewhere) <= 1e-6 * largest).all()


def _by_up(_: ir.Value, up: ir.Value) -> ir.Value:
    return mx.multiply(up, 0.5)


FP4 = swiglu.INSTANCES[0]


def same_elsewhere(module: ir.Module, is_inside: bool, shape: tuple[int, int, int] = SHAPES[0]) -> None:
    """A program gives what it gives without ukernels, whether activations are computed inside or not."""
    program, given = mxcomp.compile(module, ukernels=FP4.name), arguments(FP4, shape)
    (found,) = program.report.matmuls
    assert (found.note or "").startswith(INSIDE) == is_inside, found.note
    for mine, elsewhere in zip(program.run(*given), mxcomp.compile(module, ukernels="none").run(*given), strict=True):
        assert np.abs(mine - elsewhere).max() <= 1e-6 * np.abs(elsewhere).max()


@pytest.mark.parametrize(
    "case", every(3, [(moe.swiglu, "bf16"), (moe.gelu, "f32"), (_by_up, "f16")]), ids=lambda x: x[1]
)
def test_activations(case: tuple[Callable[..., ir.Value], str]) -> None:
    activation, kind = case
    same_elsewhere(down(FP4, SHAPES[0], activation, kind), is_inside=True)


def test_activations_of_one_of_both() -> None:
    """There is no pair, and with a batch nothing else is quantised inside."""
    same_elsewhere(down(FP4, SHAPES[0], lambda up: mx.multiply(up, up), first=1), is_inside=False)


def test_activations_that_others_read_are_not_computed_twice() -> None:
    """They are in memory, so that there is nothing to be computed."""
    m, n, k = SHAPES[0]

    def function(both: ir.Value, elements: ir.Value, scales: ir.Value) -> list[ir.Value]:
        rows = mx.elementwise(moe.swiglu, *moe.gate_and_up(both))
        return [mx.scaled_matmul(moe.requantised(rows, "E2M1"), mx.operand(elements, scales, "E2M1")), rows]

    module = mx.module(function, f"2x{m}x{2 * k}xf32", f"2x{n}x{k // 2}xi8", f"2x{n}x{k // 32}xi8")
    same_elsewhere(module, is_inside=False)


@pytest.mark.parametrize(
    ("m", "n", "k", "covers"), [(2, 64, 4096, True), (2, 64, 4128, False), (8, 64, 1024, True), (9, 64, 96, False)]
)
def test_room_in_lds(m: int, n: int, k: int, covers: bool) -> None:
    """256 blocks, up to a whole K tile, and eight rows."""
    assert FP4.covers(m, n, k) == covers


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 64, 4096), (8, 64, 1056)])
def test_more_than_there_is_room_for(shape: tuple[int, int, int]) -> None:
    same_elsewhere(down(FP4, shape), False, shape)
