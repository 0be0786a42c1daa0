"""Linear layers of public models, as their configurations say, and what a rank of tensor parallelism has of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RANKS = (1, 2, 4, 8)
BLOCK = 32


@dataclass(frozen=True)
class Layer:
    """A linear layer of `n` outputs and so many inputs on one of `ranks`."""

    model: str
    name: str
    ranks: int
    n: int
    inputs: int

    @property
    def k(self) -> int:
        """Whole blocks of 32: weights are padded to them, if a rank has a part of one."""
        return -(-self.inputs // BLOCK) * BLOCK

    def __str__(self) -> str:
        return f"{self.model}-{self.name}-tp{self.ranks}"


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder layer; `heads` and `kv_heads` of `head` elements, an MLP (or an expert) of `inner`."""

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head: int
    inner: int

    @property
    def layers(self) -> Iterator[Layer]:
        """What each rank multiplies with; key and value heads are never split beyond one to a rank."""
        for ranks in RANKS:
            qkv = (self.heads // ranks + 2 * max(1, self.kv_heads // ranks)) * self.head
            yield Layer(self.name, "qkv", ranks, qkv, self.hidden)
            yield Layer(self.name, "gate_up", ranks, 2 * self.inner // ranks, self.hidden)
            yield Layer(self.name, "o_proj", ranks, self.hidden, self.heads * self.head // ranks)
            yield Layer(self.name, "down", ranks, self.hidden, self.inner // ranks)


MODELS = (
    Model("Llama-3-70B", 8192, 64, 8, 128, 28672),
    Model("Llama-3-405B", 16384, 128, 8, 128, 53248),
    Model("GPT-OSS", 2880, 64, 8, 64, 2880),  # 20B and 120B differ in layers and experts only
    Model("Qwen3-32B", 5120, 64, 8, 128, 25600),
)
DEEPSEEK = (
    ("qkv_a", 2112, 7168),
    ("q_b", 24576, 1536),
    ("o_proj", 7168, 16384),
    ("gate_up", 36864, 7168),
    ("down", 7168, 18432),
)
"""Of DeepSeek V3, whose attention is latent: outputs and inputs of the whole layers. The first is not split."""

LAYERS = [
    *(layer for model in MODELS for layer in model.layers),
    *(
        Layer(
            "DeepSeek-V3",
            name,
            ranks,
            n // (ranks if name in ("q_b", "gate_up") else 1),
            k // (ranks if name in ("o_proj", "down") else 1),
        )
        for name, n, k in DEEPSEEK
        for ranks in (RANKS if name != "qkv_a" else (1,))
    ),
]
