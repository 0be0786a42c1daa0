"""Lane addresses of memory instructions, traced from the address rules of `mxcomp.sim.semantics.memory`."""

from __future__ import annotations

from dataclasses import dataclass, field

from llvmlite import ir as llvm

from mxcomp.sim.fast import ir, lanes
from mxcomp.sim.fast.frame import Frame
from mxcomp.sim.fast.tracing import InsertPoint, Traced
from mxcomp.sim.instruction import Instruction, Operand
from mxcomp.sim.memory import BASE
from mxcomp.sim.semantics.memory import MemoryOp
from mxcomp.sim.semantics.table import i64, u32, u64

_RESOURCE = ("w0", "w1", "w2", "w3")


@dataclass
class Arguments:
    """The named arguments of a form's function, in order."""

    frame: Frame
    _items: dict[str, ir.Value] = field(default_factory=dict)

    def row(self, name: str, operand: Operand) -> None:
        self._items[name] = self.frame.rows(operand)

    def value(self, name: str, value: ir.Value) -> None:
        self._items[name] = value

    def names(self) -> tuple[str, ...]:
        return tuple(self._items)

    def values(self) -> list[ir.Value]:
        return list(self._items.values())

    def types(self) -> list[llvm.Type]:
        return [value.type for value in self._items.values()]

    def bound(self, arguments: list[ir.Value]) -> dict[str, ir.Value]:
        return dict(zip(self._items, arguments, strict=True))


def address_arguments(given: Arguments, i: Instruction, op: MemoryOp) -> None:
    """Returns rows of addresses, offsets and indices; "start", which is added to them; and a buffer's resource."""
    frame, operands, builder = given.frame, i.memory, given.frame.builder
    assert operands is not None
    if operands.address is not None:
        given.row("address", operands.address)
    if operands.index is not None:
        given.row("index", operands.index)
    start = ir.index(0 if op.accesses == 2 else operands.offset)
    if op.space == "buffer":
        assert operands.base is not None and operands.scalar_offset is not None
        for k, name in enumerate(_RESOURCE):
            given.value(name, frame.read32(operands.base.code + k))
        given.value("scalar", builder.zext(frame.scalar(operands.scalar_offset, "u"), ir.i64))
    elif operands.base is not None:
        wide = op.space == "global"
        base = frame.read64(operands.base.code) if wide else builder.zext(frame.read32(operands.base.code), ir.i64)
        given.value("base", ir.constant(ir.i1, 1))
        start = builder.add(start, base)
    given.value("start", start)


@dataclass(frozen=True)
class Found:
    """Addresses in memory, and the lanes that use them.

    Attributes:
        addresses: i64[64]; device addresses relative to the arena.
        inside: Mask of lanes that access memory.
        low, high: The least and greatest of their addresses.
    """

    addresses: ir.Value
    inside: ir.Value
    low: ir.Value
    high: ir.Value


def lane_addresses(builder: llvm.IRBuilder, op: MemoryOp, bound: dict[str, ir.Value], active: ir.Value) -> Found:
    """Emits the addresses of lanes; the function returns −1 for resources and ranges that the NumPy engine handles."""
    wide = ir.vector(ir.i64)
    if op.space == "buffer":
        _refuse_structured(builder, bound)
    addresses = ir.entry_alloca(builder, llvm.ArrayType(ir.i64, ir.WAVE))
    masks = {name: ir.entry_alloca(builder, ir.i64) for name in ("inside", "whole")}
    extremes = {name: ir.entry_alloca(builder, wide) for name in ("smin", "smax")}
    limits = {"smin": (1 << 63) - 1, "smax": -(1 << 63)}
    for mask in masks.values():
        ir.store(builder, ir.index(0), mask, 8)
    for name, slot in extremes.items():
        ir.store(builder, ir.constant(wide, [limits[name]] * ir.LANES), slot, 64)
    with ir.loop(builder, ir.WAVE, ir.LANES) as lane:
        point, on = InsertPoint(builder, lane), lanes.chunk(builder, active, lane)
        at, room = _addresses(point, op, bound)
        inside = whole = on
        if room is not None:
            inside = builder.and_(on, (room >= min(4, op.size)).value)
            whole = builder.and_(on, (room >= op.size).value)
        ir.store(builder, at.value, ir.offset(builder, addresses, lane, ir.i64), 8)
        lanes.collect(builder, masks["inside"], inside, lane)
        lanes.collect(builder, masks["whole"], whole, lane)
        for name, slot in extremes.items():
            used = builder.select(inside, at.value, ir.constant(wide, [limits[name]] * ir.LANES))
            ir.store(builder, ir.intrinsic(builder, name, ir.load(builder, slot, wide, 64), used), slot, 64)
    inside, whole = (ir.load(builder, masks[name], ir.i64, 8) for name in ("inside", "whole"))
    with builder.if_then(builder.icmp_unsigned("!=", inside, whole), likely=False):
        builder.ret(ir.index(-1))
    low, high = (_reduced(builder, name, ir.load(builder, slot, wide, 64)) for name, slot in extremes.items())
    return Found(addresses, inside, low, high)


def _reduced(builder: llvm.IRBuilder, name: str, values: ir.Value) -> ir.Value:
    return ir.intrinsic(builder, f"vector.reduce.{name}", values, result=ir.i64)


def _refuse_structured(builder: llvm.IRBuilder, bound: dict[str, ir.Value]) -> None:
    """Leaves buffers with other address rules to the NumPy engine: add-thread-ID, swizzle, index with stride."""
    odd = builder.and_(bound["w3"], ir.constant(ir.i32, 1 << 23))
    if "index" in bound:
        odd = builder.or_(odd, builder.and_(bound["w1"], ir.constant(ir.i32, 1 << 31 | 0x3FFF << 16)))
    with builder.if_then(builder.icmp_unsigned("!=", odd, ir.constant(ir.i32, 0)), likely=False):
        builder.ret(ir.index(-1))


def _addresses(point: InsertPoint, op: MemoryOp, bound: dict[str, ir.Value]) -> tuple[Traced, Traced | None]:
    """Returns the address of each lane, and the bytes from there to the end of the buffer if there is a buffer."""
    builder = point.builder

    def shared(value: ir.Value) -> Traced:
        return Traced(point, i64, ir.splat(builder, value))

    start = shared(bound["start"])
    offset = start
    if "address" in bound:
        low = _row(point, bound["address"], 0)
        if op.space in ("global", "flat") and "base" not in bound:
            high = _row(point, bound["address"], 1)
            offset = (low.astype(u64) | high.astype(u64) << 32).view(i64) + start
        else:
            offset = low.astype(i64) + start
    if op.space in ("global", "flat"):
        return offset - BASE, None
    if op.space != "buffer":
        return offset, None
    w0, w1, w2 = (builder.zext(bound[name], ir.i64) for name in _RESOURCE[:3])
    upper = builder.shl(builder.and_(w1, ir.index(0xFFFF)), ir.index(32))
    base, scalar = shared(builder.or_(w0, upper)), shared(bound["scalar"])
    offset = offset.astype(u32).astype(i64)
    return base + scalar + offset - BASE, shared(w2) - scalar - offset


def _row(point: InsertPoint, row: ir.Value, k: int) -> Traced:
    at = point.builder.add(point.lane, ir.index(ir.WAVE * k))
    address = ir.offset(point.builder, row, at, ir.i32)
    return Traced(point, u32, ir.load(point.builder, address, ir.vector(ir.i32)))
