"""Attention whose keys are two parts, and whose values lie in longer rows, as latent attention makes them."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mxcomp.torch

GENERATOR = torch.Generator().manual_seed(0)


@dataclass
class Latent(torch.nn.Module):
    """Keys of `nope` elements of each head and `rope` elements of all, in this order or the other one."""

    heads: int
    nope: int
    rope: int
    values: int
    inserts: bool = False
    rope_first: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    __hash__ = torch.nn.Module.__hash__

    def arguments(self, batch: int, queries: int, keys: int) -> tuple[torch.Tensor, ...]:
        sizes = (
            (batch, self.heads, queries, self.nope + self.rope), (batch, keys, self.heads, self.nope + self.values),
            (batch, keys, self.rope),
        )  # fmt: skip
        return tuple(torch.randn(each, generator=GENERATOR).bfloat16() for each in sizes)

    def forward(self, q: torch.Tensor, both: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        nope, v = both.transpose(1, 2).split([self.nope, self.values], -1)
        ropes = rope[:, None].expand(*nope.shape[:-1], self.rope)
        parts = (ropes, nope) if self.rope_first else (nope, ropes)
        k = torch.cat(parts, -1)
        if self.inserts:
            k = nope.new_empty(*nope.shape[:-1], self.nope + self.rope)
            k[..., : parts[0].shape[-1]], k[..., parts[0].shape[-1] :] = parts
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def launches(module: Latent, batch: int, queries: int, keys: int) -> int:
    """Checks a result, and returns how many dispatches there are."""
    tensors = module.arguments(batch, queries, keys)
    given = [each.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for each in tensors]
    program = mxcomp.torch.compile(module, tensors, strict=True)
    (found,) = program.run(*given)
    expected = module(*(each.double() for each in tensors)).numpy()
    assert np.abs(found.astype(np.float64) - expected).max() <= 1e-2 * np.abs(expected).max()
    return len(program.profile(*given, execute=False).called)


def test_few_queries() -> None:
    """Keys are put together by nobody, and no values are copied."""
    assert launches(Latent(3, 128, 64, 128, inserts=True), 2, 1, 70) == 1


@pytest.mark.slow
def test_many_queries() -> None:
    """Values are read in longer rows; keys are put together."""
    assert launches(Latent(2, 64, 32, 32), 1, 70, 90) == 5


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_sizes(data: st.DataObject) -> None:
    def draw(least: int, most: int, step: int = 1) -> int:
        return data.draw(st.integers(least, most)) * step

    sizes = draw(1, 8, 16), draw(1, 4, 16), draw(1, 8, 16)
    module = Latent(draw(1, 4), *sizes, data.draw(st.booleans()), data.draw(st.booleans()))
    launches(module, draw(1, 3), draw(1, 40), draw(2, 200))
