"""Vectors: a lane's values in registers. Functions build at MLIR's current insertion point."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith, vector

from mxcomp.mlir import build

__all__ = [
    "as_tensor", "bitcast", "byte_vector", "cast", "constant_zeros", "element", "f32_zeros", "from_elements", "joined",
    "masked", "padded", "part", "sums", "words", "written",
]  # fmt: skip


_WORD_BITS = 32


def byte_vector(size: int) -> ir.VectorType:
    return ir.VectorType.get([size], ir.IntegerType.get_signless(8))


def joined(parts: Sequence[ir.Value]) -> ir.Value:
    """Concatenates vectors of one size."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    left, right = joined(parts[:half]), joined(parts[half:])
    size = ir.VectorType(left.type).shape[0] + ir.VectorType(right.type).shape[0]
    return vector.ShuffleOp(left, right, list(range(size))).vector


def part(whole: ir.Value, start: int, size: int) -> ir.Value:
    """Returns so many of a vector's elements, from `start` on."""
    if [size] == list(ir.VectorType(whole.type).shape):
        return whole
    return vector.ShuffleOp(whole, whole, list(range(start, start + size))).vector


def padded(value: ir.Value, size: int) -> ir.Value:
    """Pads a vector with zeros to so many elements."""
    kind = ir.VectorType(value.type)
    if [size] == list(kind.shape):
        return value
    whole = constant_zeros(ir.VectorType.get([size], kind.element_type))
    return vector.InsertStridedSliceOp(value, whole, [0], [1]).result


def constant_zeros(kind: ir.Type) -> ir.Value:
    """Returns a zero, or a vector of zeros, which LLVM sets where they are used."""
    scalar = kind.element_type if isinstance(kind, ir.VectorType) else kind
    zero = ir.FloatAttr.get(scalar, 0.0) if isinstance(scalar, ir.FloatType) else ir.IntegerAttr.get(scalar, 0)
    return arith.ConstantOp(kind, zero if scalar is kind else ir.DenseElementsAttr.get_splat(kind, zero)).result


def masked(condition: ir.Value, value: ir.Value) -> ir.Value:
    """Returns a value, or zeros where `condition` is false."""
    return arith.SelectOp(condition, value, constant_zeros(value.type)).result


def f32_zeros(size: int) -> ir.Value:
    return constant_zeros(ir.VectorType.get([size], ir.F32Type.get()))


def sums(left: Sequence[ir.Value], right: Sequence[ir.Value]) -> list[ir.Value]:
    """Returns the sums of two lists of vectors, one by one."""
    return [arith.AddFOp(one, other).result for one, other in zip(left, right, strict=True)]


def bitcast(value: ir.Value, element: str, size: int) -> ir.Value:
    """Returns a vector's bits as so many other elements."""
    return vector.BitCastOp(ir.VectorType.get([size], ir.Type.parse(element)), value).result


def cast(value: ir.Value, element: str) -> ir.Value:
    """Returns a vector's floats as those of another type, rounded to nearest even where that is narrower."""
    old, kind = ir.VectorType(value.type), ir.Type.parse(element)
    if old.element_type == kind:
        return value
    is_wider = ir.FloatType(kind).width > ir.FloatType(old.element_type).width
    return (arith.ExtFOp if is_wider else arith.TruncFOp)(ir.VectorType.get(old.shape, kind), value).result


def words(value: ir.Value) -> ir.Value:
    """Returns a vector's bits as i32."""
    kind = ir.VectorType(value.type)
    return bitcast(value, "i32", kind.shape[0] * kind.element_type.width // _WORD_BITS)


def element(whole: ir.Value, number: int) -> ir.Value:
    """Returns one of a vector's elements, or a row of a vector of two dimensions."""
    return vector.ExtractOp(whole, [], [number]).result


def from_elements(elements: Sequence[ir.Value]) -> ir.Value:
    return vector.FromElementsOp(ir.VectorType.get([len(elements)], elements[0].type), elements).result


def as_tensor(values: Sequence[ir.Value], shape: Sequence[int]) -> ir.Value:
    """Returns concatenated vectors as a tensor."""
    first = ir.VectorType(values[0].type)
    whole = constant_zeros(ir.VectorType.get([len(values), *first.shape], first.element_type))
    for number, value in enumerate(values):
        whole = vector.InsertOp(value, whole, [], [number]).result
    return written(whole, shape)


def written(value: ir.Value, shape: Sequence[int], to: ir.Value | None = None) -> ir.Value:
    """Returns a vector's elements as a tensor of a shape, written over one of that, by default over nothing."""
    sizes, element = list(shape), ir.VectorType(value.type).element_type
    lane, kind = vector.ShapeCastOp(ir.VectorType.get(sizes, element), value).result, build.tensor_type(sizes, element)
    origin, identity = [build.constant_index(0)] * len(sizes), ir.AffineMap.get_identity(len(sizes))
    over = build.empty(kind) if to is None else to
    return vector.TransferWriteOp(kind, lane, over, origin, identity, [True] * len(sizes)).result
