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
    """Returns the space of an access. Flat accesses to LDS or scratch lie outside of every allocation, and are left to
    the NumPy engine."""
    return {"lds": Space.LDS, "scratch": Space.SCRATCH}.get(op.space, Space.DEVICE)


_BASES = {Space.DEVICE: Env.DATA, Space.LDS: Env.LDS, Space.SCRATCH: Env.SCRATCH}
WRITTEN = {Space.DEVICE: Env.WRITTEN, Space.SCRATCH: Env.SCRATCH_WRITTEN}
_LIMITS = {Space.LDS: Env.LDS_BYTES, Space.SCRATCH: Env.SCRATCH_BYTES}


def lane_pointer(frame: Frame, space: Space, base: ir.Value, address: ir.Value, lane: ir.Value) -> ir.Value:
    """Returns a pointer to a lane's data; scratch is private to lanes."""
    if space is Space.SCRATCH:
        base = ir.offset(frame.builder, base, frame.builder.mul(lane, frame.get(Env.SCRATCH_BYTES)))
    return ir.offset(frame.builder, base, address)


def base_pointer(frame: Frame, space: Space) -> ir.Value:
    return frame.pointer(_BASES[space])


def checked(frame: Frame, space: Space, found: Found, offset: int, size: int) -> None:
    """Makes the function return −1 unless all lanes stay within one allocation."""
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


def require_written(frame: Frame, space: Space, found: Found, offset: int, size: int) -> None:
    """Makes the function return −1 unless all bytes that lanes read have been written, or need not be."""
    builder = frame.builder
    marks = frame.pointer(WRITTEN[space])
    missing = ir.entry_alloca(builder, ir.i1)
    ir.store(builder, ir.constant(ir.i1, 0), missing, 1)
    kind = llvm.IntType(8 * size)
    with ir.loop(builder, ir.WAVE) as lane, builder.if_then(builder.trunc(builder.lshr(found.inside, lane), ir.i1)):
        address = ir.load(builder, ir.offset(builder, found.addresses, lane, ir.i64), ir.i64, 8)
        pointer = lane_pointer(frame, space, marks, builder.add(address, ir.index(offset)), lane)
        known = ir.load(builder, missing, ir.i1, 1)
        ir.store(builder, builder.or_(known, builder.not_(_all_ones(builder, pointer, kind))), missing, 1)
    with builder.if_then(ir.load(builder, missing, ir.i1, 1), likely=False):
        frame.set(Env.MISSING, ir.index(1))
        with builder.if_then(is_strict(frame), likely=False):
            builder.ret(ir.index(-1))


def is_strict(frame: Frame) -> ir.Value:
    return frame.builder.icmp_unsigned("!=", frame.get(Env.STRICT), ir.index(0))


def may_read(frame: Frame, start: ir.Value, size: int, allowed: ir.Value) -> ir.Value:
    """Returns whether bytes of device memory are `allowed` and have been written, or need not be."""
    builder = frame.builder
    safe = builder.select(allowed, start, ir.index(0))
    pointer = ir.offset(builder, frame.pointer(Env.WRITTEN), safe)
    missing = builder.and_(allowed, builder.not_(_all_ones(builder, pointer, llvm.IntType(8 * size))))
    frame.set(Env.MISSING, builder.or_(frame.get(Env.MISSING), builder.zext(missing, ir.i64)))
    return builder.and_(allowed, builder.not_(builder.and_(missing, is_strict(frame))))


def _all_ones(builder: llvm.IRBuilder, pointer: ir.Value, kind: llvm.IntType) -> ir.Value:
    """Returns whether every byte is 1."""
    expected = int.from_bytes(b"\1" * (kind.width // 8), "little")
    return builder.icmp_unsigned("==", ir.load(builder, pointer, kind, 1), ir.constant(kind, expected))


def within_allocation(frame: Frame, low: ir.Value, end: ir.Value) -> ir.Value:
    """Returns whether a range lies in one allocation."""
    function = ir.once(frame.module, "inside", lambda: _define_inside(frame.module))
    return frame.builder.call(function, [frame.env, low, end])


def _define_inside(module: llvm.Module) -> llvm.Function:
    """Defines bool inside(env, low, end): whether the range lies in one allocation; the last one found is
    remembered."""
    function = ir.internal(module, "inside", ir.i1, [ir.pointer, ir.i64, ir.i64])
    env, low, end = function.args
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    frame = Frame(builder, env, env, env)

    def within(first: ir.Value, last: ir.Value) -> ir.Value:
        return builder.and_(builder.icmp_signed(">=", low, first), builder.icmp_signed("<=", end, last))

    with builder.if_then(within(frame.get(Env.LOW), frame.get(Env.HIGH)), likely=True):
        builder.ret(ir.constant(ir.i1, 1))
    starts, ends, count = frame.pointer(Env.STARTS), frame.pointer(Env.ENDS), frame.get(Env.RANGES)
    with ir.counted(builder, count) as k:
        first, last = (ir.load(builder, ir.offset(builder, array, k, ir.i64), ir.i64, 8) for array in (starts, ends))
        with builder.if_then(within(first, last)):
            frame.set(Env.LOW, first)
            frame.set(Env.HIGH, last)
            builder.ret(ir.constant(ir.i1, 1))
    builder.ret(ir.constant(ir.i1, 0))
    return function
