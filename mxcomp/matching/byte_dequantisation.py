"""Finds weights that a model dequantises from bytes step by step; they are multiplied as floats, not as MX.

    %low = arith.andi %bytes, 15       %value = tensor.extract %table[%low]
    %exponent = arith.subi %byte, 127  %scale = math.powf 2.0, %exponent
    %bits = arith.shli %byte, 23       %scale = arith.bitcast %bits : i32 to f32

The contents of a table are not known, as it is often a parameter. So these are not recognised, and users are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from iree.compiler import ir

from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import is_elementwise

_VALUES = 16
"""The number of values that four bits have."""

_MOST_OPERATIONS = 64
"""The most operations that are followed back from a factor to its bytes."""

_REASON = (
    "a factor is made of stored bytes by {}, and multiplied as floats: weights that are to stay in MX are those of "
    "mxcomp.torch.ScaledLinear (see mxcomp.torch.load), or of arith.scaling_extf"
)

_ELEMENTWISE = ("tensor.", "arith.", "math.", "util.", "iree_tensor_ext.")


def find(values: Iterable[ir.Value]) -> str:
    """Returns how and where some of these values are computed from bytes as MX weights are; "" for none."""
    for value in values:
        for op in _before(value):
            how = _step(op)
            if how and any(map(_is_byte, _operands(op, *_before(*op.operands)))):
                return _REASON.format(graph.placed(how, op.location))
    return ""


def _before(*values: ir.Value) -> list[ir.Operation]:
    """Returns the operations that compute tensors, up to reductions and to a limit."""
    return list(
        islice(graph.producers(values, _moves, lambda op: filter(build.is_tensor, op.operands)), _MOST_OPERATIONS)
    )


def _operands(*ops: ir.Operation) -> Iterator[ir.Value]:
    for op in ops:
        yield from op.operands


def _moves(op: ir.Operation) -> bool:
    """Returns whether each element of the result comes from single elements of operands."""
    return is_elementwise(op) or op.name.startswith(_ELEMENTWISE)


def _step(op: ir.Operation) -> str:
    """Returns a description of an operation on tensors that converts bits to numbers; "" for others."""
    if op.name in BITCASTS:
        return "shifted bits" if _is_wide(build.element(op.operands[0])) else ""
    if not is_elementwise(op):
        return ""
    for each in (view.operation for view in op.regions[0].blocks[0].operations):
        if each.name == "tensor.extract" and _is_table(each.operands[0]):
            return f"a table of {_VALUES} values"
        if each.name == "math.exp2" or (each.name == "math.powf" and _is_two(each.operands[0])):
            return "powers of two"
        if each.name == "arith.bitcast" and _is_wide(each.operands[0].type):
            return "shifted bits"
    return ""


def _is_wide(kind: ir.Type) -> bool:
    """Returns whether these are integers in which bytes are shifted; bytes themselves are elements of 8 bits."""
    return isinstance(kind, ir.IntegerType) and kind.width > 8


def _is_table(value: ir.Value) -> bool:
    sizes = [size for size in build.static_sizes(value) if size != 1]
    return isinstance(build.element(value), ir.FloatType) and sizes == [_VALUES]


def _is_two(value: ir.Value) -> bool:
    return graph.real(value) == 2


def _is_byte(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and str(build.element(value)) == "i8"
