"""Shorthand for building LLVM IR: values with Python's operators, memory, loops."""

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

_SCALARS: dict[str, ir.Type] = {"b1": i1, "f2": half, "f4": single, "f8": double}


def element_type(dtype: np.dtype[Any]) -> ir.Type:
    """Returns LLVM's type of a NumPy type; signed and unsigned integers are the same."""
    known = _SCALARS.get(f"{dtype.kind}{dtype.itemsize}")
    return ir.IntType(8 * dtype.itemsize) if known is None else known


def vector(element: ir.Type, count: int = LANES) -> ir.Type:
    return ir.VectorType(element, count)


def constant(kind: ir.Type, value: Any) -> Any:
    """Returns a constant; a number stands for all elements of a vector."""
    splats = isinstance(kind, ir.VectorType) and isinstance(value, int | float)
    return ir.Constant(kind, [value] * kind.count if splats else value)


def index(value: int) -> Any:
    return ir.Constant(i64, value)


def _binary(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.of(getattr(self.builder, name)(self, self.lift(other)))


def reflected(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.of(getattr(self.builder, name)(self.lift(other), self))


def _comparison(operator: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: self.compared(operator, other)


class Value:
    """An integer, vector or address with Python's operators, which emit at the builder's position.

    Numbers beside it are constants of its type; comparisons are signed, shifts to the right are not. llvmlite takes it
    for one of its own values, which have no types for mypy.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, builder: ir.IRBuilder, raw: Any) -> None:
        self.builder, self.raw = builder, raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def of(self, raw: Any) -> Value:
        """Returns another value at the same builder."""
        return type(self)(self.builder, raw)

    def lift(self, other: Any) -> Any:
        return constant(self.type, other) if isinstance(other, int | float) else other

    __add__, __sub__, __mul__ = _binary("add"), _binary("sub"), _binary("mul")
    __and__, __or__, __xor__ = _binary("and_"), _binary("or_"), _binary("xor")
    __lshift__, __rshift__, ashr = _binary("shl"), _binary("lshr"), _binary("ashr")
    __radd__, __rsub__, __rmul__ = reflected("add"), reflected("sub"), reflected("mul")
    __rand__, __ror__, __rlshift__ = reflected("and_"), reflected("or_"), reflected("shl")
    __lt__, __le__, __gt__, __ge__ = (_comparison(operator) for operator in ("<", "<=", ">", ">="))
    __eq__, __ne__ = _comparison("=="), _comparison("!=")

    def compared(self, operator: str, other: Any) -> Value:
        return Value(self.builder, self.builder.icmp_signed(operator, self, self.lift(other)))

    def __invert__(self) -> Value:
        return self.of(self.builder.not_(self))

    def select(self, if_true: Any, if_false: Any) -> Any:
        """Returns a choice by a condition; one of the two has to be a value."""
        if_true = if_false.lift(if_true) if isinstance(if_false, Value) else if_true
        if_false = if_true.lift(if_false) if isinstance(if_true, Value) else if_false
        return Value(self.builder, self.builder.select(self, if_true, if_false))

    def to(self, kind: ir.Type, signed: bool = False) -> Value:
        """Returns an integer, or a vector of them, extended or cut to a width."""
        wide, narrow = (getattr(each, "element", each).width for each in (kind, self.type))
        if wide == narrow:
            return self
        name = "trunc" if wide < narrow else "sext" if signed else "zext"
        return Value(self.builder, getattr(self.builder, name)(self, kind))

    def bits(self, kind: ir.Type) -> Value:
        return Value(self.builder, self.builder.bitcast(self, kind))

    def bit(self, number: Any) -> Any:
        """Returns a bit as a condition."""
        return (self >> number).to(i1)

    # -- of addresses

    def at(self, count: Any, element: ir.Type = i8) -> Value:
        """Returns the address so many elements further."""
        if isinstance(count, int):
            return self.at(index(count), element) if count else self
        return self.of(self.builder.gep(self, [count], source_etype=element))

    def load(self, kind: ir.Type, align: int = 1) -> Value:
        return self.of(self.builder.load(self, typ=kind, align=align))

    def store(self, value: Any, align: int = 1) -> None:
        self.builder.store(value, self, align=align)

    def item(self, count: Any, element: ir.Type, lanes: int = 0) -> Value:
        """Loads an element of an array, or a vector of `lanes` of them."""
        return self.at(count, element).load(vector(element, lanes) if lanes else element, _size(element))

    def put(self, count: Any, value: Any) -> None:
        """Stores an element of an array, or a vector of them."""
        element = getattr(value.type, "element", value.type)
        self.at(count, element).store(value, _size(element))


def _size(element: ir.Type) -> int:
    """Returns the size and alignment in bytes."""
    return 8 if element == double else 4 if element == single else int(element.width) // 8


class Variable:
    """A value on the stack, with the alignment of its type, or of 64 bytes if it is a vector."""

    def __init__(self, builder: ir.IRBuilder, kind: ir.Type, initial: Any) -> None:
        self._kind, self._slot = kind, entry_alloca(builder, kind)
        self._align = 64 if isinstance(kind, ir.VectorType) else max(1, _size(kind))
        self.set(initial)

    def get(self) -> Value:
        return self._slot.load(self._kind, self._align)

    def set(self, value: Any) -> None:
        self._slot.store(constant(self._kind, value) if isinstance(value, int | float) else value, self._align)


def splat(builder: ir.IRBuilder, value: Value, count: int = LANES) -> Value:
    """Returns a vector of equal elements."""
    kind = vector(value.type, count)
    single_element = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(i32, 0))
    mask = ir.Constant(vector(i32, count), [0] * count)
    return Value(builder, builder.shuffle_vector(single_element, ir.Constant(kind, ir.Undefined), mask))


def intrinsic(builder: ir.IRBuilder, name: str, *arguments: Value, result: ir.Type | None = None) -> Value:
    """Calls llvm.<name>, overloaded on the first argument's type."""
    kind = result or arguments[0].type
    full = f"llvm.{name}.{type_name(arguments[0].type)}"
    return Value(builder, builder.call(declare(builder.module, full, kind, [x.type for x in arguments]), arguments))


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


def entry_alloca(builder: ir.IRBuilder, kind: ir.Type, align: int = 64) -> Value:
    """Returns stack memory that is reserved once per call."""
    with builder.goto_entry_block():
        slot = builder.alloca(kind)
        slot.align, slot.type = align, pointer
    return Value(builder, slot)


def table(builder: ir.IRBuilder, values: np.ndarray[Any, Any]) -> Value:
    """Returns the address of a constant array."""
    module = builder.module
    flat = np.ascontiguousarray(values).reshape(-1)
    name = f"table.{flat.dtype.str[1:]}.{hashlib.sha1(flat.tobytes()).hexdigest()}"
    known = module.globals.get(name)
    if known is not None:
        return Value(builder, known)
    unsigned = flat.view(f"u{flat.dtype.itemsize}")
    kind = ir.ArrayType(ir.IntType(8 * flat.dtype.itemsize), len(flat))
    found = ir.GlobalVariable(module, kind, name)
    found.linkage, found.global_constant = "internal", True
    found.initializer = ir.Constant(kind, [int(x) for x in unsigned])
    found.align, found.type = 64, pointer
    return Value(builder, found)


@contextmanager
def loop(builder: ir.IRBuilder, stop: int, step: int = 1) -> Iterator[Value]:
    """Emits `for i in range(0, stop, step)`, and yields i as i64."""
    before = builder.block
    body, after = builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    counter = builder.phi(i64)
    counter.add_incoming(index(0), before)
    yield Value(builder, counter)
    following = builder.add(counter, index(step))
    counter.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_unsigned("<", following, index(stop)), body, after)
    builder.position_at_end(after)


@contextmanager
def counted(builder: ir.IRBuilder, count: Value) -> Iterator[Value]:
    """Emits `for i in range(count)`, which may be 0, and yields i as i64."""
    position = Variable(builder, i64, 0)
    test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
    builder.branch(test)
    builder.position_at_end(test)
    counter = position.get()
    builder.cbranch(builder.icmp_unsigned("<", counter, count), body, after)
    builder.position_at_end(body)
    yield counter
    position.set(counter + 1)
    builder.branch(test)
    builder.position_at_end(after)


@contextmanager
def each_lane(builder: ir.IRBuilder, mask: Value) -> Iterator[Value]:
    """Emits `for lane in mask`."""
    with loop(builder, WAVE) as lane, builder.if_then(mask.bit(lane)):
        yield lane


def internal(module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """Returns a new function that is called, not inlined."""
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function


def define(
    module: ir.Module, name: str, result: ir.Type, arguments: Sequence[ir.Type]
) -> tuple[ir.IRBuilder, list[Value]]:
    """Begins a new function; returns a builder in it, and its arguments."""
    function = internal(module, name, result, arguments)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    return builder, [Value(builder, argument) for argument in function.args]


def once(module: ir.Module, name: str, make: Callable[[], ir.Function]) -> ir.Function:
    """Returns the function of this name, made if there is none yet."""
    return module.globals.get(name) or make()
