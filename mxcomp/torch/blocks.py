"""MX blocks of tensors that a model computes, such as a cache: quantised and dequantised in the program.

Both are NumPy on the CPU, and compiled by mxcomp-import-torch.
"""

from __future__ import annotations

import torch

from mxcomp.errors import InputError
from mxcomp.formats import MX_BLOCK, element_format
from mxcomp.torch.operators import values
from mxcomp.torch.values import quantised

_NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


@torch.library.custom_op("mxcomp::quantise", mutates_args=())
def _quantise(x: torch.Tensor, format: str, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    return quantised(x, format, mode)


@_quantise.register_fake
def _sizes(x: torch.Tensor, format: str, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    *outer, size = x.shape
    row = size * element_format(format).bits // 8, size // MX_BLOCK
    elements, scales = (x.new_empty(*outer, each, dtype=torch.uint8) for each in row)
    return elements, scales


@torch.library.custom_op("mxcomp::dequantise", mutates_args=())
def _dequantise(elements: torch.Tensor, scales: torch.Tensor, format: str, result: str) -> torch.Tensor:
    return values(elements, scales, format).to(_TYPES[result])


@_dequantise.register_fake
def _shape(elements: torch.Tensor, scales: torch.Tensor, format: str, result: str) -> torch.Tensor:
    return scales.new_empty(*scales.shape[:-1], scales.shape[-1] * MX_BLOCK, dtype=_TYPES[result])


def quantise(x: torch.Tensor, format: str = "E4M3", mode: str = "even") -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the elements and scales of blocks of 32 along the last dimension, as bytes.

    Args:
        x: float32, float16 or bfloat16 [..., K], K a multiple of 32.
        format: Element format, see `mxcomp.formats.FORMATS`.
        mode: Scale mode, see `mxcomp.formats.quantise`.

    Returns:
        uint8 [..., K * bits / 8], codes without gaps, and uint8 [..., K / 32], E8M0 codes. Raises InputError for other
        shapes and types, ValueError for an unknown format or mode.
    """
    if x.dtype not in _NAMES or x.dim() < 2 or x.shape[-1] % MX_BLOCK:
        raise InputError(
            f"quantise {x.dtype} {list(x.shape)}: expected float32, float16 or bfloat16 [..., K], of two dimensions or "
            f"more, K a multiple of {MX_BLOCK}"
        )
    elements, scales = _quantise(x, format, mode)
    return elements, scales


def dequantise(
    elements: torch.Tensor, scales: torch.Tensor, format: str = "E4M3", dtype: torch.dtype = torch.bfloat16
) -> torch.Tensor:
    """Returns elements times scales, [..., K], from what `quantise` returns.

    Attention of few queries reads elements and scales as they are, and makes these numbers in registers.
    """
    bits = element_format(format).bits
    fits = elements.dtype == scales.dtype == torch.uint8 and elements.shape[:-1] == scales.shape[:-1]
    if (
        not fits
        or scales.dim() < 2
        or 8 * elements.shape[-1] != bits * MX_BLOCK * scales.shape[-1]
        or dtype not in _NAMES
    ):
        raise InputError(
            f"dequantise {elements.dtype} {list(elements.shape)} and {scales.dtype} {list(scales.shape)} to {dtype}: "
            f"expected uint8 [..., K * {bits}/8] and uint8 [..., K/{MX_BLOCK}], and float32, float16 or bfloat16"
        )
    result: torch.Tensor = _dequantise(elements, scales, format, _NAMES[dtype])
    return result
