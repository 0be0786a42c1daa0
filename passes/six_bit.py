"""f32 in place of 6-bit tensors, which IREE cannot load: decoded from their bytes, and reshaped, sliced and cast so.

Before:

    %e = iree_tensor_ext.bitcast %bytes : tensor<64x192xi8> -> tensor<64x8x32xf6E2M3FN>
    %c = tensor.collapse_shape %e [[0], [1, 2]] : tensor<64x8x32xf6E2M3FN> into tensor<64x256xf6E2M3FN>
    %d = linalg.generic … ins(%c, %s) { arith.extf %x : f6E2M3FN to f32 … }

After:

    %e = linalg.generic … { … tensor.extract %bytes[…] … } -> tensor<64x8x32xf32>
    %c = tensor.collapse_shape %e [[0], [1, 2]] : tensor<64x8x32xf32> into tensor<64x256xf32>
    %d = linalg.generic … ins(%c, %s) { … }
"""

from __future__ import annotations

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp import build
from mxcomp.passes.decode import decoded, scaled
from mxcomp.passes.stored import GATHER
from mxcomp.passes.trace import is_elementwise, yielded

_RESHAPES = ("tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice", "tensor.cast")


def replace(module: ir.Operation) -> None:
    """Replaces 6-bit tensors made of bytes below `module`, where something other than our matmuls uses them."""
    for op in [op for op in build.walk(module) if op.name == "iree_tensor_ext.bitcast"]:
        if is_six_bit(op.results[0].type) and any(_is_replaceable(user) for user in _users(op)):
            with op.context, op.location, ir.InsertionPoint.after(op):
                value = decoded(op.results[0])
            _replace_uses(op, value)


def is_six_bit(kind: ir.Type) -> bool:
    element = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind
    return isinstance(element, ir.FloatType) and element.width == 6


def _users(op: ir.Operation) -> list[ir.Operation]:
    return list(dict.fromkeys(use.owner.operation for use in op.results[0].uses))


def _is_replaceable(user: ir.Operation) -> bool:
    if user.name in _RESHAPES or user.name == "arith.extf":
        return True
    return user.name.startswith("linalg.") and len(user.results) == 1 and GATHER not in user.attributes


def _replace_uses(op: ir.Operation, value: ir.Value) -> None:
    for user in [user for user in _users(op) if _is_replaceable(user)]:
        with user.context, user.location, ir.InsertionPoint(user):
            if user.name in _RESHAPES:
                copy = user.clone()
                copy.operands[0] = value
                copy.results[0].set_type(_f32(copy.results[0].type))
                _replace_uses(user, copy.results[0])
                build.erase_dead(user)
            elif user.name == "arith.extf":
                kind = ir.RankedTensorType(user.results[0].type)
                user.results[0].replace_all_uses_with(_cast(value, kind, kind.element_type))
                user.erase()
            else:
                replace_inputs(user, op.results[0], value)


def _f32(kind: ir.Type) -> ir.Type:
    return ir.RankedTensorType.get(ir.RankedTensorType(kind).shape, ir.F32Type.get())


def replace_inputs(user: ir.Operation, old: ir.Value, new: ir.Value) -> None:
    """Gives a linalg op an f32 input, and an f32 result if it only moves elements."""
    block = user.regions[0].blocks[0]
    for index, operand in enumerate(list(user.operands)[:-1]):
        if operand == old:
            user.operands[index] = new
            block.arguments[index].set_type(ir.F32Type.get())
            for inner in [use.owner.operation for use in block.arguments[index].uses]:
                _replace_scalar(inner, block.arguments[index])
    if is_elementwise(user) and is_six_bit(user.results[0].type) and yielded(user).type == ir.F32Type.get():
        last = len(user.operands) - 1
        kind = ir.RankedTensorType(_f32(user.results[0].type))
        user.operands[last] = build.empty(kind, build.dynamic_sizes(user.operands[last]))
        block.arguments[last].set_type(kind.element_type)
        old_result = user.results[0]
        users = _users(user)
        old_result.set_type(kind)
        for inner in users:
            _retype(inner, old_result)


def _retype(user: ir.Operation, value: ir.Value) -> None:
    """Follows a value whose elements have become f32 to one of its users."""
    with user.context, user.location, ir.InsertionPoint(user):
        if user.name in _RESHAPES:
            user.results[0].set_type(_f32(user.results[0].type))
            for inner in _users(user):
                _retype(inner, user.results[0])
        elif user.name == "arith.extf":
            kind = ir.RankedTensorType(user.results[0].type)
            user.results[0].replace_all_uses_with(_cast(value, kind, kind.element_type))
            user.erase()
        elif user.name.startswith("linalg."):
            replace_inputs(user, value, value)


def _replace_scalar(op: ir.Operation, value: ir.Value) -> None:
    """Takes away the extension of what is f32 already."""
    with op.location, ir.InsertionPoint(op):
        if op.name == "arith.scaling_extf":
            result = _cast(scaled(value, op.operands[1]), op.results[0].type, op.results[0].type)
        elif op.name == "arith.extf":
            result = _cast(value, op.results[0].type, op.results[0].type)
        else:
            return
    op.results[0].replace_all_uses_with(result)
    op.erase()


def _cast(value: ir.Value, kind: ir.Type, element: ir.Type) -> ir.Value:
    """An f32 value as another float."""
    if value.type == kind:
        return value
    wider = ir.FloatType(element).width > 32
    return (arith.ExtFOp if wider else arith.TruncFOp)(kind, value).result
