"""Decides which attention has a kernel of ours, and finds its stored operands behind views, transposes and broadcasts.

Heads of keys that several heads of queries share arrive as a broadcast:

    %1 = linalg.generic … ins(%keys : tensor<1x8x1024x128xbf16>) → tensor<1x8x4x1024x128xbf16>
    %2 = tensor.collapse_shape %1 → tensor<32x1024x128xbf16>
    iree_linalg_ext.attention … ins(%queries, %2, …)

An element of %2 is traced to the tensor that stores it. Its subscripts there tell which heads share it, so none of this
is ever computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iree.compiler import ir

from mxcomp.matching import attention_cached, attention_masks, softmax
from mxcomp.matching.attention_operands import NotCoveredError, find_stored
from mxcomp.matching.elements import Element, Index
from mxcomp.matching.positions import Guard
from mxcomp.matching.softmax import Form
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.target import Target
from mxcomp.ukernels import attention
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_decode_parameters import MOST_NARROW_WAVES, MOST_ROWS, MOST_SPLITS, MOST_WAVES
from mxcomp.ukernels.attention_memory import Stored
from mxcomp.ukernels.attention_prefill import Prefill
from mxcomp.ukernels.builder import MOST_BYTES, MOST_ELEMENTS

ATTENTION = "iree_linalg_ext.attention"
NAMES = (ATTENTION, softmax.PRODUCT)
"""The names of operations that may be an attention."""

_TYPES, _ELEMENT_BYTES = ("bf16", "f16"), 2
_MASKS = (*_TYPES, "f32", "i1")
_MOST_SIZE, _FRAGMENT = 256, 16
_WAVES = 8, 4, 2
"""The numbers of waves of a workgroup of many queries."""
_FEW = 32
"""The number of queries for each wave of a workgroup, and each compute unit, from which on all of these have one."""
_SPLITS = 4
"""The number of workgroups of a compute unit that saturate memory, with several KB in flight each."""
_ALONE = ((3 / 4, math.inf), (1 / 2, 2**19), (1 / 128, 2**16))
"""The numbers of heads of keys for each compute unit from which on a workgroup has all of one, if these are not more
bytes: half of them ask for somewhat less than memory gives, and a few bytes take less time than combining parts."""
_MOST_SUMS = 2**12
"""The most elements of the results of such a workgroup, of which LDS has each wave's part."""
_FORM = ("ntd", "nld", "nlv")
"""The axes of queries, keys and values."""


@dataclass(frozen=True)
class Few:
    """The kernel for fewer than so many queries, of all heads, where the program knows how many there are."""

    below: int
    kernel: Prefill


@dataclass(frozen=True)
class Attention:
    """An attention, and its kernel."""

    result: ir.Value
    kernel: Decode | Prefill
    operands: tuple[ir.Value, ...]
    """The stored tensors, with dimensions of size 1: those of the kernel's inputs.

    A mask may be of truth values, which the kernel takes as f32 that are added.
    """
    guard: Guard | None = None
    """The operations that make results of queries that see no key 0, as the kernel does."""
    hides_finitely: bool = False
    """Whether the keys of a query count alike if all have a finite number added, which may be the lowest one."""
    few: Few | None = None
    note: str = ""
    """The work of another dispatch on keys or values first, and which ones need none."""


def find(op: ir.Operation, target: Target) -> tuple[Mapping[str, int | None], Attention | str] | None:
    """Returns the sizes of an attention by their axes, and its kernel, or why it has none. None: it is no attention."""
    axes = _axes(op)
    try:
        form = _whole(op, axes) if op.name == ATTENTION else _spelled(op)
        if form is None:
            return None
        axes = form.axes
        found = _kernel(form, target)
        return axes, replace(found, note=attention_cached.kept_otherwise(found.operands[1:3]))
    except NotCoveredError as reason:
        return axes, str(reason)


def _axes(op: ir.Operation) -> Mapping[str, int | None]:
    """Returns the sizes of IREE's operation, as far as it is of the usual form, or of a product's result."""
    if op.name == softmax.PRODUCT:
        return dict(zip("ntv", build.static_sizes(op.results[0]), strict=True))
    sizes = [build.static_sizes(op.operands[i]) for i in range(3)]
    return {axis: size for each, form in zip(sizes, _FORM, strict=True) for axis, size in zip(form, each, strict=False)}


def _spelled(op: ir.Operation) -> Form | None:
    found = softmax.find(op)
    if found is None:
        if softmax.resembles(op):
            raise NotCoveredError("spelled in a form that is not recognised")
        return None
    return found if found.hidden is None else replace(found, mask=attention_masks.as_added(op, found.hidden))


def _whole(op: ir.Operation, axes: Mapping[str, int | None]) -> Form:
    """Returns the attention of IREE's operation. Raises NotCoveredError if it is of an unsupported form."""
    masked = _check(op)

    def access(number: int, names: Sequence[str]) -> Element:
        return Element(op.operands[number], tuple(Index(each, 1, axes[each]) for each in names))

    query, key, value = (access(i, each) for i, each in enumerate(_FORM))
    return Form(op, op.results[0], query, key, value, _scale(op), mask=access(4, "ntl") if masked else None)


def _kernel(form: Form, target: Target) -> Attention:
    heads, queries, keys, size, value_size = (form.axes[each] for each in "ntldv")
    _check_types(form)
    assert size is not None and value_size is not None
    is_decode = heads is not None and queries is not None and queries <= MOST_ROWS
    is_far = not is_decode and heads is not None and queries is not None
    query = find_stored(form.query, form.axes, "d", _ELEMENT_BYTES * MOST_ELEMENTS if is_far else MOST_BYTES)
    key, value = attention_cached.both(form, is_decode)
    ids, pages = ((), None) if key.table is None else ((key.table[0],), key.table[1])
    mask = attention_masks.of(form)
    sink = _sink(form)
    cached = key.value, value.value, *key.rest, *key.scales, *value.scales, *ids
    operands = (query[0], *cached, *mask.operands, *sink[:1], *mask.positions)
    stored = query[1], key.stored, value.stored, mask.stored, mask.reach
    scale, is_spelled = form.scale * key.number * math.log2(math.e), form.op.name != ATTENTION
    cap, of_sink = None if form.cap is None else form.cap * math.log2(math.e), sink[1] if sink else None
    spec = size, value_size, keys, scale, *stored, cap, of_sink
    known = math.prod(each or 2 for each in (heads, queries))
    if known < 2:
        raise NotCoveredError("a single query: expected two or more, of all heads")
    if heads is None or queries is None or not is_decode:
        is_dynamic, result = heads is None or queries is None, str(build.element(form.result))
        each_wave = int(_FEW * target.cus)
        prefill = Prefill(heads, queries, *spec, result, waves=_WAVES[0], xcds=target.xcds, room=target.lds_bytes)
        most = _WAVES if prefill.has_room else _WAVES[1:]
        waves = next((each for each in most if is_dynamic or known >= each * each_wave), most[-1])
        prefill = replace(prefill, waves=waves)
        _check_dynamic(prefill)
        if any(each.bytes > MOST_ELEMENTS * each.element_bytes for each in prefill.outputs):
            raise NotCoveredError(f"a result of more than {MOST_ELEMENTS} elements")
        few = Few(waves * each_wave, _split(replace(prefill, waves=most[-1]))) if is_dynamic else None
        if waves == most[-1]:
            prefill = _split(prefill)
        return Attention(form.result, prefill, operands, mask.guard, is_spelled, few)
    tables = [] if pages is None else [pages.table]
    positions = [] if mask.reach is None else mask.reach.positions
    shared_by = [*(each for each in (key.stored, key.stored.rest, value.stored) if each), *tables, *positions]
    strides = [each.stride for stored in shared_by for each in stored.subscripts if each.axis == "n"]
    shared = math.gcd(heads, *strides)
    group = max(g for g in range(1, shared + 1) if shared % g == 0 and g * queries <= MOST_ROWS)
    groups, sums = heads // group, group * queries * value_size
    is_alone = _is_alone(groups, (key.stored, value.stored), keys, target.cus) and sums <= _MOST_SUMS
    result = str(build.element(form.result)) if is_alone else ""
    is_narrow = key.stored.format and value.stored.format and sums <= _MOST_SUMS // 2
    most_splits = MOST_SPLITS if not is_alone else MOST_NARROW_WAVES if is_narrow else MOST_WAVES
    splits = _splits(groups, keys, most_splits, _SPLITS * target.cus)
    decode = Decode(heads, queries, *spec, result, pages=pages, group=group, splits=splits, value_scale=value.number)
    return Attention(form.result, decode, operands, mask.guard, is_spelled)


def _split(kernel: Prefill) -> Prefill:
    """Returns the kernel of as many queries with twice as many waves, of which two share the keys, if there is one."""
    shared = replace(kernel, waves=2 * kernel.waves, splits=2)
    return shared if kernel.may_split and shared.has_room else kernel


def _check_dynamic(kernel: Prefill) -> None:
    """Raises NotCoveredError unless a dynamic batch or number of queries is one dimension, alike of all operands.

    Of two dynamic sizes IREE does not know that a buffer has room for their product: so only masks have them.
    """
    for axis in kernel.dynamic:
        first, *others = (
            {each.stride for each in stored.subscripts if each.axis == axis and each.extent is None}
            for stored in kernel.operands
        )
        if len(first) != 1 or any(not each <= first for each in others):
            raise NotCoveredError("its batch or its number of queries is dynamic, and not one dimension")
    for stored in kernel.operands:
        axes = [each.axis for each, size in zip(stored.subscripts, stored.sizes, strict=True) if size is None]
        if len(axes) > 1 and "n" in axes and (axes[0] != "n" or stored.sizes[0] is not None):
            raise NotCoveredError("its batch, and its queries or keys, are dynamic: expected the batch outermost")


def _sink(form: Form) -> tuple[()] | tuple[ir.Value, Stored]:
    if form.sink is None:
        return ()
    if any(index.axis not in ("", "n") for index in form.sink.indices):
        raise NotCoveredError("a sink of each query: expected one of each head")
    return find_stored(form.sink, form.axes, whole="")


def _is_alone(heads: int, cached: Sequence[Stored], keys: int | None, cus: int) -> bool:
    """Returns whether a workgroup has all of a head of keys."""
    rests = (keys * each.rest.row_size * each.rest.element_bytes for each in cached if each.rest and keys)
    bytes_ = math.inf if keys is None else sum(each.read_bytes for each in cached) // heads + sum(rests)
    return any(heads >= least * cus and bytes_ <= most for least, most in _ALONE)


def _splits(heads: int, keys: int | None, most: int, workgroups: int) -> int:
    """Returns the number of parts of the keys: enough to occupy all compute units, each of a least number of keys."""
    wanted = min(most, -(-workgroups // heads))
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
    queries, keys, values = map(linalg_ops.loops, maps[:3])
    if any(len(each) != 3 for each in (queries, keys, values)):
        raise NotCoveredError("several dimensions of a batch: expected one")
    (n, t, d), (_, key, _), (*_, v) = queries, keys, values
    expected = [[n, t, d], [n, key, d], [n, key, v], [], *([[n, t, key]] if masked else []), [n, t, v]]
    if [*map(linalg_ops.loops, maps)] != expected:
        raise NotCoveredError("operands in another order of dimensions")
    return masked


def _check_types(form: Form) -> None:
    """Raises NotCoveredError for types and sizes of elements that no kernel has."""
    kinds = [str(build.element(each.value)) for each in (form.query, form.key, form.value)]
    if len(set(kinds)) != 1 or kinds[0] not in _TYPES:
        raise NotCoveredError(f"of {', '.join(dict.fromkeys(kinds))}: expected {' or '.join(_TYPES)}")
    if form.mask is not None and (kind := str(build.element(form.mask.value))) not in _MASKS:
        raise NotCoveredError(f"a mask of {kind}: expected one of {', '.join(_MASKS)}")
    if form.sink is not None and (kind := str(build.element(form.sink.value))) not in (*_TYPES, "f32"):
        raise NotCoveredError(f"a sink of {kind}: expected {', '.join(_TYPES)} or f32")
    result = str(build.element(form.result))
    if result not in (*_TYPES, "f32"):
        raise NotCoveredError(f"a result of {result}: expected {', '.join(_TYPES)} or f32")
    for name, axis in (("queries", "d"), ("values", "v")):
        size = form.axes[axis]
        if size is None or size % _FRAGMENT or size > _MOST_SIZE:
            raise NotCoveredError(f"{name} of size {size}: expected a multiple of {_FRAGMENT}, at most {_MOST_SIZE}")


def _scale(op: ir.Operation) -> float:
    if (scale := graph.real(op.operands[3])) is None:
        raise NotCoveredError("a scale that is computed: expected a constant")
    return scale
