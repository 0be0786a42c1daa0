"""Memory instructions: one function per form, which executes it, or changes nothing and fails in unusual cases.

A form's function gets EXEC, the environment, rows and shared values; it returns the number of lanes that accessed
memory, or −1: accesses that leave an allocation, buffers that end within a lane's data and the like are the NumPy
engine's."""

from __future__ import annotations

from llvmlite import ir as llvm

from mxcomp.sim.checks.waits import Flight
from mxcomp.sim.fast import ir
from mxcomp.sim.fast.addresses import Arguments, Found, address_arguments, lane_addresses
from mxcomp.sim.fast.atomics import update
from mxcomp.sim.fast.conflicts import count_conflicts
from mxcomp.sim.fast.frame import Env, Frame, Log
from mxcomp.sim.fast.moving import journal_lanes, load_lanes, store_lanes, stores_the_same, transpose_lanes
from mxcomp.sim.fast.spaces import Space, checked, may_read, require_written, space_of, within_allocation
from mxcomp.sim.fast.tracing import Untraceable
from mxcomp.sim.instruction import M0, Instruction
from mxcomp.sim.memory import BASE
from mxcomp.sim.semantics.memory import MemoryOp, parse

FAILED = -1


def is_logged(i: Instruction) -> bool:
    """Returns whether the LDS accesses of the instruction are logged for the checks."""
    flight = Flight.of(i)
    return flight is not None and flight.local


def emit_memory(frame: Frame, i: Instruction) -> ir.Value:
    """Executes the instruction and returns its lanes as i64, or `FAILED` if the NumPy engine has to execute it."""
    op = parse(i.mnemonic)
    assert op is not None and i.memory is not None
    if op.kind == "permute":
        raise Untraceable(i.mnemonic)
    if op.space in ("scalar", "scalar_buffer"):
        if op.kind != "load":
            raise Untraceable(i.mnemonic)
        return _scalar_load(frame, i, op)
    given = Arguments(frame)
    address_arguments(given, i, op)
    operands = i.memory
    for name, operand in (("data", operands.data), ("data1", operands.data1), ("result", operands.result)):
        if operand is not None:
            given.row(name, operand)
    direct = bool(op.to_lds or i.flag("lds"))
    if direct:
        given.value("m0", frame.read32(M0))
    shape = (i.mnemonic, operands.offset if op.accesses == 2 or direct else 0, operands.offset1, direct, given.names())
    name = f"m.{shape}"
    function = ir.once(frame.module, name, lambda: _define(frame.module, name, i, op, given, direct))
    return frame.builder.call(function, [frame.exec(), frame.env, *given.values()])


def _define(
    module: llvm.Module, name: str, i: Instruction, op: MemoryOp, given: Arguments, direct: bool
) -> llvm.Function:
    assert i.memory is not None
    defined = ir.internal(module, name, ir.i64, [ir.i64, ir.pointer, *given.types()])
    active, env = defined.args[:2]
    builder = llvm.IRBuilder(defined.append_basic_block("entry"))
    frame = Frame(builder, env, env, env, given.frame.watched)  # only the environment is used
    bound = given.bound(list(defined.args[2:]))
    space = space_of(op)
    offsets = [0] if op.accesses == 1 else [i.memory.offset * op.stride, i.memory.offset1 * op.stride]
    found = lane_addresses(builder, op, bound, active)
    for offset in offsets:
        checked(frame, space, found, offset, op.size)
        if frame.watched and op.kind != "store" and space is not Space.LDS:
            require_written(frame, space, found, offset, op.size)
    if frame.watched and op.kind != "load" and space is Space.DEVICE:
        journal_lanes(frame, found, offsets[0], op.size)
    if frame.watched and is_logged(i):
        _log(frame, found, active)
    if direct:
        _direct(frame, op, bound, found, active, i.memory.offset)
    elif op.kind == "atomic":
        update(frame, op, space, bound, found, active)
    else:
        for k, offset in enumerate(offsets):
            _move(frame, op, space, bound, found, active, k, offset)
            if space is Space.LDS:
                count_conflicts(frame, op.kind, op.size, found.addresses, active, offset)
    builder.ret(ir.intrinsic(builder, "ctpop", found.inside if op.kind == "atomic" else active))
    return defined


def _log(frame: Frame, found: Found, active: ir.Value) -> None:
    """Logs lanes and addresses; `_direct` replaces these."""
    builder, kind = frame.builder, ir.vector(ir.i64)
    ir.store(builder, active, frame.log(Log.MASK), 8)
    ir.store(builder, ir.index(0), frame.log(Log.SAME), 8)
    target = frame.log(Log.ADDRESSES)
    with ir.loop(builder, ir.WAVE, ir.LANES) as lane:
        addresses = ir.load(builder, ir.offset(builder, found.addresses, lane, ir.i64), kind, 8)
        ir.store(builder, addresses, ir.offset(builder, target, lane, ir.i64), 8)


def _note_same(frame: Frame, k: int, same: ir.Value) -> None:
    """Sets bit k of the log's field for stores that change nothing."""
    bit = frame.builder.select(same, ir.index(1 << k), ir.index(0))
    known = ir.load(frame.builder, frame.log(Log.SAME), ir.i64, 8)
    ir.store(frame.builder, frame.builder.or_(known, bit), frame.log(Log.SAME), 8)


def _move(
    frame: Frame,
    op: MemoryOp,
    space: Space,
    bound: dict[str, ir.Value],
    found: Found,
    active: ir.Value,
    k: int,
    offset: int,
) -> None:
    per_access = op.registers // op.accesses
    if op.kind == "store":
        row = bound["data1" if k else "data"]
        if frame.watched and space is Space.LDS:
            _note_same(frame, k, stores_the_same(frame, op, row, found, offset))
        store_lanes(frame, op, space, row, found, offset)
        return
    row = ir.offset(frame.builder, bound["result"], k * per_access * ir.WAVE, ir.i32)
    if op.transpose:
        transpose_lanes(frame, op, space, row, found, active, offset)
    else:
        load_lanes(frame, op, space, row, found, active, offset)


def _direct(
    frame: Frame, op: MemoryOp, bound: dict[str, ir.Value], found: Found, active: ir.Value, offset: int
) -> None:
    """Loads from global memory to LDS: slots of at least 4 bytes from 18 bits of M0 on; lanes beyond the buffer write
    0."""
    builder, slot = frame.builder, max(4, op.size)
    m0 = builder.and_(bound["m0"], ir.constant(ir.i32, 0x3FFFF))
    start = builder.add(builder.zext(m0, ir.i64), ir.index(offset))
    end = builder.add(start, ir.index(slot * ir.WAVE))
    fits = builder.icmp_signed("<=", end, frame.get(Env.LDS_BYTES))
    positive = builder.icmp_signed(">=", start, ir.index(0))
    with builder.if_then(builder.not_(builder.and_(fits, positive)), likely=False):
        builder.ret(ir.index(FAILED))
    data, lds = frame.pointer(Env.DATA), frame.pointer(Env.LDS)
    lds = ir.offset(builder, lds, start)
    kind = llvm.IntType(8 * op.size)
    stored = llvm.IntType(8 * slot)
    same = ir.entry_alloca(builder, ir.i1)
    ir.store(builder, ir.constant(ir.i1, 1), same, 1)
    with ir.loop(builder, ir.WAVE) as lane:
        on = builder.trunc(builder.lshr(active, lane), ir.i1)
        with builder.if_then(on):
            target = ir.offset(builder, lds, builder.mul(lane, ir.index(slot)))
            before = ir.load(builder, target, stored, 1)
            ir.store(builder, ir.constant(stored, 0), target, 1)
            with builder.if_then(builder.trunc(builder.lshr(found.inside, lane), ir.i1)):
                at = ir.load(builder, ir.offset(builder, found.addresses, lane, ir.i64), ir.i64, 8)
                value = ir.load(builder, ir.offset(builder, data, at), kind, 1)
                if op.size < 4:
                    value = builder.sext(value, stored) if op.signed else builder.zext(value, stored)
                ir.store(builder, value, target, 1)
            equal = builder.icmp_unsigned("==", before, ir.load(builder, target, stored, 1))
            ir.store(builder, builder.and_(ir.load(builder, same, ir.i1, 1), equal), same, 1)
    if frame.watched:
        ir.store(builder, start, frame.log(Log.ADDRESSES), 8)
        _note_same(frame, 0, ir.load(builder, same, ir.i1, 1))


def _scalar_load(frame: Frame, i: Instruction, op: MemoryOp) -> ir.Value:
    """Emits s_load and s_buffer_load if the range lies within one allocation, and within the buffer."""
    builder, operands = frame.builder, i.memory
    assert operands is not None and operands.base is not None and operands.result is not None
    offset = ir.index(operands.offset)
    if operands.scalar_offset is not None:
        offset = builder.add(offset, builder.zext(frame.scalar(operands.scalar_offset, "u"), ir.i64))
    base = frame.read64(operands.base.code)
    ok = ir.constant(ir.i1, 1)
    if op.space == "scalar_buffer":
        base = builder.and_(base, ir.index((1 << 48) - 1))
        records = builder.zext(frame.read32(operands.base.code + 2), ir.i64)
        room = builder.sub(records, builder.and_(offset, ir.index(-4)))
        ok = builder.icmp_signed(">=", room, ir.index(op.size))
    start = builder.sub(builder.and_(builder.add(base, offset), ir.index(-4)), ir.index(BASE))
    ok = builder.and_(ok, within_allocation(frame, start, builder.add(start, ir.index(op.size))))
    if frame.watched:
        ok = may_read(frame, start, op.size, ok)
    with builder.if_then(ok):
        address = ir.offset(builder, frame.pointer(Env.DATA), start)
        target = ir.offset(builder, frame.scalars, operands.result.code, ir.i32)
        kind = ir.vector(ir.i32, op.size // 4)
        ir.store(builder, ir.load(builder, address, kind), target)
    return builder.select(ok, ir.index(1), ir.index(FAILED))
