"""Finds what is computed of a matmul's result that may be approximated, as its error is lost where it is rounded.

    %n = arith.negf %x    %e = math.exp %n    %d = arith.addf %e, %one    %s = arith.divf %x, %d
    %b = arith.truncf %s : f32 to bf16

With the GPU's instructions an exponential and a quotient of f32 have errors of a few of the last of 24 bits, and take 9
instructions in place of 25. No more than that may reach any result: between them and the rounding there are only
products, quotients, and sums with positive constants. A quotient is that of SiLU or a sigmoid: of other large divisors
the GPU's reciprocal would be 0, here it is where the result is less than 2⁻¹¹⁹.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.mlir import graph

_EXP, _QUOTIENT, _SUM = "math.exp", "arith.divf", "arith.addf"
_KEEPING = ("arith.mulf", _QUOTIENT)
"""Operations whose results have the relative errors of their operands, and no more."""
_MULTIPLES = ("arith.negf", "arith.subf", "arith.mulf")
_LEAST_FACTOR = 0.5
_ROUNDED = ("bf16", "f16")


def approximated(op: ir.Operation, operands: list[ir.Value]) -> ir.Value | None:
    """Builds a scalar operation of a body with other operands, by the GPU's instruction for it, if it may be so."""
    if not is_lost(op):
        return None
    copy = graph.copied(op, operands)
    copy.attributes[FASTMATH] = fastmath()
    return copy.results[0]


FASTMATH = "fastmath"
"""The attribute of an operation that may be approximated."""


def fastmath() -> ir.Attribute:
    """Returns its value."""
    return ir.Attribute.parse("#arith.fastmath<arcp, afn>")


def is_lost(op: ir.Operation) -> bool:
    """Returns whether the error of a scalar operation would be lost if it were approximated."""
    return (op.name == _EXP or _is_sigmoid(op)) and str(op.results[0].type) == "f32" and _is_lost(op)


def _is_sigmoid(op: ir.Operation) -> bool:
    """Returns whether an operation divides a constant, or the number that an exponential is of, by that and more."""
    divisor = graph.producer(op.operands[1]) if op.name == _QUOTIENT else None
    if divisor is None or divisor.name != _SUM:
        return False
    of = [graph.producer(value) for value in divisor.operands]
    exponentials = [each for each in of if each is not None and each.name == _EXP]
    if len(exponentials) != 1 or not any(map(_is_positive, of)):
        return False
    numerator = op.operands[0]
    return _is_constant(graph.producer(numerator)) or _is_multiple(exponentials[0].operands[0], numerator)


def _is_multiple(value: ir.Value, of: ir.Value) -> bool:
    """Returns whether a value is another one, negated, or times a constant that is not small."""
    if (op := graph.producer(value, *_MULTIPLES)) is None or of not in list(op.operands):
        return value == of
    others = [graph.producer(other) for other in op.operands if other != of]
    if len(others) != len(op.operands) - 1 or not all(map(_is_constant, others)):
        return False
    return op.name != "arith.mulf" or all(abs(_number(other)) >= _LEAST_FACTOR for other in others if other)


def _is_lost(op: ir.Operation) -> bool:
    """Returns whether the relative error of a result is lost where all that is made of it is rounded."""
    uses = [use.owner.operation for use in op.results[0].uses]
    return bool(uses) and all(_is_rounding(user) or (_keeps(user, op) and _is_lost(user)) for user in uses)


def _is_rounding(op: ir.Operation) -> bool:
    return op.name == "arith.truncf" and str(op.results[0].type) in _ROUNDED


def _keeps(user: ir.Operation, op: ir.Operation) -> bool:
    if user.name != _SUM:
        return user.name in _KEEPING
    return op.name == _EXP and any(_is_positive(graph.producer(value)) for value in user.operands)


def _is_constant(op: ir.Operation | None) -> bool:
    return op is not None and op.name == "arith.constant"


def _is_positive(op: ir.Operation | None) -> bool:
    return op is not None and _is_constant(op) and _number(op) > 0


def _number(constant: ir.Operation) -> float:
    return float(ir.FloatAttr(constant.attributes["value"]).value)
