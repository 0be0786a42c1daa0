"""LDS checks for compiled code: accesses are logged and checked when a barrier interval ends.

Most intervals are plainly in order: no two waves touch a dword that one of them writes, nothing is read that was never
written (or it does not matter any more), nothing lands late. `_is_plain` sees that for all accesses at once. Any other
interval is played back, access by access in the order it happened, to the NumPy engine's own `LdsShadow`, which
reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.lds import LdsShadow, Shadow
from mxcomp.sim.checks.marks import SPREAD, Cells
from mxcomp.sim.checks.registers import Facts
from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.checks.trial import Trial
from mxcomp.sim.checks.waits import Issuer, Outstanding, Transfer
from mxcomp.sim.fast.frame import Log
from mxcomp.sim.instruction import Instruction, RegisterSet

Rows = NDArray[np.int64]
Marks = NDArray[np.bool_]

_LANES = np.arange(64, dtype=np.int64)
_ALL_LANES = -1


@dataclass(frozen=True, slots=True)
class Access:
    """The LDS access of a logged instruction, the same for all its executions; those that do the same are equal.

    Attributes:
        slot: Bytes per lane.
        offsets: Added to the logged addresses: one, or two of ds_read2 and ds_write2.
        writes, updates: A store, an atomic.
        direct: A direct load from global memory, whose lanes follow each other in LDS.
    """

    slot: int
    offsets: tuple[int, ...]
    writes: bool
    updates: bool
    direct: bool

    @classmethod
    def of(cls, facts: Facts) -> Access | None:
        """Returns the access of an instruction, or None if it is not logged."""
        flight, operands = facts.flight, facts.instruction.memory
        if flight is None or operands is None or not flight.local:
            return None
        op = operands.op
        if op.to_lds:
            return cls(max(4, op.size), (0,), True, False, True)
        two = (operands.offset * op.stride, operands.offset1 * op.stride)
        return cls(op.size, (0,) if op.accesses == 1 else two, op.kind == "store", op.kind == "atomic", False)

    def addresses(self, rows: Rows) -> Rows:
        """Returns the addresses of logged rows, int64[n, 64]."""
        if self.direct:
            return rows[:, Log.ADDRESSES, None] + self.slot * _LANES
        return rows[:, Log.ADDRESSES :]

    def cells(self, row: Rows) -> list[Cells]:
        """Yields the bytes that one execution touches, access by access."""
        lanes = np.flatnonzero(_active(row[None])[0])
        at = self.addresses(row[None])[0, lanes]
        return [Cells(at + offset, self.slot, lanes) for offset in self.offsets] if len(lanes) else []


def _active(rows: Rows) -> Marks:
    """Returns the active lanes, bool[n, 64]."""
    masks = np.ascontiguousarray(rows[:, Log.MASK]).view(np.uint8).reshape(-1, 8)
    return np.unpackbits(masks, axis=1, bitorder="little").view(np.bool_)


@dataclass(frozen=True, slots=True)
class Event:
    """An LDS access that the NumPy engine made."""

    writes: bool
    cells: Cells
    same: bool = False
    updates: bool = False


class Recorder(Shadow):
    """Replaces the shadow while the NumPy engine executes: records the calls that it would receive.

    Not those of transfers, as these are replayed with all others.
    """

    def __init__(self, barrier: Callable[[], None]) -> None:
        self.events: list[Event] = []
        self._barrier = barrier

    def read(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        self.events.append(Event(False, cells))

    def write(self, wave: Issuer, i: Instruction, cells: Cells, transfer: Transfer, same: Callable[[], bool]) -> None:
        self.events.append(Event(True, cells, same()))

    def update(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        self.events.append(Event(False, cells, updates=True))

    def barrier(self) -> None:
        self._barrier()


class Code:
    """Segments as LDS checks see them.

    Attributes:
        last: Per segment, the last instruction, which alone may wait or bring something into flight.
        accesses: Per segment, its logged access.
        kinds: Accesses that differ in what they do; `kind_of` has the number of each segment's.
    """

    def __init__(self, segments: Sequence[Sequence[Facts]]) -> None:
        self.last = [part[-1] for part in segments]
        self.accesses = [Access.of(facts) for facts in self.last]
        self.kinds = list(dict.fromkeys(access for access in self.accesses if access is not None))
        self.kind_of = np.array([-1 if access is None else self.kinds.index(access) for access in self.accesses])
        self.is_direct = np.array([access is not None and access.direct for access in self.accesses])


@dataclass(slots=True, eq=False)
class Follower:
    """The transfers that a wave has in flight, with their bytes of LDS.

    Attributes:
        shared: `outstanding` is a path's, which nobody may change, and holds nothing that touches LDS.
    """

    number: int
    shadow: LdsShadow
    barriers: int = 0
    busy: RegisterSet = 0
    outstanding: Outstanding = field(default_factory=Outstanding)
    shared: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A piece of the execution: segments of one wave, or one instruction of the NumPy engine.

    Attributes:
        rows: Logged accesses of the segments, in order.
        events: Those the NumPy engine made in the last instruction.
    """

    wave: int
    segments: Sequence[int]
    rows: Rows
    events: Sequence[Event] = ()
    facts: Facts | None = None


class LocalMemory:
    """LDS of a workgroup, barrier interval by barrier interval.

    Args:
        size: Bytes.
        code: What there is to know of the program.
        flying: Gives what a wave has in flight now.
        trial: Is told what of LDS was never written.
    """

    def __init__(
        self,
        size: int,
        report: Reporter,
        waves: int,
        code: Code,
        flying: Callable[[int], Outstanding],
        trial: Trial | None,
    ) -> None:
        self._followers: list[Follower] = []
        self._shadow = LdsShadow(size, report, self._followers, trial)
        self._followers += [Follower(k, self._shadow) for k in range(waves)]
        self._trial, self._code, self._flying = trial, code, flying
        self._chunks: list[Chunk] = []

    def record(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)

    def barrier(self) -> None:
        """Ends the interval."""
        self.finish()
        self._shadow.barrier()
        for follower in self._followers:
            follower.barriers += 1

    def finish(self) -> None:
        """Checks what has happened since the last barrier."""
        logs = [self._log(k) for k in range(len(self._followers))]
        if self._is_plain(logs):
            for follower, log in zip(self._followers, logs, strict=True):
                self._carry(follower, log)
            self._mark_direct()
        else:
            self._play_back()
        self._chunks.clear()

    def _log(self, wave: int) -> Rows:
        rows = [chunk.rows for chunk in self._chunks if chunk.wave == wave and len(chunk.rows)]
        return np.concatenate(rows) if rows else np.empty((0, Log.SIZE), np.int64)

    # -- the quick look

    def _is_plain(self, logs: Sequence[Rows]) -> bool:
        """Returns whether the interval cannot have findings; if so, marks what is written."""
        if any(chunk.events for chunk in self._chunks):
            return False
        shadow, uninit = self._shadow, self._trial is not None and self._trial.needs_reads
        count = len(shadow.written.words)
        touching, writing, fresh = np.zeros(count, np.uint8), np.zeros(count, np.uint8), np.zeros(count, np.bool_)
        agreed, bytewise = shadow.agreed.words != 0, list[Rows]()
        for follower, log in zip(self._followers, logs, strict=True):
            reads, writes, direct = np.zeros((3, count), np.bool_)
            for access, rows in self._grouped(log):
                if access.updates:  # reads, and meets others as a write does
                    self._mark(access, rows, reads, [])
                self._mark(access, rows, writes if access.writes or access.updates else reads, bytewise)
                if access.direct:
                    self._mark(access, rows, direct, [])
            fresh |= writes
            for transfer in follower.outstanding.transfers():
                for cells in transfer.writes:
                    words = cells.at if cells.whole else cells.at >> 2
                    writes[words] = True
                    if transfer.direct:
                        direct[words] = True
            if (reads & (direct | agreed)).any():
                return False
            if uninit and (reads & (shadow.written.words != SPREAD)).any():
                return False
            touching += reads | writes
            writing += writes
        if ((writing != 0) & ((touching > 1) | (shadow.unproven.words != 0))).any():
            return False
        whole = writing != 0
        for at in bytewise:  # dwords written in part
            whole[at >> 2] = False
        shadow.written.words[whole] = SPREAD
        shadow.agreed.words[whole & fresh] = 0
        for at in bytewise:
            shadow.written.bytes[at] = 1
            shadow.agreed.bytes[at] = 0
        return True

    def _grouped(self, log: Rows) -> list[tuple[Access, Rows]]:
        """Yields logged rows by kind of access."""
        kinds = self._code.kind_of[log[:, Log.SEGMENT]]
        return [(self._code.kinds[kind], log[kinds == kind]) for kind in np.unique(kinds).tolist()]

    def _mark(self, access: Access, rows: Rows, marks: Marks, bytewise: list[Rows]) -> None:
        """Marks dwords touched; records single bytes where a dword is written in part."""
        at = access.addresses(rows)
        if (rows[:, Log.MASK] != _ALL_LANES).any():
            at = at[_active(rows)]
        at = at.reshape(-1)
        for offset in access.offsets:
            first = at + offset
            if access.slot >= 4 and not (first & 3).any():
                for k in range(access.slot // 4):
                    marks[(first >> 2) + k] = True
                continue
            every = (first[:, None] + np.arange(access.slot)).reshape(-1)
            marks[every >> 2] = True
            if access.writes:
                bytewise.append(every)

    def _carry(self, follower: Follower, log: Rows) -> None:
        """Collects what is in flight at the end of a plain interval, with the bytes it touches."""
        before, follower.outstanding, follower.shared = follower.outstanding, self._flying(follower.number), True
        flying = follower.outstanding.transfers()
        if not any(t.flight.local for t in flying):
            return
        follower.outstanding, follower.shared = follower.outstanding.copy(), False
        for direct in (True, False):
            wanted = [t for t in follower.outstanding.transfers() if t.flight.local and t.direct is direct]
            known = [t for t in before.transfers() if t.flight.local and t.direct is direct]
            new = log[self._code.is_direct[log[:, Log.SEGMENT]] == direct][-len(wanted) :] if wanted else ()
            for transfer, source in zip(reversed(wanted), [*reversed(new), *reversed(known)], strict=False):
                if isinstance(source, Transfer):
                    transfer.interval, transfer.reads, transfer.writes = source.interval, source.reads, source.writes
                    continue
                access = self._code.accesses[int(source[Log.SEGMENT])]
                assert access is not None
                cells = tuple(access.cells(source))
                transfer.interval = follower.barriers
                transfer.reads, transfer.writes = (
                    ((), cells) if access.writes else (() if access.updates else cells, ())
                )

    def _mark_direct(self) -> None:
        """Sets the shadow's marks of what is in flight; its `barrier` sets the others."""
        self._shadow.arriving.bytes[:] = 0
        self._shadow.unproven.bytes[:] = 0
        for follower in self._followers:
            for transfer in follower.outstanding.transfers():
                if transfer.direct:
                    for cells in transfer.writes:
                        self._shadow.arriving.set(cells, follower.number + 1)

    # -- access by access

    def _play_back(self) -> None:
        for follower in self._followers:
            if follower.shared:
                follower.outstanding, follower.shared = follower.outstanding.copy(), False
        for chunk in self._chunks:
            follower, rows, taken = self._followers[chunk.wave], chunk.rows, 0
            if chunk.facts is not None:
                self._play(follower, chunk.facts, None, chunk.events)
            for position, number in enumerate(chunk.segments):
                access = self._code.accesses[number]
                row: Rows | None = None
                if access is not None and taken < len(rows):
                    row, taken = rows[taken], taken + 1
                events = chunk.events if position == len(chunk.segments) - 1 else ()
                self._play(follower, self._code.last[number], row, events, access)

    def _play(
        self, wave: Follower, facts: Facts, row: Rows | None, events: Sequence[Event], access: Access | None = None
    ) -> None:
        if facts.wait is not None:
            wave.outstanding.wait(wave, *facts.wait)
        if facts.flight is None:
            return
        transfer = Transfer(facts.flight, wave.barriers)
        if row is not None and access is not None:
            same = int(row[Log.SAME])
            events = [
                Event(access.writes, cells, bool(same >> k & 1), access.updates)
                for k, cells in enumerate(access.cells(row))
            ]
        for event in events:
            self._touch(wave, facts.instruction, event, transfer)
        wave.outstanding.issue(wave, transfer)

    def _touch(self, wave: Follower, i: Instruction, event: Event, transfer: Transfer) -> None:
        if event.updates:
            self._shadow.update(wave, i, event.cells)
            return
        if not event.writes:
            self._shadow.read(wave, i, event.cells)
            transfer.reads += (event.cells,)
            return
        transfer.writes += (event.cells,)
        self._shadow.write(wave, i, event.cells, transfer, lambda: event.same)
