"""Shorthand for building LLVM IR."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

LANES = 16
"""The number of lanes that vector code handles at once."""

WAVE = 64

i1, i8, i16, i32, i64, i128 = (ir.IntType(n) for n in (1, 8, 16, 32, 64, 128))
half, single, double, void = ir.HalfType(), ir.FloatType(), ir.DoubleType(), ir.VoidType()
pointer = ir.PointerType()

Value = Any
"""An llvmlite value; the library has no types of its own for mypy."""

_SCALARS: dict[str, ir.Type] = {"b1": i1, "f2": half, "f4": single, "f8": double}


def element_type(dtype: np.dtype[Any]) -> ir.Type:
    """Returns LLVM's type of a NumPy type; signed and unsigned integers are the same."""
    known = _SCALARS.get(f"{dtype.kind}{dtype.itemsize}")
    return ir.IntType(8 * dtype.itemsize) if known is None else known


def vector(element: ir.Type, count: int = LANES) -> ir.Type:
    return ir.VectorType(element, count)


def constant(kind: ir.Type, value: Any) -> Value:
    return ir.Constant(kind, value)


def index(value: int) -> Value:
    return ir.Constant(i64, value)


def splat(builder: ir.IRBuilder, value: Value, count: int = LANES) -> Value:
    """Returns a vector of equal elements."""
    kind = vector(value.type, count)
    single_element = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(i32, 0))
    mask = ir.Constant(vector(i32, count), [0] * count)
    return builder.shuffle_vector(single_element, ir.Constant(kind, ir.Undefined), mask)


def intrinsic(builder: ir.IRBuilder, name: str, *arguments: Value, result: ir.Type | None = None) -> Value:
    """Calls llvm.<name>, overloaded on the first argument's type."""
    kind = result or arguments[0].type
    full = f"llvm.{name}.{type_name(arguments[0].type)}"
    return builder.call(declare(builder.module, full, kind, [x.type for x in arguments]), arguments)


def type_name(kind: ir.Type) -> str:
    """Returns the type as intrinsics spell it: v16f32."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_name(kind.element)}"
    if isinstance(kind, ir.PointerType):
        return "p0"
    return {"half": "f16", "float": "f32", "double": "f64"}.get(str(kind), str(kind))


def declare(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    known = module.globals.get(name)
    return known or ir.Function(module, ir.FunctionType(result, arguments), name)


def offset(builder: ir.IRBuilder, base: Value, count: Value | int, element: ir.Type = i8) -> Value:
    """Returns base + count elements."""
    steps = index(count) if isinstance(count, int) else count
    return builder.gep(base, [steps], source_etype=element)


def load(builder: ir.IRBuilder, address: Value, kind: ir.Type, align: int = 4) -> Value:
    return builder.load(address, typ=kind, align=align)


def store(builder: ir.IRBuilder, value: Value, address: Value, align: int = 4) -> None:
    builder.store(value, address, align=align)


def entry_alloca(builder: ir.IRBuilder, kind: ir.Type, align: int = 64) -> Value:
    """Returns stack memory that is reserved once per call."""
    with builder.goto_entry_block():
        slot = builder.alloca(kind)
        slot.align, slot.type = align, pointer
    return slot


def table(module: ir.Module, values: np.ndarray[Any, Any]) -> Value:
    """Returns the address of a constant array."""
    flat = np.ascontiguousarray(values).reshape(-1)
    name = f"table.{flat.dtype.str[1:]}.{hashlib.sha1(flat.tobytes()).hexdigest()}"
    known = module.globals.get(name)
    if known is not None:
        return known
    unsigned = flat.view(f"u{flat.dtype.itemsize}")
    kind = ir.ArrayType(ir.IntType(8 * flat.dtype.itemsize), len(flat))
    found = ir.GlobalVariable(module, kind, name)
    found.linkage, found.global_constant = "internal", True
    found.initializer = ir.Constant(kind, [int(x) for x in unsigned])
    found.align, found.type = 64, pointer
    return found


@contextmanager
def loop(builder: ir.IRBuilder, stop: int, step: int = 1) -> Iterator[Value]:
    """Emits `for i in range(0, stop, step)`, and yields i as i64."""
    before = builder.block
    body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    counter = builder.phi(i64)
    counter.add_incoming(index(0), before)
    yield counter
    following = builder.add(counter, index(step))
    counter.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_unsigned("<", following, index(stop)), body, after)
    builder.position_at_end(after)


@contextmanager
def counted(builder: ir.IRBuilder, count: Value) -> Iterator[Value]:
    """Emits `for i in range(count)`, which may be 0, and yields i as i64."""
    position = entry_alloca(builder, i64)
    store(builder, index(0), position, 8)
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    counter = load(builder, position, i64, 8)
    builder.cbranch(builder.icmp_unsigned("<", counter, count), body, after)
    builder.position_at_end(body)
    yield counter
    store(builder, builder.add(counter, index(1)), position, 8)
    builder.branch(test)
    builder.position_at_end(after)


def internal(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """Returns a new function that is called, not inlined."""
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function


def once(module: ir.Module, name: str, make: Callable[[], ir.Function]) -> ir.Function:
    """Returns the function of this name, made if there is none yet."""
    return module.globals.get(name) or make()
