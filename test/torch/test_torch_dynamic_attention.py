"""Attention of transformers with a dynamic number of tokens, by the masks that transformers itself makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward as sdpa
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward as gemma2
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward as gpt_oss
from transformers.models.llama.modeling_llama import eager_attention_forward as llama

import mxcomp.torch
from mxcomp.torch.values import array

SIZE = 64
FORWARDS: dict[str, Callable[..., Any]] = {"sdpa": sdpa, "gemma2": gemma2, "gpt_oss": gpt_oss, "llama": llama}


@dataclass(frozen=True)
class Case:
    """An attention; `positions`: they are given, by which several sequences may be packed into one."""

    model: str = "sdpa"
    batch: int = 1
    key_heads: int = 2
    group: int = 2
    window: int | None = None
    positions: bool = False


class Attention(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case, self.num_key_value_groups, self.is_causal = case, case.group, True
        self.config = LlamaConfig(sliding_window=case.window)
        self.config._attn_implementation = "sdpa" if case.model == "sdpa" else "eager"
        generator = torch.Generator().manual_seed(2)
        self.sinks = torch.nn.Parameter(3 * torch.randn(case.group * case.key_heads, generator=generator).bfloat16())

    def forward(self, x: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        case = self.case
        heads = x.unflatten(2, (-1, SIZE)).transpose(1, 2)
        q, k, v = heads.split([case.key_heads * case.group, case.key_heads, case.key_heads], 1)
        make = create_causal_mask if case.window is None else create_sliding_window_causal_mask
        if positions is None:
            positions = torch.arange(x.shape[1])[None]
        mask = make(self.config, x, None, None, positions)
        more = {"softcap": 5.0} if case.model == "gemma2" else {}
        return FORWARDS[case.model](self, q, k, v, mask, scaling=SIZE**-0.5, **more)[0]


def check(case: Case, *tokens: int) -> str:
    """Returns the name of the kernel."""
    generator, columns = torch.Generator().manual_seed(1), (case.group + 2) * case.key_heads * SIZE

    def operands(count: int) -> list[torch.Tensor]:
        x = torch.randn(case.batch, count, columns, generator=generator).bfloat16()
        return [x, (torch.arange(count) % 21)[None].expand(case.batch, -1)] if case.positions else [x]

    module, calls = Attention(case).eval(), [operands(count) for count in tokens]
    shapes = ({1: torch.export.Dim("tokens", max=512)},) * len(calls[0])
    program = mxcomp.torch.compile(module, tuple(calls[0]), dynamic_shapes=shapes, strict=True)
    (attention,) = program.report.attentions
    assert attention.ukernel is not None, attention.reason
    module.double()
    for given in calls:
        (found,) = program.run(*map(array, given))
        exact = module(given[0].double(), *given[1:]).detach().numpy()
        assert np.abs(found.astype(np.float64) - exact).max() <= 2**-7 * given[0].abs().max().item()
    return attention.ukernel


SAMPLE = "gpt_oss, window"
CASES = {
    "sdpa": Case(),
    "sdpa, window": Case(window=20),
    "sdpa, sequences": Case(batch=2, group=1),
    "llama": Case("llama"),
    "llama, sequences, window": Case("llama", 2, window=9),
    "gpt_oss": Case("gpt_oss"),
    SAMPLE: Case("gpt_oss", window=20),
    "gemma2": Case("gemma2"),
    "gemma2, sequences, window": Case("gemma2", 2, window=40),
}


@pytest.mark.parametrize(
    "name", [SAMPLE, *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != SAMPLE)]
)
def test_masks_by_position(name: str) -> None:
    """Positions that are counted begin no other sequence: nothing is computed of a mask."""
    assert "causal" in check(CASES[name], *((33, 2) if name == SAMPLE else (40, 5, 130)))


@pytest.mark.slow
def test_packed_sequences() -> None:
    """A mask by positions that are given, and begin anew, is computed and not taken for a causal one."""
    assert "causal" not in check(Case(positions=True), 40, 5, 70)
