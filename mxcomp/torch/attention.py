"""Keeps `scaled_dot_product_attention` whole in the forms for which IREE has a kernel.

Decomposed it would be two matmuls, a softmax in f32 between them, and all scores in memory three times. What IREE
3.13 gets wrong or does not take is written otherwise here, around the operator or in place of it:

| PyTorch's | becomes |
|---|---|
| a mask of fewer dimensions, or of sizes 1; keys for several batches | of the queries' rank, and expanded |
| a row that sees no key (its softmax is NaN in IREE, 0 in PyTorch) | a row that sees all of them, and then 0 |
| a mask with numbers near the lowest f32, which IREE multiplies by log2(e) | the lowest that this leaves finite |
| keys of a dynamic number, without a mask (read beyond their end) | a mask of zeros |
| a scale that the queries' type has not (it is rounded to it) | queries multiplied by it in f32 |
| dropout, f64, queries of a dynamic size or of rank 2 | decomposed |
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import Any

import torch

OPERATOR = torch.ops.aten.scaled_dot_product_attention.default

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_LOWEST = -2.3e38
"""A score that hides a key: times log2(e) it is finite, and no score that is added to it changes it."""

_is_kept = ContextVar("is_kept", default=False)


def kept(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Returns a decomposition of the operator: into itself, with other operands, or into its arithmetic."""
    if _is_kept.get():
        return NotImplemented
    size, keys = query.shape[-1], key.shape[-2]
    if dropout_p or query.dim() < 3 or query.dtype not in _DTYPES or type(size) is not int:
        math_ = torch.ops.aten._scaled_dot_product_attention_math.default
        return math_(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    batch = torch.broadcast_shapes(*(each.shape[: query.dim() - 3] for each in (query, key, value)))
    heads = query.shape[-3], key.shape[-3], value.shape[-3]
    if not enable_gqa:
        heads = (torch.broadcast_shapes(*([count] for count in heads))[0],) * 3
    query, key, value = (
        each.expand(*batch, count, *each.shape[-2:]) for each, count in zip((query, key, value), heads, strict=True)
    )
    query, scale = _scaled(query, size**-0.5, scale)
    seen, sizes = None, [*query.shape[:-1], keys]
    if attn_mask is not None:
        attn_mask, seen = _mask(attn_mask, sizes)
    elif not is_causal and type(keys) is not int:
        attn_mask = query.new_zeros(sizes[-2:]).expand(*([1] * (len(sizes) - 2)), *sizes[-2:])
    token = _is_kept.set(True)
    try:
        result = OPERATOR(query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
    finally:
        _is_kept.reset(token)
    return result if seen is None else torch.where(seen, result, 0.0)


def _scaled(query: torch.Tensor, usual: float, scale: float | None) -> tuple[torch.Tensor, float | None]:
    """Returns queries and the scale to pass. The scale is None, for which IREE takes the usual one in f32, wherever
    that is the same."""
    if scale is None or math.isclose(scale, usual, rel_tol=1e-7):
        return query, None
    if torch.tensor(scale, dtype=query.dtype).item() == scale or query.dtype == torch.float32:
        return query, scale
    return (query.float() * (scale / usual)).to(query.dtype), None


def _mask(mask: torch.Tensor, sizes: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a mask [..., L, S] in which each row sees a key, and [..., L, 1], whether it did before."""
    mask = mask[(None,) * (len(sizes) - mask.dim())]
    mask = mask.expand(*mask.shape[:-2], *sizes[-2:])
    if mask.dtype == torch.bool:
        seen = _any(mask)
        return mask | ~seen, seen
    lowest = max(_LOWEST, torch.finfo(mask.dtype).min)
    return mask.clamp(min=lowest), _any(mask > -math.inf)


def _any(rows: torch.Tensor) -> torch.Tensor:
    """Returns whether a row contains True. IREE reduces a maximum on all lanes, but not of a constant of dynamic
    size."""
    if type(rows.shape[-1]) is not int or type(rows.shape[-2]) is not int:
        return rows.any(-1, keepdim=True)
    return rows.float().amax(-1, keepdim=True) > 0
