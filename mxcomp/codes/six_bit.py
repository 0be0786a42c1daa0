"""Computes bodies of linalg ops on 6-bit scalars in integers and f32: IREE has no code generation for such types.

A scalar is its code in an i8 while it is moved, and an f32 while it is calculated with:

    %c = arith.cmpi ne, %i, %zero : i8
    %s = arith.select %c, %x, %y : f6E2M3FN        →   arith.select %c, %x, %y : i8
    %e = arith.extf %s : f6E2M3FN to f32           →   shifts, arith.sitofp, arith.mulf of the code %s
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.codes import truncate
from mxcomp.codes.decode import scaled, value_of
from mxcomp.errors import InputError
from mxcomp.formats import UNLOADABLE
from mxcomp.mlir import build


def is_six_bit(kind: ir.Type) -> bool:
    """Returns whether it is a 6-bit float, or a tensor of them."""
    return str(ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else kind) in UNLOADABLE


def rewrite(op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
    """Returns the value that replaces an operation on 6-bit scalars, whose operands are codes or f32 values. For
    `inline`.

    None for other operations. Raises InputError for operations that have no meaning here.
    """
    kinds = [str(operand.type) for operand in op.operands]
    result = op.results[0].type if len(op.results) == 1 else None
    if not any(kind in UNLOADABLE for kind in (*kinds, str(result))):
        return None
    if op.name not in _MEANINGS:
        known = ", ".join(_MEANINGS)
        raise InputError(f"{op.location}: {op.name} on 6-bit elements: expected {known}; extend them to f32 before")
    return _MEANINGS[op.name](op, operands)


def _extended(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    return build.cast(_value(op, operands, 0), op.results[0].type)


def _scaled(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    if str(op.operands[0].type) not in UNLOADABLE:
        return op.clone().results[0]
    return build.cast(scaled(_value(op, operands, 0), operands[1]), op.results[0].type)


def _truncated(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    value = truncate.rewrite(op, operands)
    assert value is not None
    return value


def _selected(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    condition, *codes = operands
    first, second = (_code(op, value) for value in codes)
    return arith.SelectOp(condition, first, second).result


def _compared(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    first, second = (_value(op, operands, i) for i in range(2))
    predicate = arith.CmpFPredicate(ir.IntegerAttr(op.attributes["predicate"]).value)
    return arith.CmpFOp(predicate, first, second).result


def _negated(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    sign = arith.ConstantOp(ir.IntegerType.get_signless(8), 1 << 5).result
    return arith.XOrIOp(_code(op, operands[0]), sign).result


def _bitcast(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    """Replaces a bitcast between elements and i6, whose bits are the codes."""
    if str(op.operands[0].type) not in UNLOADABLE:
        return arith.ExtUIOp(ir.IntegerType.get_signless(8), operands[0]).result
    code = _code(op, operands[0])
    return code if str(op.results[0].type) in UNLOADABLE else arith.TruncIOp(op.results[0].type, code).result


def _constant(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    kind = op.results[0].type
    number = ir.FloatAttr(op.attributes["value"]).value
    values = UNLOADABLE[str(kind)].values()
    (code, *_) = (code for code, value in enumerate(values) if value == number)
    return arith.ConstantOp(ir.IntegerType.get_signless(8), code).result


_MEANINGS: Mapping[str, Callable[[ir.Operation, list[ir.Value]], ir.Value]] = {
    "arith.extf": _extended,
    "arith.scaling_extf": _scaled,
    "arith.truncf": _truncated,
    "arith.scaling_truncf": _truncated,
    "arith.select": _selected,
    "arith.cmpf": _compared,
    "arith.negf": _negated,
    "arith.bitcast": _bitcast,
    "arith.constant": _constant,
}


def _value(op: ir.Operation, operands: list[ir.Value], index: int) -> ir.Value:
    """Returns an operand of `op` as f32."""
    value = operands[index]
    if value.type == ir.F32Type.get():
        return value
    code = arith.ExtUIOp(ir.IntegerType.get_signless(32), value).result
    return value_of(code, str(op.operands[index].type))


def _code(op: ir.Operation, value: ir.Value) -> ir.Value:
    if value.type == ir.F32Type.get():
        raise InputError(f"{op.location}: {op.name} moves 6-bit elements in a reduction: extend them to f32 before")
    return value
