"""Lanes that record operations on them: NumPy's array protocols over LLVM vectors.

A traced value stands for `ir.LANES` lanes. A lane function of `mxcomp.sim.semantics` called with traced values leaves
its vector code at the builder's position. Types follow NumPy's own rules, asked from the ufuncs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir as llvm
from numpy.lib.mixins import NDArrayOperatorsMixin

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.ufuncs import UFUNCS, convert


class Untraceable(Exception):  # noqa: N818 (a signal, not an error)
    """A function does something that has no vector code here; the NumPy engine executes its instruction."""


@dataclass(frozen=True)
class InsertPoint:
    """The position where vector code is emitted.

    Attributes:
        builder: Its position.
        lane: The first lane of the vectors, i64; constants that differ by lane are read from there.
    """

    builder: llvm.IRBuilder
    lane: ir.Value


class Traced(NDArrayOperatorsMixin):
    """A value per lane."""

    def __init__(self, point: InsertPoint, dtype: Any, value: ir.Value) -> None:
        self.point, self.dtype, self.value = point, np.dtype(dtype), value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options or ufunc not in UFUNCS:
            raise Untraceable(f"{ufunc.__name__}.{method}")
        types = ufunc.resolve_dtypes((*map(_kind, inputs), *[None] * ufunc.nout))
        values = [lift(self.point, x, t).value for x, t in zip(inputs, types, strict=False)]
        return Traced(self.point, types[-1], UFUNCS[ufunc](self.point.builder, types[0], *values))

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _FUNCTIONS or kwargs:
            raise Untraceable(function.__name__)
        return _FUNCTIONS[function](self.point, *args)

    def astype(self, dtype: Any) -> Traced:
        target = np.dtype(dtype)
        return Traced(self.point, target, convert(self.point.builder, self.value, self.dtype, target))

    def view(self, dtype: Any) -> Traced:
        target = np.dtype(dtype)
        if target.itemsize != self.dtype.itemsize:
            raise Untraceable(f"view of {self.dtype} as {target}")
        kind = ir.vector(ir.element_type(target))
        return Traced(self.point, target, self.point.builder.bitcast(self.value, kind))

    def lookup(self, values: np.ndarray[Any, Any]) -> Traced:
        """Returns table elements for `mxcomp.sim.semantics.table.lookup`."""
        builder, bits = self.point.builder, llvm.IntType(8 * values.dtype.itemsize)
        array = ir.table(builder, values)
        wide = self.astype(np.uint64).value
        result = ir.constant(ir.vector(bits), llvm.Undefined)
        for k in range(ir.LANES):
            element = array.item(builder.extract_element(wide, ir.constant(ir.i32, k)), bits)
            result = builder.insert_element(result, element, ir.constant(ir.i32, k))
        return Traced(self.point, values.dtype, builder.bitcast(result, ir.vector(ir.element_type(values.dtype))))

    def __bool__(self) -> bool:
        raise Untraceable("a branch on lanes")

    def __getitem__(self, key: Any) -> Any:
        raise Untraceable("indexed lanes")


def _kind(x: Any) -> Any:
    """Returns the type that NumPy's promotion goes by: Python's own type for weak scalars."""
    if isinstance(x, bool | int | float) and not isinstance(x, np.generic):
        return np.dtype(bool) if isinstance(x, bool) else type(x)
    return x.dtype


def lift(point: InsertPoint, x: Any, dtype: np.dtype[Any]) -> Traced:
    """Returns a traced value of the type: converted, or made from a constant or an array of one value per lane."""
    if isinstance(x, Traced):
        return x if x.dtype == dtype else x.astype(dtype)
    values = np.asarray(x).astype(dtype) if isinstance(x, np.generic | np.ndarray) else np.array(x, dtype)
    kind = ir.element_type(dtype)
    if values.size == 1:
        return Traced(point, dtype, _splat_bits(point, values.reshape(()), kind))
    if values.shape != (ir.WAVE,):
        raise Untraceable(f"array of shape {values.shape}")
    array = ir.table(point.builder, values.astype(np.uint8) if dtype.kind == "b" else values)
    stored = llvm.IntType(8 * values.dtype.itemsize)
    raw = array.item(point.lane, stored, ir.LANES)
    if dtype.kind == "b":
        return Traced(point, dtype, point.builder.trunc(raw, ir.vector(ir.i1)))
    return Traced(point, dtype, point.builder.bitcast(raw, ir.vector(kind)))


def _splat_bits(point: InsertPoint, value: np.ndarray[Any, Any], kind: llvm.Type) -> ir.Value:
    """Returns a constant vector by its bits, so that NaN is preserved."""
    if value.dtype.kind == "b":
        return ir.constant(ir.vector(kind), int(value))
    bits = int(value.view(f"u{value.dtype.itemsize}"))
    raw = ir.constant(ir.vector(llvm.IntType(8 * value.dtype.itemsize)), bits)
    return point.builder.bitcast(raw, ir.vector(kind))


def _where(point: InsertPoint, condition: Any, if_true: Any, if_false: Any) -> Traced:
    strong = [k for k in map(_kind, (if_true, if_false)) if isinstance(k, np.dtype)]
    weak = [x for x in (if_true, if_false) if not isinstance(_kind(x), np.dtype)]
    dtype = np.result_type(*strong, *weak)
    chosen = [lift(point, x, dtype).value for x in (if_true, if_false)]
    condition = lift(point, condition, np.dtype(bool))
    return Traced(point, dtype, point.builder.select(condition.value, *chosen))


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Traced]] = {np.where: _where}
