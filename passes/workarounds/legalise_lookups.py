"""mxcomp-legalise-lookups: reads elements from a tensor itself instead of a slice of it, where IREE reads wrong rows.

A loop that looks elements up becomes vector gathers, whose places are counted as if the part were a tensor of its own.
Where IREE takes the part in the same kernel its rows lie as far apart as those of the tensor, and all rows but the
first are wrong: ids of a top-k, for example, that are the first columns of a sorted tensor. So elements are looked up
in the tensor itself.

Before:

    %s = tensor.extract_slice %x[0, 4] [%n, 2] [1, 1] : tensor<?x6xi64> to tensor<?x2xi64>
    … linalg.generic {
      %0 = tensor.extract %s[%i, %j] : tensor<?x2xi64>

After:

    … linalg.generic {
      %1 = arith.addi %j, %c4
      %0 = tensor.extract %x[%i, %1] : tensor<?x6xi64>

A part that is reshaped in between, or transposed in dimensions of size 1, is kept in memory. What lies there in one
piece is read rightly, and stays: layers that look into one stack of weights share their kernels.
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.matching.storage import kept_dims
from mxcomp.matching.updates import moves_nothing
from mxcomp.mlir import build, graph

_LOOKUP, _SLICE = "tensor.extract", "tensor.extract_slice"


def run(module: ir.Operation) -> None:
    """Rewrites lookups below `module`."""
    for op in [op for op in graph.walk(module) if op.name == _LOOKUP]:
        while is_misread(op) and (part := _part(op)) is not None:
            op = _in_source(op, part)
        if is_misread(op) and not graph.is_in_dispatch(op):
            build.hide(op.operands[0], (use for use in op.operands[0].uses if use.owner.operation == op))


def _part(op: ir.Operation) -> ir.Operation | None:
    """Returns the slice that an operation reads from, which may be cast."""
    return graph.producer(graph.without_cast(op.operands[0]), _SLICE)


def is_misread(op: ir.Operation) -> bool:
    """Returns whether an operation reads an element of a slice that is not contiguous."""
    part = _viewed(op) if op.name == _LOOKUP else None
    while part is not None and part.name == _SLICE:
        if not _is_one_piece(part):
            return True
        part = _viewed(part)
    return False


def _viewed(op: ir.Operation) -> ir.Operation | None:
    """Returns what makes the first operand, of which there may be views in between."""
    found = graph.producer(graph.look_through_views(op.operands[0]))
    return _viewed(found) if found is not None and moves_nothing(found) else found  # IREE makes it a reshape


def _in_source(op: ir.Operation, part: ir.Operation) -> ir.Operation:
    """Returns the same read from the source of the slice."""
    indices = iter(list(op.operands)[1:])
    with op.location, ir.InsertionPoint(op):
        kept = kept_dims(part)
        subscripts = [
            _subscript(next(indices), offset, step) if dim in kept else offset
            for dim, (offset, step) in enumerate(zip(*_bounds(part), strict=True))
        ]
        new = tensor.ExtractOp(part.operands[0], [_index(each) for each in subscripts])
    graph.replace(op, new.result)
    return new.operation


def _bounds(part: ir.Operation) -> tuple[list[build.Number], list[build.Number]]:
    """Returns the offsets and steps of a slice."""
    view = part.opview
    return build.mixed(view.static_offsets, view.offsets), build.mixed(view.static_strides, view.strides)


def _subscript(index: ir.Value, offset: build.Number, step: build.Number) -> ir.Value:
    if step != 1:
        index = arith.MulIOp(index, _index(step)).result
    return index if offset == 0 else arith.AddIOp(index, _index(offset)).result


def _index(number: build.Number) -> ir.Value:
    return build.constant_index(number) if isinstance(number, int) else number


def _is_one_piece(part: ir.Operation) -> bool:
    """Returns whether a slice is contiguous: after the first dimension of which it takes several elements, it takes
    all."""
    _, sizes, steps = graph.slicing(part)
    whole = build.static_sizes(part.operands[0])
    first = next((i for i, size in enumerate(sizes) if size != 1), len(sizes))
    return sizes[first + 1 :] == whole[first + 1 :] and set(steps[first:]) <= {1}
