"""MX attention of `mxcomp.torch`: compiled, on the simulator, against arithmetic in f64 on ml_dtypes' elements."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iree.compiler import ir

import mxcomp
import mxcomp.ir as mx
import mxcomp.torch
from mxcomp.errors import InputError
from mxcomp.formats import quantise
from mxcomp.ir.attention import Form, attention
from mxcomp.torch.values import as_array

TYPES = {
    "E2M1": (ml_dtypes.float4_e2m1fn, 1, 2, 6.0),
    "E2M3": (ml_dtypes.float6_e2m3fn, 3, 2, 7.5),
    "E3M2": (ml_dtypes.float6_e3m2fn, 2, 4, 28.0),
    "E4M3": (ml_dtypes.float8_e4m3fn, 3, 8, 448.0),
    "E5M2": (ml_dtypes.float8_e5m2, 2, 15, 57344.0),
}
"""Elements, bits of their mantissas, exponents of the largest one, and that one."""
DISTANCE = 2e-3
"""The largest difference from the reference, relative to the largest value: some weights are rounded the other way."""


@dataclass(frozen=True)
class Case:
    heads: int
    key_heads: int
    queries: int
    keys: int
    size: int
    value_size: int
    formats: tuple[str, str, str]
    is_causal: bool = False
    batch: int = 1
    scale: float | None = None
    growth: float = 0.0
    """What each key is larger than the one before, relative to the first."""
    powers: str = "exact"
    kind: torch.dtype = torch.bfloat16
    by_row: bool = False
    """Whether heads of a row are neighbours in memory."""

    def operands(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Random numbers, whose blocks have magnitudes of their own."""
        rng = np.random.default_rng(seed)
        shapes = (
            (self.batch, self.heads, self.queries, self.size),
            (self.batch, self.key_heads, self.keys, self.size),
            (self.batch, self.key_heads, self.keys, self.value_size),
        )
        made = [rng.standard_normal(shape) * 2.0 ** rng.integers(-1, 2, shape) for shape in shapes]
        made[1] *= 1 + self.growth * np.arange(self.keys)[:, None]
        return tuple(torch.from_numpy(each).to(self.kind) for each in made)

    @property
    def module(self) -> torch.nn.Module:
        return Attention(self)

    def expected(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> np.ndarray:
        qk, of_values, of_weights = self.formats
        q, k, v = (each.double().numpy() for each in (query, key, value))
        factor = (self.size**-0.5 if self.scale is None else self.scale) * math.log2(math.e)
        q, k = rounded((np.float32(factor) * q.astype(np.float32)).astype(float), qk), rounded(k, qk)
        behind = -self.keys % 32
        v = rounded(np.pad(v, [(0, 0), (0, 0), (0, behind), (0, 0)]).swapaxes(2, 3), of_values)[..., : self.keys]
        k, v = (np.repeat(each, self.heads // self.key_heads, 1) for each in (k, v))
        scores = np.einsum("bhtd,bhld->bhtl", q, k)
        if self.is_causal:
            scores[..., np.arange(self.keys) > np.arange(self.queries)[:, None]] = -np.inf
        exponents = scores - np.ceil(scores.max(-1, keepdims=True))
        powers = np.exp2(exponents)
        if self.powers == "linear":
            weights = linear(exponents, of_weights)
        else:
            padded = np.pad(powers, [(0, 0)] * 3 + [(0, behind)])
            weights = rounded(padded, of_weights, saturates=False)[..., : self.keys]
        result: np.ndarray = np.einsum("bhtl,bhvl->bhtv", weights, v) / weights.sum(-1, keepdims=True)
        return result

    def check(self, seed: int = 0) -> None:
        operands = self.operands(seed)
        given = tuple(each.transpose(1, 2).contiguous() if self.by_row else each for each in operands)
        program = mxcomp.torch.compile(self.module, given)
        (attention,) = program.report.attentions
        assert attention.ukernel is not None and not program.report.matmuls
        (found,) = program.run(*map(as_array, given))
        expected = self.expected(*operands)
        limit = DISTANCE * np.abs(operands[2].double().numpy()).max()
        assert found.shape == expected.shape
        difference = np.abs(found.astype(np.float64) - expected)
        assert np.all(difference <= limit + 2**-8 * np.abs(expected))
        np.testing.assert_array_less(np.abs(self.module(*given).double().numpy() - expected).max(), limit * 2)


class Attention(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        case = self.case
        others = {"is_causal": case.is_causal, "scale": case.scale, "powers": case.powers}
        q, k, v = (each.transpose(1, 2) if case.by_row else each for each in (q, k, v))
        return mxcomp.torch.mx_attention(q, k, v, *case.formats, **others)


def rounded(x: np.ndarray, fmt: str, saturates: bool = True) -> np.ndarray:
    """Rows in blocks of 32; scales by "even", or by "rceil"."""
    kind, bits, largest, most = TYPES[fmt]
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    top = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        if saturates:
            mantissa, exponent = np.frexp(top)
            carry = np.floor(mantissa * 2 ** (bits + 1) + 0.5) >= 2 ** (bits + 1)
            power = np.where(top > 0, exponent - 1 + carry, -127.0) - largest
        else:
            power = np.ceil(np.log2(top / most))
    scale = np.exp2(np.clip(power, -127, 127))
    elements = np.clip(blocks / scale, -most, most).astype(kind).astype(np.float64)
    return (elements * scale).reshape(x.shape)


def linear(exponents: np.ndarray, fmt: str) -> np.ndarray:
    """1 + x for 2 to the power of x between two powers, rounded to codes, of which 4 powers are above 1."""
    bits, bias = TYPES[fmt][1], 2 ** (8 - TYPES[fmt][1] - 2) - 1
    codes = np.rint(np.maximum(exponents + (bias + 4), 0) * 2**bits)
    powers, rest = np.divmod(codes, 2**bits)
    return np.where(powers > 0, (1 + rest / 2**bits) * 2.0 ** (powers - bias), rest / 2**bits * 2.0 ** (1 - bias))


def test_grouped_causal_queries() -> None:
    """Formats are mixed; keys fill neither a step nor a block, and queries fill no tile."""
    Case(4, 2, 40, 150, 64, 64, ("E2M3", "E2M1", "E4M3"), is_causal=True).check()


def test_a_query_of_one_block() -> None:
    """A query of each of two heads, of one block each: shares of a byte that workgroups store by other numbers."""
    Case(2, 1, 1, 70, 32, 64, ("E2M1", "E2M1", "E2M1")).check()


CASES = {
    "a query": Case(8, 2, 1, 700, 128, 128, ("E4M3", "E2M1", "E4M3")),
    "a query in front of its keys": Case(2, 2, 1, 500, 64, 64, ("E2M1", "E4M3", "E4M3"), is_causal=True),
    "few queries": Case(16, 2, 3, 1000, 128, 64, ("E2M1", "E2M1", "E2M1"), batch=2, growth=0.05),
    "some queries": Case(4, 2, 40, 300, 64, 128, ("E2M3", "E4M3", "E5M2")),
    "8 bits": Case(2, 1, 64, 256, 128, 128, ("E4M3", "E4M3", "E4M3")),
    "8 bits, values of 4": Case(2, 2, 33, 130, 128, 128, ("E4M3", "E2M1", "E4M3")),
    "6 bits": Case(2, 2, 65, 128, 128, 128, ("E2M3", "E4M3", "E4M3"), is_causal=True),
    "6 bits, values of 4": Case(2, 1, 64, 100, 96, 64, ("E3M2", "E2M1", "E4M3")),
    "4 bits": Case(4, 2, 100, 300, 128, 128, ("E2M1", "E2M1", "E2M1")),
    "4 bits, weights of 8": Case(2, 2, 64, 64, 256, 256, ("E2M1", "E2M1", "E4M3"), is_causal=True, batch=2),
    "others of 8 and 6": Case(2, 2, 40, 70, 192, 192, ("E5M2", "E2M3", "E5M2")),
    "scores that grow": Case(2, 2, 64, 520, 64, 64, ("E4M3", "E4M3", "E4M3"), growth=0.3),
    "scores that grow, 4 bits": Case(2, 2, 64, 520, 64, 64, ("E4M3", "E2M1", "E2M1"), growth=0.3, is_causal=True),
    "linear": Case(2, 2, 64, 520, 64, 64, ("E2M1", "E4M3", "E4M3"), powers="linear", is_causal=True),
    "linear, scores that grow": Case(2, 2, 64, 520, 64, 64, ("E4M3", "E4M3", "E4M3"), growth=0.3, powers="linear"),
    "linear, few queries": Case(4, 2, 3, 300, 128, 64, ("E4M3", "E2M1", "E5M2"), powers="linear"),
    "a scale": Case(2, 2, 40, 70, 32, 64, ("E4M3", "E4M3", "E4M3"), scale=0.03),
    "rows of all heads": Case(4, 2, 70, 150, 96, 128, ("E4M3", "E2M1", "E4M3"), batch=2, by_row=True),
    "f16": Case(2, 2, 40, 96, 64, 64, ("E2M1", "E5M2", "E4M3"), kind=torch.float16),
    "f32": Case(2, 2, 40, 70, 128, 192, ("E5M2", "E2M1", "E2M1"), kind=torch.float32, by_row=True),
    "eight waves": Case(2, 2, 300, 40, 64, 64, ("E4M3", "E4M3", "E4M3"), is_causal=True),
    "eight waves, many steps": Case(1, 1, 600, 700, 128, 128, ("E2M1", "E2M1", "E4M3"), is_causal=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases(case: Case) -> None:
    case.check()


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    draw, names = data.draw, st.sampled_from(sorted(TYPES))
    key_heads, queries = draw(st.integers(1, 3)), draw(st.integers(1, 3) | st.integers(4, 150))
    formats = draw(names), draw(names), draw(st.sampled_from(["E2M1", "E4M3", "E5M2"]))
    Case(
        key_heads * draw(st.integers(2, 3)), key_heads, queries, draw(st.integers(1, 300)),
        32 * draw(st.integers(1, 8)), 64 * draw(st.integers(1, 4)), formats, draw(st.booleans()), max(1, 3 - key_heads),
    ).check(draw(st.integers(0, 1000)))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("queries", [None, 40])
def test_scores_that_are_scaled(queries: int | None) -> None:
    """Scores may be multiplied, and not queries before these are quantised: programs spell it so."""
    rng, count, shapes = np.random.default_rng(0), 80, ((80, 64), (160, 64), (64, 160))
    form = Form(0.3, 150, queries, "E4M3")
    made = [rng.standard_normal((2, *shape)) for shape in shapes]
    codes = [each for x in made for each in quantise(x.astype(np.float32), "E4M3")]

    def main(*values: ir.Value) -> ir.Value:
        q, k, v = (mx.operand(values[2 * i], values[2 * i + 1], "E4M3") for i in range(3))
        return attention((q.elements, q.scales), (k.elements, k.scales), (v.elements, v.scales), form)

    program = mxcomp.compile(mx.module(main, *("x".join(map(str, [*each.shape, "i8"])) for each in codes)), strict=True)
    assert program.report.attentions[0].ukernel is not None
    (found,) = program.run(*(each.view(np.int8) for each in codes))
    q, k, v = (rounded(x, "E4M3") for x in made)
    scores = 0.3 * np.einsum("htd,hld->htl", q, k)
    bounds = np.full(count, 150) if queries is None else np.minimum(np.arange(count) % queries + 1, 150)
    scores[:, np.arange(160) >= bounds[:, None]] = -np.inf
    weights = rounded(np.exp2(scores - np.ceil(scores.max(-1, keepdims=True))), "E4M3", saturates=False)
    expected = np.einsum("htl,hvl->htv", weights, v) / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=DISTANCE * np.abs(v).max(), rtol=2**-8)


@pytest.mark.slow
@pytest.mark.parametrize("formats", [("E4M3", "E4M3", "E4M3"), ("E2M1", "E2M1", "E2M1")])
def test_what_is_no_number(formats: tuple[str, str, str]) -> None:
    """A key that is none reaches queries that see it, and a query that is none itself."""
    case = Case(2, 2, 64, 200, 64, 64, formats, is_causal=True)
    query, key, value = case.operands(0)
    key[0, 0, 40, 3], query[0, 1, 5, 0] = math.nan, math.inf
    program = mxcomp.torch.compile(case.module, (query, key, value))
    (found,) = program.run(*(each.float().numpy().astype(ml_dtypes.bfloat16) for each in (query, key, value)))
    is_none = np.isnan(found.astype(np.float32))
    wanted = np.zeros(is_none.shape, bool)
    wanted[0, 0, 40:], wanted[0, 1, 5] = True, True
    np.testing.assert_array_equal(is_none, wanted)


@pytest.mark.slow
def test_what_has_no_kernel_is_right() -> None:
    """By two scaled matmuls, with the reason in the report."""
    case = Case(2, 2, 40, 70, 64, 32, ("E4M3", "E4M3", "E4M3"))
    operands = case.operands(0)
    program = mxcomp.torch.compile(case.module, operands)
    (attention,) = program.report.attentions
    assert attention.ukernel is None and "a multiple of 64" in str(attention.reason)
    (found,) = program.run(*(each.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for each in operands))
    np.testing.assert_allclose(found.astype(np.float64), case.expected(*operands), atol=0.02)


@pytest.mark.parametrize(
    "shapes", [((1, 3, 8, 32), (1, 2, 8, 32), (1, 2, 8, 32)), ((1, 2, 8, 40),) * 3, ((2, 8, 32),) * 3]
)
def test_refusals(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(InputError, match="MX attention of"):
        mxcomp.torch.mx_attention(*(torch.zeros(shape) for shape in shapes))


@pytest.mark.parametrize("weights, powers", [("E2M1", "linear"), ("E4M3", "other")])
def test_refused_powers(weights: str, powers: str) -> None:
    with pytest.raises(InputError, match=f"powers '{powers}' as weights of {weights}"):
        mxcomp.torch.mx_attention(*[torch.zeros(1, 2, 8, 32)] * 3, weights_format=weights, powers=powers)
