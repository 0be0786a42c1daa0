"""Builds programs with MX scaled matmuls in Python: modules that `mxcomp.compile` takes.

    import mxcomp.ir as mx

    def layer(x, bias):
        y = mx.scaled_matmul(mx.quantise(x, "E2M1"), mx.constant(codes, scales, "E2M1"))
        return mx.elementwise(lambda y, b: mx.maximum(mx.add(y, b), 0.0), y, bias, result="bf16")

    program = mxcomp.compile(mx.module(layer, "?x4096xbf16", "14336xf32"))

Functions here build operations at the insertion point of `module`, in plain linalg: what any model may contain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith, func
from iree.compiler.dialects import math as mlir_math
from numpy.typing import NDArray

from mxcomp.errors import InputError
from mxcomp.formats import ElementFormat, element_format, mx_format, pack_bits
from mxcomp.ir import quantisation
from mxcomp.matching import canonical
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.mlir.build import cast
from mxcomp.mlir.loops import names, reduced, tabled

__all__ = [
    "Operand",
    "add",
    "cast",
    "constant",
    "dequantised_matmul",
    "divide",
    "elementwise",
    "exp",
    "maximum",
    "module",
    "multiply",
    "operand",
    "quantise",
    "scaled_matmul",
    "subtract",
    "tanh",
]


@dataclass(frozen=True)
class Operand:
    """A matrix in MX: elements [(batch,) rows, K/32, 32] and E8M0 scales [(batch,) rows, K/32]."""

    elements: ir.Value
    scales: ir.Value


def module(function: Callable[..., ir.Value | Sequence[ir.Value]], *types: str) -> ir.Module:
    """Returns a module with one public function, with the name and body of `function`.

    `types` are those of its arguments, as MLIR spells tensors ("?x4096xbf16") and scalars ("f32"). Raises InputError
    for types that MLIR cannot parse, and where what `function` builds is not valid.
    """
    with ir.Context(), ir.Location.unknown():
        made = ir.Module.create()
        arguments = [_type(text) for text in types]
        with ir.InsertionPoint(made.body):
            func.FuncOp.from_py_func(*arguments, name=function.__name__)(function)
        try:
            made.operation.verify()
        except ir.MLIRError as error:
            raise InputError(f"{function.__name__} does not build a valid function", (str(error),)) from None
        return made


def _type(text: str) -> ir.Type:
    try:
        return ir.Type.parse(f"tensor<{text}>" if "x" in text else text)
    except ir.MLIRError:
        raise InputError(f"argument type '{text}': expected a tensor as 64x?xbf16, or a scalar as f32") from None


def operand(elements: ir.Value, scales: ir.Value, fmt: ElementFormat | str) -> Operand:
    """Returns an operand from the bytes of arguments.

    `elements` are i8 [(batch,) rows, K · bits / 8], without gaps, `scales` i8 [(batch,) rows, K/32]; rows may be
    dynamic. Raises InputError for other types and shapes.
    """
    fmt, made = element_format(fmt), mx_format(fmt)
    sizes, scale_sizes = build.static_sizes(elements), build.static_sizes(scales)
    *rows, width = sizes
    blocks = None if width is None else width // made.block_bytes
    if {str(build.element(value)) for value in (elements, scales)} != {"i8"} or scale_sizes != [*rows, blocks]:
        raise InputError(
            f"elements {elements.type} and scales {scales.type}: expected bytes [rows, K · {fmt.bits} / 8] "
            f"and [rows, K / {made.size}] of {fmt}"
        )
    element_type = build.tensor_type((*rows, blocks, made.size), fmt.mlir_type)
    scale_type = build.tensor_type((*rows, blocks), made.scale.mlir_type)
    return Operand(build.bitcast(elements, element_type), build.bitcast(scales, scale_type))


def constant(codes: NDArray[np.uint8], scales: NDArray[np.uint8], fmt: ElementFormat | str) -> Operand:
    """Returns a constant operand: codes [rows, K] and scales [rows, K/32] of `mxcomp.formats.quantise`."""
    packed = pack_bits(codes, element_format(fmt))
    elements, scale_bytes = (
        arith.ConstantOp(build.tensor_type(data.shape, "i8"), _dense(data)).result for data in (packed, scales)
    )
    return operand(elements, scale_bytes, fmt)


def _dense(data: NDArray[np.uint8]) -> ir.DenseElementsAttr:
    return ir.DenseElementsAttr.get(np.ascontiguousarray(data).view(np.int8))


def quantise(value: ir.Value, fmt: ElementFormat | str, mode: str = "even") -> Operand:
    """Quantises [M, K] of f32, f16 or bf16 to MX in the program; M may be dynamic.

    Bit for bit `mxcomp.formats.quantise` in the scale mode `mode`. Raises InputError for another type, mode or K.
    """
    return Operand(*quantisation.quantise(value, element_format(fmt).mlir_type, mode))


def scaled_matmul(lhs: Operand, rhs: Operand) -> ir.Value:
    """Returns LHS times transposed RHS, f32 [(batch,) M, N]; M and N may be dynamic. Raises InputError for other
    shapes."""
    shapes = [build.static_sizes(side.elements) for side in (lhs, rhs)]
    if len({len(shape) for shape in shapes}) > 1 or shapes[0][-2] != shapes[1][-2] or shapes[0][:-3] != shapes[1][:-3]:
        raise InputError(f"a scaled matmul of {lhs.elements.type} and {rhs.elements.type}: batch and K must be equal")
    return canonical.scaled_matmul(lhs.elements, rhs.elements, lhs.scales, rhs.scales)


def dequantised_matmul(x: ir.Value, weights: Operand) -> ir.Value:
    """Returns [(batch,) M, K] of bf16, not quantised, times transposed dequantised weights: f32 [(batch,) M, N].

    Weights are dequantised to bf16, which is exact. For few rows that happens in the registers of one kernel. Raises
    InputError for others.
    """
    *batch, n, blocks, size = build.static_sizes(weights.elements)
    *outer, m, k = build.static_sizes(x)
    if outer != batch or None in batch or str(build.element(x)) != "bf16" or k != (blocks or 0) * (size or 0):
        raise InputError(
            f"a matmul of {x.type} and weights {weights.elements.type}: expected bf16 [(batch,) M, K] and "
            f"[(batch,) N, K/32, 32], with a static batch"
        )
    bf16, rank, of_batch = ir.BF16Type.get(), len(batch), names(len(batch))
    units = [build.dim(weights.elements, rank)] if n is None else []
    dequantised = tabled(
        f"{of_batch}NKB", (*batch, n, blocks, size), bf16,
        [(f"{of_batch}NKB", weights.elements), (f"{of_batch}NK", weights.scales)],
        lambda element, scale, _: arith.ScalingExtFOp(bf16, element, scale).result, units,
    )  # fmt: skip
    tokens = [build.dim(x, rank)] if m is None else []
    split = build.split(x, rank + 1, (blocks, size), tokens)
    return reduced(
        f"{of_batch}MNKB", f"{of_batch}MN", (*batch, m, n), "f32",
        [(f"{of_batch}MKB", split), (f"{of_batch}NKB", dequantised)],
        lambda product, acc: s.added(acc, product), lambda a, b: s.multiplied(s.widened(a), s.widened(b)),
        [*tokens, *units],
    )  # fmt: skip


def elementwise(body: Callable[..., ir.Value], *inputs: ir.Value, result: str | None = None) -> ir.Value:
    """Returns a tensor of the first input's shape; `body` computes each element in f32 from those of the inputs.

    Inputs after the first are broadcast as NumPy does, from the last dimension on. `result` is the element type, by
    default that of the first input. What follows a scaled matmul in this way becomes a part of it. Raises InputError
    for inputs that cannot be broadcast.
    """
    first = ir.RankedTensorType(inputs[0].type)
    kind = first.element_type if result is None else ir.Type.parse(result)
    shape = build.static_sizes(inputs[0])
    maps = [*(_broadcast(value, shape) for value in inputs), ir.AffineMap.get_identity(first.rank)]

    def compute(*elements: ir.Value) -> ir.Value:
        return cast(body(*(cast(element, ir.F32Type.get()) for element in elements[:-1])), kind)

    init = build.empty(build.tensor_type(shape, kind), build.dynamic_sizes(inputs[0]))
    made = build.generic(init.type, inputs, init, maps, ["parallel"] * first.rank, compute)
    return made.results[0]


def _broadcast(value: ir.Value, shape: Sequence[int | None]) -> ir.AffineMap:
    if not isinstance(value.type, ir.RankedTensorType):
        return ir.AffineMap.get(len(shape), 0, [])
    sizes = build.static_sizes(value)
    dims = range(len(shape) - len(sizes), len(shape))
    if len(sizes) > len(shape) or any(size not in (1, shape[d]) for size, d in zip(sizes, dims, strict=True)):
        raise InputError(f"{value.type} cannot be broadcast to {shape}")
    zero = ir.AffineExpr.get_constant(0)
    repeated = [size == 1 and shape[d] != 1 for size, d in zip(sizes, dims, strict=True)]
    exprs = [zero if again else ir.AffineExpr.get_dim(d) for again, d in zip(repeated, dims, strict=True)]
    return ir.AffineMap.get(len(shape), 0, exprs)


Scalar: TypeAlias = ir.Value | float


def _pair(a: Scalar, b: Scalar) -> tuple[ir.Value, ir.Value]:
    def value(x: Scalar) -> ir.Value:
        return x if isinstance(x, ir.Value) else arith.ConstantOp(ir.F32Type.get(), float(x)).result

    return value(a), value(b)


def add(a: Scalar, b: Scalar) -> ir.Value:
    """Returns a + b, of f32 scalars in a body."""
    return arith.AddFOp(*_pair(a, b)).result


def subtract(a: Scalar, b: Scalar) -> ir.Value:
    """Returns a - b, of f32 scalars in a body."""
    return arith.SubFOp(*_pair(a, b)).result


def multiply(a: Scalar, b: Scalar) -> ir.Value:
    """Returns a · b, of f32 scalars in a body."""
    return arith.MulFOp(*_pair(a, b)).result


def divide(a: Scalar, b: Scalar, approximate: bool = False) -> ir.Value:
    """Returns a / b, of f32 scalars in a body. `approximate` allows a times an approximate reciprocal, in a single
    instruction."""
    return arith.DivFOp(*_pair(a, b), fastmath=_approximation(approximate)).result


def maximum(a: Scalar, b: Scalar) -> ir.Value:
    """Returns the larger of two f32 scalars in a body, NaN if one is."""
    return arith.MaximumFOp(*_pair(a, b)).result


def exp(a: ir.Value, approximate: bool = False) -> ir.Value:
    """Returns e to the power of an f32 scalar in a body. `approximate` computes 2 to the power of a times a rounded
    constant."""
    return mlir_math.ExpOp(a, fastmath=_approximation(approximate)).result


def _approximation(allowed: bool) -> ir.Attribute | None:
    return ir.Attribute.parse("#arith.fastmath<arcp, afn>") if allowed else None


def tanh(a: ir.Value) -> ir.Value:
    """Returns the hyperbolic tangent of an f32 scalar in a body."""
    return mlir_math.TanhOp(a).result
