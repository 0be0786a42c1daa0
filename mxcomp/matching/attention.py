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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.formats import MX_BLOCK, element_format
from mxcomp.matching import caches, gathers, positions, softmax
from mxcomp.matching.attention_operands import NotCoveredError, as_stored, find_parts, find_stored
from mxcomp.matching.elements import ZERO, Element, Index
from mxcomp.matching.expressions import moved
from mxcomp.matching.positions import Guard, Seen
from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes
from mxcomp.matching.softmax import Form, Hidden
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir import scalars as s
from mxcomp.target import Target
from mxcomp.ukernels import attention
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_decode_parameters import MOST_NARROW_WAVES, MOST_ROWS, MOST_SPLITS, MOST_WAVES
from mxcomp.ukernels.attention_memory import Bound, Paged, Reach, Stored, Subscript
from mxcomp.ukernels.attention_prefill import Prefill
from mxcomp.ukernels.builder import MOST_BYTES, MOST_ELEMENTS

ATTENTION = "iree_linalg_ext.attention"
NAMES = (ATTENTION, softmax.PRODUCT)
"""The names of operations that may be an attention."""

LOWEST = -2.3e38
"""A number that hides a score it is added to, and is finite times log2(e)."""
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
        return axes, replace(found, note=_kept_otherwise(found.operands[1:3]))
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
    return found if found.hidden is None else replace(found, mask=_as_added(op, found.hidden))


def _as_added(op: ir.Operation, hidden: Hidden) -> Element:
    """Builds, in front of the attention, what hides as much if it is added to scores."""
    lowest = LOWEST if math.isfinite(hidden.number) else hidden.number
    yes, no = (lowest, 0.0) if hidden.truth else (0.0, lowest)
    return _made_of(op, hidden.values, lambda truth: s.select(truth, yes, no))


def _deepened(op: ir.Operation, mask: Element) -> Element:
    """Builds, in front of an attention whose sums PyTorch rounds to f16, a mask in which low numbers hide all there is.

    What is left of a score then is less than 32.
    """

    def number(value: ir.Value) -> ir.Value:
        wide = s.widened(value)
        low, infinite = (s.constant(each, wide.type) for each in (softmax.LOW, -math.inf))
        is_low = arith.CmpFOp(arith.CmpFPredicate.OLE, wide, low).result
        is_finite = arith.CmpFOp(arith.CmpFPredicate.OGT, wide, infinite).result
        return s.select(s.both(is_low, is_finite), LOWEST, wide)

    return _made_of(op, mask, number)


def _made_of(op: ir.Operation, mask: Element, number: Callable[[ir.Value], ir.Value]) -> Element:
    """Builds, in front of the attention, numbers of f32 from those of a mask."""
    with ir.InsertionPoint(op), op.location:
        kind = build.tensor_type(build.static_sizes(mask.value), "f32")
        return Element(build.elementwise(kind, [mask.value], number), mask.indices)


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
    key, value = _both_cached(form, is_decode)
    ids, pages = ((), None) if key.table is None else ((key.table[0],), key.table[1])
    mask = _masked(form) if form.mask is not None else _Mask()
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
    tables = () if pages is None else (pages.table,)
    shared_by = (
        *(each for each in (key.stored, key.stored.rest, value.stored) if each),
        *tables,
        *(() if mask.reach is None else mask.reach.positions),
    )
    strides = [each.stride for stored in shared_by for each in stored.subscripts if each.axis == "n"]
    shared = math.gcd(heads, *strides)
    group = max(g for g in range(1, shared + 1) if shared % g == 0 and g * queries <= MOST_ROWS)
    is_alone = (
        _is_alone(heads // group, (key.stored, value.stored), keys, target.cus)
        and group * queries * value_size <= _MOST_SUMS
    )
    result = str(build.element(form.result)) if is_alone else ""
    most_splits = MOST_WAVES if result else MOST_SPLITS
    if result and key.stored.format and value.stored.format and group * queries * value_size <= _MOST_SUMS // 2:
        most_splits = MOST_NARROW_WAVES
    splits = _splits(heads // group, keys, most_splits, _SPLITS * target.cus)
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


@dataclass(frozen=True)
class _Mask:
    """The keys that queries see, in the kernel's form, its operands, and the operations that become redundant."""

    operands: tuple[ir.Value, ...] = ()
    stored: Stored | None = None
    positions: tuple[ir.Value, ...] = ()
    reach: Reach | None = None
    guard: Guard | None = None


def _masked(form: Form) -> _Mask:
    assert form.mask is not None
    hides = softmax.LOW if form.adds_in_f16 else positions.HIDES
    seen = positions.seen(form.mask.value, form.mask.indices, hides)
    if seen is not None:
        result = [Index(axis, 1, form.axes[axis]) for axis in "ntv"]
        of_keys = [index.axis == "l" for index in form.key.indices]
        keys = Sizes().of(form.key.value, of_keys.index(True)) if True in of_keys else Size()
        guard = positions.guard(form.result, result, seen, keys)
        if (mask := _by_position(form, seen, guard)) is not None:
            return mask
    value, stored = find_stored(_deepened(form.op, form.mask) if form.adds_in_f16 else form.mask, form.axes, whole="")
    return _Mask((value,), stored)


def _by_position(form: Form, seen: Seen, guard: Guard | None) -> _Mask | None:
    """Returns the mask by positions, or None where the kernel needs it as it is."""
    zeroes = form.sink is not None or (guard is not None and guard.zeroes)
    blind_sees_all = seen.hides_finitely and not zeroes
    elements = list(dict.fromkeys(each.position for each in (*seen.ends, *seen.starts) if each.position is not None))
    integers = [_integers(each) for each in elements]
    if any(each is None for each in integers):
        return None
    ends, starts = (
        tuple(
            Bound(each.number, each.of_query, None if each.position is None else elements.index(each.position))
            for each in bounds
        )
        for bounds in (seen.ends, seen.starts)
    )
    reach = Reach(ends, starts, tuple(each for each in integers if each), blind_sees_all)
    mask = _Mask((), None, tuple(each.value for each in elements), reach if ends or starts else None, guard)
    if seen.among is None:
        return mask
    stored = None if blind_sees_all else as_stored(seen.among, form.axes, "", ("l",))
    return None if stored is None else replace(mask, operands=(seen.among.value,), stored=stored)


def _sink(form: Form) -> tuple[()] | tuple[ir.Value, Stored]:
    if form.sink is None:
        return ()
    if any(index.axis not in ("", "n") for index in form.sink.indices):
        raise NotCoveredError("a sink of each query: expected one of each head")
    return find_stored(form.sink, form.axes, whole="")


def _integers(position: Element) -> Stored | None:
    """Returns how integers lie in memory; None for those that are not all read."""
    kept = [
        (size, Subscript(index.axis, index.stride, index.extent))
        for size, index in zip(build.static_sizes(position.value), position.indices, strict=True)
        if size != 1
    ]
    if any(size is None or each.extent != size for size, each in kept):
        return None
    sizes, subscripts = zip(*(kept or [(1, Subscript("", 1, 1))]), strict=True)
    return Stored(str(build.element(position.value)), sizes, subscripts)


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


@dataclass(frozen=True)
class _Cached:
    """Keys or values: `number` times what is stored, which may be bytes with scales, in pages of a table, or in two
    tensors, of which `rest` has the ends of rows."""

    value: ir.Value
    stored: Stored
    table: tuple[ir.Value, Paged] | None = None
    scales: tuple[ir.Value, ...] = ()
    number: float = 1.0
    rest: tuple[ir.Value, ...] = ()


def _kept_otherwise(cached: Sequence[ir.Value]) -> str:
    """Returns what another dispatch does to keys or values in pages or of a narrow type, and which ones need none."""
    few = f"in memory: expected at most {MOST_ROWS} queries, and"
    for value in map(graph.look_through_views, cached):
        while (op := graph.producer(value)) is not None and linalg_ops.is_elementwise(op):
            if gathers.find(value) is not None:
                return f"keys or values are gathered {few} pages of a multiple of {attention.COLUMNS} keys by one table"
            given = [each for each in linalg_ops.inputs(op) if str(build.element(each)) != "i1"]
            if any(build.is_narrow(build.element(each)) for each in given):
                return f"keys or values are converted {few} fp8, MXFP8 or MXFP4 in blocks along a head"
            value = graph.look_through_views(given[0]) if given else op.operands[-1]
    return ""


def _both_cached(form: Form, is_decode: bool) -> tuple[_Cached, _Cached]:
    """Returns keys and values as they are stored: for few queries also in a narrow format, and in pages of a table."""
    ways = ((True, True), (True, False), (False, False)) if is_decode else ((False, False),)
    for is_narrow, is_paged in ways:
        try:
            key, value = (
                _cached(place, form.axes, whole, is_narrow, is_paged)
                for place, whole in ((form.key, "d"), (form.value, "v"))
            )
            if key.table == value.table:
                return key, value
        except NotCoveredError:
            if not is_narrow:
                raise
    raise AssertionError


def _cached(place: Element, axes: Mapping[str, int | None], whole: str, is_narrow: bool, is_paged: bool) -> _Cached:
    found = caches.find(place, whole) if is_narrow else None
    locate = _in_pages if is_paged else _stored_whole
    if found is None or not 0 < abs(found.number) < math.inf:
        parts = find_parts(place, axes, whole) if is_narrow and whole == "d" else None
        if parts is None:
            return _Cached(*locate(place, axes, whole))
        (value, stored), (rest, of_rest) = parts
        return _Cached(value, replace(stored, rest=of_rest), rest=(rest,))
    size = axes[whole] or 0
    row = {**axes, whole: size * element_format(found.format).bits // 8}
    value, stored, table = locate(found.elements, row, whole)
    scales = [locate(each, {**axes, whole: size // MX_BLOCK}, whole) for each in found.scales]
    if any(of_scales != table for *_, of_scales in scales):
        raise NotCoveredError("scales in other pages")
    of_scales = next((replace(each, element="i8") for _, each, _ in scales), None)
    stored = replace(stored, element="i8", format=found.format, scales=of_scales)
    return _Cached(value, stored, table, tuple(each for each, *_ in scales), found.number)


_Located: TypeAlias = tuple[ir.Value, Stored, tuple[ir.Value, Paged] | None]


def _stored_whole(place: Element, axes: Mapping[str, int | None], whole: str) -> _Located:
    return *find_stored(place, axes, whole), None


def _in_pages(place: Element, axes: Mapping[str, int | None], whole: str) -> _Located:
    """Returns what stores an operand in front of a gather of pages, if there is one, and their table."""
    *_, found = moved(place)
    gather, indices = gathers.find(found.value), found.indices
    if gather is None or not gather.is_plain(found.value) or (wraps := gathers.is_wrapped(gather)) is None:
        return _stored_whole(place, axes, whole)
    of_table, inner = indices[: gather.leading], indices[gather.leading :]
    page, key = (next((each for each in some if each.axis == "l"), ZERO) for some in (of_table, inner))
    size, ids = key.extent or 0, _integers(Element(gather.ids, of_table))
    is_whole = axes["l"] == size * (page.extent or 0) and key.stride == 1 and page.stride == size
    if ids is None or not is_whole or size % attention.COLUMNS:
        return _stored_whole(place, axes, whole)
    pages = build.static_sizes(gather.source)[0] or 0
    source = Element(gather.source, (Index("p", 1, pages), *inner))
    return *find_stored(source, {**axes, "l": size}, whole), (gather.ids, Paged(ids, size, pages if wraps else 0))
