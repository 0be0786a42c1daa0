"""Elementwise operations around a scaled matmul, each as IR and in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from builders import elementwise, rounded
from iree.compiler import ir
from iree.compiler.dialects import arith, math

F32 = 2.0**-24
"""Relative error of one rounding to f32."""
EXP = 2.0**-20
"""A generous bound for the relative error of f32's exponential, per unit of its argument's magnitude and one more."""


@dataclass(frozen=True)
class Front:
    """An operation on activations of any type, one rounding of an exact result, like NumPy's."""

    build: Callable[[ir.Value, ir.Value | None], ir.Value]
    compute: Callable[[np.ndarray, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """float64 values, and how far a computation in f32 may be from each."""

    value: np.ndarray
    error: np.ndarray

    def rounded(self) -> Estimate:
        """After one more f32 rounding."""
        return Estimate(self.value, self.error + F32 * (np.abs(self.value) + self.error))


@dataclass(frozen=True)
class Consumer:
    """An operation on a f32 result, another tensor or none, and the factor that brings the product to order 1."""

    build: Callable[[ir.Value, ir.Value | None, float], ir.Value]
    compute: Callable[[Estimate, np.ndarray | None, float], Estimate]


def _constant(like: ir.Value, value: float) -> ir.Value:
    return arith.ConstantOp(like.type, value).result


def _relu(x: ir.Value) -> ir.Value:
    """As models from PyTorch spell it; a NaN stays one."""

    def body(v: ir.Value) -> ir.Value:
        zero = _constant(v, 0.0)
        return arith.SelectOp(arith.CmpFOp(arith.CmpFPredicate.UGT, v, zero), v, zero).result

    return elementwise(body, x)


def _maximum(x: ir.Value) -> ir.Value:
    """IREE 3.13 has AMD's GPUs take maximumf for maxnumf (iree#15069): what becomes of a NaN is not to be tested."""
    return elementwise(lambda v: arith.MaximumFOp(v, _constant(v, 0.0)).result, x)


def _times(x: ir.Value, factor: float) -> ir.Value:
    return elementwise(lambda v: arith.MulFOp(v, _constant(v, factor)).result, x)


def _add(x: ir.Value, other: ir.Value | None) -> ir.Value:
    return elementwise(lambda v, w: arith.AddFOp(v, w).result, x, [other])


def _multiply(x: ir.Value, other: ir.Value | None) -> ir.Value:
    return elementwise(lambda v, w: arith.MulFOp(v, w).result, x, [other])


def _silu(x: ir.Value) -> ir.Value:
    def body(v: ir.Value) -> ir.Value:
        exponential = math.ExpOp(arith.NegFOp(v).result).result
        return arith.DivFOp(v, arith.AddFOp(exponential, _constant(v, 1.0)).result).result

    return elementwise(body, x)


def _silu_estimate(x: Estimate) -> Estimate:
    """Its slope is below 1.1; results below the smallest f32 may be 0."""
    with np.errstate(over="ignore"):
        value = x.value / (1 + np.exp(-x.value))
    return Estimate(value, 1.1 * x.error + EXP * (1 + np.abs(x.value)) * np.abs(value) + 1e-37)


FRONTS = {
    "relu": Front(lambda x, _: _relu(x), lambda x, _: np.maximum(x, x.dtype.type(0))),
    "times": Front(lambda x, _: _times(x, 0.75), lambda x, _: x * x.dtype.type(0.75)),
    "add": Front(_add, lambda x, other: x + other),
}

CONSUMERS = {
    "factor": Consumer(
        lambda x, _, factor: _times(x, factor), lambda x, _, factor: Estimate(x.value * factor, x.error * factor)
    ),
    "bias": Consumer(lambda x, bias, _: _add(x, bias), lambda x, bias, _: Estimate(x.value + bias, x.error).rounded()),
    "residual": Consumer(
        lambda x, other, _: _add(x, other), lambda x, other, _: Estimate(x.value + other, x.error).rounded()
    ),
    "multiply": Consumer(
        lambda x, other, _: _multiply(x, other),
        lambda x, other, _: Estimate(x.value * other, x.error * np.abs(other)).rounded(),
    ),
    "relu": Consumer(lambda x, *_: _relu(x), lambda x, *_: Estimate(np.maximum(x.value, 0), x.error)),
    "maximum": Consumer(lambda x, *_: _maximum(x), lambda x, *_: Estimate(np.maximum(x.value, 0), x.error)),
    "silu": Consumer(lambda x, *_: _silu(x), lambda x, *_: _silu_estimate(x)),
    "f16": Consumer(lambda x, *_: rounded(x, "f16"), lambda x, *_: x),
    "bf16": Consumer(lambda x, *_: rounded(x, "bf16"), lambda x, *_: x),
}
"""The last two are last: what is compared is one rounding of an estimate (`modules.outside`)."""
