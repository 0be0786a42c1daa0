"""Address spaces as compiled code sees them: where their bytes are, and what may be accessed."""

from __future__ import annotations

from enum import Enum

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir
from mxcomp.sim.fast.addresses import Found
from mxcomp.sim.fast.frame import Env, Frame
from mxcomp.sim.semantics.memory import MemoryOp


class Space(Enum):
    DEVICE = "device"
    LDS = "lds"
    SCRATCH = "scratch"


def space_of(op: MemoryOp) -> Space:
    """Flat accesses to LDS or scratch lie outside of every allocation, which is the oracle's case."""
    return {"lds": Space.LDS, "scratch": Space.SCRATCH}.get(op.space, Space.DEVICE)


_BASES = {Space.DEVICE: Env.DATA, Space.LDS: Env.LDS, Space.SCRATCH: Env.SCRATCH}
_LIMITS = {Space.LDS: Env.LDS_BYTES, Space.SCRATCH: Env.SCRATCH_BYTES}


def lane_pointer(frame: Frame, space: Space, base: ir.Value, address: ir.Value, lane: ir.Value) -> ir.Value:
    """Where a lane's data lie; scratch is private to lanes."""
    if space is Space.SCRATCH:
        base = ir.offset(frame.builder, base, frame.builder.mul(lane, frame.get(Env.SCRATCH_BYTES)))
    return ir.offset(frame.builder, base, address)


def base_pointer(frame: Frame, space: Space) -> ir.Value:
    return frame.pointer(_BASES[space])


def checked(frame: Frame, space: Space, found: Found, offset: int, size: int) -> None:
    """Returns −1 from the function unless all lanes stay within one allocation."""
    builder = frame.builder
    low, end = builder.add(found.low, ir.index(offset)), builder.add(found.high, ir.index(offset + size))
    if space is Space.DEVICE:
        inside = within_allocation(frame, low, end)
    else:
        fits = builder.icmp_signed("<=", end, frame.get(_LIMITS[space]))
        inside = builder.and_(fits, builder.icmp_signed(">=", low, ir.index(0)))
    none = builder.icmp_unsigned("==", found.inside, ir.index(0))
    with builder.if_then(builder.not_(builder.or_(inside, none)), likely=False):
        builder.ret(ir.index(-1))


def within_allocation(frame: Frame, low: ir.Value, end: ir.Value) -> ir.Value:
    """Whether a range lies in one allocation."""
    function = ir.once(frame.module, "inside", lambda: _define_inside(frame.module))
    return frame.builder.call(function, [frame.env, low, end])


def _define_inside(module: llvm.Module) -> llvm.Function:
    """bool inside(env, low, end): the range lies in one allocation; the last one found is remembered."""
    function = ir.internal(module, "inside", ir.i1, [ir.pointer, ir.i64, ir.i64])
    env, low, end = function.args
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    frame = Frame(builder, env, env, env)

    def within(first: ir.Value, last: ir.Value) -> ir.Value:
        return builder.and_(builder.icmp_signed(">=", low, first), builder.icmp_signed("<=", end, last))

    with builder.if_then(within(frame.get(Env.LOW), frame.get(Env.HIGH)), likely=True):
        builder.ret(ir.constant(ir.i1, 1))
    starts, ends, count = frame.pointer(Env.STARTS), frame.pointer(Env.ENDS), frame.get(Env.RANGES)
    position = ir.entry_alloca(builder, ir.i64)
    ir.store(builder, ir.index(0), position, 8)
    test, body, none = (function.append_basic_block(name) for name in ("test", "body", "none"))
    builder.branch(test)
    builder.position_at_end(test)
    k = ir.load(builder, position, ir.i64, 8)
    builder.cbranch(builder.icmp_signed("<", k, count), body, none)
    builder.position_at_end(body)
    first, last = (ir.load(builder, ir.offset(builder, array, k, ir.i64), ir.i64, 8) for array in (starts, ends))
    with builder.if_then(within(first, last)):
        frame.set(Env.LOW, first)
        frame.set(Env.HIGH, last)
        builder.ret(ir.constant(ir.i1, 1))
    ir.store(builder, builder.add(k, ir.index(1)), position, 8)
    builder.branch(test)
    llvm.IRBuilder(none).ret(ir.constant(ir.i1, 0))
    return function
