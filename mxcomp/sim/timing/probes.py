"""Computes what memory instructions touch before they execute. Answers repeat in loops, and are cached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.banks import conflict_cycles
from mxcomp.sim.instruction import Instruction, MemoryOp, MemoryOperands
from mxcomp.sim.numpy.addresses import Addresses, addresses_of, in_range, offsets_of
from mxcomp.sim.numpy.operands import scalar_read
from mxcomp.sim.numpy.wave import Wave

LINE_BYTES = 128
"""The line size of L1, L2 and Infinity Cache (CDNA3 white paper, "Memory Hierarchy"; CDNA4 has the same)."""

_LINE_SHIFT = 7
_KEPT = 4096


class Touched(NamedTuple):
    """The lines and bank conflicts of one access.

    Attributes:
        nbytes: What active lanes move; nothing beyond a buffer's end.
        lines: Numbers of cache lines, address / 128, each once; empty for LDS, scratch and scalar loads.
        conflicts: Cycles lost to LDS bank conflicts.
    """

    nbytes: int
    lines: NDArray[np.int64]
    conflicts: int = 0


_NO_LINES = np.empty(0, np.int64)


Probe = Callable[[Wave], Touched]
"""Computes what one instruction touches."""


def probe_of(i: Instruction) -> Probe | None:
    """Returns the probe of an instruction, or None if it accesses no memory."""
    operands = i.memory
    if operands is None:
        return None
    op = operands.op
    if op.is_scalar:
        return lambda wave: Touched(op.size, _NO_LINES)
    if op.space == "lds":
        return _Lds(operands)
    if op.space == "scratch":
        return lambda wave: Touched(op.size * wave.exec.bit_count(), _NO_LINES)
    addresses = addresses_of(operands)
    if op.space == "buffer" and operands.index is None:
        return _Buffer(operands, addresses)
    return _Global(op, addresses)


@dataclass
class _Lds:
    operands: MemoryOperands
    known: dict[tuple[int, bytes], Touched] = field(default_factory=dict)

    def __call__(self, wave: Wave) -> Touched:
        assert self.operands.address is not None
        base = wave.v[self.operands.address.vgpr]
        key = wave.exec, base.tobytes()
        found = self.known.get(key)
        if found is None:
            found = self._ask(wave, base.astype(np.int64))
            if len(self.known) < _KEPT:
                self.known[key] = found
        return found

    def _ask(self, wave: Wave, base: NDArray[np.int64]) -> Touched:
        op, conflicts = self.operands.op, 0
        if op.kind in ("load", "store"):
            offsets = offsets_of(self.operands)
            conflicts = sum(conflict_cycles(base + offset, wave.active, op.size, op.kind) for offset in offsets)
        return Touched(op.bytes * wave.exec.bit_count(), _NO_LINES, conflicts)


@dataclass
class _Global:
    op: MemoryOp
    addresses: Addresses

    def __call__(self, wave: Wave) -> Touched:
        where, room = self.addresses(wave)
        inside, _ = in_range(wave, room, self.op.size)
        return Touched(self.op.size * int(np.count_nonzero(inside)), _lines(where[inside], self.op.size))


def _lines(first: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Returns the lines of accesses, each once."""
    return np.unique(np.concatenate([first, first + (size - 1)]) >> _LINE_SHIFT)


class _Pattern(NamedTuple):
    """A buffer access whose lanes are all within the buffer, relative to a line.

    Attributes:
        reach: Bytes of the buffer that are needed, from its base and scalar offset.
    """

    touched: Touched
    reach: int


class _Buffer(_Global):
    """Probes raw buffers: in a loop their scalar offset or base changes, and lanes keep their offsets."""

    def __init__(self, operands: MemoryOperands, addresses: Addresses) -> None:
        super().__init__(operands.op, addresses)
        assert operands.base is not None and operands.scalar_offset is not None
        self.base, self.immediate = operands.base.code, operands.offset
        self.scalar = scalar_read(operands.scalar_offset, "u")
        self.row = None if operands.address is None else operands.address.vgpr
        self.known: dict[tuple[int, int, bytes], _Pattern] = {}

    def __call__(self, wave: Wave) -> Touched:
        s = wave.s
        scalar = self.scalar(wave)
        start = (s[self.base] | (s[self.base + 1] & 0xFFFF) << 32) + scalar
        line, within = start >> _LINE_SHIFT, start & (LINE_BYTES - 1)
        key = within, wave.exec, b"" if self.row is None else wave.v[self.row].tobytes()
        pattern = self.known.get(key)
        if pattern is not None and pattern.reach + scalar <= s[self.base + 2]:
            return pattern.touched._replace(lines=pattern.touched.lines + line)
        found = super().__call__(wave)
        if pattern is None and len(self.known) < _KEPT and found.nbytes == self.op.size * wave.exec.bit_count():
            offsets = self._offsets(wave)[wave.active]
            reach = int(offsets.max()) + self.op.size if len(offsets) else 0
            self.known[key] = _Pattern(found._replace(lines=found.lines - line), reach)
        return found

    def _offsets(self, wave: Wave) -> NDArray[np.int64]:
        lanes = np.zeros(64, np.int64) if self.row is None else wave.v[self.row].astype(np.int64)
        return (lanes + self.immediate) & 0xFFFFFFFF
