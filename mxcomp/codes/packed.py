"""Converts elements of less than a byte between codes in i8, one a byte, and packed codes without gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp.codes.decode import value_of
from mxcomp.codes.six_bit import is_six_bit
from mxcomp.errors import InputError
from mxcomp.mlir import build, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.loops import names, reduced

_WORD_BITS = 64
_GROUP = 32
"""Elements that fill whole words, whatever bits they have: 2, 4 or 6."""


def code_tensor(kind: ir.Type) -> ir.RankedTensorType:
    """Returns the type of the codes of a tensor."""
    return ir.RankedTensorType.get(ir.RankedTensorType(kind).shape, ir.IntegerType.get_signless(8))


def narrow(value: ir.Value, kind: ir.Type) -> ir.Value:
    """Returns a scalar of type `kind` from its code. Other scalars, and 6-bit ones (`six_bit`), are returned
    unchanged."""
    if value.type == kind or is_six_bit(kind) or not is_sub_byte(kind):
        return value
    bits = ir.IntegerType.get_signless(kind.width)
    code = arith.TruncIOp(bits, value).result
    return code if kind == bits else arith.BitcastOp(kind, code).result


def widen(value: ir.Value) -> ir.Value:
    """Returns the code of a scalar of less than a byte; other scalars are returned unchanged."""
    if not is_sub_byte(value.type):
        return value
    bits = ir.IntegerType.get_signless(value.type.width)
    code = value if value.type == bits else arith.BitcastOp(bits, value).result
    return arith.ExtUIOp(ir.IntegerType.get_signless(8), code).result


def as_generic(op: ir.Operation) -> ir.Operation:
    """Returns an elementwise operation on tensors as a linalg.generic, at the insertion point."""
    result = ir.RankedTensorType(op.results[0].type)
    inputs = [value for value in op.operands if isinstance(value.type, ir.RankedTensorType)]

    def body(*arguments: ir.Value) -> ir.Value:
        scalars = dict(zip(inputs, arguments, strict=False))
        attributes = {named: op.attributes[named] for named in op.attributes}
        operands = [scalars.get(value, value) for value in op.operands]
        return ir.Operation.create(op.name, [result.element_type], operands, attributes).results[0]

    return build.elementwise(result, inputs, body).owner.operation


def loaded(value: ir.Value) -> ir.Value:
    """Returns the codes of a tensor that IREE can load."""
    return build.elementwise(code_tensor(value.type), [value], widen)


def decoded(codes: ir.Value, kind: ir.Type) -> ir.Value:
    """Returns the f32 values of 6-bit elements of a tensor type, from their codes."""
    element = str(ir.RankedTensorType(kind).element_type)

    def body(code: ir.Value) -> ir.Value:
        return value_of(arith.ExtUIOp(ir.IntegerType.get_signless(32), code).result, element)

    return build.elementwise(build.tensor_type(build.static_sizes(codes), "f32"), [codes], body)


def dense(codes: ir.Value, kind: ir.Type, location: ir.Location) -> ir.Value:
    """Returns codes without gaps, the first in the lowest bits, as a tensor of type `kind`. Raises InputError."""
    bits = ir.RankedTensorType(kind).element_type.width
    *_, last = build.static_sizes(codes) or [None]
    sizes = build.dynamic_sizes(codes)
    if last is not None and last % _GROUP == 0:
        return build.bitcast(_words_of_rows(codes, bits, sizes), kind, sizes)
    count = math.prod(size or 1 for size in build.static_sizes(codes))
    if (sizes and ((last or 1) * bits) % 8) or count * bits % 8:
        raise InputError(
            f"{location}: {kind}: its elements do not fill whole bytes, and IREE cannot store parts of them: "
            "expected a last dimension of whole bytes, or elements of 8 bits"
        )
    return build.bitcast(_bytes(codes, bits, sizes), kind, None, sizes)


def _words_of_rows(codes: ir.Value, bits: int, sizes: list[ir.Value]) -> ir.Value:
    """Returns […, K/32, words] i64 from codes […, K]."""
    *rows, last = build.static_sizes(codes)
    if last != _GROUP:
        codes = build.split(codes, len(rows), ((last or 0) // _GROUP, _GROUP), sizes)
    return words(codes, bits, 1, sizes)


def words(codes: ir.Value, bits: int, inside: int, sizes: list[ir.Value]) -> ir.Value:
    """Returns […, words] i64 from codes […, 32], the first in the lowest bits. The last `inside` dimensions make up the
    32."""
    i64 = ir.IntegerType.get_signless(_WORD_BITS)
    *shape, _ = build.static_sizes(codes)
    outer, inner = len(shape) + 1 - inside, ir.RankedTensorType(codes.type).shape[-inside:]
    loops = names(outer + 1 + inside)
    first_bit = ir.AffineExpr.get_dim(0) * -_WORD_BITS
    for i in range(inside):
        first_bit = first_bit + ir.AffineExpr.get_dim(1 + i) * (bits * math.prod(inner[i + 1 :]))

    def shifted(code: ir.Value) -> ir.Value:
        places = [linalg.IndexOp(i).result for i in range(outer, len(loops))]
        shift = arith.IndexCastOp(i64, build.apply(first_bit, places)).result
        return _shifted(arith.ExtUIOp(i64, code).result, shift)

    inputs, result = [(loops[:outer] + loops[outer + 1 :], codes)], [*shape[:outer], _GROUP * bits // _WORD_BITS]
    return reduced(
        loops, loops[: outer + 1], result, i64, inputs, lambda new, word: s.either(word, new), shifted, sizes
    )


def word_tensor(elements: ir.RankedTensorType, bits: int, inside: int) -> ir.RankedTensorType:
    """Returns the type of an i64 for every block of 32 elements, which so many of the last dimensions make up."""
    count = _GROUP * bits // _WORD_BITS
    return ir.RankedTensorType.get([*elements.shape[:-inside], count], ir.IntegerType.get_signless(_WORD_BITS))


def _shifted(bits: ir.Value, left: ir.Value) -> ir.Value:
    """Returns `bits` shifted to the left, or to the right if negative; bits shifted out are dropped."""
    i64 = left.type
    zero, last = (arith.ConstantOp(i64, value).result for value in (0, _WORD_BITS - 1))
    right = arith.MinSIOp(arith.SubIOp(zero, left).result, last).result
    up = arith.ShLIOp(bits, arith.MinSIOp(arith.MaxSIOp(left, zero).result, last).result).result
    down = arith.ShRUIOp(bits, arith.MaxSIOp(right, zero).result).result
    within = arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.sgt, left, last).result, zero, up).result
    return arith.SelectOp(arith.CmpIOp(arith.CmpIPredicate.slt, left, zero).result, down, within).result


def _bytes(codes: ir.Value, bits: int, sizes: Sequence[ir.Value]) -> ir.Value:
    """Returns the bytes of codes of any shape, each assembled from the codes that overlap it."""
    i8, shape = ir.IntegerType.get_signless(8), build.static_sizes(codes)
    total = None if sizes else math.prod(size or 1 for size in shape)
    flat = build.collapse(codes, [list(range(len(shape)))]) if len(shape) > 1 else codes
    count = build.dynamic_sizes(flat)
    eighths = ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(0) * bits, 8)
    result = build.tensor_type([None if total is None else total * bits // 8], i8)
    sizes = [build.apply(eighths, count)] if count else []
    first_bit = ir.AffineExpr.get_dim(0) * 8

    def body(indices: list[ir.Value]) -> ir.Value:
        value = None
        for i in range(-(-8 // bits)):
            at = build.apply(ir.AffineExpr.get_floor_div(first_bit, bits) + i, indices)
            code = arith.ExtUIOp(ir.IntegerType.get_signless(32), tensor.ExtractOp(flat, [at]).result).result
            left = build.apply(ir.AffineExpr.get_mod(first_bit, bits) * -1 + i * bits, indices)
            part = _moved(code, left, negative=i == 0 and bits == 6)
            value = part if value is None else s.either(value, part)
        assert value is not None
        return arith.TruncIOp(i8, value).result

    return build.generate(result, body, sizes)


def _moved(code: ir.Value, left: ir.Value, negative: bool) -> ir.Value:
    """Returns an i32 code shifted to the left, or to the right if `negative`."""
    distance = arith.IndexCastOp(code.type, left).result
    return arith.ShRUIOp(code, s.minus(0, distance)).result if negative else arith.ShLIOp(code, distance).result
