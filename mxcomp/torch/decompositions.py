"""Decompositions for `run_decompositions` of operators that PyTorch's exporter keeps and IREE does not support.

A function that gives NotImplemented keeps its operator as it is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mxcomp.torch import attention

_ATEN = torch.ops.aten
_SHORT: dict[torch.dtype, Any] = {torch.float16: np.float16, torch.bfloat16: ml_dtypes.bfloat16}
_MASKS = (torch.bool, torch.uint8)
"""The types of indices that are masks, which select by position."""
_FEW = 1024
"""The length of a row up to which each position is compared with each index."""


def _squeezed(x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Removes dimensions of size 1."""
    gone = {dim % max(x.dim(), 1) for dim in dims}
    return x.reshape([size for dim, size in enumerate(x.shape) if dim not in gone or size != 1])


def _sorted_topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """Sorts results that may come in any order."""
    return NotImplemented if sorted else _ATEN.topk.default(x, k, dim, largest, True)


def _stable(x: torch.Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Drops the request to be stable: IREE's sort swaps only neighbours that differ."""
    return _ATEN.sort.default(x, dim, descending)


def _rolled(x: torch.Tensor, shifts: Sequence[Any], dims: Sequence[int] = ()) -> torch.Tensor:
    """Concatenates the last elements and the others, along each dimension, or along the flattened one."""
    if not dims:
        return _rolled(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        last = shift % size if size else 0
        x = torch.cat((x.narrow(dim, size - last, last), x.narrow(dim, 0, size - last)), dim)
    return x


def _product(x: Any, y: Any) -> Any:
    """Multiplies complex numbers by a real one."""
    if not isinstance(x, torch.Tensor) or not x.is_complex() or isinstance(y, torch.Tensor | complex):
        return NotImplemented
    return torch.view_as_complex(torch.view_as_real(x) * y)


def _histogram(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Returns the number of elements in each of equal parts of a range; the last one includes its upper end."""
    if min >= max:
        return NotImplemented  # the range is that of the numbers
    flat = x.reshape(-1)
    part = ((flat - min) * bins / (max - min)).floor()
    part = torch.where(flat == max, bins - 1, part)
    is_in = part[:, None] == torch.arange(bins, device=x.device)
    return is_in.to(x.dtype).sum(0)


def _grouped_mm(
    x: torch.Tensor,
    weights: torch.Tensor,
    ends: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Multiplies rows [S, K], sorted by group, by the matrix of their group [G, K, N]. Rows behind the last end are
    0."""
    if ends is None or bias is not None or x.dim() != 2 or weights.dim() != 3:
        return NotImplemented
    groups = (torch.arange(x.shape[0], device=x.device)[:, None] >= ends).sum(-1)
    inside = groups < weights.shape[0]
    of_row = weights.index_select(0, groups.clamp(max=weights.shape[0] - 1))
    product = torch.bmm(x[:, None], of_row)[:, 0]
    return torch.where(inside[:, None], product, 0.0).to(out_dtype or x.dtype)


def _indexed(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    """Converts indices to 64 bits, as IREE takes them, and to one of several that are of a dynamic size."""
    given = [index for index in indices if index is not None]
    if any(index.dtype in _MASKS for index in given):
        return NotImplemented
    if len(given) > 1 and any(type(size) is not int for index in given for size in index.shape):
        return _indexed_by_one(x, [None if index is None else index.long() for index in indices])
    if all(index.dtype != torch.int32 for index in given):
        return NotImplemented
    wide = [index.long() if index is not None and index.dtype == torch.int32 else index for index in indices]
    return _ATEN.index.Tensor(x, wide)


def _indexed_by_one(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Indexes dimensions one after the other, if each index has its own of the result; else flattens them."""
    at, first = _dims(indices)
    others = [dim for dim in range(x.dim()) if dim not in at]
    x = x.permute(*others[:first], *at, *others[first:])
    sizes = x.shape[first : first + len(at)]
    pairs = zip((index for index in indices if index is not None), sizes, strict=True)
    given = [_from_beginning(index, size) for index, size in pairs]
    before, after = x.shape[:first], x.shape[first + len(at) :]
    is_one = [[type(size) is int and size == 1 for size in index.shape] for index in given]
    own = [i - len(each) for each in is_one for i, is_shared in enumerate(each) if not is_shared]
    if own == sorted(set(own)):
        for i, index in enumerate(given):
            x = x.index_select(first + i, index.reshape(-1))
        return x.reshape(*before, *torch.broadcast_shapes(*(index.shape for index in given)), *after)
    place: Any = 0
    for index, size in zip(given, sizes, strict=True):
        place = place * size + index
    found = x.reshape(*before, math.prod(sizes), *after).index_select(first, place.reshape(-1))
    return found.reshape(*before, *place.shape, *after)


def _put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Any:
    """Makes indices count from the beginning: IREE's importer drops writes at negative ones."""
    if _counted.get() or any(index is not None and index.dtype in _MASKS for index in indices):
        return NotImplemented
    counted = [
        None if index is None else _from_beginning(index, size) for index, size in zip(indices, x.shape, strict=False)
    ]
    at, _ = _dims(indices)
    if at[-1] - at[0] < len(at):
        return _of_counted(_ATEN.index_put.default)(x, counted, values, accumulate)
    order = [*at, *(dim for dim in range(x.dim()) if dim not in at)]  # IREE takes no indices that are apart
    given = [index for index in counted if index is not None]
    put = _of_counted(_ATEN.index_put.default)(x.permute(order), given, values, accumulate)
    return put.permute([order.index(dim) for dim in range(x.dim())])


_counted = ContextVar("_counted", default=False)
"""Whether indices of writes are non-negative already."""


def _of_counted(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an operator, or a decomposition, without negative indices."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before = _counted.set(True)
        try:
            return operator(*args, **kwargs)
        finally:
            _counted.reset(before)

    return run


def _dims(indices: Sequence[torch.Tensor | None]) -> tuple[list[int], int]:
    """Returns the dimensions that are indexed, and the number of other dimensions in front of the result's.

    None do where indices are apart.
    """
    at = [dim for dim, index in enumerate(indices) if index is not None]
    return at, at[0] if at == list(range(at[0], at[-1] + 1)) else 0


def _from_beginning(index: torch.Tensor, size: int | torch.SymInt) -> torch.Tensor:
    """Returns an index, which may be negative to count from the end, as a non-negative one."""
    return torch.where(index < 0, index + size, index).long()


def _gelu(x: torch.Tensor, approximate: str = "none") -> Any:
    """Returns GELU by tanh of (x + 0.044715 x³) √(2/π), in f32 as in PyTorch. IREE's importer takes 0.797724 for
    √(2/π)."""
    wide = x if x.dtype == torch.float64 else x.float()
    if approximate != "tanh":
        return NotImplemented if wide is x else _ATEN.gelu.default(wide).to(x.dtype)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)


_ROUNDED_ONCE = (
    _ATEN.native_layer_norm.default, _ATEN.native_group_norm.default, _ATEN.sigmoid.default, _ATEN.elu.default,
    _ATEN._softmax.default, _ATEN._log_softmax.default, _ATEN.sum.default, _ATEN.sum.dim_IntList, _ATEN.mean.default,
    _ATEN.mean.dim, _ATEN.linalg_vector_norm.default, _ATEN.cumsum.default, _ATEN.avg_pool1d.default,
    _ATEN.avg_pool2d.default, _ATEN.avg_pool3d.default,
)  # fmt: skip
"""Operators that PyTorch computes in f32 for 16-bit floats; IREE's importer rounds each step and each sum."""


def _in_f32(operator: Any, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
    """Computes an operator of 16-bit floats in f32, and rounds once; `otherwise` is for other types."""

    def wide(x: torch.Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> Any:
        if x.dtype not in _SHORT:
            given = options if dtype is None else options | {"dtype": dtype}
            return otherwise(x, *others, **given) if otherwise is not None else NotImplemented
        arguments = (each.float() if isinstance(each, torch.Tensor) else each for each in (x, *others))
        found = operator(*arguments, **options)
        return (found[0].to(x.dtype), *found[1:]) if isinstance(found, tuple) else found.to(dtype or x.dtype)

    return wide


_SIGNED = (
    _ATEN.sort.default, _ATEN.sort.stable, _ATEN.topk.default, _ATEN.sum.default, _ATEN.sum.dim_IntList,
    _ATEN.cumsum.default, _ATEN.prod.default, _ATEN.prod.dim_int, _ATEN.div.Tensor_mode, _ATEN.eq.Scalar,
    _ATEN.ne.Scalar, _ATEN.gt.Scalar, _ATEN.ge.Scalar, _ATEN.lt.Scalar, _ATEN.le.Scalar,
)  # fmt: skip
"""Operators that IREE's importer computes of uint8 as if it were signed, or not at all."""


def _widened(operator: Any, otherwise: Callable[..., Any] | None) -> Callable[..., Any]:
    """Computes an operator of uint8 in int32; `otherwise` is for other types."""

    def wide(x: torch.Tensor, *others: Any, **options: Any) -> Any:
        if any(each.dtype != torch.uint8 for each in (x, *others) if isinstance(each, torch.Tensor)):
            return otherwise(x, *others, **options) if otherwise is not None else NotImplemented
        found = operator(*(each.int() if isinstance(each, torch.Tensor) else each for each in (x, *others)), **options)
        if isinstance(found, tuple):
            return (found[0].to(x.dtype), *found[1:])
        return found.to(x.dtype) if found.dtype == torch.int32 else found

    return wide


_SATURATED = {
    kind: torch.finfo(kind).max
    for kind in (torch.float8_e4m3fn, torch.float8_e5m2)
    if torch.tensor(math.inf).to(kind).float().isfinite()
}
"""The types for which PyTorch has their largest number in place of larger ones, which differs by its version."""


def _cast(x: torch.Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    """Limits what becomes a float of 8 bits to its numbers, where PyTorch does."""
    limit = _SATURATED.get(dtype) if dtype is not None and x.is_floating_point() else None
    if limit is None or x.dtype in _SATURATED or x.itemsize == 1:
        return NotImplemented
    x = torch.where(x > limit, limit, x).to(x.dtype)  # not clamp, which IREE makes a number of NaN
    return torch.ops.prims.convert_element_type.default(torch.where(x < -limit, -limit, x).to(x.dtype), dtype)


def promote_bytes(graph: torch.fx.Graph) -> None:
    """Converts operands of uint8 to the type of a result of a wider one: IREE's importer takes them as signed there."""
    for node in list(graph.nodes):
        tags = getattr(node.target, "tags", ())
        if node.op != "call_function" or (torch.Tag.pointwise not in tags and node.target != _ATEN.cat.default):
            continue
        kinds = {
            each: each.meta["val"].dtype for each in node.all_input_nodes if isinstance(each.meta["val"], torch.Tensor)
        }
        kind = node.meta["val"].dtype
        wide = functools.reduce(torch.promote_types, kinds.values(), kind) if kind == torch.bool else kind
        for operand in (each for each, its in kinds.items() if its == torch.uint8 != wide):
            with graph.inserting_before(node):
                copy = graph.call_function(_ATEN._to_copy.default, (operand,), {"dtype": wide})
            copy.meta |= {"val": operand.meta["val"].to(wide)}
            node.replace_input_with(operand, copy)


def _addmm(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """Adds a product and a bias of 16-bit floats, rounded once. IREE's importer rounds the product too.

    The product is written as one of f32: IREE takes casts of its factors into the matmul, which stays one of 16 bits.
    """
    if rows.dtype not in _SHORT:
        return NotImplemented
    product = _ATEN.mm.default(rows.float(), columns.float())
    if alpha != 1:
        product = product * alpha
    if beta:  # else the bias is not looked at: it may be NaN
        product = product + (x.float() if beta == 1 else x.float() * beta)
    return product.to(rows.dtype)


def _with_numbers(operator: Any, otherwise: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Applies an operator to 16-bit floats and a Python number, which IREE's importer rounds but PyTorch does not."""

    def wide(x: torch.Tensor, y: Any, **options: Any) -> Any:
        short = _SHORT.get(x.dtype) if isinstance(x, torch.Tensor) else None
        numbers = [each for each in (y, *options.values()) if isinstance(each, float)]
        if short is None or all(float(short(each)) == each for each in numbers):
            return otherwise(x, y, **options) if otherwise is not None else NotImplemented
        if isinstance(y, torch.Tensor):
            return operator(x.float(), y.float(), **options).to(torch.promote_types(x.dtype, y.dtype))
        return operator(x.float(), y, **options).to(x.dtype)

    return wide


def _marked(x: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> Any:
    """Compares positions with indices, in rows of a few numbers, instead of scattering a number.

    IREE compiles no top-k of a dynamic size whose result a scatter reads, which is how routers mark groups of experts.
    """
    dim, size = dim % x.dim(), x.shape[dim]
    others = [known for at, known in enumerate(zip(x.shape, index.shape, strict=True)) if at != dim]
    if type(size) is not int or size > _FEW or not all(statically_known_true(one == other) for one, other in others):
        return NotImplemented
    places = torch.arange(size).reshape(-1, *[1] * (x.dim() - dim))
    return torch.where((index.unsqueeze(dim) == places).any(dim + 1), value, x).to(x.dtype)


def _empty(size: Sequence[Any], _: Sequence[int], **options: Any) -> torch.Tensor:
    """Drops strides, which mean nothing to IREE."""
    return torch.empty(size, dtype=options.get("dtype"))


def _copied(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Returns a value of its own: torch takes none that is an argument, or that two buffers get."""
    return source.to(x.dtype).expand_as(x).clone()


def table() -> dict[Any, Callable[..., Any]]:
    """Returns decompositions by operator: PyTorch's own, and ours."""
    ours: dict[Any, Callable[..., Any]] = {
        _ATEN.squeeze.dims: _squeezed,
        _ATEN.topk.default: _sorted_topk,
        _ATEN.sort.stable: _stable,
        _ATEN.addmm.default: _addmm,
        _ATEN.mul.Tensor: _with_numbers(_ATEN.mul.Tensor, _product),
        _ATEN.histc.default: _histogram,
        _ATEN._grouped_mm.default: _grouped_mm,
        _ATEN.empty_permuted.default: _empty,
        attention.OPERATOR: attention.kept,
        _ATEN.gelu.default: _gelu,
        _ATEN.roll.default: _rolled,
        _ATEN.index.Tensor: _indexed,
        _ATEN.index_put.default: _put,
        _ATEN.scatter.value: _marked,
        _ATEN.copy.default: _copied,
        _ATEN._to_copy.default: _cast,
    }
    ours |= {each: _with_numbers(each) for each in (_ATEN.add.Tensor, _ATEN.sub.Tensor, _ATEN.div.Tensor)}
    pytorch = torch.export.default_decompositions()
    ours |= {operator: _in_f32(operator, pytorch.get(operator)) for operator in _ROUNDED_ONCE}
    ours |= {operator: _widened(operator, ours.get(operator, pytorch.get(operator))) for operator in _SIGNED}
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        ours[torch.ops.transformers.grouped_mm_fallback.default] = _grouped_mm
    found = {**pytorch, **ours}
    return found | {op: _of_counted(found[op]) for op in (_ATEN.index_copy.default,) if op in found}
