"""Operands and modules of the tests of `mxcomp.moe`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from iree.compiler import ir

import mxcomp.ir as mx
from mxcomp import formats

Array = np.ndarray


@dataclass(frozen=True)
class Matrix:
    """Bytes of elements and scales, and the float64 values they mean."""

    elements: Array
    scales: Array
    values: Array


def matrix(rng: np.random.Generator, fmt: str, *shape: int, spread: int = 6) -> Matrix:
    """Random numbers whose rows are of very different sizes."""
    factors = np.exp2(rng.integers(-spread, spread + 1, (*shape[:-1], 1)))
    codes, scales = formats.quantise((rng.standard_normal(shape) * factors).astype(np.float32), fmt)
    values = formats.dequantise(codes, scales, fmt, dtype=np.float64)
    return Matrix(formats.pack_bits(codes, fmt).view(np.int8), scales.view(np.int8), values)


def module(function: Callable[..., ir.Value], arguments: list[Array]) -> ir.Module:
    names = {"int8": "i8", "int32": "i32", "float32": "f32", "bfloat16": "bf16"}
    types = ("x".join([*map(str, array.shape), names[array.dtype.name]]) for array in arguments)
    return mx.module(function, *types)


TYPES = [("E2M1", "E2M1"), ("E4M3", "E2M1"), ("E4M3", "E4M3")]
