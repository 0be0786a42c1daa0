"""Decoders with mixtures of experts, of two layers: each layer sorts, and IREE makes one table of places for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import mxcomp
import mxcomp.torch
from mxcomp.torch.values import array

SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT-OSS": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8}),
    "Mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "DeepSeek-V3": (
        "DeepseekV3",
        {
            "num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
            "topk_group": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1, "kv_lora_rank": 16,
            "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16,
        },
    ),
    "Llama 4": (
        "Llama4",
        {
            "intermediate_size_mlp": 64, "num_local_experts": 4, "num_experts_per_tok": 1, "pad_token_id": 0,
            "interleave_moe_layer_step": 1,
        },
    ),
    "Qwen3-MoE": ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
}  # fmt: skip
"""Names of classes, and what their configurations have beside `SMALL`."""
TOKENS = 7


class Logits(torch.nn.Module):
    """A decoder without a cache."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, use_cache=False).logits


def decoder(name: str) -> Logits:
    """A decoder of a family, of random weights large enough for routers to differ."""
    classes, more = FAMILIES[name]
    config_class = getattr(transformers, f"{classes}{'Text' if name == 'Llama 4' else ''}Config")
    torch.manual_seed(1)
    config = config_class(**SMALL | more)
    model = getattr(transformers, f"{classes}ForCausalLM")._from_config(config, attn_implementation="eager")
    model.set_experts_implementation("batched_mm")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.ndim == 1))
    return Logits(model.eval())


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", FAMILIES)
def test_two_layers(name: str, dynamic: bool, tmp_path: Path) -> None:
    if dynamic and name == "Llama 4":
        pytest.skip("torch.export makes a guard on the number of tokens that it cannot prove")
    model, ids = decoder(name), torch.randint(0, 64, (1, TOKENS))
    shapes = ({1: torch.export.Dim("tokens", min=2, max=32)},) if dynamic else None
    program = mxcomp.torch.compile(model, (ids,), dynamic_shapes=shapes, parameters=tmp_path / "model")
    for count in (TOKENS, 5) if dynamic else (TOKENS,):
        taken = ids[:, :count]
        (found,) = program.run(taken.numpy(), parameters={"model": tmp_path / "model.irpa"})
        with torch.no_grad():
            expected = model(taken).numpy()
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


class Routers(torch.nn.Module):
    """Two layers that are routers alone."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = []
        for _ in range(2):
            values, ids = torch.topk(x, 2, dim=-1)
            shares = [torch.where(ids == expert, values, 0.0).sum(-1) for expert in range(4)]
            results += [torch.stack(shares, -1), ids]
            x = x + 0.4 * results[-2].flip(-1)  # no two are equal
        return tuple(results)


@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
def test_two_routers(dynamic: bool) -> None:
    torch.manual_seed(0)
    x, model = torch.randn(5, 4), Routers()
    shapes = ({0: torch.export.Dim("tokens", max=100)},) if dynamic else None
    program = mxcomp.torch.compile(model, (x,), dynamic_shapes=shapes)
    for found, expected in zip(program.run(x.numpy()), model(x), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)


class Router(torch.nn.Module):
    """A router of DeepSeek V3, of 64 experts in eight groups, of which a token has six in four groups."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.DeepseekV3Config(hidden_size=64, n_routed_experts=64, num_experts_per_tok=6, n_group=8)
        self.router = transformers.models.deepseek_v3.modeling_deepseek_v3.DeepseekV3TopkRouter(config)
        with torch.no_grad():
            self.router.weight.normal_(std=0.2)
            self.router.e_score_correction_bias.normal_(std=0.2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.router(x)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 6])
def test_experts_in_groups(tokens: int) -> None:
    """What is masked between rankings is computed with them, in one dispatch behind the product."""
    torch.manual_seed(tokens)
    model, x = Router().bfloat16().eval(), torch.randn(tokens, 64).bfloat16()
    program = mxcomp.torch.compile(model, (x,))
    logits, weights, chosen = program.run(array(x))
    scores = 1 / (1 + np.exp(-logits.astype(np.float64)))
    choice = scores + model.router.e_score_correction_bias.double().numpy()
    groups = np.sort(choice.reshape(tokens, 8, 8))[..., -2:].sum(2)
    is_out = np.argsort(np.argsort(-groups)) >= model.router.topk_group
    expected = np.argsort(-np.where(np.repeat(is_out, 8, 1), -np.inf, choice))[:, : model.router.top_k]
    np.testing.assert_array_equal(chosen, expected)
    taken = np.take_along_axis(scores, expected, 1)
    factor = model.router.routed_scaling_factor
    np.testing.assert_allclose(weights, factor * taken / taken.sum(1, keepdims=True), rtol=1e-5)
    assert len(program.profile(array(x), execute=False).dispatches) == 2
