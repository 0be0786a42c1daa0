"""Reads tensors of .gguf files, mapped; blocks of ggml's MXFP4 weights are converted when they are asked for.

A block is a byte of scale, E8M0, and 16 of elements: byte i has element i in its low nibble and element 16 + i in its
high one (`block_mxfp4` in ggml). Here such a tensor `x` is two, `x`, elements two a byte with the even K in the low
nibble, and `x_scale`, as AMD Quark has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from mxcomp.errors import InputError
from mxcomp.formats import MX_BLOCK
from mxcomp.support.lazy import Lazy
from mxcomp.weights.views import Bytes

_MXFP4 = "MXFP4"
_UNKNOWN_SCALE = 0xFF
"""The scale code that means 2^128 in ggml, but NaN in E8M0."""

T = TypeVar("T")


def read(path: Path, make: Callable[[Bytes, str], T]) -> Lazy[T]:
    """Returns the tensors of a file, each made of its bytes (uint8, the last dimension in bytes) and its type's name.

    Types are those of safetensors where it has them, and else ggml's, such as "Q4_K". Needs the package gguf, and
    raises ImportError without it; and whatever that raises for a file that is none.
    """
    found: dict[str, Callable[[], T]] = {}
    for tensor in _tensors(path):
        data, kind, name = _bytes(tensor.data), tensor.tensor_type.name, tensor.name
        if kind != _MXFP4:
            found[name] = partial(make, data, kind)
            continue
        found[name] = partial(_converted, make, _elements, data, "F4")
        scales = partial(_scales, f"{path}: '{name}'")
        found[f"{name}_scale"] = partial(_converted, make, scales, data, "F8_E8M0")
    return Lazy(found)


def _tensors(path: Path) -> list[Any]:
    """Returns the tensors that the package gguf finds, after checking sizes: the package reads beyond a file's end as
    empty, and may loop for years."""
    from gguf import GGUFReader

    class Bounded(GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            found = super()._get(offset, dtype, count, override_order)
            if len(found) < count:
                raise ValueError(f"it ends at byte {len(self.data)}: expected {count} numbers at {offset}")
            return found

    try:
        with np.errstate(over="raise"):
            return list(Bounded(path).tensors)
    except FloatingPointError:
        raise ValueError("a tensor is said to lie beyond 2^64 bytes") from None


def _bytes(data: Any) -> Bytes:
    return np.asarray(data).view(np.uint8)


def _converted(make: Callable[[Bytes, str], T], convert: Callable[[Bytes], Bytes], data: Bytes, kind: str) -> T:
    block = 1 + MX_BLOCK // 2
    blocks = data.reshape(*data.shape[:-1], data.shape[-1] // block, block)
    return make(convert(blocks), kind)


def _elements(blocks: Bytes) -> Bytes:
    halves = np.stack((blocks[..., 1:] & 15, blocks[..., 1:] >> 4), -2)  # [..., blocks, 2, 16]
    pairs = halves[..., ::2] | halves[..., 1::2] << 4
    return pairs.reshape(*blocks.shape[:-2], blocks.shape[-2] * MX_BLOCK // 2)


def _scales(what: str, blocks: Bytes) -> Bytes:
    if (blocks[..., 0] == _UNKNOWN_SCALE).any():
        raise InputError(f"{what} has a scale of 2^128, which E8M0 has not")
    return np.ascontiguousarray(blocks[..., 0])
