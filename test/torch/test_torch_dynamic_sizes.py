"""Attention whose queries, keys, values and mask are arguments of dynamic sizes, against the same in f64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss
from transformers.models.llama.modeling_llama import eager_attention_forward as llama

import mxcomp.torch
from mxcomp.torch.values import array

EAGER: dict[str, Callable[..., Any]] = {"gemma2": gemma2, "gpt_oss": gpt_oss, "llama": llama}
MASKS = {"truths": "1tl", "numbers": "1tl", "of heads": "htl", "padding": "11l", "of queries": "tl"}
"""The sizes, but for the batch, of masks that are given."""
LOW = torch.finfo(torch.bfloat16).min


@dataclass(frozen=True)
class Case:
    """An attention, in which the sizes `dynamic` are of "n", the batch; "t", the queries; "l", the keys.

    Attributes:
        mask: One of MASKS, or "causal", or "window"; "": none.
        tokens: As many queries as keys, of one symbol.
    """

    model: str = "sdpa"
    mask: str = ""
    dynamic: str = "tl"
    tokens: bool = False
    batch: int = 1
    key_heads: int = 2
    group: int = 2
    size: int = 64
    value_size: int = 64
    window: int = 20
    cap: float = 5.0

    @property
    def shapes(self) -> list[str]:
        given = {"tl": ["tl"]}.get(MASKS.get(self.mask, ""), [f"n{MASKS[self.mask]}"] if self.mask in MASKS else [])
        return ["nhtd", "nkld", "nklv", *given]

    def operands(self, generator: torch.Generator, batch: int, queries: int, keys: int) -> list[torch.Tensor]:
        heads = self.group * self.key_heads
        sizes = {"n": batch, "t": queries, "l": keys, "h": heads, "k": self.key_heads, "1": 1}
        sizes |= {"d": self.size, "v": self.value_size}
        *tensors, last = (
            torch.randn([sizes[axis] for axis in shape], generator=generator).bfloat16() for shape in self.shapes
        )
        match self.mask:
            case "truths" | "of heads" | "of queries":
                last = last > -0.5
            case "padding":
                last = torch.arange(keys) < (torch.arange(batch)[:, None, None, None] * 7 + 1) % keys + 1
        return [*tensors, last]


class Attention(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.num_key_value_groups = case, case.group
        generator = torch.Generator().manual_seed(2)
        self.sinks = torch.nn.Parameter(3 * torch.randn(case.group * case.key_heads, generator=generator).bfloat16())

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        case, query, key = self.case, torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        if case.mask in ("causal", "window"):
            mask = (key <= query) if case.mask == "causal" else (key <= query) & (key > query - case.window)
        if case.model == "sdpa":
            return scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2)
        if mask is not None:
            mask = mask.expand(q.shape[0], -1, -1, -1) if mask.dim() == 4 else mask[None, None]
            mask = torch.where(mask, 0.0, LOW).to(q.dtype) if mask.dtype == torch.bool else mask
        more = {"softcap": case.cap} if case.model == "gemma2" else {}
        return EAGER[case.model](self, q, k, v, mask, scaling=case.size**-0.5, **more)[0]


def check(case: Case, *calls: tuple[int, ...]) -> None:
    """Calls one program with so many sequences, queries and keys."""
    generator, module = torch.Generator().manual_seed(1), Attention(case).eval()
    limits = {"n": 8, "t": 512, "l": 512}
    symbols = {axis: torch.export.Dim(f"of_{axis}", max=limits[axis]) for axis in case.dynamic}
    symbols |= {"l": symbols["t"]} if case.tokens else {}
    shapes = tuple({i: symbols[axis] for i, axis in enumerate(shape) if axis in symbols} for shape in case.shapes)
    runs = [case.operands(generator, *sizes) for sizes in calls]
    program = mxcomp.torch.compile(module, tuple(runs[0]), dynamic_shapes=shapes, strict=True)
    (attention,) = program.report.attentions
    assert attention.ukernel is not None, attention.reason
    module.double()
    for each in runs:
        (found,) = program.run(*map(array, each))
        exact = module(*(x.double() if x.is_floating_point() else x for x in each)).detach().numpy()
        defined = np.isfinite(exact)
        error = np.abs(np.where(defined, found.astype(np.float64) - np.where(defined, exact, 0), 0)).max()
        assert np.isfinite(found.astype(np.float64)).all() and error <= 2**-7 * each[2].abs().max().item()


SAMPLE = "numbers"
CASES: dict[str, Case] = {
    SAMPLE: Case("llama", "numbers"),
    "nothing": Case(),
    "tokens": Case("llama", tokens=True),
    "truths": Case(mask="truths", batch=2),
    "truths of sinks": Case("gpt_oss", "truths"),
    "of heads": Case(mask="of heads", tokens=True),
    "of queries": Case(mask="of queries"),
    "padding": Case(mask="padding", batch=2),
    "padding of a cap": Case("gemma2", "padding", batch=2),
    "batch, numbers": Case("llama", "numbers", "ntl"),
    "batch, of heads": Case(mask="of heads", dynamic="ntl"),
    "batch, tokens": Case("gpt_oss", "window", "nt", tokens=True),
    "batch, keys": Case(mask="padding", dynamic="nl"),
    "batch, large heads": Case(dynamic="n", size=144, value_size=160),
}
SIZES = (2, 40, 70), (3, 5, 130), (1, 130, 33), (3, 1, 1)


@pytest.mark.parametrize(
    "name", [SAMPLE, *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != SAMPLE)]
)
def test_masks(name: str) -> None:
    case, first, calls = CASES[name], SIZES[0], list[tuple[int, ...]]()
    for each in SIZES[:1] if name == SAMPLE else SIZES:
        chosen = (size if axis in case.dynamic else other for axis, size, other in zip("ntl", each, first, strict=True))
        batch, queries, keys = chosen
        calls.append((batch if "n" in case.dynamic else case.batch, queries, queries if case.tokens else keys))
    check(case, *calls)


def _numbers(draw: st.DrawFn, axis: str, case: Case, calls: int) -> Sequence[int]:
    most = {"n": 3, "t": 140, "l": 140}[axis]
    first = draw(st.integers(33 if axis == "t" else 2, most))
    return [first, *(draw(st.integers(1, most)) if axis in case.dynamic else first for _ in range(calls - 1))]


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Case, list[tuple[int, ...]]]:
    tokens, size = draw(st.booleans()), 16 * draw(st.integers(1, 16))
    dynamic = draw(st.sampled_from(["t", "nt"] if tokens else ["n", "t", "l", "tl", "nl", "ntl"]))
    case = Case(
        draw(st.sampled_from(["sdpa", *EAGER])), draw(st.sampled_from(["", "causal", "window", *MASKS])), dynamic,
        tokens, 1, draw(st.integers(1, 3)), draw(st.integers(1, 4)), size,
        draw(st.just(size) | st.integers(1, 16).map(lambda each: 16 * each)), draw(st.integers(2, 50)),
        draw(st.sampled_from([2.0, 30.0])),
    )  # fmt: skip
    batch, queries, keys = (_numbers(draw, axis, case, 3) for axis in "ntl")
    return case, list(zip(batch, queries, queries if tokens else keys, strict=True))


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn())
def test_sizes(case_and_calls: tuple[Case, list[tuple[int, ...]]]) -> None:
    case, calls = case_and_calls
    check(case, *calls)
