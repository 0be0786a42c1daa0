"""Finds how the keys and values of an attention are stored: perhaps as narrow elements with scales, or in pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.formats import MX_BLOCK, element_format
from mxcomp.matching import caches, gathers
from mxcomp.matching.attention_operands import NotCoveredError, find_parts, find_stored, integers
from mxcomp.matching.elements import ZERO, Element, Index
from mxcomp.matching.expressions import moved
from mxcomp.matching.softmax import Form
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.ukernels import attention
from mxcomp.ukernels.attention_decode_parameters import MOST_ROWS
from mxcomp.ukernels.attention_memory import Paged, Stored


@dataclass(frozen=True)
class Cached:
    """Keys or values: `number` times what is stored, which may be bytes with scales, in pages of a table, or in two
    tensors, of which `rest` has the ends of rows."""

    value: ir.Value
    stored: Stored
    table: tuple[ir.Value, Paged] | None = None
    scales: tuple[ir.Value, ...] = ()
    number: float = 1.0
    rest: tuple[ir.Value, ...] = ()


def kept_otherwise(cached: Sequence[ir.Value]) -> str:
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


def both(form: Form, is_decode: bool) -> tuple[Cached, Cached]:
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


def _cached(place: Element, axes: Mapping[str, int | None], whole: str, is_narrow: bool, is_paged: bool) -> Cached:
    found = caches.find(place, whole) if is_narrow else None
    locate = _in_pages if is_paged else _stored_whole
    if found is None or not 0 < abs(found.number) < math.inf:
        parts = find_parts(place, axes, whole) if is_narrow and whole == "d" else None
        if parts is None:
            return Cached(*locate(place, axes, whole))
        (value, stored), (rest, of_rest) = parts
        return Cached(value, replace(stored, rest=of_rest), rest=(rest,))
    size = axes[whole] or 0
    row = {**axes, whole: size * element_format(found.format).bits // 8}
    value, stored, table = locate(found.elements, row, whole)
    scales = [locate(each, {**axes, whole: size // MX_BLOCK}, whole) for each in found.scales]
    if any(of_scales != table for *_, of_scales in scales):
        raise NotCoveredError("scales in other pages")
    of_scales = next((replace(each, element="i8") for _, each, _ in scales), None)
    stored = replace(stored, element="i8", format=found.format, scales=of_scales)
    return Cached(value, stored, table, tuple(each for each, *_ in scales), found.number)


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
    size, ids = key.extent or 0, integers(Element(gather.ids, of_table))
    is_whole = axes["l"] == size * (page.extent or 0) and key.stride == 1 and page.stride == size
    if ids is None or not is_whole or size % attention.COLUMNS:
        return _stored_whole(place, axes, whole)
    pages = build.static_sizes(gather.source)[0] or 0
    source = Element(gather.source, (Index("p", 1, pages), *inner))
    return *find_stored(source, {**axes, "l": size}, whole), (gather.ids, Paged(ids, size, pages if wraps else 0))
