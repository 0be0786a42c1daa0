"""Activations that are not quantised, `input_format="bf16"` in PyTorch: linear layers and experts, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import mxcomp.torch
from mxcomp.formats import dequantise, quantise, unpack_bits
from mxcomp.torch import ScaledExperts, ScaledLinear, replace_linears
from mxcomp.ukernels import weight_only

K, N, EXPERTS, ALPHA, LIMIT = 544, 576, 3, 1.702, 7.0
BF16_ROUNDING = 2.0**-8


def values(elements: torch.Tensor, scales: torch.Tensor, fmt: str) -> torch.Tensor:
    """Weights as float64."""
    return torch.from_numpy(dequantise(unpack_bits(elements.numpy(), fmt), scales.numpy(), fmt, dtype=np.float64))


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().double()


@pytest.mark.parametrize(("fmt", "dtype"), [("E2M1", torch.bfloat16), ("E4M3", torch.float32)])
def test_linear(fmt: str, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(K, N)).to(dtype)
    (layer,) = replace_linears(net, fmt, "bf16")
    assert isinstance(layer, ScaledLinear)
    assert "input bf16" in repr(layer)
    x = torch.randn(5, K).to(dtype) * torch.exp2(torch.arange(5))[:, None].to(dtype)
    program = mxcomp.torch.compile(net, (x,))
    (matmul,) = program.report.matmuls
    assert (matmul.note or "").startswith("RHS is dequantised by mx_bf16_")
    given = x.float().numpy().astype(ml_dtypes.bfloat16 if dtype == torch.bfloat16 else np.float32)
    (found,) = program.run(given)
    assert layer.bias is not None
    expected = rounded(x) @ values(layer.elements, layer.weight_scale, fmt).T + layer.bias.double()
    tolerance = 1e-5 + BF16_ROUNDING * (dtype == torch.bfloat16)
    for y in (torch.from_numpy(found.astype(np.float64)), layer(x).double()):
        assert (y - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("source", ["bf16", "E2M1"])
@pytest.mark.parametrize("dynamic", [(1,), (0, 1)], ids=str)
def test_any_number_of_tokens(source: str, dynamic: tuple[int, ...]) -> None:
    """A batch of sequences, as decoders have them: bias and cast are fused, and what quantises is one dispatch."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(K, N)).bfloat16()
    (layer,) = replace_linears(net, "E2M1", source)
    assert isinstance(layer, ScaledLinear)
    dims = {i: torch.export.Dim(f"d{i}", min=1, max=64) for i in dynamic}
    x = torch.randn(2, 9, K).bfloat16()
    program = mxcomp.compile(mxcomp.torch.export(net, (x,), dynamic_shapes=(dims,)))
    for shape in ((2, 1), (2, 24), (3 if 0 in dynamic else 2, 33)):
        x = (torch.randn(*shape, K) * torch.exp2(torch.arange(shape[1]) % 5)[:, None]).bfloat16()
        given = x.float().numpy().astype(ml_dtypes.bfloat16)
        (found,) = program.run(given)
        a = (
            rounded(x)
            if source == "bf16"
            else torch.from_numpy(dequantise(*quantise(x.float().numpy(), source, "even"), source, dtype=np.float64))
        )
        assert layer.bias is not None
        expected = a @ values(layer.elements, layer.weight_scale, "E2M1").T + layer.bias.double()
        error = (torch.from_numpy(found.astype(np.float64)) - expected).abs().max()
        assert error <= 2 * BF16_ROUNDING * expected.abs().max()
        parts = [each.owner.split(" ")[0] for each in program.profile(given, execute=False).dispatches]
        many = shape[0] * shape[1] > weight_only.MOST_ROWS
        before = ["pad_lhs"] * many if source == "bf16" else ["quantise_lhs"]
        assert parts[:-1] == before
        assert parts[-1].startswith("matmul")


class Experts(torch.nn.Module):
    """Parameters as transformers' `GptOssExperts` has them."""

    alpha, limit = ALPHA, LIMIT

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.gate_up_proj = torch.nn.Parameter(torch.randn(EXPERTS, K, 2 * N) / 16)
        self.gate_up_proj_bias = torch.nn.Parameter(torch.randn(EXPERTS, 2 * N))
        self.down_proj = torch.nn.Parameter(torch.randn(EXPERTS, N, K) / 16)
        self.down_proj_bias = torch.nn.Parameter(torch.randn(EXPERTS, K))


def expected_of(experts: ScaledExperts, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """In float64, rounded to bf16 in front of both products."""
    parts = {name: getattr(experts, name) for name, _ in experts.named_buffers()}
    gate_up, down = (
        values(parts[f"{name}_proj_blocks"], parts[f"{name}_proj_scales"], "E2M1") for name in ("gate_up", "down")
    )
    result = torch.zeros(x.shape, dtype=torch.float64)
    for token in range(len(x)):
        for expert, share in zip(chosen[token].tolist(), shares[token].double(), strict=True):
            if not 0 <= expert < EXPERTS:
                continue
            both = gate_up[expert] @ rounded(x[token]) + parts["gate_up_proj_bias"][expert].double()
            gate, up = both[::2].clamp(max=LIMIT), both[1::2].clamp(-LIMIT, LIMIT)
            hidden = rounded((up + 1) * gate * torch.sigmoid(gate * ALPHA))
            result[token] += share * (down[expert] @ hidden + parts["down_proj_bias"][expert].double())
    return result


def test_experts() -> None:
    """Both products are grouped, in kernels that dequantise weights; no weight is gathered.
    Nothing is added for experts that are not here."""
    experts = ScaledExperts.from_experts(Experts(), "E2M1", "bf16")
    x, chosen = torch.randn(4, K), torch.tensor([[0, 2], [2, 0], [0, 2], [2, 0]])
    some, none = torch.tensor([[-1, 2], [0, -1], [-1, -1], [1, EXPERTS]]), torch.full((4, 2), -1)
    shares = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.25, 0.75], [1.0, 0.0]])
    program = mxcomp.torch.compile(experts, (x, chosen, shares))
    for matmul in program.report.matmuls:
        assert (matmul.note or "").startswith("RHS is dequantised by mx_bf16_")
    for ids in (chosen, some, none):
        (found,) = program.run(x.numpy(), ids.numpy(), shares.numpy(), engine="fast")
        expected = expected_of(experts, x, ids, shares)
        with torch.no_grad():
            on_cpu = experts(x, ids, shares).double()
        for y in (torch.from_numpy(found.astype(np.float64)), on_cpu):
            assert (y - expected).abs().max() <= BF16_ROUNDING * expected.abs().max()
