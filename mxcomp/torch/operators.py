"""The operator that layers with MX weights call: computed in NumPy on the CPU, compiled by mxcomp-import-torch."""

from __future__ import annotations

import torch

from mxcomp.formats import dequantise, quantise, unpack_bits


@torch.library.custom_op("mxcomp::scaled_linear", mutates_args=())
def scaled_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_format: str = "E2M1",
    input_format: str = "E2M1",
    mode: str = "even",
) -> torch.Tensor:
    """The product of `x`, quantised to MX, and a transposed MX weight, summed in f32.

    Args:
        x: float32, float16 or bfloat16 [M, K].
        weight: uint8 [N, K * bits / 8], codes without gaps (`mxcomp.formats.pack_bits`).
        weight_scale: uint8 [N, K / 32], E8M0 codes.
        weight_format, input_format: Element formats, see `mxcomp.formats.FORMATS`.
        mode: Scale mode of the activations, see `mxcomp.formats.quantise`.

    Returns:
        [M, N], of x's type. Raises ValueError for a format, mode or shape that does not fit.
    """
    rows = x.detach().float().cpu().numpy()
    lhs = dequantise(*quantise(rows, input_format, mode), input_format)
    codes = unpack_bits(weight.detach().cpu().numpy(), weight_format)
    rhs = dequantise(codes, weight_scale.detach().cpu().numpy(), weight_format)
    return (torch.from_numpy(lhs) @ torch.from_numpy(rhs).T).to(dtype=x.dtype, device=x.device)


@scaled_linear.register_fake
def _shape(
    x: torch.Tensor,
    weight: torch.Tensor,
    weight_scale: torch.Tensor,
    weight_format: str = "E2M1",
    input_format: str = "E2M1",
    mode: str = "even",
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])
