"""What stands between matmuls of a decoder layer, for few rows: in how many dispatches, and against PyTorch's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import mxcomp.torch
from mxcomp.torch.values import array, as_array

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


class Projected(torch.nn.Module):
    """Queries, keys and values of a norm, of which keys are wanted transposed."""

    def __init__(self, columns: tuple[int, ...] = (256, 64, 128)) -> None:
        super().__init__()
        self.norm = Norm()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(_HIDDEN, n, bias=False) for n in columns)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(x)
        query, key, value, *others = (part(y) for part in self.parts)
        return query, key.reshape(-1, 4, key.shape[-1] // 4).transpose(0, 1), torch.relu(value), *others


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


def compared(
    module: torch.nn.Module, dispatches: int, *arguments: torch.Tensor, weights: Path | None = None
) -> mxcomp.Program:
    """Runs a module with MX weights, and counts the dispatches of a call; weights may be parameters, in a file."""
    module = mxcomp.torch.replace_linears(module.eval())
    with torch.no_grad():
        program = mxcomp.torch.compile(module, arguments, parameters=weights, strict=True)
        made = module(*arguments)
    given = [array(each) for each in arguments]
    parameters = {} if weights is None else {weights.name: weights.with_suffix(".irpa")}
    results = program.run(*given, parameters=parameters)
    pairs = zip(results, made, strict=True) if isinstance(made, tuple) else [(results, made)]
    for result, expected in pairs:
        error = np.abs(np.asarray(result).astype(np.float32) - expected.float().numpy())
        assert error.max() <= 0.02 * float(expected.abs().max())
    assert len(program.profile(*given, execute=False, parameters=parameters).called) == dispatches
    return program


@pytest.mark.parametrize(
    "bias", [pytest.param(False, marks=pytest.mark.slow, id="rms"), pytest.param(True, id="layer norm, biases")]
)
def test_gated_mlp_is_two_dispatches(bias: bool) -> None:
    compared(Gated(bias).bfloat16(), 2, numbers(1, 1, _HIDDEN))


@pytest.mark.slow
def test_what_follows_attention_quantises_its_result() -> None:
    """A product, attention, whose mask is a position, and a product."""
    keys = numbers(1, _HEADS, 96, _HIDDEN // _HEADS)
    compared(Attending().bfloat16(), 3, numbers(1, 1, _HIDDEN), torch.tensor([70]), keys)


@pytest.mark.parametrize("is_chunked", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["concat", "chunks"])
def test_rotations_are_one_dispatch(is_chunked: bool) -> None:
    compared(Rotary(is_chunked), 1, numbers(2, 1, 4, 64), numbers(2, 1, 2, 64), torch.tensor([77]))


def test_queries_keys_and_values_are_one_product(tmp_path: Path) -> None:
    program = compared(Projected().bfloat16(), 2, numbers(1, 1, _HIDDEN), weights=tmp_path / "model")
    assert [(each.n, each.k) for each in program.report.matmuls] == [(448, _HIDDEN)]


class Heads(torch.nn.Module):
    """Queries and keys of which each head is normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(_HIDDEN, n, bias=False) for n in (512, 128))
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(64) for _ in self.parts)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = zip(self.parts, self.norms, strict=True)
        return tuple(norm(part(x).view(*x.shape[:-1], -1, 64)).transpose(1, 2) for part, norm in pairs)


@pytest.mark.slow
def test_norms_read_heads_of_one_product(tmp_path: Path) -> None:
    compared(Heads().bfloat16(), 3, numbers(6, 1, _HIDDEN), weights=tmp_path / "model")


class Side(torch.nn.Module):
    """Linear layers side by side."""

    def __init__(self, size: int, columns: tuple[int, ...]) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(torch.nn.Linear(size, each, bias=False) for each in columns)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(part(x) for part in self.parts)


@pytest.mark.slow
def test_weights_are_put_together_by_units(tmp_path: Path) -> None:
    """None of them has whole tiles, all of them together do."""
    columns = (*[320] * 11, 1088)
    program = compared(Side(512, columns).bfloat16(), 14, numbers(512, 512), weights=tmp_path / "model")
    assert [each.ukernel for each in program.report.matmuls] == ["mx_f4E2M1FN_f4E2M1FN_f32_m128_n96_k512"]


@pytest.mark.slow
def test_products_of_a_dynamic_number_of_rows_are_one(tmp_path: Path) -> None:
    module = mxcomp.torch.replace_linears(Projected((1024, 192, 320)).bfloat16().eval())
    sizes = ({0: torch.export.Dim("rows", min=2, max=4096)},)
    weights = tmp_path / "model"
    with torch.no_grad():
        x = numbers(300, 1, _HIDDEN)
        program = mxcomp.torch.compile(module, (x,), dynamic_shapes=sizes, parameters=weights, strict=True)
        assert len(program.report.matmuls) == 1
        for rows in (2, 70, 300):
            made = program.run(as_array(x[:rows]), parameters={"model": weights.with_suffix(".irpa")})
            for result, each in zip(made, module(x[:rows]), strict=True):
                error = np.abs(np.asarray(result).astype(np.float32) - each.float().numpy())
                assert error.max() <= 0.02 * float(each.abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "columns", "matmuls"),
    [
        (1, (256, 64, 128), 1),
        (1, (256, 64, 96), 2),
        (5, (256, 64, 128, 64, 64), 1),
        (5, (64, 64, 64), 3),
    ],
)
def test_weights_are_constants(rows: int, columns: tuple[int, ...], matmuls: int) -> None:
    """Those that are no whole tiles are a product of their own; of several rows it must be worth to cut them."""
    module = mxcomp.torch.replace_linears(Projected(columns).bfloat16().eval())
    x = numbers(rows, 1, _HIDDEN)
    with torch.no_grad():
        program, expected = mxcomp.torch.compile(module, (x,), strict=True), module(x)
    assert len(program.report.matmuls) == matmuls
    for result, each in zip(program.run(as_array(x)), expected, strict=True):
        error = np.abs(np.asarray(result).astype(np.float32) - each.float().numpy())
        assert error.max() <= 0.02 * float(each.abs().max())
