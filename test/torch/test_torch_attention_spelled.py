"""Attention that models spell out, as transformers' eager ones do: kept whole, with its sinks and its cap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.masking_utils import causal_mask_function, eager_mask, sliding_window_causal_mask_function
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss
from transformers.models.llama.modeling_llama import eager_attention_forward as llama

import mxcomp.torch

FORWARDS: dict[str, Callable[..., Any]] = {"gemma2": gemma2, "gpt_oss": gpt_oss, "llama": llama}


@dataclass(frozen=True)
class Case:
    model: str
    queries: int = 1
    keys: int = 96
    batch: int = 2
    key_heads: int = 2
    group: int = 2
    size: int = 64
    value_size: int = 0
    window: int | None = None
    masked: bool = True
    scale: float = 0.0
    cap: float = 50.0
    low: float = 0.0
    """What hidden scores are, where it is not added to them."""


class Attention(torch.nn.Module):
    def __init__(self, case: Case, sinks: torch.Tensor) -> None:
        super().__init__()
        self.case, self.num_key_value_groups, self.sinks = case, case.group, torch.nn.Parameter(sinks)

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        case, mask = self.case, None
        if case.masked:
            window = case.window
            mask = eager_mask(
                batch_size=case.batch, q_length=case.queries, kv_length=case.keys, q_offset=position, dtype=q.dtype,
                mask_function=causal_mask_function if window is None else sliding_window_causal_mask_function(window),
            )  # fmt: skip
        if case.low:
            return self.filled(q, k, v, position)
        more = {"softcap": case.cap} if case.model == "gemma2" else {}
        scaling = case.scale or case.size**-0.5
        return FORWARDS[case.model](self, q, k, v, mask, scaling=scaling, **more)[0]

    def filled(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Has a low number in place of scores, by either of two spellings."""
        case, key = self.case, torch.arange(self.case.keys)
        query = torch.arange(case.queries)[:, None] + position
        seen = (key <= query) if case.window is None else (key <= query) & (key > query - case.window)
        k, v = (x.repeat_interleave(case.group, 1) for x in (k, v))
        scores = q @ k.transpose(2, 3) * case.size**-0.5
        low = torch.tensor(case.low, dtype=scores.dtype)
        scores = scores.masked_fill(~seen, case.low) if case.queries > 1 else torch.where(seen, scores, low)
        return (scores.softmax(-1) @ v).transpose(1, 2)


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if tensor.is_floating_point() else tensor.numpy()


def check(case: Case, *positions: int) -> None:
    """Against the same in f64; of queries that see no key, PyTorch's are NaN there."""
    generator = torch.Generator().manual_seed(case.queries)

    def numbers(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=generator).bfloat16()

    heads, sizes = case.key_heads * case.group, (case.size, case.value_size or case.size)
    tensors = [
        4 * numbers(case.batch, heads, case.queries, case.size),
        *(numbers(case.batch, case.key_heads, case.keys, size) for size in sizes),
    ]
    module = Attention(case, 3 * numbers(heads)).eval()
    program = mxcomp.torch.compile(module, (*tensors, torch.tensor(7)), strict=True)
    (attention,) = program.report.attentions
    assert attention.ukernel is not None, attention.reason
    names = [each.part for each in program.report.launches]
    assert names[0] == "attention" and set(names[1:]) <= {"combine", ""} and names.count("") <= (case.queries > 1)
    module.double()
    with program.session() as session:
        for position in positions or (7, 0, 300):
            given = *tensors, torch.tensor(position)
            (found,) = session.main(*map(as_numpy, given))
            exact = module(*(each.double() if each.is_floating_point() else each for each in given)).detach().numpy()
            defined = np.isfinite(exact)
            error = np.abs(np.where(defined, found.astype(np.float64) - np.where(defined, exact, 0), 0)).max()
            assert (np.isfinite(found.astype(np.float64)).all() and defined.any()) or position > case.keys
            assert error <= 2**-7 * tensors[2].abs().max().item()


SAMPLE = "gpt_oss, window"
CASES = {
    SAMPLE: Case("gpt_oss", 3, window=20),
    "gpt_oss": Case("gpt_oss"),
    "gpt_oss, many queries": Case("gpt_oss", 40),
    "gpt_oss, not masked": Case("gpt_oss", masked=False),
    "gpt_oss, not masked, many queries": Case("gpt_oss", 70, masked=False, group=4, batch=1),
    "gpt_oss, as published": Case("gpt_oss", 1, 128, 1, 8, 8, 64),
    "gemma2": Case("gemma2", cap=5.0),
    "gemma2, many queries": Case("gemma2", 40, cap=5.0),
    "gemma2, window, many queries": Case("gemma2", 70, window=9, size=256),
    "llama": Case("llama", size=128),
    "llama, many queries": Case("llama", 70, size=80, scale=0.3),
    "filled": Case("llama", low=-1e9),
    "filled, many queries": Case("llama", 40, window=20, low=-3e38),
    "filled, of masked_fill": Case("llama", 3, window=20, low=-65504.0),
    "llama, no group": Case("llama", 2, key_heads=3, group=1, value_size=48),
}


@pytest.mark.parametrize(
    "name", [SAMPLE, *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != SAMPLE)]
)
def test_models(name: str) -> None:
    """One kernel, or two, and perhaps one that transposes results; no mask, score or copy of keys besides."""
    check(CASES[name])


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    draw = data.draw
    queries = draw(st.integers(1, 8) | st.integers(33, 100))
    case = Case(
        draw(st.sampled_from(sorted(FORWARDS))), queries, draw(st.integers(33, 300)), draw(st.integers(1, 2)),
        draw(st.integers(2, 4)), draw(st.integers(1, 4)), 16 * draw(st.integers(1, 16)), 16 * draw(st.integers(1, 16)),
        draw(st.none() | st.integers(2, 50)), draw(st.booleans()), cap=draw(st.sampled_from([2.0, 30.0])),
    )  # fmt: skip
    check(case, draw(st.integers(0, 100)), draw(st.integers(0, 10)))


class Blind(torch.nn.Module):
    """Queries in f16 see no key, by a mask that is added to scores, and is given or known."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        low = torch.finfo(torch.float16).min
        known = torch.where(torch.arange(32) < torch.arange(3)[:, None], 0.0, low).to(q.dtype)
        return tuple(
            torch.softmax(q @ k.transpose(2, 3) * 0.25 + each, -1, torch.float32).half() @ k for each in (mask, known)
        )


def test_no_key_in_f16() -> None:
    """What is left of scores of f16 beside its lowest number: all keys count alike, as in PyTorch."""
    generator = torch.Generator().manual_seed(2)
    q, k = (torch.randn(1, 2, count, 16, generator=generator).half() for count in (3, 32))
    mask = torch.zeros(3, 32).half()
    mask[0], mask[1, 7:] = torch.finfo(torch.float16).min, torch.finfo(torch.float16).min
    program = mxcomp.torch.compile(Blind(), (q, k, mask))
    assert all(each.ukernel for each in program.report.attentions) and len(program.report.attentions) == 2
    for found, expected in zip(program.run(q.numpy(), k.numpy(), mask.numpy()), Blind()(q, k, mask), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=2e-3)
