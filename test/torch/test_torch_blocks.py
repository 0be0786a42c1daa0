"""What stands between matmuls of a decoder layer, for few rows: in how many dispatches, and against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mxcomp.torch
from mxcomp.torch.values import as_array

GENERATOR = torch.Generator().manual_seed(0)
_HIDDEN, _INNER, _HEADS = 256, 512, 4


def numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=GENERATOR).bfloat16()


class Norm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(1 + numbers(_HIDDEN) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Gated(torch.nn.Module):
    """x + down(silu(gate(norm(x))) · up(norm(x)))."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(_HIDDEN) if bias else Norm()
        self.gate, self.up = (torch.nn.Linear(_HIDDEN, _INNER, bias=bias) for _ in range(2))
        self.down = torch.nn.Linear(_INNER, _HIDDEN, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


class Attending(torch.nn.Module):
    """x + out(attention of x, keys and values, with a mask of numbers of which some key is never hidden)."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = (torch.nn.Linear(_HIDDEN, _HIDDEN, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, position: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        query = self.query(x).view(*x.shape[:2], _HEADS, -1).transpose(1, 2)
        seen = torch.arange(keys.shape[2])[None] <= position[:, None]
        mask = torch.where(seen, 0.0, torch.finfo(x.dtype).min).to(x.dtype)[None, None]
        made = torch.nn.functional.scaled_dot_product_attention(query, keys, keys, mask)
        return x + self.out(made.transpose(1, 2).reshape(*x.shape))


def compared(module: torch.nn.Module, dispatches: int, *arguments: torch.Tensor) -> None:
    """Runs a module with MX weights, and counts the dispatches of a call."""
    module = mxcomp.torch.replace_linears(module.bfloat16().eval())
    with torch.no_grad():
        program = mxcomp.torch.compile(module, arguments, strict=True)
        expected = module(*arguments).float().numpy()
    given = [as_array(each) if each.is_floating_point() else each.numpy() for each in arguments]
    result = np.asarray(program.run(*given)).astype(np.float32)
    assert np.abs(result - expected).max() <= 0.02 * np.abs(expected).max()
    assert len(program.profile(*given, execute=False).called) == dispatches


@pytest.mark.parametrize(
    "bias", [pytest.param(False, marks=pytest.mark.slow, id="rms"), pytest.param(True, id="layer norm, biases")]
)
def test_gated_mlp_is_three_dispatches(bias: bool) -> None:
    compared(Gated(bias), 3, numbers(1, 1, _HIDDEN))


@pytest.mark.slow
def test_what_follows_attention_quantises_its_result() -> None:
    keys = numbers(1, _HEADS, 96, _HIDDEN // _HEADS)
    compared(Attending(), 4, numbers(1, 1, _HIDDEN), torch.tensor([70]), keys)
