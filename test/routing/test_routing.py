"""Routing on the device against NumPy: choices, weights and tables, on the simulated GPU and on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import routing_reference as reference
from iree import compiler as ireec
from numpy.typing import NDArray
from spread import quick_if

import mxcomp
import mxcomp.ir as mx
from mxcomp import routing
from mxcomp.errors import InputError
from mxcomp.routing import SIGMOID, Extent, Routing, Rule
from mxcomp.routing.sorting import SORTING
from mxcomp.run import runtime

CPU = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
       "--iree-llvmcpu-target-cpu=host"]  # fmt: skip
TIED = "tied"
"""Logits of few different values, both zeros and infinities among them."""
EQUAL = "equal"
ONE = "one"
"""All tokens prefer the same experts."""
NOT_A_NUMBER = "nan"
NEGATIVE = "negative"


@dataclass(frozen=True)
class Case:
    tokens: int
    experts: int
    rule: Rule
    block_m: int = 16
    has_bias: bool = False
    logits: str = TIED
    kind: str = "f32"

    def drawn(self) -> list[np.ndarray]:
        rng = np.random.default_rng(5)
        shape = (self.tokens, self.experts)
        x = rng.standard_normal(shape)
        if self.logits == TIED:
            x = np.round(3 * x) / 2 * np.where(rng.random(shape) < 0.5, -1, 1)
            x[rng.random(shape) < 0.02] = -np.inf
        elif self.logits == EQUAL:
            x = np.zeros(shape)
        elif self.logits == ONE:
            x = np.broadcast_to(x[0], shape)
        elif self.logits == NOT_A_NUMBER:
            x[rng.random(shape) < 0.9] = np.nan
            x[0] = np.nan
        elif self.logits == NEGATIVE:
            x -= 20
        given = x.astype(ml_dtypes.bfloat16 if self.kind == "bf16" else np.float32)
        bias = rng.standard_normal(self.experts).astype(np.float32) / 8
        return [given, bias] if self.has_bias else [given]


def built(case: Case, regions: bool = True) -> str:
    def route(logits: Any, bias: Any = None) -> tuple[Any, ...]:
        made = routing.route(logits, case.rule, case.block_m, bias, regions)
        return made.chosen, made.weights, made.slots, made.experts, made.valid_blocks, made.positions

    types = [f"{case.tokens}x{case.experts}x{case.kind}", f"{case.experts}xf32"]
    return str(mx.module(route, *types[: 1 + case.has_bias]))


def check(case: Case, found: list[np.ndarray], inputs: list[np.ndarray]) -> None:
    logits = inputs[0].astype(np.float32)
    chosen, weights = reference.choose(logits, case.rule, *inputs[1:])
    tables = reference.sort(chosen, Extent(case.tokens, case.experts, case.rule.top_k, case.block_m))
    np.testing.assert_array_equal(found[0], chosen)
    np.testing.assert_allclose(found[1], weights, rtol=3e-6, atol=1e-12)
    np.testing.assert_array_equal(found[2], tables.slots.reshape(-1, case.block_m))
    np.testing.assert_array_equal(found[3], tables.experts)
    assert found[4].tolist() == [tables.valid_blocks]
    np.testing.assert_array_equal(tables.slots[found[5].reshape(-1)], np.arange(chosen.size))


GPT_OSS, QWEN3, DEEPSEEK_V3 = routing.gpt_oss(4), routing.qwen3(8), routing.deepseek_v3(8)
CASES = {
    "gpt_oss": Case(32, 128, GPT_OSS, 32),
    "qwen3": Case(16, 512, routing.qwen3(10), logits=NEGATIVE),
    "qwen3_not_renormalised": Case(16, 128, routing.qwen3(8, False)),
    "deepseek_v3": Case(16, 256, DEEPSEEK_V3, 32, True, "normal"),
    "kimi_k2": Case(8, 384, routing.deepseek_v3(8, 1, 1, 2.827), 16, True, "normal"),
    "deepseek_without_bias": Case(8, 64, routing.deepseek_v3(4, 4, 2), logits="normal"),
    "softmax_with_bias": Case(8, 64, routing.qwen3(4, False), 16, True, "normal"),
    "sigmoid_ties": Case(8, 48, Rule(3, SIGMOID, renormalise=False)),
    "one_token": Case(1, 256, QWEN3, 16),
    "one_choice": Case(33, 32, routing.qwen3(1), 64),
    "every_expert": Case(5, 16, routing.gpt_oss(16)),
    "one_expert": Case(7, 1, routing.gpt_oss(1)),
    "all_equal": Case(40, 64, GPT_OSS, logits=EQUAL),
    "all_to_few": Case(200, 33, routing.gpt_oss(2), logits=ONE),
    "not_a_number": Case(20, 64, QWEN3, logits=NOT_A_NUMBER),
    "odd": Case(16, 129, routing.qwen3(4), logits=NOT_A_NUMBER),
    "odd_with_bias": Case(9, 77, routing.deepseek_v3(4, 1, 1), 16, True, "normal"),
    "odd_tiles": Case(600, 77, routing.gpt_oss(2), 32),
    "bf16": Case(17, 128, GPT_OSS, kind="bf16"),
    "two_tiles": Case(600, 32, routing.gpt_oss(2), 32),
    "padded_tiles": Case(1031, 16, routing.gpt_oss(1), 32),
    "large_blocks": Case(600, 32, routing.gpt_oss(2), 1024),
    "large_padded_blocks": Case(1031, 16, routing.gpt_oss(1), 2048),
    "small_blocks": Case(9, 256, QWEN3, 8),
    "many_experts": Case(4, 1025, routing.gpt_oss(3), 16),
}
SLOW = {
    "gpt_oss_1024": Case(1024, 128, GPT_OSS, 64),
    "deepseek_v3_1024": Case(1024, 256, DEEPSEEK_V3, 32, True, "normal"),
    "kimi_k3": Case(130, 896, routing.deepseek_v3(16, 1, 1), 32, True, "normal"),
    "qwen3_4099": Case(4099, 128, QWEN3, 128),
    "deepseek_v3_4096": Case(4096, 256, routing.deepseek_v3(8, 1, 1), 64, True, "normal"),
}


QUICK = ("gpt_oss", "deepseek_v3", "sigmoid_ties", "one_token", "every_expert", "all_equal", "not_a_number",
         "odd_with_bias", "bf16", "two_tiles", "large_blocks")  # fmt: skip
"""Each rule, each path of sorting, and numbers that are none."""


@pytest.mark.parametrize("name", quick_if(QUICK.__contains__, CASES))
def test_simulated(name: str) -> None:
    case = CASES[name]
    inputs = case.drawn()
    check(case, mxcomp.compile(built(case)).run(*inputs), inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_simulated_large(name: str) -> None:
    case = SLOW[name]
    inputs = case.drawn()
    check(case, mxcomp.compile(built(case)).run(*inputs), inputs)


@pytest.mark.parametrize("name", ["gpt_oss", "deepseek_v3", "not_a_number", "padded_tiles"])
def test_on_a_cpu(name: str) -> None:
    """Stock IREE compiles the same module for a CPU."""
    case = CASES[name]
    inputs = case.drawn()
    vmfb = ireec.compile_str(built(case, regions=False), extra_args=CPU)
    check(case, runtime.run(vmfb, None, inputs, "cpu"), inputs)


@pytest.mark.slow
def test_by_a_stock_compiler() -> None:
    """It makes several dispatches of sorting, and knows nothing of what marks the tables."""
    case = CASES["sigmoid_ties"]
    text = built(case)
    assert SORTING in text
    inputs = case.drawn()
    vmfb = ireec.compile_str(text, extra_args=["--iree-hal-target-device=hip", "--iree-rocm-target=gfx950"])
    check(case, runtime.run(vmfb, None, inputs, "sim"), inputs)


@pytest.mark.parametrize(
    ("name", "dispatches"), [("gpt_oss", 2), ("deepseek_v3", 4), ("padded_tiles", 2), ("large_blocks", 6)]
)
def test_dispatches(name: str, dispatches: int) -> None:
    """Top-k is one, groups are two more; sorting is one, or, of tables that LDS does not hold, four; more slots than a
    tile has one more, padded ones another.

    The numbers 0, 1, … that are scattered are written once, when the program is loaded.
    """
    case = CASES[name]
    profile = mxcomp.compile(built(case)).profile(*case.drawn(), execute=False)
    called = [each for each in profile.dispatches if not each.kernel.startswith("_initializer")]
    assert len(called) == dispatches
    assert sum(each.modelled.us for each in called if each.modelled) < 40


def test_infinities_and_nan_stay_in_their_token() -> None:
    case = replace(CASES["gpt_oss"], logits="normal")
    logits = case.drawn()[0]
    program = mxcomp.compile(built(case))
    before = program.run(logits)
    logits[3, 7], logits[5] = np.inf, np.nan
    after = program.run(logits)
    others = np.setdiff1d(np.arange(case.tokens), [3, 5])
    for index in (0, 1):
        np.testing.assert_array_equal(after[index][others], before[index][others])
    assert after[0][3, 0] == 7
    assert after[0][5].tolist() == [0, 1, 2, 3]
    assert np.isnan(after[1][5]).all()


def test_tables_are_bounded() -> None:
    """Blocks suffice for whatever is chosen, and no fewer would."""
    rng = np.random.default_rng(2)
    for tokens, experts, top_k, block_m in [(1, 8, 1, 16), (5, 4, 4, 2), (40, 3, 2, 16), (33, 64, 8, 32)]:
        extent = Extent(tokens, experts, top_k, block_m)
        chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :top_k].astype(np.int32)
        assert reference.sort(chosen, extent).valid_blocks <= extent.blocks
    assert Extent(4, 4, 1, 16).blocks == 4
    assert Extent(17, 1, 1, 16).blocks == 2
    assert Extent(1, 128, 1, 16).blocks == 1


BAD: list[tuple[str, Rule, int, str]] = [
    ("8x4xf32", Rule(5), 16, "top_k of 5 with 4 experts: expected 1 to 4"),
    ("8x4xf32", Rule(0), 16, "top_k of 0 with 4 experts: expected 1 to 4"),
    ("8x4xf32", Rule(1, "tanh"), 16, "score 'tanh': expected softmax or sigmoid"),
    ("8x6xf32", Rule(1, SIGMOID, groups=4), 16, "expected groups of equal size"),
    ("8x8xf32", Rule(1, groups=4), 16, "groups with softmax scores: expected sigmoid"),
    ("8x8xf32", Rule(1, SIGMOID, groups=8), 16, "expected two experts or more in a group"),
    ("8x8xf32", Rule(5, SIGMOID, groups=2), 16, "top_k of 5, but 1 groups have 4"),
    ("8x4xf32", Rule(1), 0, "expected sizes of 1 and more"),
    ("1073741824x4xf32", Rule(4), 16, "expected fewer than 2^31 rows"),
    ("?x4xf32", Rule(1), 16, "expected static [tokens, experts] of f32, f16 or bf16"),
    ("8x4xi32", Rule(1), 16, "expected static [tokens, experts] of f32, f16 or bf16"),
]


@pytest.mark.parametrize(("kind", "rule", "block_m", "message"), BAD)
def test_bad_input(kind: str, rule: Rule, block_m: int, message: str) -> None:
    with pytest.raises(InputError) as raised:
        mx.module(lambda logits: routing.route(logits, rule, block_m).slots, kind)
    assert message in str(raised.value)


def test_tables_that_do_not_belong_together() -> None:
    with pytest.raises(InputError, match=r"expected static i32 \[B, BM\]"):
        mx.module(lambda *tables: Routing(*tables).slots, "4x16xi32", "3xi32", "8x2xi32", "8x2xf32")
    with pytest.raises(InputError, match=r"expected static i32 \[B, BM\]"):
        mx.module(lambda *tables: Routing(*tables).slots, "4x16xi32", "4xi32", "8x2xi32", "8x2xf16")


def test_bias_of_another_size() -> None:
    with pytest.raises(InputError, match=r"bias tensor<3xf32>: expected tensor<4xf32>"):
        mx.module(lambda logits, bias: routing.route(logits, Rule(1), 16, bias).slots, "8x4xf32", "3xf32")


def by_hand(logits: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    return np.array([sorted(range(len(row)), key=lambda e: (-row[e], e))[:top_k] for row in logits.tolist()])


def test_reference_is_what_models_do() -> None:
    """The reference itself, against choices by hand and the formulas of the models."""
    logits = np.round(np.random.default_rng(1).standard_normal((50, 16)) * 2).astype(np.float32)
    chosen, weights = reference.choose(logits, routing.gpt_oss(4))
    np.testing.assert_array_equal(chosen, by_hand(logits, 4))
    best = np.exp(np.take_along_axis(logits.astype(float), chosen.astype(np.int64), 1))
    np.testing.assert_allclose(weights, best / best.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(reference.choose(logits, routing.qwen3(4))[1], weights)
    _, scaled = reference.choose(logits, routing.deepseek_v3(4, 1, 1))
    np.testing.assert_allclose(scaled.sum(axis=1), 2.5)


@pytest.mark.slow
def test_verified_beside_a_matmul() -> None:
    """Regions of routing get through `mxcomp.verify`, which compiles for a CPU."""
    case = CASES["deepseek_v3"]

    def layer(logits: Any, bias: Any, elements: Any, scales: Any) -> tuple[Any, ...]:
        made = routing.route(logits, case.rule, case.block_m, bias)
        product = mx.scaled_matmul(mx.quantise(logits, "E2M1"), mx.operand(elements, scales, "E2M1"))
        return product, made.chosen, made.weights, made.slots, made.experts, made.valid_blocks

    inputs = case.drawn()
    rng = np.random.default_rng(7)
    rhs = [rng.integers(0, 256, (64, 128), np.uint8).view(np.int8), rng.integers(120, 130, (64, 8)).astype(np.int8)]
    module = mx.module(layer, "16x256xf32", "256xf32", "64x128xi8", "64x8xi8")
    found = mxcomp.verify(module, [*inputs, *rhs])
    assert found.ok
    check(case, list(found.results[1:]), inputs)
