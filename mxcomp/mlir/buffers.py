"""Binds buffers of a dispatch again, as other views of the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir

from mxcomp.mlir import graph

LOAD, STORE = "iree_codegen.load_from_buffer", "iree_codegen.store_to_buffer"
_FROM_BINDING = ("amdgpu.fat_raw_buffer_cast", "hal.interface.binding.subspan")


def rebind(buffer: ir.Value, shape: Sequence[int], element: ir.Type | None = None) -> ir.Value | None:
    """Returns the buffer of a binding in another contiguous shape, perhaps of other elements; at the insertion point.

    None for a buffer that comes from elsewhere.
    """
    chain = [graph.producer(buffer)]
    chain.append(None if chain[0] is None or not chain[0].operands else graph.producer(chain[0].operands[0]))
    if tuple(None if op is None else op.name for op in chain) != _FROM_BINDING:
        return None
    value: ir.Value | None = None
    for op in reversed(chain):
        assert op is not None
        copy = op.clone()
        if value is not None:
            copy.operands[0] = value
        value = copy.results[0]
        value.set_type(_reshaped(ir.MemRefType(op.results[0].type), shape, element))
    return value


def dense_strides(shape: Sequence[int]) -> list[int]:
    """Returns the strides of a contiguous shape, of which the first dimension may be dynamic."""
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _reshaped(buffer: ir.MemRefType, shape: Sequence[int], element: ir.Type | None) -> ir.MemRefType:
    layout = buffer.layout
    layout = (
        ir.StridedLayoutAttr.get(layout.offset, dense_strides(shape))
        if isinstance(layout, ir.StridedLayoutAttr)
        else None
    )
    return ir.MemRefType.get(shape, element or buffer.element_type, layout, buffer.memory_space)
