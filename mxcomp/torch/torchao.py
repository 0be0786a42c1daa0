"""Reads weights that torchao quantised to MX (`quantize_` with `MXDynamicActivationMXWeightConfig`).

torchao itself is not needed: its `MXTensor` has `qdata`, elements [N, K], fp4 two a byte with the even K in the low
nibble; `scale`, E8M0 [N, K/32], in tiles of 128 × 4 where `is_swizzled_scales` (`to_blocked` in
torchao/prototype/mx_formats/utils.py); and `act_quant_kwargs`, how activations are quantised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from mxcomp.formats import MX_BLOCK, element_format, pack_bits

_FORMATS = {
    "torch.float8_e4m3fn": "E4M3",
    "torch.float8_e5m2": "E5M2",
    "torch.float4_e2m1fn_x2": "E2M1",
    "fp6_e2m3": "E2M3",
    "fp6_e3m2": "E3M2",
}
"""The element formats by torchao's names."""

_TILE_ROWS, _TILE_COLUMNS, _LANES = 128, 4, 32


def is_mx(weight: Any) -> bool:
    """Returns whether a parameter is an MX tensor of torchao."""
    kind = type(weight)
    return kind.__name__ == "MXTensor" and kind.__module__.startswith("torchao.")


ARITHMETIC = (
    "torchao quantised it, and the program was exported before, in which it is arithmetic of floats, without ukernels: "
    "give mxcomp.torch the model instead of the program"
)
"""The reason why layers of programs that are exported already stay with IREE."""


def exported(programs: Iterable[torch.export.ExportedProgram]) -> dict[str, str]:
    """Returns the modules of exported programs whose weights torchao quantised, and how they are compiled."""
    return {
        name.rpartition(".")[0]: ARITHMETIC
        for program in programs
        for name, value in program.state_dict.items()
        if is_mx(value)
    }


def taken_apart(weight: Any) -> tuple[Any, ...]:
    """Returns packed elements and scales, as `scaled_linear` takes them, formats of weight and input, and scale mode.

    Raises ValueError where activations are not quantised, in other blocks, or to a format that is unknown here.
    """
    activations = weight.act_quant_kwargs
    if activations is None:
        raise ValueError("torchao quantised only the weights: expected a config with dynamic MX activations")
    for what, size in (("weights", weight.block_size), ("activations", activations.block_size)):
        if size != MX_BLOCK:
            raise ValueError(f"{what} have blocks of {size}: expected {MX_BLOCK}")
    weight_format, input_format = _format(weight.elem_dtype), _format(activations.elem_dtype)
    n, k = weight.shape
    data = weight.qdata.detach().contiguous().view(torch.uint8)
    if data.shape[-1] == k and element_format(weight_format).bits < 8:  # torchao keeps fp6 one a byte
        data = torch.from_numpy(pack_bits(data.cpu().numpy(), weight_format))
    scale = weight.scale.detach().contiguous().view(torch.uint8)
    rows = _row_major(scale, n, k // MX_BLOCK) if weight.is_swizzled_scales else scale.reshape(n, k // MX_BLOCK)
    return data, rows.contiguous(), weight_format, input_format, activations.scaling_mode.value


def _format(dtype: Any) -> str:
    if str(dtype) not in _FORMATS:
        raise ValueError(f"elements of {dtype}: expected {', '.join(_FORMATS)}")
    return _FORMATS[str(dtype)]


def _row_major(scale: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Returns scales in row-major order: row 32 · j + i of a tile is at [i, j]."""
    tiles = -(-rows // _TILE_ROWS), -(-columns // _TILE_COLUMNS)
    blocks = scale.reshape(*tiles, _LANES, _TILE_ROWS // _LANES, _TILE_COLUMNS)
    plain = blocks.permute(0, 3, 2, 1, 4).reshape(tiles[0] * _TILE_ROWS, tiles[1] * _TILE_COLUMNS)
    return plain[:rows, :columns]
