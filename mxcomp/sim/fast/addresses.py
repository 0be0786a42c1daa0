"""Computes where lanes access memory in compiled code: addresses, by the rules of `mxcomp.sim.semantics.memory`, the
bytes of each address space, and what may be accessed."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir, lanes
from mxcomp.sim.fast.frame import Env, Frame
from mxcomp.sim.fast.tracing import InsertPoint, Traced
from mxcomp.sim.instruction import MemoryOp, MemoryOperands, Space
from mxcomp.sim.memory import BASE
from mxcomp.sim.semantics.table import i64, u32, u64

FAILED = -1
"""The result of a form's function that has changed nothing, and leaves the instruction to the NumPy engine."""

Bound = dict[str, ir.Value]
"""The named arguments of a form's function, in order."""

_RESOURCE = ("w0", "w1", "w2", "w3")


_BASES = {Space.DEVICE: Env.DATA, Space.LDS: Env.LDS, Space.SCRATCH: Env.SCRATCH}
WRITTEN = {Space.DEVICE: Env.WRITTEN, Space.SCRATCH: Env.SCRATCH_WRITTEN}
_LIMITS = {Space.LDS: Env.LDS_BYTES, Space.SCRATCH: Env.SCRATCH_BYTES}


def base_pointer(frame: Frame, space: Space) -> ir.Value:
    return frame.pointer(_BASES[space])


@dataclass(frozen=True)
class Found:
    """Addresses in memory, and the lanes that use them.

    Attributes:
        space: Where they are.
        addresses: i64[64]; device addresses relative to the arena.
        inside: Mask of lanes that access memory.
        low, high: The least and greatest of their addresses.
    """

    space: Space
    addresses: ir.Value
    inside: ir.Value
    low: ir.Value
    high: ir.Value

    def at(self, frame: Frame, base: ir.Value, lane: ir.Value, offset: int = 0) -> ir.Value:
        """Returns the address of a lane's data; scratch is private to lanes."""
        address = self.addresses.item(lane, ir.i64) + offset
        if self.space is Space.SCRATCH:
            base = base.at(lane * frame.get(Env.SCRATCH_BYTES))
        return base.at(address)


def fail_if(condition: ir.Value) -> None:
    """Makes the function return `FAILED`."""
    with condition.builder.if_then(condition, likely=False):
        condition.builder.ret(ir.index(FAILED))


def address_arguments(frame: Frame, operands: MemoryOperands) -> Bound:
    """Returns rows of addresses, offsets and indices; "start", which is added to them; and a buffer's resource."""
    op = operands.op
    rows = {"address": operands.address, "index": operands.index}
    given = {name: frame.rows(operand) for name, operand in rows.items() if operand is not None}
    start = ir.Value(frame.builder, ir.index(0 if op.accesses == 2 else operands.offset))
    if op.space == "buffer":
        assert operands.base is not None and operands.scalar_offset is not None
        given |= {name: frame.read32(operands.base.code + k) for k, name in enumerate(_RESOURCE)}
        given["scalar"] = frame.scalar(operands.scalar_offset, "u").to(ir.i64)
    elif operands.base is not None:
        code = operands.base.code
        start = start + (frame.read64(code) if op.space == "global" else frame.read32(code).to(ir.i64))
        given["base"] = ir.constant(ir.i1, 1)
    return given | {"start": start}


_EXTREMES = {"smin": (1 << 63) - 1, "smax": -(1 << 63)}


def lane_addresses(builder: llvm.IRBuilder, op: MemoryOp, bound: Bound, active: ir.Value) -> Found:
    """Emits the addresses of lanes; for what the NumPy engine handles the function fails.

    That are some resources, and ranges such as those of flat accesses to LDS or scratch, outside of every allocation.
    """
    wide = ir.vector(ir.i64)
    if op.space == "buffer":
        _refuse_structured(bound)
    addresses = ir.entry_alloca(builder, llvm.ArrayType(ir.i64, ir.WAVE))
    inside, whole = (ir.Variable(builder, ir.i64, 0) for _ in range(2))
    extremes = {name: ir.Variable(builder, wide, limit) for name, limit in _EXTREMES.items()}
    with ir.loop(builder, ir.WAVE, ir.LANES) as lane:
        on = lanes.chunk(active, lane)
        at, room = _addresses(InsertPoint(builder, lane), op, bound)
        within = [on if room is None else on & (room >= size).value for size in (min(4, op.size), op.size)]
        addresses.put(lane, at.value)
        for mask, bits in zip((inside, whole), within, strict=True):
            lanes.collect(mask, bits, lane)
        for name, extreme in extremes.items():
            used = within[0].select(at.value, ir.constant(wide, _EXTREMES[name]))
            extreme.set(ir.intrinsic(builder, name, extreme.get(), used))
    found = inside.get()
    fail_if(found != whole.get())
    ends = (
        ir.intrinsic(builder, f"vector.reduce.{name}", each.get(), result=ir.i64) for name, each in extremes.items()
    )
    return Found(op.where, addresses, found, *ends)


def _refuse_structured(bound: Bound) -> None:
    """Leaves buffers with other address rules to the NumPy engine: add-thread-ID, swizzle, index with stride."""
    odd = bound["w3"] & 1 << 23
    if "index" in bound:
        odd = odd | bound["w1"] & (1 << 31 | 0x3FFF << 16)
    fail_if(odd != 0)


def _addresses(point: InsertPoint, op: MemoryOp, bound: Bound) -> tuple[Traced, Traced | None]:
    """Returns the address of each lane, and the bytes from there to the end of the buffer if there is a buffer."""

    def shared(value: ir.Value) -> Traced:
        return Traced(point, i64, ir.splat(point.builder, value))

    def row(k: int) -> Traced:
        return Traced(point, u32, bound["address"].item(point.lane + ir.WAVE * k, ir.i32, ir.LANES))

    offset = start = shared(bound["start"])
    if "address" in bound and op.space in ("global", "flat") and "base" not in bound:
        low, high = row(0), row(1)
        offset = (low.astype(u64) | high.astype(u64) << 32).view(i64) + start
    elif "address" in bound:
        offset = row(0).astype(i64) + start
    if op.space in ("global", "flat"):
        return offset - BASE, None
    if op.space != "buffer":
        return offset, None
    w0, w1, w2 = (bound[name].to(ir.i64) for name in _RESOURCE[:3])
    base, scalar = shared(w0 | (w1 & 0xFFFF) << 32), shared(bound["scalar"])
    offset = offset.astype(u32).astype(i64)
    return base + scalar + offset - BASE, shared(w2) - scalar - offset


# -- what may be accessed


def checked(frame: Frame, found: Found, offset: int, size: int) -> None:
    """Makes the function fail unless all lanes stay within one allocation."""
    low, end = found.low + offset, found.high + (offset + size)
    if found.space is Space.DEVICE:
        inside = within_allocation(frame, low, end)
    else:
        inside = (end <= frame.get(_LIMITS[found.space])) & (low >= 0)
    fail_if(~(inside | (found.inside == 0)))


def require_written(frame: Frame, found: Found, offset: int, size: int) -> None:
    """Makes the function fail unless all bytes that lanes read have been written, or need not be."""
    builder, marks = frame.builder, frame.pointer(WRITTEN[found.space])
    missing = ir.Variable(builder, ir.i1, 0)
    with ir.each_lane(builder, found.inside) as lane:
        pointer, known = found.at(frame, marks, lane, offset), missing.get()
        missing.set(known | ~_all_ones(pointer, size))
    with builder.if_then(missing.get(), likely=False):
        frame.set(Env.MISSING, 1)
        fail_if(frame.get(Env.STRICT) != 0)


def may_read(frame: Frame, start: ir.Value, size: int, allowed: ir.Value) -> ir.Value:
    """Returns whether bytes of device memory are `allowed` and have been written, or need not be."""
    safe = allowed.select(start, 0)
    missing = allowed & ~_all_ones(frame.pointer(Env.WRITTEN).at(safe), size)
    frame.set(Env.MISSING, frame.get(Env.MISSING) | missing.to(ir.i64))
    return allowed & ~(missing & (frame.get(Env.STRICT) != 0))


def _all_ones(pointer: ir.Value, size: int) -> ir.Value:
    """Returns whether every byte is 1."""
    return pointer.load(llvm.IntType(8 * size)) == int.from_bytes(b"\1" * size, "little")


def within_allocation(frame: Frame, low: ir.Value, end: ir.Value) -> ir.Value:
    """Returns whether a range lies in one allocation."""
    function = ir.once(frame.module, "inside", lambda: _define_inside(frame.module))
    return frame.call(function, frame.env, low, end)


def _define_inside(module: llvm.Module) -> llvm.Function:
    """Defines bool inside(env, low, end): whether the range lies in one allocation; the last one found is
    remembered."""
    builder, (env, low, end) = ir.define(module, "inside", ir.i1, [ir.pointer, ir.i64, ir.i64])
    frame = Frame(builder, env, env, env)

    def within(first: ir.Value, last: ir.Value) -> ir.Value:
        return (low >= first) & (end <= last)

    with builder.if_then(within(frame.get(Env.LOW), frame.get(Env.HIGH)), likely=True):
        builder.ret(ir.constant(ir.i1, 1))
    starts, ends, count = frame.pointer(Env.STARTS), frame.pointer(Env.ENDS), frame.get(Env.RANGES)
    with ir.counted(builder, count) as k:
        first, last = starts.item(k, ir.i64), ends.item(k, ir.i64)
        with builder.if_then(within(first, last)):
            frame.set(Env.LOW, first)
            frame.set(Env.HIGH, last)
            builder.ret(ir.constant(ir.i1, 1))
    builder.ret(ir.constant(ir.i1, 0))
    return builder.function
