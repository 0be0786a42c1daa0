"""Decides which attention has a kernel of ours, and finds its stored operands behind views, transposes and broadcasts.

Heads of keys that several heads of queries share arrive as a broadcast:

    %1 = linalg.generic … ins(%keys : tensor<1x8x1024x128xbf16>) → tensor<1x8x4x1024x128xbf16>
    %2 = tensor.collapse_shape %1 → tensor<32x1024x128xbf16>
    iree_linalg_ext.attention … ins(%queries, %2, …)

An element of %2 is followed back to the tensor that stores it; the subscripts of that say which heads share it, so
nothing of this is ever computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.matching import positions
from mxcomp.matching.conditions import Element
from mxcomp.matching.elements import Index, Leaf, Tracer
from mxcomp.matching.positions import Guard, Seen
from mxcomp.mlir import build, graph
from mxcomp.ukernels import attention, attention_decode
from mxcomp.ukernels.attention import Bound, Reach, Stored, Subscript
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_prefill import Prefill

ATTENTION = "iree_linalg_ext.attention"

_TYPES = ("bf16", "f16")
_MASKS = (*_TYPES, "f32", "i1")
_MOST_SIZE, _FRAGMENT = 256, 16
_TWO_FRAGMENTS = 256
"""The sizes of a key and a value up to which a wave has registers for 32 queries."""
_MANY = 512 * 128
"""The number of queries of all heads from which on there are enough workgroups with 128 queries each."""
_WAVES = 1024
"""The number of workgroups that saturate memory, with several KB in flight each."""
_FORM = (("n", "t", "d"), ("n", "l", "d"), ("n", "l", "v"))
"""The axes of queries, keys and values: "n", batch and head; "t", the query; "l", the key; and the elements of both."""


@dataclass(frozen=True)
class Attention:
    """An attention, and its kernel."""

    op: ir.Operation
    kernel: Decode | Prefill
    operands: tuple[ir.Value, ...]
    """Tensors as they are stored, with dimensions of size 1; of queries, keys, values, perhaps a mask, and positions.

    A mask may be of truth values, which the kernel takes as f32 that are added; positions are taken in halves.
    """
    guard: Guard | None = None
    """What makes results of queries that see no key 0, as the kernel does."""


class NotCoveredError(Exception):
    """An attention has no kernel of ours, for the reason in the message."""


def find(op: ir.Operation) -> Attention | str:
    """Returns the kernel of an `iree_linalg_ext.attention`, or why it has none."""
    try:
        return _find(op)
    except NotCoveredError as reason:
        return str(reason)


def sizes(op: ir.Operation) -> tuple[int | None, int | None, int | None, int | None, int | None]:
    """Returns heads in all batches, queries, keys, and the sizes of a key and a value; None where dynamic."""
    (heads, queries, size), (_, keys, _), (*_, value_size) = (build.static_sizes(op.operands[i]) for i in range(3))
    return heads, queries, keys, size, value_size


def _find(op: ir.Operation) -> Attention:
    masked = _check(op)
    heads, queries, keys, size, value_size = sizes(op)
    if heads is None or queries is None or size is None or value_size is None:
        raise NotCoveredError("its batch or its number of queries is dynamic")
    axes = {"n": heads, "t": queries, "l": keys, "d": size, "v": value_size}
    query, key, value = (
        _stored(op.operands[i], [(axis, axes[axis]) for axis in form], whole=form[-1]) for i, form in enumerate(_FORM)
    )
    mask = _masked(op, axes) if masked else _Mask()
    operands = (query[0], key[0], value[0], *mask.operands)
    stored = query[1], key[1], value[1], mask.stored, mask.reach
    scale = _scale(op) * math.log2(math.e)
    if heads * queries < 2:
        raise NotCoveredError("a single query: expected two or more, of all heads")
    if queries > attention_decode.MOST_ROWS:
        fragments = 2 if size + value_size <= _TWO_FRAGMENTS and heads * queries >= _MANY else 1
        result = str(build.element(op.results[0]))
        prefill = Prefill(heads, queries, size, value_size, keys, scale, *stored, fragments, result)
        if prefill.workgroups < 2:  # IREE drops a loop of one, and with it what names the kernel
            raise NotCoveredError(f"{queries} queries of a single head: expected more than {prefill.tile}")
        return Attention(op, prefill, operands, mask.guard)
    shared_by = key[1], value[1], *(() if mask.reach is None else mask.reach.positions)
    strides = [each.stride for stored in shared_by for each in stored.subscripts if each.axis == "n"]
    shared = math.gcd(heads, *strides)
    group = max(g for g in range(1, shared + 1) if shared % g == 0 and g * queries <= attention_decode.MOST_ROWS)
    splits = _splits(heads // group, keys)
    decode = Decode(heads, group, queries, size, value_size, keys, splits, scale, *stored)
    return Attention(op, decode, operands, mask.guard)


@dataclass(frozen=True)
class _Mask:
    """Which keys queries see: as a kernel takes it, its operands, and what is not needed then."""

    operands: tuple[ir.Value, ...] = ()
    stored: Stored | None = None
    reach: Reach | None = None
    guard: Guard | None = None


def _masked(op: ir.Operation, axes: Mapping[str, int | None]) -> _Mask:
    of = {axis: Index(axis, 1, size) for axis, size in axes.items()}
    seen = positions.seen(op.operands[4], [of[axis] for axis in "ntl"])
    if seen is not None:
        guard = positions.guard(op.results[0], [of[axis] for axis in "ntv"], seen)
        mask = _by_position(seen, guard, axes)
        if mask is not None:
            return mask
    value, stored = _stored(op.operands[4], [(axis, axes[axis]) for axis in "ntl"], whole="")
    return _Mask((value,), stored)


def _by_position(seen: Seen, guard: Guard | None, axes: Mapping[str, int | None]) -> _Mask | None:
    """None where no kernel can do without the mask as it is."""
    blind_sees_all = seen.hides_finitely and not (guard is not None and guard.zeroes)
    elements = list(dict.fromkeys(each.position for each in (*seen.ends, *seen.starts) if each.position is not None))
    halves = [_in_halves(each) for each in elements]
    if any(each is None for each in halves):
        return None
    ends, starts = (
        tuple(
            Bound(each.number, each.of_query, None if each.position is None else elements.index(each.position))
            for each in bounds
        )
        for bounds in (seen.ends, seen.starts)
    )
    reach = Reach(ends, starts, tuple(each for each in halves if each), blind_sees_all)
    values, stored = [each.value for each in elements], None
    if seen.among is not None:
        known = {axis: axes[axis] for axis in "ntl"}
        stored = None if blind_sees_all else _as_stored(seen.among.value, seen.among.indices, known, "")
        if stored is None:
            return None
        values = [seen.among.value, *values]
    return _Mask(tuple(values), stored, reach if ends or starts else None, guard)


def _in_halves(position: Element) -> Stored | None:
    """An integer as two of half its size: IREE would drop a loop over one, and with it what names the kernel."""
    half = ir.IntegerType(build.element(position.value)).width // 2
    kept = [
        (size, Subscript(index.axis, index.stride, index.extent))
        for size, index in zip(build.static_sizes(position.value), position.indices, strict=True)
        if size != 1
    ]
    if any(size is None or each.extent != size for size, each in kept):
        return None
    return Stored(f"i{half}", (*(size for size, _ in kept), 2), (*(each for _, each in kept), Subscript("", 1, 2)))


def _splits(heads: int, keys: int | None) -> int:
    """Returns the number of parts of the keys: enough to occupy all compute units, each of a least number of keys."""
    wanted = min(attention_decode.MOST_SPLITS, -(-_WAVES // heads))
    if keys is not None:
        wanted = min(wanted, -(-keys // attention.KEYS))
    return max(wanted, 2 if heads == 1 else 1)


def _check(op: ir.Operation) -> bool:
    """Returns whether it has a mask; raises NotCoveredError if it is of an unsupported form."""
    maps = [ir.AffineMapAttr(each).value for each in ir.ArrayAttr(op.attributes["indexing_maps"])]
    block = op.regions[0].blocks[0]
    masked = len(op.operands) == 6
    if len(op.results) != 1 or len(op.operands) not in (5, 6) or len(maps) != len(op.operands):
        raise NotCoveredError("another number of operands: expected queries, keys, values, a scale and perhaps a mask")
    end, *others = block.operations
    if others or list(end.operation.operands) != [block.arguments[0]]:
        raise NotCoveredError("scores are changed: expected them as they are")
    queries, keys, values = (_positions(each) for each in maps[:3])
    if any(len(each) != 3 for each in (queries, keys, values)):
        raise NotCoveredError("several dimensions of a batch: expected one")
    (n, t, d), (_, key, _), (*_, v) = queries, keys, values
    expected = [[n, t, d], [n, key, d], [n, key, v], [], *([[n, t, key]] if masked else []), [n, t, v]]
    if [_positions(each) for each in maps] != expected:
        raise NotCoveredError("operands in another order of dimensions")
    kinds = [str(build.element(op.operands[i])) for i in range(3)]
    if len(set(kinds)) != 1 or kinds[0] not in _TYPES:
        raise NotCoveredError(f"of {', '.join(dict.fromkeys(kinds))}: expected {' or '.join(_TYPES)}")
    if masked and (kind := str(build.element(op.operands[4]))) not in _MASKS:
        raise NotCoveredError(f"a mask of {kind}: expected one of {', '.join(_MASKS)}")
    result = str(build.element(op.results[0]))
    if result not in (*_TYPES, "f32"):
        raise NotCoveredError(f"a result of {result}: expected {', '.join(_TYPES)} or f32")
    for name, number in (("queries", 0), ("values", 2)):
        size = build.static_sizes(op.operands[number])[-1]
        if size is None or size % _FRAGMENT or size > _MOST_SIZE:
            raise NotCoveredError(f"{name} of size {size}: expected a multiple of {_FRAGMENT}, at most {_MOST_SIZE}")
    return masked


def _positions(affine_map: ir.AffineMap) -> list[int]:
    return [ir.AffineDimExpr(expr).position for expr in affine_map.results if isinstance(expr, ir.AffineDimExpr)]


def _scale(op: ir.Operation) -> float:
    scale = graph.producer(op.operands[3])
    if scale is None or scale.name != "arith.constant":
        raise NotCoveredError("a scale that is computed: expected a constant")
    return float(ir.FloatAttr(scale.attributes["value"]).value)


class _Moves(Tracer):
    """Follows elements through operations that only move them."""

    def _element(self, value: ir.Value, indices: tuple[Index, ...]) -> Leaf:
        found = super()._element(value, indices)
        return found if isinstance(found, Leaf) else Leaf(((value, indices),))


def _stored(operand: ir.Value, axes: Sequence[tuple[str, int | None]], whole: str) -> tuple[ir.Value, Stored]:
    """Returns the first tensor that stores an operand such that elements along the axis `whole` are contiguous."""
    found = _Moves().element(operand, tuple(Index(axis, 1, size) for axis, size in axes))
    assert isinstance(found, Leaf)
    for value, indices in reversed(found.accesses):
        if (stored := _as_stored(value, indices, dict(axes), whole)) is not None:
            return value, stored
    raise NotCoveredError(f"{'/'.join(axis for axis, _ in axes)} stored in another order")


def _as_stored(value: ir.Value, indices: Sequence[Index], axes: dict[str, int | None], whole: str) -> Stored | None:
    """Returns a tensor as an operand, if it has keys in one dimension, and elements along `whole` in the last one."""
    kept = [(size, index) for size, index in zip(build.static_sizes(value), indices, strict=True) if size != 1]
    element = str(build.element(value))
    found = Stored(
        "f32" if element == "i1" else element,
        tuple(size for size, _ in kept),
        tuple(Subscript(index.axis, index.stride, index.extent) for _, index in kept),
    )
    parts = list(zip(found.sizes, found.subscripts, strict=True))
    steps = {axis: [(each.stride, size) for size, each in parts if each.axis == axis] for axis in "ntldv"}
    is_last = not whole or [each.axis for each in found.subscripts[-1:]] == [whole]
    is_whole = is_last and (not whole or steps[whole] == [(1, axes[whole])])
    has_keys = steps["l"] == ([(1, axes["l"])] if "l" in axes else []) or not (whole or steps["l"])
    if not is_whole or not has_keys or any(size is None for axis in "ntdv" for _, size in steps[axis]):
        return None
    if found.bytes > attention.MOST_BYTES:
        raise NotCoveredError(f"an operand of more than {attention.MOST_BYTES} bytes")
    return found
