"""Finds keys and values that a model keeps in a narrow format, and converts as it reads them.

    %k = linalg.generic … ins(%cache : tensor<1x8x1024x128xf8E4M3FN>) { arith.extf } -> tensor<1x8x1024x128xbf16>

or, of codes and scales of blocks:

    %e = iree_tensor_ext.bitcast %codes : tensor<1x8x1024x64xi8> -> tensor<1x8x1024x4x32xf4E2M1FN>
    %k = linalg.generic … ins(%e, %scales) { arith.scaling_extf } -> tensor<1x8x1024x4x32xbf16>

An element is followed back to what is stored, which a kernel of few queries converts in registers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mxcomp.formats import E8M0, MX_BLOCK, element_format
from mxcomp.matching import softmax
from mxcomp.matching.elements import Element, Index, UntraceableError
from mxcomp.matching.softmax import Node
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph
from mxcomp.ukernels.conversions import EXTENSIONS

_FORMATS = {element for element, _ in EXTENSIONS}


@dataclass(frozen=True)
class Narrow:
    """Keys or values that are `number` times what is stored: elements of a format, perhaps times scales of blocks.

    Both are bytes, whose last axis counts those of a row.
    """

    format: str
    elements: Element
    scales: tuple[Element, ...] = ()
    number: float = 1.0


def find(place: Element, whole: str) -> Narrow | None:
    """Returns how an element, of a row along the axis `whole`, is stored; None where that is not known."""
    try:
        return _found(softmax.follow(place), whole)
    except UntraceableError:
        return None


def _found(node: Node, whole: str) -> Narrow | None:
    if node.leaf is not None:
        format_ = str(build.element(node.leaf.value))
        if format_ not in _FORMATS:
            return None
        return Narrow(format_, _as_bytes(node.leaf, whole, element_format(format_).bits))
    if node.name not in ("arith.mulf", "arith.scaling_extf"):
        return None
    one, other = node.operands
    if _is_number(one) or _is_scale(one):
        one, other = other, one
    found = _found(one, whole)
    if found is not None and _is_number(other):
        return replace(found, number=found.number * other.number)
    if found is None or not _is_scale(other) or found.scales:
        return None
    assert other.leaf is not None
    indices = [_of_block(index) if index.axis == whole else index for index in other.leaf.indices]
    return replace(found, scales=(_as_bytes(Element(other.leaf.value, tuple(indices)), whole, 8),))


def _is_number(node: Node) -> bool:
    return node.name == softmax.NUMBER and math.isfinite(node.number)


def _is_scale(node: Node) -> bool:
    return node.leaf is not None and str(build.element(node.leaf.value)) == E8M0.mlir_type


def _of_block(index: Index) -> Index:
    """Returns the subscript of a block from that of an element."""
    if index.stride % MX_BLOCK:
        raise UntraceableError
    return replace(index, stride=index.stride // MX_BLOCK)


def _as_bytes(place: Element, whole: str, bits: int) -> Element:
    """Returns the bytes that an element is a part of, where they have been bitcast."""
    op, sizes = graph.producer(place.value), build.static_sizes(place.value)
    if op is None or op.name not in BITCASTS or str(build.element(op.operands[0])) != "i8":
        if bits < 8:
            raise UntraceableError
        return place
    outer = [index for index in place.indices if index.axis != whole]
    row = Index.join([index for index in place.indices if index.axis == whole])
    source = build.static_sizes(op.operands[0])
    inner = source[len(outer) :]
    is_last = list(place.indices[: len(outer)]) == outer and source[: len(outer)] == sizes[: len(outer)]
    if not is_last or None in inner or row.extent is None or row.stride != 1:
        raise UntraceableError
    bytes_ = math.prod(size or 0 for size in inner)
    if bytes_ != row.extent * bits // 8:
        raise UntraceableError
    return Element(op.operands[0], (*outer, *Index(whole, 1, bytes_).split(inner)))
