"""LDS bank conflicts in compiled code, as `mxcomp.sim.banks` defines them."""

from __future__ import annotations

import numpy as np
from llvmlite import ir as llvm

from mxcomp.sim.banks import by_lanes, phases
from mxcomp.sim.fast import ir
from mxcomp.sim.fast.frame import Env, Frame

_MOST = 128
"""The largest number of words that one phase can bring to a bank."""

Groups = tuple[tuple[int, ...], ...]


def count_conflicts(frame: Frame, kind: str, size: int, addresses: ir.Value, mask: ir.Value, offset: int) -> None:
    """Adds the conflict cycles of one access; lanes use address + offset."""
    name = f"conflicts.{kind}.{size}"
    function = ir.once(frame.module, name, lambda: _define(frame.module, name, kind, size))
    cycles = frame.call(function, addresses, mask, ir.index(offset))
    frame.set(Env.CONFLICTS, frame.get(Env.CONFLICTS) + cycles)


def _define(module: llvm.Module, name: str, kind: str, size: int) -> llvm.Function:
    """Defines i64 conflicts(addresses, mask, offset).

    Where all lanes are aligned, a lane's dwords share one unit of banks, and units are counted instead of dwords.
    """
    builder, (addresses, mask, offset) = ir.define(module, name, ir.i64, [ir.pointer, ir.i64, ir.i64])
    groups, banks = phases(size, kind)
    words = max(1, size // 4)

    def total(banks: int, words: int, shift: int) -> ir.Value:
        return _total(builder, groups, banks, words, shift, addresses, mask, offset)

    if words == 1 or words & (words - 1):
        builder.ret(total(banks, words, 2))
        return builder.function
    low_bits = ir.Variable(builder, ir.i64, 0)
    with ir.loop(builder, ir.WAVE) as lane:
        used = mask.bit(lane)
        low_bits.set(low_bits.get() | used.select(addresses.item(lane, ir.i64) + offset, 0))
    with builder.if_else(low_bits.get() & size - 1 == 0) as (aligned, crossing):
        with aligned:
            builder.ret(total(banks // words, 1, 2 + words.bit_length() - 1))
        with crossing:
            builder.ret(_lanes(builder, groups, mask) if by_lanes(size, kind) else total(banks, words, 2))
    builder.unreachable()
    return builder.function


def _lanes(builder: llvm.IRBuilder, groups: Groups, mask: ir.Value) -> ir.Value:
    """Counts the lanes of each phase minus 1, over all phases."""
    total = ir.Value(builder, ir.index(0))
    for group in groups:
        count = ir.intrinsic(builder, "ctpop", mask & sum(1 << lane for lane in group))
        total = total + (ir.intrinsic(builder, "smax", count, ir.index(1)) - 1)
    return total


def _total(
    builder: llvm.IRBuilder, groups: Groups, banks: int, words: int, shift: int,
    addresses: ir.Value, mask: ir.Value, offset: ir.Value,
) -> ir.Value:  # fmt: skip
    """Counts, over all phases, the most different units (of 2**shift bytes) that fall on one bank, minus 1."""
    insert = ir.once(builder.module, "conflicts.insert", lambda: _define_insert(builder.module))
    counts = ir.entry_alloca(builder, llvm.ArrayType(ir.i64, 64))
    kept = ir.entry_alloca(builder, llvm.ArrayType(ir.i64, 64 * _MOST))
    total, size = ir.Variable(builder, ir.i64, 0), len(groups[0])
    order = ir.table(builder, np.array(groups, np.uint64))
    with ir.loop(builder, len(groups)) as group:
        most = ir.Variable(builder, ir.i64, 1)
        with ir.loop(builder, banks) as bank:
            counts.put(bank, ir.index(0))
        with ir.loop(builder, size) as k:
            lane = order.item(group * size + k, ir.i64)
            with builder.if_then(mask.bit(lane)):
                unit = (addresses.item(lane, ir.i64) + offset).ashr(shift)
                for n in range(words):
                    word = unit + n
                    reached = builder.call(insert, [counts, kept, word & banks - 1, word])
                    most.set(ir.intrinsic(builder, "umax", most.get(), reached))
        total.set(total.get() + (most.get() - 1))
    return total.get()


def _define_insert(module: llvm.Module) -> llvm.Function:
    """Defines i64 insert(counts, kept, bank, word). It remembers the word if it is new to the bank, and returns the
    bank's number of words."""
    types = [ir.pointer, ir.pointer, ir.i64, ir.i64]
    builder, (counts, kept, bank, word) = ir.define(module, "conflicts.insert", ir.i64, types)
    count, start = counts.item(bank, ir.i64), kept.at(bank * _MOST, ir.i64)
    with ir.counted(builder, count) as k, builder.if_then(start.item(k, ir.i64) == word):
        builder.ret(count)
    start.put(count, word)
    after = count + 1
    counts.put(bank, after)
    builder.ret(after)
    return builder.function
