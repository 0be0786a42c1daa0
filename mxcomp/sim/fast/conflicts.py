"""LDS bank conflicts in compiled code, as `mxcomp.sim.banks` defines them."""

from __future__ import annotations

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.banks import by_lanes, phases
from mxcomp.sim.fast import ir
from mxcomp.sim.fast.frame import Env, Frame

_MOST = 128
"""The largest number of words that one phase can bring to a bank."""


def count_conflicts(frame: Frame, kind: str, size: int, addresses: ir.Value, mask: ir.Value, offset: int) -> None:
    """Adds the conflict cycles of one access; lanes use address + offset."""
    name = f"conflicts.{kind}.{size}"
    function = ir.once(frame.module, name, lambda: _define(frame.module, name, kind, size))
    cycles = frame.builder.call(function, [addresses, mask, ir.index(offset)])
    frame.set(Env.CONFLICTS, frame.builder.add(frame.get(Env.CONFLICTS), cycles))


def _define(module: llvm.Module, name: str, kind: str, size: int) -> llvm.Function:
    """Defines i64 conflicts(addresses, mask, offset).

    Where all lanes are aligned, a lane's dwords share one unit of banks, and units are counted instead of dwords.
    """
    function = ir.internal(module, name, ir.i64, [ir.pointer, ir.i64, ir.i64])
    addresses, mask, offset = function.args
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    groups, banks = phases(size, kind)
    words = max(1, size // 4)
    if words == 1 or words & (words - 1):
        builder.ret(_total(builder, groups, banks, words, 2, addresses, mask, offset))
        return function
    low_bits = ir.entry_alloca(builder, ir.i64)
    ir.store(builder, ir.index(0), low_bits, 8)
    with ir.loop(builder, ir.WAVE) as lane:
        used = _used(builder, mask, lane)
        at = builder.select(used, _address(builder, addresses, lane, offset), ir.index(0))
        ir.store(builder, builder.or_(ir.load(builder, low_bits, ir.i64, 8), at), low_bits, 8)
    low = builder.and_(ir.load(builder, low_bits, ir.i64, 8), ir.index(size - 1))
    with builder.if_else(builder.icmp_unsigned("==", low, ir.index(0))) as (aligned, crossing):
        with aligned:
            shift = 2 + words.bit_length() - 1
            builder.ret(_total(builder, groups, banks // words, 1, shift, addresses, mask, offset))
        with crossing:
            if by_lanes(size, kind):
                builder.ret(_lanes(builder, groups, mask))
            else:
                builder.ret(_total(builder, groups, banks, words, 2, addresses, mask, offset))
    builder.unreachable()
    return function


def _lanes(builder: llvm.IRBuilder, groups: tuple[tuple[int, ...], ...], mask: ir.Value) -> ir.Value:
    """Counts the lanes of each phase minus 1, over all phases."""
    total: ir.Value = ir.index(0)
    for group in groups:
        count = ir.intrinsic(builder, "ctpop", builder.and_(mask, ir.index(sum(1 << lane for lane in group))))
        total = builder.add(total, builder.sub(ir.intrinsic(builder, "smax", count, ir.index(1)), ir.index(1)))
    return total


def _used(builder: llvm.IRBuilder, mask: ir.Value, lane: ir.Value) -> ir.Value:
    return builder.trunc(builder.lshr(mask, lane), ir.i1)


def _address(builder: llvm.IRBuilder, addresses: ir.Value, lane: ir.Value, offset: ir.Value) -> ir.Value:
    return builder.add(ir.load(builder, ir.offset(builder, addresses, lane, ir.i64), ir.i64, 8), offset)


def _total(
    builder: llvm.IRBuilder, groups: tuple[tuple[int, ...], ...], banks: int, words: int, shift: int,
    addresses: ir.Value, mask: ir.Value, offset: ir.Value,
) -> ir.Value:  # fmt: skip
    """Counts, over all phases, the most different units (of 2**shift bytes) that fall on one bank, minus 1."""
    insert = ir.once(builder.module, "conflicts.insert", lambda: _define_insert(builder.module))
    counts = ir.entry_alloca(builder, llvm.ArrayType(ir.i64, 64))
    kept = ir.entry_alloca(builder, llvm.ArrayType(ir.i64, 64 * _MOST))
    total, most = ir.entry_alloca(builder, ir.i64), ir.entry_alloca(builder, ir.i64)
    ir.store(builder, ir.index(0), total, 8)
    order = ir.table(builder.module, np.array(groups, np.uint64))
    size = len(groups[0])
    with ir.loop(builder, len(groups)) as group:
        ir.store(builder, ir.index(1), most, 8)
        with ir.loop(builder, banks) as bank:
            ir.store(builder, ir.index(0), ir.offset(builder, counts, bank, ir.i64), 8)
        with ir.loop(builder, size) as k:
            position = builder.add(builder.mul(group, ir.index(size)), k)
            lane = ir.load(builder, ir.offset(builder, order, position, ir.i64), ir.i64, 8)
            with builder.if_then(_used(builder, mask, lane)):
                unit = builder.ashr(_address(builder, addresses, lane, offset), ir.index(shift))
                for n in range(words):
                    word = builder.add(unit, ir.index(n))
                    bank = builder.and_(word, ir.index(banks - 1))
                    reached = builder.call(insert, [counts, kept, bank, word])
                    higher = ir.intrinsic(builder, "umax", ir.load(builder, most, ir.i64, 8), reached)
                    ir.store(builder, higher, most, 8)
        more = builder.sub(ir.load(builder, most, ir.i64, 8), ir.index(1))
        ir.store(builder, builder.add(ir.load(builder, total, ir.i64, 8), more), total, 8)
    return ir.load(builder, total, ir.i64, 8)


def _define_insert(module: llvm.Module) -> llvm.Function:
    """Defines i64 insert(counts, kept, bank, word). It remembers the word if it is new to the bank, and returns the
    bank's number of words."""
    function = ir.internal(module, "conflicts.insert", ir.i64, [ir.pointer, ir.pointer, ir.i64, ir.i64])
    counts, kept, bank, word = function.args
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    counter = ir.offset(builder, counts, bank, ir.i64)
    count = ir.load(builder, counter, ir.i64, 8)
    start = ir.offset(builder, kept, builder.mul(bank, ir.index(_MOST)), ir.i64)
    with ir.counted(builder, count) as k:
        known = ir.load(builder, ir.offset(builder, start, k, ir.i64), ir.i64, 8)
        with builder.if_then(builder.icmp_unsigned("==", known, word)):
            builder.ret(count)
    ir.store(builder, word, ir.offset(builder, start, count, ir.i64), 8)
    after = builder.add(count, ir.index(1))
    ir.store(builder, after, counter, 8)
    builder.ret(after)
    return function
