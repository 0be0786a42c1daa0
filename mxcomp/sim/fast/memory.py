"""Memory instructions: one function per form, which executes it, or changes nothing and fails in unusual cases.

A form's function gets EXEC, the environment, rows and shared values; it returns the number of lanes that accessed
memory, or −1: accesses that leave an allocation, buffers that end within a lane's data and the like are the NumPy
engine's."""

from __future__ import annotations

from llvmlite import ir as llvm

from mxcomp.sim.checks.waits import Flight
from mxcomp.sim.fast import addresses, ir
from mxcomp.sim.fast import moving as lanes
from mxcomp.sim.fast.addresses import FAILED, Bound, Found, fail_if
from mxcomp.sim.fast.conflicts import count_conflicts
from mxcomp.sim.fast.frame import Env, Frame, Log
from mxcomp.sim.fast.tracing import Untraceable
from mxcomp.sim.instruction import M0, Instruction, MemoryOp, MemoryOperands, Space
from mxcomp.sim.memory import BASE


def is_logged(i: Instruction) -> bool:
    """Returns whether the LDS accesses of the instruction are logged for the checks."""
    flight = Flight.of(i)
    return flight is not None and flight.local


def emit_memory(frame: Frame, i: Instruction) -> ir.Value:
    """Executes the instruction and returns its lanes as i64, or `FAILED` if the NumPy engine has to execute it."""
    operands = i.memory
    assert operands is not None
    op = operands.op
    if op.kind == "permute" or (op.is_scalar and op.kind != "load"):
        raise Untraceable(i.mnemonic)
    if op.is_scalar:
        return _scalar_load(frame, operands)
    given = addresses.address_arguments(frame, operands)
    rows = {"data": operands.data, "data1": operands.data1, "result": operands.result}
    given |= {name: frame.rows(operand) for name, operand in rows.items() if operand is not None}
    if op.to_lds:
        given["m0"] = frame.read32(M0)
    fixed = operands.offset if op.accesses == 2 or op.to_lds else 0
    name = f"m.{(i.mnemonic, fixed, operands.offset1, op.to_lds, tuple(given))}"
    function = ir.once(frame.module, name, lambda: _define(frame, name, i, operands, given))
    return frame.call(function, frame.exec(), frame.env, *given.values())


def _define(caller: Frame, name: str, i: Instruction, operands: MemoryOperands, given: Bound) -> llvm.Function:
    op, types = operands.op, [value.type for value in given.values()]
    builder, (active, env, *arguments) = ir.define(caller.module, name, ir.i64, [ir.i64, ir.pointer, *types])
    frame = Frame(builder, env, env, env, caller.watched)  # only the environment is used
    bound = dict(zip(given, arguments, strict=True))
    offsets = [0] if op.accesses == 1 else [operands.offset * op.stride, operands.offset1 * op.stride]
    found = addresses.lane_addresses(builder, op, bound, active)
    for offset in offsets:
        addresses.checked(frame, found, offset, op.size)
        if frame.watched and op.kind != "store" and found.space is not Space.LDS:
            addresses.require_written(frame, found, offset, op.size)
    if frame.watched and op.kind != "load" and found.space is Space.DEVICE:
        lanes.journal_lanes(frame, found, offsets[0], op.size)
    if frame.watched and is_logged(i):
        _log(frame, found, active)
    if op.to_lds:
        _direct(frame, op, bound, found, active, operands.offset)
    elif op.kind == "atomic":
        lanes.update_lanes(frame, op, bound, found, active)
    else:
        for k, offset in enumerate(offsets):
            _move(frame, op, bound, found, active, k, offset)
            if found.space is Space.LDS:
                count_conflicts(frame, op.kind, op.size, found.addresses, active, offset)
    builder.ret(ir.intrinsic(builder, "ctpop", found.inside if op.kind == "atomic" else active))
    return builder.function


def _log(frame: Frame, found: Found, active: ir.Value) -> None:
    """Logs lanes and addresses; `_direct` replaces these."""
    frame.log(Log.MASK).put(0, active)
    frame.log(Log.SAME).put(0, ir.index(0))
    target = frame.log(Log.ADDRESSES)
    with ir.loop(frame.builder, ir.WAVE, ir.LANES) as lane:
        target.put(lane, found.addresses.item(lane, ir.i64, ir.LANES))


def _note_same(frame: Frame, k: int, same: ir.Value) -> None:
    """Sets bit k of the log's field for stores that change nothing."""
    bit = same.select(ir.index(1 << k), ir.index(0))
    known = frame.log(Log.SAME).item(0, ir.i64)
    frame.log(Log.SAME).put(0, known | bit)


def _move(frame: Frame, op: MemoryOp, bound: Bound, found: Found, active: ir.Value, k: int, offset: int) -> None:
    """Emits access k of a load or a store."""
    if op.kind == "store":
        row = bound["data1" if k else "data"]
        if frame.watched and found.space is Space.LDS:
            _note_same(frame, k, lanes.stores_the_same(frame, op, row, found, offset))
        lanes.store_lanes(frame, op, row, found, offset)
        return
    row = bound["result"].at(k * (op.registers // op.accesses) * ir.WAVE, ir.i32)
    load = lanes.transpose_lanes if op.transpose else lanes.load_lanes
    load(frame, op, row, found, active, offset)


def _direct(frame: Frame, op: MemoryOp, bound: Bound, found: Found, active: ir.Value, offset: int) -> None:
    """Loads from global memory to LDS: slots of at least 4 bytes from 18 bits of M0 on; lanes beyond the buffer write
    0."""
    builder, slot = frame.builder, max(4, op.size)
    start = (bound["m0"] & 0x3FFFF).to(ir.i64) + offset
    fail_if(~((start + slot * ir.WAVE <= frame.get(Env.LDS_BYTES)) & (start >= 0)))
    data, lds = frame.pointer(Env.DATA), frame.pointer(Env.LDS).at(start)
    kind, stored = llvm.IntType(8 * op.size), llvm.IntType(8 * slot)
    same = ir.Variable(builder, ir.i1, 1)
    with ir.each_lane(builder, active) as lane:
        target = lds.at(lane * slot)
        before = target.load(stored)
        target.store(ir.constant(stored, 0))
        with builder.if_then(found.inside.bit(lane)):
            value = data.at(found.addresses.item(lane, ir.i64)).load(kind)
            target.store(value.to(stored, op.signed))
        equal = before == target.load(stored)
        same.set(same.get() & equal)
    if frame.watched:
        frame.log(Log.ADDRESSES).put(0, start)
        _note_same(frame, 0, same.get())


def _scalar_load(frame: Frame, operands: MemoryOperands) -> ir.Value:
    """Emits s_load and s_buffer_load if the range lies within one allocation, and within the buffer."""
    builder, op = frame.builder, operands.op
    assert operands.base is not None and operands.result is not None
    offset, ok = (ir.Value(builder, constant) for constant in (ir.index(operands.offset), ir.constant(ir.i1, 1)))
    if operands.scalar_offset is not None:
        offset = offset + frame.scalar(operands.scalar_offset, "u").to(ir.i64)
    base = frame.read64(operands.base.code)
    if op.space == "scalar_buffer":
        base = base & (1 << 48) - 1
        ok = frame.read32(operands.base.code + 2).to(ir.i64) - (offset & -4) >= op.size
    start = (base + offset & -4) - BASE
    ok = ok & addresses.within_allocation(frame, start, start + op.size)
    if frame.watched:
        ok = addresses.may_read(frame, start, op.size, ok)
    with builder.if_then(ok):
        loaded = frame.pointer(Env.DATA).at(start).item(0, ir.i32, op.size // 4)
        frame.scalars.at(operands.result.code, ir.i32).put(0, loaded)
    return ok.select(ir.index(1), ir.index(FAILED))
