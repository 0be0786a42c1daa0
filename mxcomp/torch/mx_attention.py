"""MX attention in PyTorch: an operator that is computed in NumPy on the CPU, and compiled by mxcomp-import-torch."""

from __future__ import annotations

import math

import numpy as np
import torch

from mxcomp.errors import InputError
from mxcomp.formats import MX_BLOCK, dequantise, element_format, quantise
from mxcomp.ir.attention import LINEAR, Form, objection
from mxcomp.torch.values import as_array


@torch.library.custom_op("mxcomp::mx_attention", mutates_args=())
def _mx_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    qk_format: str,
    value_format: str,
    weights_format: str,
    powers: str,
    mode: str,
    scale: float,
    is_causal: bool,
) -> torch.Tensor:
    _check(query, key, value)
    form = Form(1.0, key.shape[2], None, weights_format, powers)
    group, length = query.shape[1] // key.shape[1], key.shape[2]
    factors = np.float32(scale * math.log2(math.e) * form.units), np.float32(1)
    q, k = (
        _rounded(as_array(each).astype(np.float32) * factor, qk_format, mode, axis=3)
        for each, factor in zip((query, key), factors, strict=True)
    )
    padding = [(0, 0), (0, 0), (0, -length % MX_BLOCK), (0, 0)]
    v = _rounded(np.pad(as_array(value).astype(np.float32), padding), value_format, mode, axis=2)
    k, v = (np.repeat(np.pad(each, padding) if each is k else each, group, axis=1) for each in (k, v))
    scores = q @ k.swapaxes(2, 3)
    seen = np.arange(k.shape[2]) < length
    if is_causal:
        seen = seen & (np.arange(k.shape[2]) <= np.arange(query.shape[2])[:, None])
    scores = np.where(seen, scores, np.float32(-np.inf))
    with np.errstate(invalid="ignore"):
        base = np.float32(form.offset) - form.units * np.ceil(scores.max(-1, keepdims=True) / np.float32(form.units))
        relative = scores + base
        if powers == LINEAR:
            codes = np.rint(np.clip(relative, 0, form.offset))
            values = element_format(weights_format).values()
            weights = np.where(np.isnan(codes), np.float32(np.nan), values[np.nan_to_num(codes).astype(np.uint8)])
        else:
            weights = _rounded(np.exp2(relative), weights_format, "rceil", axis=3)
        result = weights @ v / weights.sum(-1, keepdims=True)
    return torch.from_numpy(result).to(dtype=query.dtype, device=query.device)


@_mx_attention.register_fake
def _shape(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object) -> torch.Tensor:
    _check(query, key, value)
    return query.new_empty(*query.shape[:3], value.shape[3])


def mx_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    qk_format: str = "E4M3",
    value_format: str = "E4M3",
    weights_format: str = "E4M3",
    *,
    is_causal: bool = False,
    scale: float | None = None,
    mode: str = "even",
    powers: str = "exact",
) -> torch.Tensor:
    """Returns attention whose two products have MX operands, otherwise as PyTorch's `scaled_dot_product_attention`.

    Queries, times scale · log2(e), and keys are quantised in blocks of 32 along their last dimension, values in blocks
    of 32 keys. What values are multiplied by are powers of 2, quantised in blocks of 32 keys, too, with scales by which
    none saturates; the result is divided by the sum of these.

    Args:
        query: float32, float16 or bfloat16 [batch, heads, T, size], the size a multiple of 32.
        key, value: [batch, key heads, L, size] and [batch, key heads, L, value size], of the same type; heads are a
            multiple of key heads.
        qk_format, value_format, weights_format: Element formats, see `mxcomp.formats.FORMATS`.
        is_causal: Whether query t sees keys up to t only.
        scale: Of scores; by default one by the root of the size.
        mode: Scale mode of queries, keys and values, see `mxcomp.formats.quantise`.
        powers: "exact"; or "linear", for weights of 8 bits: their codes, with scales of 1, are a linear function of
            scores, so that 1 + x stands for 2 to the power of x between two powers, up to 6 % more, and what is below
            2^-11 of the largest weight fades to 0. It takes half as many cycles.

    Returns:
        [batch, heads, T, value size], of the type of queries. Raises InputError for other shapes and types, ValueError
        for an unknown format or mode.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    formats = qk_format, value_format, weights_format
    if why := objection(powers, weights_format):
        raise InputError(f"MX attention: {why}")
    result: torch.Tensor = _mx_attention(query, key, value, *formats, powers, mode, factor, is_causal)
    return result


def _rounded(x: np.ndarray, fmt: str, mode: str, axis: int) -> np.ndarray:
    return dequantise(*quantise(x, fmt, mode, axis=axis), fmt, axis=axis)


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    tensors = query, key, value
    if all(each.dim() == 4 for each in tensors):
        (batch, heads, _, size), (key_batch, key_heads, _, key_size) = query.shape, key.shape
        alike = value.shape[:3] == key.shape[:3] and (batch, size) == (key_batch, key_size)
        fits = alike and heads % key_heads == 0 and size % MX_BLOCK == 0
        if fits and query.is_floating_point() and len({each.dtype for each in tensors}) == 1:
            return
    shapes = ", ".join(f"{each.dtype} {list(each.shape)}" for each in tensors)
    raise InputError(
        f"MX attention of {shapes}: expected floats of one type, [batch, heads, T, size], [batch, key heads, L, size] "
        f"and [batch, key heads, L, value size], heads a multiple of key heads and the size one of {MX_BLOCK}"
    )
