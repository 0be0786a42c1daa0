"""The operators that layers with MX weights call: NumPy on the CPU, compiled by mxcomp-import-torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mxcomp.errors import InputError
from mxcomp.formats import dequantise, quantise, unpack_bits
from mxcomp.ir.quantisation import UNQUANTISED


@torch.library.custom_op("mxcomp::scaled_linear", mutates_args=())
def scaled_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_format: str = "E2M1",
    input_format: str = "E2M1",
    mode: str = "even",
) -> torch.Tensor:
    """Returns the product of `x`, quantised to MX, and a transposed MX weight, summed in f32.

    Args:
        x: float32, float16 or bfloat16 [M, K].
        weight: uint8 [N, K * bits / 8], codes without gaps (`mxcomp.formats.pack_bits`).
        weight_scale: uint8 [N, K / 32], E8M0 codes.
        weight_format, input_format: Element formats, see `mxcomp.formats.FORMATS`; activations in "bf16" are rounded
            to it, and not quantised.
        mode: Scale mode of the activations, see `mxcomp.formats.quantise`.

    Returns:
        [M, N], of x's type. Raises InputError for an `x` of integers, ValueError for a format, mode or shape that does
        not fit.
    """
    _check_floats(x)
    rows = x.detach().float().cpu().numpy()
    lhs = _rounded(rows, input_format, mode)
    return (lhs @ values(weight, weight_scale, weight_format).T).to(dtype=x.dtype, device=x.device)


@scaled_linear.register_fake
def _shape(x: torch.Tensor, weight: torch.Tensor, *_: object) -> torch.Tensor:
    _check_floats(x)
    return x.new_empty(x.shape[0], weight.shape[0])


@torch.library.custom_op("mxcomp::gated_experts", mutates_args=())
def gated_experts(
    x: torch.Tensor,
    chosen: torch.Tensor,
    shares: torch.Tensor,
    gate_up: torch.Tensor,
    gate_up_scales: torch.Tensor,
    gate_up_bias: torch.Tensor,
    down: torch.Tensor,
    down_scales: torch.Tensor,
    down_bias: torch.Tensor,
    weight_format: str,
    input_format: str,
    mode: str,
    alpha: float,
    limit: float,
    offset: float,
) -> torch.Tensor:
    """Returns the sum of the chosen experts' results for each token, times their shares.

    Between products it is (up + offset) * gate * sigmoid(alpha * gate), the gate at most, and up within, the limit:
    GPT-OSS's clamped SwiGLU with 1.702, 7 and 1, plain SwiGLU with 1, infinity and 0.

    Args:
        x: float32, float16 or bfloat16 [T, K].
        chosen, shares: [T, top_k], int64 and of any float type. Nothing is added for an expert outside 0 … E - 1, such
            as -1: it is not here, but on another device perhaps.
        gate_up, gate_up_scales, down, down_scales: uint8 [E, N, K · bits/8] and [E, N, K/32] as in `scaled_linear`;
            rows of `gate_up` alternate between gate and up.
        gate_up_bias, down_bias: [E, N].
        weight_format, input_format, mode: See `scaled_linear`. What is between the products is quantised, too.

    Returns:
        [T, K], of x's type; everything is computed in f32. Raises InputError for an `x` of integers.
    """
    _check_floats(x)
    rows, result = x.detach().float(), torch.zeros(x.shape, dtype=torch.float32)
    parts = gate_up, gate_up_scales, gate_up_bias, down, down_scales, down_bias
    for number in range(len(gate_up)):
        tokens, places = torch.where(chosen == number)
        if len(tokens):
            out = expert(rows[tokens], parts, number, (weight_format, input_format, mode), (alpha, limit, offset))
            result.index_add_(0, tokens, out * shares[tokens, places].float()[:, None])
    return result.to(dtype=x.dtype, device=x.device)


def expert(
    x: torch.Tensor,
    parts: Sequence[torch.Tensor],
    number: int,
    formats: tuple[str, str, str],
    numbers: tuple[float, float, float],
) -> torch.Tensor:
    """Returns what one of several experts makes of rows, from the operands of `gated_experts` in their order."""
    gate_up, gate_up_scales, gate_up_bias, down, down_scales, down_bias = (part[number] for part in parts)
    alpha, limit, offset = numbers
    both = scaled_linear(x, gate_up, gate_up_scales, *formats) + gate_up_bias.float()
    gate, up = both[..., ::2].clamp(max=limit), both[..., 1::2].clamp(-limit, limit)
    hidden = (up + offset) * gate * torch.sigmoid(gate * alpha)
    return scaled_linear(hidden, down, down_scales, *formats) + down_bias.float()


def values(elements: torch.Tensor, scales: torch.Tensor, fmt: str, dtype: type = np.float32) -> torch.Tensor:
    """Returns the numbers of an MX weight, on the CPU."""
    codes = unpack_bits(elements.detach().cpu().numpy(), fmt)
    return torch.from_numpy(dequantise(codes, scales.detach().cpu().numpy(), fmt, dtype=dtype))


def _check_floats(x: torch.Tensor) -> None:
    if not x.is_floating_point():
        raise InputError(
            f"activations of {x.dtype} for MX weights: expected float32, float16 or bfloat16. Does the model cast them "
            "to the type of something quantised?"
        )


def _rounded(rows: np.ndarray, input_format: str, mode: str) -> torch.Tensor:
    if input_format == UNQUANTISED:
        return torch.from_numpy(rows).bfloat16().float()
    return torch.from_numpy(dequantise(*quantise(rows, input_format, mode), input_format))


@gated_experts.register_fake
def _experts_shape(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x)
