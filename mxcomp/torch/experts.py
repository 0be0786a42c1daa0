"""Experts of a mixture with MX weights: GPT-OSS's.

Compiled for a fixed number of tokens they are matmuls grouped by expert (`mxcomp.moe`). For any number of them each
expert is computed for every token, and what the router did not choose is multiplied by 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mxcomp.formats import pack_bits, quantise
from mxcomp.torch.operators import gated_experts, scaled_linear


class ScaledExperts(torch.nn.Module):
    """Takes the place of transformers' `GptOssExperts`.

    Weights are uint8 [experts, N, K * bits / 8] and [experts, N, K / 32], as published: rows of `gate_up_proj`
    alternate between gate and up.
    """

    def __init__(
        self,
        gate_up: tuple[torch.Tensor, torch.Tensor],
        gate_up_bias: torch.Tensor,
        down: tuple[torch.Tensor, torch.Tensor],
        down_bias: torch.Tensor,
        alpha: float,
        limit: float,
        formats: tuple[str, str, str] = ("E2M1", "E2M1", "even"),
    ) -> None:
        super().__init__()
        self.alpha, self.limit, self.formats = alpha, limit, formats
        for name, (elements, scales), bias in (("gate_up", gate_up, gate_up_bias), ("down", down, down_bias)):
            self.register_buffer(f"{name}_proj_blocks", elements)
            self.register_buffer(f"{name}_proj_scales", scales)
            self.register_buffer(f"{name}_proj_bias", bias)

    @classmethod
    def from_experts(
        cls, experts: Any, weight_format: str = "E2M1", input_format: str = "E2M1", mode: str = "even"
    ) -> ScaledExperts:
        """Quantises transformers' `GptOssExperts`, whose weights are [experts, K, N]. Raises ValueError."""
        (gate_up, down), biases = (
            [_quantised(getattr(experts, name), weight_format, mode) for name in ("gate_up_proj", "down_proj")],
            [getattr(experts, name).detach() for name in ("gate_up_proj_bias", "down_proj_bias")],
        )
        formats = weight_format, input_format, mode
        return cls(gate_up, biases[0], down, biases[1], experts.alpha, experts.limit, formats)

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """[tokens, K] from [tokens, K], and the experts chosen for each token and their weights, [tokens, k]."""
        if type(x.shape[0]) is int:
            parts = (
                getattr(self, f"{name}_proj_{part}")
                for name in ("gate_up", "down")
                for part in ("blocks", "scales", "bias")
            )
            return gated_experts(x, chosen, weights, *parts, *self.formats, self.alpha, self.limit)
        result = torch.zeros_like(x)
        for expert in range(len(self.gate_up_proj_bias)):
            share = torch.where(chosen == expert, weights, torch.zeros_like(weights)).sum(-1, keepdim=True)
            result = result + self._expert(x, expert) * share
        return result

    def _expert(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        both = self._linear("gate_up", x, expert)
        gate, up = both[..., ::2].clamp(max=self.limit), both[..., 1::2].clamp(-self.limit, self.limit)
        return self._linear("down", (up + 1) * gate * torch.sigmoid(gate * self.alpha), expert)

    def _linear(self, name: str, x: torch.Tensor, expert: int) -> torch.Tensor:
        elements, scales, bias = (getattr(self, f"{name}_proj_{part}")[expert] for part in ("blocks", "scales", "bias"))
        return scaled_linear(x, elements, scales, *self.formats) + bias


def _quantised(weight: torch.Tensor, weight_format: str, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements and scales of weights [experts, K, N], in blocks along K."""
    rows = np.ascontiguousarray(weight.detach().float().cpu().numpy().transpose(0, 2, 1))
    codes, scales = quantise(rows, weight_format, mode)
    return torch.from_numpy(pack_bits(codes, weight_format)), torch.from_numpy(np.ascontiguousarray(scales))
