"""mxcomp-write-bytes: joins, overwrites and pads tensors of elements of less than a byte as tensors of bytes.

IREE copies a part of a tensor where it is contiguous. Of other parts it makes a dispatch, whose operands it takes for
bytes and whose result it does not. Bytes can be joined anywhere, and packing reads them as they are.

Before:

    %e = tensor.concat dim(1) %x, %y : (tensor<8x2x32xf4E2M1FN>, tensor<8x3x32xf4E2M1FN>) -> tensor<8x5x32xf4E2M1FN>

After:

    %x8 = iree_tensor_ext.bitcast %x : tensor<8x2x32xf4E2M1FN> -> tensor<8x2x16xi8>
    %y8 = iree_tensor_ext.bitcast %y : tensor<8x3x32xf4E2M1FN> -> tensor<8x3x16xi8>
    %e8 = tensor.concat dim(1) %x8, %y8 : (tensor<8x2x16xi8>, tensor<8x3x16xi8>) -> tensor<8x5x16xi8>
    %e = iree_tensor_ext.bitcast %e8 : tensor<8x5x16xi8> -> tensor<8x5x32xf4E2M1FN>

A tensor.pad becomes a tensor.insert_slice into a tensor of one value. Parts that begin or end inside of a byte keep
their type, and mxcomp-unpack-elements has a byte for each of their elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build, graph
from mxcomp.mlir.build import DYNAMIC
from mxcomp.mlir.narrow import byte_type, bytes_of
from mxcomp.passes.workarounds.unpack_elements import INSERT, WRITES, is_narrow_tensor

PAD = "tensor.pad"


def run(module: ir.Operation) -> None:
    """Rewrites operations on narrow tensors below `module`."""
    for name, change in ((PAD, _padded), *((name, _in_bytes) for name in WRITES)):
        for op in [op for op in graph.walk(module, bodies=False, outside=True) if op.name == name]:
            if is_narrow_tensor(op.results[0]):
                with op.location, ir.InsertionPoint(op):
                    value = change(op)
                if value is not None:
                    graph.replace(op, value)


def _padded(op: ir.Operation) -> ir.Value | None:
    """Returns what a tensor.pad inserts into a tensor of one value; None if it has other values, or cuts its source."""
    *_, end = op.regions[0].blocks[0].operations
    scalar = graph.constant(end.operands[0])
    low, high = (list(ir.DenseI64ArrayAttr(op.attributes[f"static_{side}"])) for side in ("low", "high"))
    if scalar is None or any(size < 0 and size != DYNAMIC for size in (*low, *high)):
        return None
    source, *given = op.operands
    padding = build.mixed([*low, *high], given)
    before, after = padding[: len(low)], padding[len(low) :]
    own = [build.dim(source, i) if size is None else size for i, size in enumerate(build.static_sizes(source))]
    result = ir.RankedTensorType(op.results[0].type)
    sizes = [_sum(parts) for i, parts in enumerate(zip(before, own, after, strict=True)) if result.is_dynamic_dim(i)]
    return build.inserted(source, _filled(scalar, result, sizes), before, own)


def _sum(numbers: Sequence[build.Number]) -> ir.Value:
    first, *rest = (build.constant_index(each) if isinstance(each, int) else each for each in numbers)
    for each in rest:
        first = arith.AddIOp(first, each).result
    return first


def _filled(scalar: ir.Attribute, result: ir.RankedTensorType, sizes: Sequence[ir.Value]) -> ir.Value:
    """Returns a tensor of one narrow value; of zeros as bytes."""
    stored = ir.RankedTensorType(byte_type(result))
    if stored == result or not _is_zero(scalar):
        return build.filled(arith.ConstantOp(result.element_type, scalar).result, result, sizes)
    zeros = build.filled(arith.ConstantOp(stored.element_type, 0).result, stored, sizes)
    return build.bitcast(zeros, result, sizes)


def _is_zero(scalar: ir.Attribute) -> bool:
    """Returns whether all bits of a number are zero."""
    if isinstance(scalar, ir.FloatAttr):
        return scalar.value == 0 and math.copysign(1, scalar.value) > 0
    return ir.IntegerAttr(scalar).value == 0


def _in_bytes(op: ir.Operation) -> ir.Value | None:
    """Returns the result of an operation on the bytes of its tensors; None if a part of a byte is written."""
    tensors = [value for value in op.operands if build.is_tensor(value)]
    places = _byte_places(op) if op.name == INSERT else {}
    if places is None or any(byte_type(value.type) == value.type for value in (*tensors, op.results[0])):
        return None
    operands = [bytes_of(value) if build.is_tensor(value) else value for value in op.operands]
    copy = graph.copied(op, operands)
    for name, numbers in places.items():
        copy.attributes[name] = ir.DenseI64ArrayAttr.get(numbers)
    copy.results[0].set_type(byte_type(op.results[0].type))
    return build.bitcast(copy.results[0], op.results[0].type)


def _byte_places(insertion: ir.Operation) -> dict[str, list[int]] | None:
    """Returns where a tensor is inserted, counted in bytes along the last dimension; None inside of bytes."""
    width = ir.RankedTensorType(insertion.results[0].type).element_type.width
    (*offsets, offset), (*sizes, size), (*_, step) = graph.slicing(insertion)
    if step != 1 or any(number == DYNAMIC or number * width % 8 for number in (offset, size)):
        return None
    return {"static_offsets": [*offsets, offset * width // 8], "static_sizes": [*sizes, size * width // 8]}
