"""MX weights as numbers, for models that read a layer's weights."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from mxcomp.errors import InputError
from mxcomp.formats import FORMATS, MX_BLOCK, decode_e8m0, element_format
from mxcomp.formats.fused import quantise_packed

_tree_map = torch.utils._pytree.tree_map

_VALUES = {name: torch.from_numpy(fmt.values().copy()) for name, fmt in FORMATS.items()}
_POWERS = torch.from_numpy(decode_e8m0(np.arange(256, dtype=np.uint8)))
_ARRAYS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}
"""Types that NumPy knows by ml_dtypes, with those whose bits they are taken as."""
_BITS = {name: fmt.bits for name, fmt in FORMATS.items()}
"""Tables of values by format, and by the code of a scale; computed here, as tracers cannot look into NumPy."""


def array(x: torch.Tensor) -> NDArray[Any]:
    """Returns a tensor as NumPy array, in the same memory on the CPU."""
    x, (bits, kind) = x.detach().cpu(), _ARRAYS.get(x.dtype, (None, None))
    return x.numpy() if bits is None else x.view(bits).numpy().view(kind)


def as_array(x: torch.Tensor) -> NDArray[Any]:
    """Returns a tensor of floats as `array` does; as float32 if quantisers do not take its type."""
    return array(x if x.dtype in (torch.bfloat16, torch.float16, torch.float32) else x.float())


def quantised(weight: torch.Tensor, weight_format: str, mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns elements and scales of weights [..., N, K], in blocks along K; on the device meta for weights there.

    Raises ValueError unless K is a multiple of 32.
    """
    if not weight.is_meta:
        packed, scales = quantise_packed(as_array(weight), weight_format, mode)
        return torch.from_numpy(packed), torch.from_numpy(scales)
    *outer, k = weight.shape
    if k % MX_BLOCK:
        raise ValueError(f"last axis {k} is not a multiple of block size {MX_BLOCK}")
    sizes = k * element_format(weight_format).bits // 8, k // MX_BLOCK
    packed, scales = (torch.empty(*outer, size, dtype=torch.uint8, device="meta") for size in sizes)
    return packed, scales


class Values(torch.Tensor):
    """The weights of a layer, [N, K]: type, shape and device are known at once, numbers when computed with.

    Models cast activations to the type of a layer's weights, which therefore cannot be that of their bytes.
    """

    elements: torch.Tensor
    scales: torch.Tensor
    format: str

    @staticmethod
    def __new__(cls, elements: torch.Tensor, scales: torch.Tensor, format: str, dtype: torch.dtype) -> Values:
        shape = (*scales.shape[:-1], scales.shape[-1] * MX_BLOCK)
        self = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=elements.device)
        self.elements, self.scales, self.format = elements, scales, format
        return self

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Values({list(self.shape)}, {self.format}, {self.dtype})"

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Reports that this is no plain tensor, as PyTorch's encoder layers give plain weights to a fused kernel."""
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operator._schema.is_mutable:
            raise InputError(
                f"the model changes weights of a layer in place ({operator}), which are MX: a filter= of "
                "replace_linears can leave the layer as it is"
            )
        if operator in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return args[0]  # so that `.data` cannot be changed either
        args, kwargs = _tree_map(_numbers, (args, kwargs or {}))
        return operator(*args, **kwargs)


def _numbers(value: Any) -> Any:
    if not isinstance(value, Values):
        return value
    return dequantised(value.elements, value.scales, value.format, value.dtype)


def dequantised(elements: torch.Tensor, scales: torch.Tensor, format: str, dtype: torch.dtype) -> torch.Tensor:
    """Returns packed elements times their scales, in torch's own operators, so that it can be exported."""
    bits = _BITS[format]
    count = math.lcm(bits, 8) // 8  # bytes that whole elements fill
    groups = elements.reshape(*elements.shape[:-1], -1, count).int()
    word = sum((groups[..., byte] << 8 * byte for byte in range(1, count)), groups[..., 0])
    codes = torch.stack([word >> at & (1 << bits) - 1 for at in range(0, 8 * count, bits)], -1)
    values, powers = (table.to(elements.device) for table in (_VALUES[format], _POWERS))
    blocks = values[codes.long()].reshape(*scales.shape, MX_BLOCK) * powers[scales.long()][..., None]
    return blocks.reshape(*scales.shape[:-1], -1).to(dtype)
