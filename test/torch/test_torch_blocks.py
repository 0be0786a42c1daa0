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


class Rotary(torch.nn.Module):
    """Queries and keys of one more token by their position: halves turned as Llama has it, or as GPT-OSS has it."""

    def __init__(self, is_chunked: bool) -> None:
        super().__init__()
        self.is_chunked, self.frequencies = is_chunked, torch.nn.Buffer(10000.0 ** -(torch.arange(32) / 32))

    def forward(self, query: torch.Tensor, key: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = at[:, None].float() * self.frequencies
        angles = angles if self.is_chunked else torch.cat((angles, angles), -1)
        return self.turned(query.transpose(1, 2), angles), self.turned(key.transpose(1, 2), angles)

    def turned(self, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = torch.chunk(x, 2, -1)
        if self.is_chunked:
            return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        return x * cos + torch.cat((-second, first), -1) * sin


def compared(module: torch.nn.Module, dispatches: int, *arguments: torch.Tensor) -> None:
    """Runs a module with MX weights, and counts the dispatches of a call."""
    module = mxcomp.torch.replace_linears(module.eval())
    with torch.no_grad():
        program = mxcomp.torch.compile(module, arguments, strict=True)
        made = module(*arguments)
    given = [as_array(each) if each.is_floating_point() else each.numpy() for each in arguments]
    results = program.run(*given)
    pairs = zip(results, made, strict=True) if isinstance(made, tuple) else [(results, made)]
    for result, expected in pairs:
        error = np.abs(np.asarray(result).astype(np.float32) - expected.float().numpy())
        assert error.max() <= 0.02 * float(expected.abs().max())
    assert len(program.profile(*given, execute=False).called) == dispatches


@pytest.mark.parametrize(
    "bias", [pytest.param(False, marks=pytest.mark.slow, id="rms"), pytest.param(True, id="layer norm, biases")]
)
def test_gated_mlp_is_three_dispatches(bias: bool) -> None:
    compared(Gated(bias).bfloat16(), 3, numbers(1, 1, _HIDDEN))


@pytest.mark.slow
def test_what_follows_attention_quantises_its_result() -> None:
    keys = numbers(1, _HEADS, 96, _HIDDEN // _HEADS)
    compared(Attending().bfloat16(), 4, numbers(1, 1, _HIDDEN), torch.tensor([70]), keys)


@pytest.mark.parametrize("is_chunked", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["concat", "chunks"])
def test_rotations_are_one_dispatch(is_chunked: bool) -> None:
    compared(Rotary(is_chunked), 1, numbers(2, 1, 4, 64), numbers(2, 1, 2, 64), torch.tensor([77]))
