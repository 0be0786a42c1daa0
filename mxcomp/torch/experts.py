"""Experts with MX weights that replace those of transformers with a gate of SiLU, or GPT-OSS's.

Compiled for a fixed number of tokens they are matmuls grouped by expert (`mxcomp.moe`). For any number of them each
expert is computed for every token, and what the router did not choose is multiplied by 0.
"""

from __future__ import annotations

import inspect
import math
from typing import Any, Protocol

import torch

from mxcomp.errors import InputError
from mxcomp.torch import operators
from mxcomp.torch.operators import gated_experts
from mxcomp.torch.values import quantised

_WEIGHTS = ("gate_up_proj", "down_proj")
_SILU = ("SiLU", "SiLUActivation")
_BY_EXPERT = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))
"""The names of gate, up and down in checkpoints with separate experts."""

Scaled = tuple[torch.Tensor, torch.Tensor]
"""Elements and scales."""


class ScaledExperts(torch.nn.Module):
    """Replaces experts of transformers: of GPT-OSS, Qwen3-MoE, Mixtral, DeepSeek-V3 and others like them.

    Weights are uint8 [experts, N, K * bits / 8] and [experts, N, K / 32], as GPT-OSS publishes them: rows of
    `gate_up_proj` alternate between gate and up. An expert is (up + offset) * gate * sigmoid(alpha * gate) between its
    products, with the gate at most, and up within, the limit.
    """

    def __init__(
        self,
        gate_up: Scaled,
        gate_up_bias: torch.Tensor,
        down: Scaled,
        down_bias: torch.Tensor,
        alpha: float,
        limit: float,
        formats: tuple[str, str, str] = ("E2M1", "E2M1", "even"),
        offset: float = 1.0,
    ) -> None:
        super().__init__()
        self.formats, self.numbers = formats, (float(alpha), float(limit), float(offset))
        for name, (elements, scales), bias in (("gate_up", gate_up, gate_up_bias), ("down", down, down_bias)):
            self.register_buffer(f"{name}_proj_blocks", elements)
            self.register_buffer(f"{name}_proj_scales", scales)
            self.register_buffer(f"{name}_proj_bias", bias)

    @classmethod
    def from_experts(
        cls, experts: Any, weight_format: str = "E2M1", input_format: str = "E2M1", mode: str = "even"
    ) -> ScaledExperts:
        """Quantises experts of transformers; on the device meta, their shapes. Raises ValueError for others."""
        rows = [getattr(experts, name).detach() for name in _WEIGHTS]
        if _is_transposed(experts):
            rows = [weight.transpose(1, 2) for weight in rows]
        gate_up, down = (quantised(weight, weight_format, mode) for weight in rows)
        biases = [
            None if (bias := getattr(experts, f"{name}_bias", None)) is None else bias.detach() for name in _WEIGHTS
        ]
        return _made(experts, gate_up, down, biases, (weight_format, input_format, mode))

    def forward(self, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Returns [tokens, K] from [tokens, K], and the experts chosen for each token and their weights, [tokens, k].

        Nothing is added for an expert that there is not, such as -1.
        """
        if type(x.shape[0]) is int:
            if x.shape[0] == chosen.shape[1] == 1:  # a token's kernels are for two experts and more: halves of one
                chosen, weights = torch.cat([chosen, chosen], -1), torch.cat([weights, weights], -1) / 2
            return gated_experts(x, chosen, weights, *self._parts, *self.formats, *self.numbers)
        rows, shares = x.float(), weights.float()  # as the operator computes, whatever the types
        result = torch.zeros_like(rows)
        for expert in range(len(self.gate_up_proj_bias)):
            share = torch.where(chosen == expert, shares, torch.zeros_like(shares)).sum(-1, keepdim=True)
            result = result + self._expert(rows, expert) * share
        return result.to(x.dtype)

    def _expert(self, x: torch.Tensor, expert: int) -> torch.Tensor:
        return operators.expert(x, self._parts, expert, self.formats, self.numbers)

    @property
    def _parts(self) -> list[torch.Tensor]:
        """The weights, as the operator takes them."""
        return [getattr(self, f"{name}_{part}") for name in _WEIGHTS for part in ("blocks", "scales", "bias")]


class ScaledExpertsOfAll(ScaledExperts):
    """Replaces Llama 4's experts: every expert has tokens of its own, [experts · tokens, K], already weighted."""

    def forward(self, x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        count = len(self.gate_up_proj_bias)
        tokens = x.reshape(count, -1, x.shape[-1])
        return torch.cat([self._expert(tokens[expert], expert) for expert in range(count)])


def replacement(module: torch.nn.Module, weight_format: str, input_format: str, mode: str) -> torch.nn.Module | None:
    """Returns the replacement of experts, or None for another module. Raises ValueError for unknown experts."""
    if not _are_experts(module):
        return None
    return ScaledExperts.from_experts(module, weight_format, input_format, mode)


class Loader(Protocol):
    """A checkpoint that modules are made of; tensors that have been read count as used."""

    def has_mx(self, name: str) -> bool:
        """Returns whether there is an MX weight of a name."""

    def mx(self, name: str, shape: tuple[int, ...]) -> tuple[Scaled, tuple[str, str, str]]:
        """Returns an MX weight of a shape, and formats and mode for it. Raises InputError."""

    def plain(self, key: str, expected: torch.Tensor) -> torch.Tensor:
        """Returns a tensor as it is stored. Raises InputError."""


def loaded(loader: Loader, name: str, module: torch.nn.Module) -> torch.nn.Module | None:
    """Returns the replacement of experts with MX weights in a checkpoint, fused or by expert. None for other
    modules."""
    if not _are_experts(module):
        return None
    if all(loader.has_mx(f"{name}.{part}") for part in _WEIGHTS):
        found = [loader.mx(f"{name}.{part}", shape) for part, shape in zip(_WEIGHTS, _shapes(module), strict=True)]
    elif parts := next((parts for parts in _BY_EXPERT if loader.has_mx(f"{name}.0.{parts[0]}")), None):
        found = _gathered(loader, module, name, parts)
    else:
        return None
    (gate_up, formats), (down, others) = found
    if formats != others:
        raise InputError(f"'{name}': gate and up are {formats[0]}, down {others[0]}: expected one format")
    biases = [
        bias if bias is None else loader.plain(f"{name}.{part}_bias", bias)
        for part, bias in zip(_WEIGHTS, _biases(module), strict=True)
    ]
    try:
        return _made(module, gate_up, down, biases, formats)
    except ValueError as error:
        raise InputError(f"'{name}' cannot have MX weights: {error}") from None


def _gathered(loader: Loader, module: Any, name: str, parts: tuple[str, str, str]) -> list[Any]:
    """Returns weights of all experts of checkpoints that have each apart: gates above ups, as fused; and downs."""
    (count, both, k), (_, _, inner) = _shapes(module)
    shapes = (both // 2, k), (both // 2, k), (k, inner)
    found = [
        [loader.mx(f"{name}.{expert}.{part}", shape) for expert in range(count)]
        for part, shape in zip(parts, shapes, strict=True)
    ]
    formats = {each for part in found for _, each in part}
    if len(formats) > 1:
        raise InputError(f"'{name}': expected experts of one format, not {', '.join(sorted(f[0] for f in formats))}")
    gate, up, down = ([torch.stack([each[0][i] for each in part]) for i in range(2)] for part in found)
    rows = tuple(torch.cat(pair, 1) for pair in zip(gate, up, strict=True))
    if not _is_concatenated(module):
        rows = tuple(_alternating(each) for each in rows)
    (kind,) = formats
    return [(rows, kind), (tuple(down), kind)]


def _are_experts(module: Any) -> bool:
    return all(isinstance(w := getattr(module, name, None), torch.Tensor) and w.dim() == 3 for name in _WEIGHTS)


def _biases(experts: Any) -> list[torch.Tensor | None]:
    return [getattr(experts, f"{name}_bias", None) for name in _WEIGHTS]


def _is_transposed(experts: Any) -> bool:
    """Returns whether weights are [experts, K, N]. Raises ValueError for sizes that do not fit each other."""
    (count, a, b), (others, c, d) = (getattr(experts, name).shape for name in _WEIGHTS)
    if count != others:
        raise ValueError(f"gate_up_proj is of {count} experts, down_proj of {others}")
    if (a, b) == (2 * d, c):
        return False
    if (a, b) == (d, 2 * c):
        return True
    raise ValueError(f"gate_up_proj of {a} × {b} and down_proj of {c} × {d}: expected gate and up in one")


def _shapes(experts: Any) -> list[tuple[int, int, int]]:
    """Returns [experts, N, K] of gate and up, and of down. Raises InputError."""
    try:
        is_transposed = _is_transposed(experts)
    except ValueError as error:
        raise InputError(f"experts: {error}") from None
    shapes = [tuple(getattr(experts, name).shape) for name in _WEIGHTS]
    return [(count, b, a) if is_transposed else (count, a, b) for count, a, b in shapes]


def _is_concatenated(experts: Any) -> bool:
    return bool(getattr(experts, "is_concatenated", not hasattr(experts, "limit")))


def _made(
    experts: Any, gate_up: Scaled, down: Scaled, biases: list[torch.Tensor | None], formats: tuple[str, str, str]
) -> ScaledExperts:
    """Returns a module, with biases of 0 where experts have none. Raises ValueError for experts that compute something
    else."""
    numbers = _numbers(experts)
    kind = experts.gate_up_proj.dtype
    up_bias, down_bias = (
        scales.new_zeros(scales.shape[:2], dtype=kind) if bias is None else bias
        for bias, (_, scales) in zip(biases, (gate_up, down), strict=True)
    )
    if _is_concatenated(experts):
        gate_up, up_bias = (_alternating(gate_up[0]), _alternating(gate_up[1])), _alternating(up_bias)
    alpha, limit, offset = numbers
    made = _kind(experts)(gate_up, up_bias, down, down_bias, alpha, limit, formats, offset)
    for name, bias in zip(_WEIGHTS, biases, strict=True):
        if bias is None:
            made._non_persistent_buffers_set.add(f"{name}_bias")
    return made


def _kind(experts: Any) -> type[ScaledExperts]:
    """Returns the module class for experts, by their class name. Raises ValueError for an unknown one.

    With transformers' interface for experts, or as GPT-OSS's, a router's choice comes with the tokens; Llama 4's get
    nothing else. What other experts make of a choice nobody can tell: LongCat's give some tokens back as they are.
    """
    if hasattr(experts, "is_concatenated") or hasattr(experts, "alpha"):
        return ScaledExperts
    if len(inspect.signature(type(experts).forward).parameters) == len(("self", "hidden_states")):
        return ScaledExpertsOfAll
    raise ValueError(
        f"{type(experts).__name__} has a forward of its own: expected experts with use_experts_implementation of "
        "transformers, or called with tokens alone as Llama 4's"
    )


def _numbers(experts: Any) -> tuple[float, float, float]:
    """Returns alpha, limit and offset of a gate. Raises ValueError for another one."""
    if not getattr(experts, "has_gate", True) or getattr(experts, "has_post_expert_norm", False):
        raise ValueError("expected experts with a gate, and without a norm behind them")
    if hasattr(experts, "alpha") and hasattr(experts, "limit"):
        return experts.alpha, experts.limit, 1.0
    name = type(getattr(experts, "act_fn", None)).__name__
    gate = getattr(type(experts), "_apply_gate", None)
    if name not in _SILU or (gate is not None and gate.__name__ != "_default_apply_gate"):
        raise ValueError(f"a gate of {name} in {type(experts).__name__}: expected SiLU, or GPT-OSS's")
    return 1.0, math.inf, 0.0


def _alternating(halves: torch.Tensor) -> torch.Tensor:
    """Returns [experts, 2 · n, …], gates above ups, with alternating rows of both."""
    count, both, *rest = halves.shape
    return halves.reshape(count, 2, both // 2, *rest).transpose(1, 2).reshape(halves.shape).contiguous()
