"""Small models of many families with random weights: what they are called with, and which argument sizes may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.export import Dim

TOKENS = Dim("tokens", max=16)
IDS = torch.tensor([[5, 17, 30, 42, 7, 11, 90]])
SIZES = {
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 96,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 16}
ROTARY = {"rope_type": "default", "rope_theta": 10000.0}


@dataclass(frozen=True)
class Entry:
    """A family: a model of so many layers, its arguments, and sizes of them that may change (None: none)."""

    make: Callable[[int], Any]
    arguments: tuple[torch.Tensor, ...] = (IDS,)
    dynamic: tuple[Any, ...] | None = ({1: TOKENS},)


def causal(name: str, sizes: dict[str, Any] = GROUPED, **others: Any) -> Entry:
    """A decoder of transformers. What is callable among `others` is asked for the number of layers."""

    def make(layers: int) -> Any:
        values = {key: value(layers) if callable(value) else value for key, value in others.items()}
        config = getattr(transformers, f"{name}{'Text' if name in ('Gemma3', 'Llama4') else ''}Config")
        return getattr(transformers, f"{name}ForCausalLM")(config(**{**sizes, "num_hidden_layers": layers, **values}))

    is_fixed = name == "Llama4"  # torch.export makes a guard of its own that it cannot prove
    return Entry(make, dynamic=None if is_fixed else ({1: TOKENS},))


def windows(layers: int) -> list[str]:
    """Attention of layers by turns."""
    return ["sliding_attention" if layer % 2 == 0 else "full_attention" for layer in range(layers)]


class Modulated(torch.nn.Module):
    """A block of DiT: attention and an MLP, of which shift, scale and gate depend on a condition."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(size, elementwise_affine=False) for _ in range(2))
        self.modulation = torch.nn.Linear(size, 6 * size)
        self.qkv, self.out = torch.nn.Linear(size, 3 * size), torch.nn.Linear(size, size)
        self.up, self.down = torch.nn.Linear(size, 4 * size), torch.nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        parts = self.modulation(torch.nn.functional.silu(condition))[:, None].chunk(6, -1)
        x = x + parts[2] * self.attended(self.norms[0](x) * (1 + parts[1]) + parts[0])
        hidden = torch.nn.functional.gelu(self.up(self.norms[1](x) * (1 + parts[4]) + parts[3]), approximate="tanh")
        return x + parts[5] * self.down(hidden)

    def attended(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, size = x.shape
        q, k, v = self.qkv(x).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(found.transpose(1, 2).reshape(batch, tokens, size))


class DiT(torch.nn.Module):
    """A diffusion transformer on latents [batch, tokens, channels], its time as frequencies [batch, size]."""

    def __init__(self, layers: int, size: int = 64, channels: int = 32) -> None:
        super().__init__()
        self.embed, self.time = torch.nn.Linear(channels, size), torch.nn.Linear(size, size)
        self.blocks = torch.nn.ModuleList(Modulated(size, 4) for _ in range(layers))
        self.norm, self.out = torch.nn.LayerNorm(size), torch.nn.Linear(size, channels)

    def forward(self, latents: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        x, condition = self.embed(latents), self.time(time)
        for block in self.blocks:
            x = block(x, condition)
        return self.out(self.norm(x))


def vit(layers: int) -> Any:
    """One with a single size of layers, which is soon compiled: a sample for every run of the tests."""
    config = transformers.ViTConfig(
        hidden_size=64, intermediate_size=64, num_attention_heads=4, num_hidden_layers=layers, image_size=16,
        patch_size=8, num_labels=64,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def whisper(layers: int) -> Any:
    config = transformers.WhisperConfig(
        vocab_size=96, num_mel_bins=32, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, d_model=64, max_source_positions=16,
        max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def t5(layers: int) -> Any:
    config = transformers.T5Config(
        vocab_size=96, d_model=64, d_kv=16, d_ff=128, num_layers=layers, num_heads=4, decoder_start_token_id=0
    )
    return transformers.T5EncoderModel(config)


EXPERTS = {"num_experts_per_tok": 2}
GENERATOR = torch.Generator().manual_seed(1)
ZOO = {
    "llama": causal("Llama"),
    "qwen2": causal("Qwen2", SIZES | {"num_key_value_heads": 2}),
    "qwen3": causal("Qwen3"),
    "phi3": causal("Phi3", SIZES | {"num_key_value_heads": 2}),
    "gemma3": causal("Gemma3", layer_types=windows, sliding_window=4, query_pre_attn_scalar=24),
    "mistral": causal("Mistral", sliding_window=4),
    "bert": Entry(lambda n: transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, num_hidden_layers=n))),
    "modernbert": Entry(
        lambda n: transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(**SIZES, num_hidden_layers=n, global_attn_every_n_layers=2, local_attention=4)
        )
    ),
    "vit": Entry(vit, (torch.randn(1, 3, 16, 16, generator=GENERATOR),), None),
    "whisper": Entry(whisper, (torch.randn(1, 32, 32, generator=GENERATOR), IDS), None),
    "t5": Entry(t5),
    "dit": Entry(
        DiT,
        (torch.randn(1, 9, 32, generator=GENERATOR), torch.randn(1, 64, generator=GENERATOR)),
        ({1: TOKENS}, None),
    ),
    "gpt-oss": causal(
        "GptOss", num_local_experts=4, **EXPERTS, sliding_window=4, layer_types=windows, rope_parameters=ROTARY
    ),
    "mixtral": causal("Mixtral", num_local_experts=4, **EXPERTS),
    "qwen3-moe": causal("Qwen3Moe", moe_intermediate_size=64, num_experts=4, **EXPERTS),
    "deepseek-v3": causal(
        "DeepseekV3", SIZES | {"num_key_value_heads": 4}, moe_intermediate_size=64, n_routed_experts=4, n_group=2,
        topk_group=1, **EXPERTS, first_k_dense_replace=1, kv_lora_rank=32, q_lora_rank=32, qk_rope_head_dim=8,
        qk_nope_head_dim=16, v_head_dim=16,
    ),
    "llama4": causal("Llama4", intermediate_size_mlp=128, num_local_experts=4, interleave_moe_layer_step=1),
}  # fmt: skip
"""By name. The dynamic size of a decoder's, an encoder's or DiT's is the number of tokens."""


class Called(torch.nn.Module):
    """A model that is called with tensors alone, and gives one."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        if isinstance(self.model, DiT):
            return self.model(*tensors)
        if isinstance(self.model, transformers.WhisperForConditionalGeneration):
            found = self.model(tensors[0], decoder_input_ids=tensors[1], use_cache=False)
        else:
            has_cache = hasattr(self.model.config, "use_cache") and not hasattr(self.model.config, "d_kv")
            found = self.model(*tensors, **({"use_cache": False} if has_cache else {}))
        return (found[0] if not hasattr(found, "logits") else found.logits).float()


def build(name: str, layers: int, dtype: torch.dtype) -> Called:
    """A model whose weights are large enough for its layers to matter."""
    torch.manual_seed(0)
    model = ZOO[name].make(layers).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    return Called(model.to(dtype))
