"""Atomics: lanes one after another, in ascending order."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.addresses import Found
from mxcomp.sim.fast.frame import Env, Frame
from mxcomp.sim.fast.moving import at, cell, each_lane
from mxcomp.sim.fast.spaces import Space, base_pointer
from mxcomp.sim.fast.tracing import Untraceable
from mxcomp.sim.semantics.memory import MemoryOp

Combine = Callable[[llvm.IRBuilder, ir.Value, ir.Value], ir.Value]


def _least(operator: str, signed: bool) -> Combine:
    def combine(b: llvm.IRBuilder, old: ir.Value, x: ir.Value) -> ir.Value:
        compare = b.icmp_signed if signed else b.icmp_unsigned
        return b.select(compare(operator, x, old), x, old)

    return combine


def _add_f32(b: llvm.IRBuilder, old: ir.Value, x: ir.Value) -> ir.Value:
    total = b.fadd(b.bitcast(old, ir.single), b.bitcast(x, ir.single))
    nan = b.fcmp_unordered("uno", total, total)
    return b.select(nan, ir.constant(ir.i32, 0x7FC00000), b.bitcast(total, ir.i32))


def _add_bfloat_pair(b: llvm.IRBuilder, old: ir.Value, x: ir.Value) -> ir.Value:
    """Adds pairs of bfloat16, rounded to nearest even; NaN is canonical."""
    halves = []
    for k in (0, 16):
        a, c = (b.bitcast(_bfloat(b, word, k), ir.single) for word in (old, x))
        total = b.fadd(a, c)
        bits = b.bitcast(total, ir.i32)
        even = b.and_(b.lshr(bits, ir.constant(ir.i32, 16)), ir.constant(ir.i32, 1))
        rounded = b.add(b.add(bits, ir.constant(ir.i32, 0x7FFF)), even)
        upper = b.select(b.fcmp_unordered("uno", total, total), ir.constant(ir.i32, 0x7FC00000), rounded)
        halves.append(b.lshr(upper, ir.constant(ir.i32, 16)))
    return b.or_(halves[0], b.shl(halves[1], ir.constant(ir.i32, 16)))


def _bfloat(b: llvm.IRBuilder, word: ir.Value, shift: int) -> ir.Value:
    """Returns the float32 bits of one of two bfloat16."""
    return b.and_(word, ir.constant(ir.i32, -65536)) if shift else b.shl(word, ir.constant(ir.i32, 16))


_COMBINE: dict[str, Combine] = {
    "swap": lambda b, old, x: x,
    "add": lambda b, old, x: b.add(old, x),
    "sub": lambda b, old, x: b.sub(old, x),
    "and": lambda b, old, x: b.and_(old, x),
    "or": lambda b, old, x: b.or_(old, x),
    "xor": lambda b, old, x: b.xor(old, x),
    "umin": _least("<", False),
    "umax": _least(">", False),
    "smin": _least("<", True),
    "smax": _least(">", True),
    "add_f32": _add_f32,
    "pk_add_bf16": _add_bfloat_pair,
}
"""The combining functions of 32-bit atomics; the others are left to the NumPy engine."""


def update(
    frame: Frame, op: MemoryOp, space: Space, bound: dict[str, ir.Value], found: Found, active: ir.Value
) -> None:
    combine = _COMBINE.get(op.atomic)
    if combine is None or op.size != 4:
        raise Untraceable(f"atomic {op.atomic}")
    builder, base = frame.builder, base_pointer(frame, space)
    if "result" in bound:
        with each_lane(builder, builder.and_(active, builder.not_(found.inside))) as lane:
            ir.store(builder, ir.constant(ir.i32, 0), cell(builder, bound["result"], lane))
    with each_lane(builder, found.inside) as lane:
        address = at(frame, space, base, found, lane)
        old, operand = (
            ir.load(builder, address, ir.i32, 1),
            ir.load(builder, cell(builder, bound["data"], lane), ir.i32),
        )
        ir.store(builder, combine(builder, old, operand), address, 1)
        if space is Space.DEVICE:
            marks = at(frame, space, frame.pointer(Env.WRITTEN), found, lane)
            ir.store(builder, ir.constant(ir.i32, 0x01010101), marks, 1)
        if "result" in bound:
            ir.store(builder, old, cell(builder, bound["result"], lane))
