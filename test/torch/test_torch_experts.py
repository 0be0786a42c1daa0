"""Experts of transformers with MX weights: of each family, from floats and from checkpoints in all spellings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

import mxcomp.torch
from mxcomp.formats import pack_bits, quantise
from mxcomp.torch import ScaledExperts
from mxcomp.torch.values import array, quantised

SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 96, "max_position_embeddings": 64,
}  # fmt: skip
MODELS: dict[str, Any] = {
    "qwen3-moe": lambda: transformers.Qwen3MoeForCausalLM(
        transformers.Qwen3MoeConfig(**SIZES, moe_intermediate_size=96, num_experts=4, num_experts_per_tok=2)
    ),
    "mixtral": lambda: transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    ),
    "deepseek-v3": lambda: transformers.DeepseekV3ForCausalLM(
        transformers.DeepseekV3Config(
            **SIZES, moe_intermediate_size=96, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2,
            first_k_dense_replace=0, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16,
            v_head_dim=16,
        )
    ),
    "gpt-oss": lambda: transformers.GptOssForCausalLM(
        transformers.GptOssConfig(
            **SIZES, head_dim=16, num_local_experts=4, num_experts_per_tok=2, layer_types=["full_attention"],
            pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        )
    ),
    "llama4": lambda: transformers.Llama4ForCausalLM(
        transformers.Llama4TextConfig(
            **SIZES, head_dim=16, intermediate_size_mlp=96, num_local_experts=4, pad_token_id=0,
            interleave_moe_layer_step=1,
        )
    ),
}  # fmt: skip
VALUES = torch.tensor([-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
"""Of E2M1, whose blocks have an E8M0 scale beside: weights of these are quantised to themselves."""
IDS = torch.tensor([[5, 17, 30, 42, 7, 11, 90]])


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for key, parameter in model.named_parameters():
        if parameter.dim() == 3:
            scales = 2.0 ** torch.randint(-5, -2, (len(parameter), 1, 1))
            parameter.data = VALUES[torch.randint(0, len(VALUES), parameter.shape)] * scales
        elif parameter.dim() == 2 or "bias" in key:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, use_cache=False).logits


def none(name: str, linear: torch.nn.Linear) -> bool:
    return False


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """As far as activations of bf16 allow it."""
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("name", MODELS)
def test_experts_become_scaled(name: str) -> None:
    model = model_of(name)
    expected = logits(model)
    mxcomp.torch.replace_linears(model, input_format="bf16", filter=none)
    assert any(isinstance(module, mxcomp.torch.ScaledExperts) for module in model.modules())
    assert_close(logits(model), expected)


def quark(tensors: dict[str, torch.Tensor], key: str, weight: torch.Tensor, ends: tuple[str, str]) -> None:
    codes, scales = quantise(np.ascontiguousarray(weight.numpy()), "E2M1")
    tensors[key + ends[0]] = torch.from_numpy(pack_bits(codes, "E2M1"))
    tensors[key + ends[1]] = torch.from_numpy(np.ascontiguousarray(scales))


@pytest.mark.parametrize(
    ("name", "parts", "around"),
    [
        ("qwen3-moe", ("gate_proj", "up_proj", "down_proj"), "mlp"),
        ("deepseek-v3", ("gate_proj", "up_proj", "down_proj"), "mlp"),
        ("mixtral", ("w1", "w3", "w2"), "block_sparse_moe"),
    ],
)
def test_checkpoint_by_expert(name: str, parts: tuple[str, str, str], around: str, tmp_path: Path) -> None:
    """As AMD Quark writes them."""
    model = model_of(name)
    tensors = {}
    for key, value in model.state_dict().items():
        file_key = key.replace(".mlp.", f".{around}.")
        if not key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[file_key] = value.clone()
            continue
        matrices = value.chunk(2, 1) if "gate_up" in key else (value,)
        for part, matrix in zip(parts[:2] if "gate_up" in key else parts[2:], matrices, strict=True):
            for expert, weight in enumerate(matrix):
                stem = f"{file_key.rpartition('.')[0]}.{expert}.{part}"
                quark(tensors, stem, weight, (".weight", ".weight_scale"))
    check_loaded(name, tensors, model, tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_fused_checkpoint(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    tensors: dict[str, Any] = {}
    for key, value in model.state_dict().items():
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            rows = value.transpose(1, 2) if name in ("gpt-oss", "llama4") else value
            quark(tensors, key, rows, ("_blocks", "_scales"))
        else:
            tensors[key] = value.clone()
    check_loaded(name, tensors, model, tmp_path)


def check_loaded(name: str, tensors: dict[str, torch.Tensor], model: Any, folder: Path) -> None:
    save_file(tensors, folder / "model.safetensors")
    loaded = mxcomp.torch.load(model_of(name), folder, input_format="bf16")
    assert any(isinstance(module, mxcomp.torch.ScaledExperts) for module in loaded.modules())
    assert_close(logits(loaded), logits(model))


def test_routers_that_are_linear_layers_stay() -> None:
    model = mxcomp.torch.replace_linears(model_of("llama4"))
    assert type(model.model.layers[0].feed_forward.router).__name__ == "Llama4Router"
    assert torch.isfinite(logits(model)).all()


class Odd(torch.nn.Module):
    """Experts with another gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.randn(2, 128, 64))
        self.down_proj = torch.nn.Parameter(torch.randn(2, 64, 64))
        self.act_fn = torch.nn.GELU()


def test_other_gates_stay() -> None:
    model = torch.nn.Sequential(Odd())
    with pytest.warns(RuntimeWarning, match=r"experts '0' keep float weights: a gate of GELU in Odd: expected SiLU"):
        mxcomp.torch.replace_linears(model)
    assert type(model[0]) is Odd


class Own(torch.nn.Module):
    """Experts that are called with a router's choice, but not by transformers' interface."""

    def __init__(self, identities: int = 0) -> None:
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.randn(2 + identities, 128, 64))
        self.down_proj = torch.nn.Parameter(torch.randn(2, 64, 64))
        self.act_fn = torch.nn.SiLU()

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        for expert, (both, down) in enumerate(zip(self.gate_up_proj, self.down_proj, strict=False)):
            gate, up = (x @ both.T).chunk(2, -1)
            share = torch.where(chosen == expert, shares, 0.0).sum(-1, keepdim=True)
            result = result + share * (self.act_fn(gate) * up @ down.T)
        return result + x * torch.where(chosen >= len(self.down_proj), shares, 0.0).sum(-1, keepdim=True)


def longcat() -> Any:
    config = transformers.LongcatFlashConfig(
        hidden_size=64, expert_ffn_hidden_size=64, n_routed_experts=2, zero_expert_num=0
    )
    experts = transformers.models.longcat_flash.modeling_longcat_flash.LongcatFlashExperts(config)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter)
    return experts


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Own, "Own has a forward of its own: expected experts with use_experts_implementation"),
        (lambda: Own(1), "gate_up_proj is of 3 experts, down_proj of 2"),
        (longcat, "LongcatFlashExperts has a forward of its own"),
    ],
    ids=["own", "identities", "longcat"],
)
def test_experts_with_a_forward_of_their_own_stay(make: Any, reason: str) -> None:
    """They were taken for Llama 4's, which have tokens of their own, and computed something else without a word."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(make())
    arguments = torch.randn(6, 64), torch.tensor([[0, 1]] * 3 + [[1, 0]] * 3), torch.rand(6, 2)
    expected = model[0](*arguments)
    with pytest.warns(RuntimeWarning, match=f"experts '0' keep float weights: {reason}"):
        mxcomp.torch.replace_linears(model, input_format="bf16")
    torch.testing.assert_close(model[0](*arguments), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_any_number_of_tokens_gives_the_same_type(dtype: torch.dtype) -> None:
    """Routers give shares in f32; what experts make of a narrower type is of that type, and computed in f32."""
    model = model_of("mixtral").to(dtype)
    mxcomp.torch.replace_linears(model, input_format="bf16", filter=none)
    experts = model.model.layers[0].mlp.experts
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(9, 64, generator=generator).to(dtype)
    chosen, shares = torch.randint(0, 4, (9, 2), generator=generator), torch.rand(9, 2, generator=generator)
    tokens = torch.export.Dim("tokens", min=2, max=16)
    program = torch.export.export(
        experts, (x, chosen, shares), dynamic_shapes=({0: tokens}, {0: tokens}, {0: tokens}), strict=False
    )
    found, expected = program.module()(x, chosen, shares), experts(x, chosen, shares)
    assert found.dtype == expected.dtype == dtype
    assert (found - expected).abs().max() <= 2 * torch.finfo(torch.bfloat16).eps * expected.abs().max()


class Scaled(torch.nn.Module):
    """Experts whose result is multiplied by a number of the program's."""

    def __init__(self, experts: torch.nn.Module) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
        return self.experts(x, ids, weights) * number


@pytest.mark.slow
def test_a_number_behind_experts_of_one_token() -> None:
    """The kernel reads it, an operand of one element, whose dimension IREE would drop."""
    torch.manual_seed(0)
    sizes = (16, 512, 512), (16, 512, 256)
    (gate_up, down), biases = (
        [quantised(torch.randn(size), "E2M1", "even") for size in sizes],
        [torch.randn(size[:2]).bfloat16() for size in sizes],
    )
    layer = Scaled(ScaledExperts(gate_up, biases[0], down, biases[1], 1.7, 7.0))
    weights = torch.tensor([[0.4, 0.3]]).bfloat16()
    given = torch.randn(1, 512).bfloat16(), torch.tensor([[11, 3]]), weights, torch.tensor([0.5]).bfloat16()
    program = mxcomp.torch.compile(layer, given, strict=True)
    (found,) = program.run(*map(array, given), engine="fast")
    expected = layer(*given).float().numpy()
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=2**-7 * np.abs(expected).max())
    assert [each.ukernel for each in program.report.matmuls] == ["mx_token_gate_up", "mx_token_down"]


@pytest.mark.slow
@pytest.mark.parametrize("is_routed", [True, False])
def test_one_expert_of_one_token(is_routed: bool) -> None:
    """It is taken as two halves, whose weight is a single number, given or the router's."""
    torch.manual_seed(0)
    sizes = (16, 512, 512), (16, 512, 256)
    gate_up, down = (quantised(torch.randn(size), "E2M1", "even") for size in sizes)
    of_gate_up, of_down = (torch.randn(size[:2]).bfloat16() for size in sizes)

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = torch.nn.Linear(512, 16, dtype=torch.bfloat16)
            self.experts = ScaledExperts(gate_up, of_gate_up, down, of_down, 1.7, 7.0)

        def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
            if is_routed:
                weights, chosen = self.router(x).topk(1)
            return self.experts(x, chosen, weights)

    model = Layer()
    given = torch.randn(1, 512).bfloat16(), torch.tensor([[11]]), torch.tensor([[0.7]]).bfloat16()
    program = mxcomp.torch.compile(model, given, strict=True)
    assert [each.ukernel for each in program.report.matmuls] == ["mx_token_gate_up", "mx_token_down"]
    (found,) = program.run(*map(array, given))
    expected = model(*given).float().detach().numpy()
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=2**-7 * np.abs(expected).max())
