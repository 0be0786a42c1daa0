"""Memory never written ("uninit"), be it device memory, LDS or scratch: reading it is an error if anything comes of it.

Right kernels read such memory as well: padding whose products nobody stores, whole words of which some bytes count,
bytes of which they replace four bits. So a workgroup that has read some is run once more from the same state, with
other bytes in place of those never written. Where all that it stores is the same again, nothing depends on them. What
keeps the bits that a place had all along depends on nothing, either.

Device memory is replaced where it is read, LDS and scratch where a workgroup or a wave starts. So what is blamed is an
instruction that reads device memory, or a dword of LDS or of a lane's scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.journal import Contents, Journal
from mxcomp.sim.counters import Counters
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import Finding, Findings, Severity
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.memory import BASE, UNWRITTEN, Memory, gather

Offsets = NDArray[np.int64]
Bytes = NDArray[np.uint8]

LIMIT = 1 << 28
"""Bytes of the journal: workgroups that store much more are not run again."""


def other_bytes(offsets: Offsets) -> Bytes:
    """What is read in place of bytes never written: eight at a time, noise three times out of four, else zeros."""
    words = (offsets >> 3).astype(np.uint64)
    words = words * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ words >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(32)
    noise = words >> ((offsets & 7).astype(np.uint64) << np.uint64(3))
    return np.where(words >> np.uint64(62) == 0, 0, noise).astype(np.uint8)


class Space(IntEnum):
    DEVICE = 0
    LDS = 1
    SCRATCH = 2


_NAMES = {Space.DEVICE: "memory", Space.LDS: "LDS", Space.SCRATCH: "scratch"}

Suspect = tuple[Space, int]
"""The offset of an instruction that reads device memory; or a place: the number of the first byte of a dword.

Bytes of scratch are numbered lane by lane, wave by wave.
"""


@dataclass(frozen=True)
class Read:
    """The first time that the first of the waves reads never-written memory here.

    Attributes:
        offset: Of a byte: in device memory, in LDS, or in the lane's scratch.
    """

    instruction: Instruction
    wave: int
    lane: int | None
    offset: int


class Issuer(Protocol):
    number: int


class Trial:
    """One execution of a workgroup.

    Attributes:
        others: Suspects where other bytes are read in place of those never written; None: everywhere.
        reads: Those of device memory (compiled code leaves them out of the first execution); if recording, all of them.
        suspect: Something never written was read; compiled code may leave it at that.
    """

    def __init__(
        self, memory: Memory, others: frozenset[Suspect] | None = frozenset(), is_recording: bool = False
    ) -> None:
        self._memory, self.others, self._is_recording = memory, others, is_recording
        self.journal = Journal(memory, LIMIT if self.is_first else 1 << 62)
        self.reads: dict[Suspect, Read] = {}
        self.suspect = False

    @property
    def is_first(self) -> bool:
        """The one that counts: nothing is replaced."""
        return self.others is not None and not self.others

    @property
    def is_asking(self) -> bool:
        """Whether reads of LDS and scratch still matter: not if they can tell no more than is known."""
        return self._is_recording or (self.is_first and not self.suspect)

    def content(self, space: Space, first: int, count: int) -> Bytes:
        """What `count` bytes of LDS or scratch, from number `first` on, hold before anything is written there."""
        fresh = np.full(count, UNWRITTEN, np.uint8)
        if self.is_first:
            return fresh
        places = np.arange(first, first + count)
        noise = other_bytes(places + (space << 48))
        if self.others is None:
            return noise
        return np.where(np.isin(places & ~3, [place for where, place in self.others if where == space]), noise, fresh)

    def read(
        self, space: Space, wave: Issuer, i: Instruction, lanes: Offsets, offsets: Offsets, stride: int = 0
    ) -> None:
        """Lanes read bytes at these offsets of LDS or scratch, never written; `stride` is the size of a scratch."""
        self.suspect = True
        if not self._is_recording:
            return
        for lane, offset in zip(lanes.tolist(), offsets.tolist(), strict=True):
            place = (wave.number * 64 + lane) * stride + offset
            self._note((space, place & ~3), Read(i, wave.number, lane, offset))

    def _note(self, suspect: Suspect, read: Read) -> None:
        known = self.reads.get(suspect)
        if known is None or read.wave < known.wave:  # the same ones whatever the order of waves
            self.reads[suspect] = read

    def load(
        self, wave: Issuer, i: Instruction, lanes: NDArray[np.intp] | None, offsets: Offsets, values: Bytes
    ) -> Bytes:
        """What a load of uint8[n, size] from the offsets gets."""
        memory = self._memory
        written = gather(memory.written, memory.written_words, offsets, values.shape[1])
        if written.all():
            return values
        self.suspect = True
        row, byte = (int(k) for k in np.argwhere(written == 0)[0])
        lane = None if lanes is None else int(lanes[row])
        suspect = Space.DEVICE, i.offset
        self._note(suspect, Read(i, wave.number, lane, int(offsets[row]) + byte))
        if self.others is not None and suspect not in self.others:
            return values
        return np.where(written == 0, other_bytes(offsets[:, None] + np.arange(values.shape[1])), values)


Execute = Callable[[Dispatch, Workgroup, Trial | None], Counters]


class Inquiry:
    """Runs the workgroups of one launch, those that read never-written memory several times.

    Nothing is looked into after the first error.
    """

    def __init__(self, dispatch: Dispatch, execute: Execute) -> None:
        self._dispatch, self._execute = dispatch, execute
        self._on = "uninit" in dispatch.checks

    def run(self, number: Workgroup) -> Counters:
        if not self._on:
            return self._execute(self._dispatch, number, None)
        trial = Trial(self._dispatch.memory)
        counters = self._execute(self._dispatch, number, trial)
        if trial.suspect:
            self._on = not _Case(self._dispatch, number, self._execute, trial, counters).has_error()
        return counters


class _Case:
    """A workgroup under suspicion. Leaves memory as its first execution did."""

    def __init__(
        self, dispatch: Dispatch, number: Workgroup, execute: Execute, first: Trial, counters: Counters
    ) -> None:
        self._dispatch, self._number, self._execute, self._memory = dispatch, number, execute, dispatch.memory
        self._first, self._limit = first, 2 * counters["instructions"] + 10_000

    def has_error(self) -> bool:
        """Reports what matters."""
        if self._first.journal.is_full:
            message = "reads memory never written, and stores too much to find out whether anything depends on it"
            i = self._dispatch.program.instructions[self._dispatch.entry]
            place = (i.offset, str(i), self._number, 0)
            self._dispatch.findings.add(Finding("uninit", Severity.WARNING, message, *place))
            return False
        before = self._first.journal.before()
        self._found = Contents.of(self._memory, before.places)
        before.restore(self._memory)
        depending = self._depends(Trial(self._memory, None))
        if depending is not None:
            trial = Trial(self._memory, None, is_recording=True)
            self._depends(trial)
            culprit = self._culprit(sorted(trial.reads))
            self._report(culprit[0], trial.reads[culprit], depending)
        self._found.restore(self._memory)
        return depending is not None

    def _culprit(self, suspects: list[Suspect]) -> Suspect:
        """One of these that matters alone, by halves."""
        while len(suspects) > 1:
            half = suspects[: len(suspects) // 2]
            alone = self._depends(Trial(self._memory, frozenset(half))) is not None
            suspects = half if alone else suspects[len(half) :]
        return suspects[0]

    def _depends(self, trial: Trial) -> str | None:
        """What differs in a trial; takes back what it has stored."""
        findings = Findings()
        dispatch = replace(self._dispatch, findings=findings, max_instructions=self._limit)
        try:
            self._execute(dispatch, self._number, trial)
        except SimulationError:
            failed = True
        else:
            known = {(f.check, f.offset) for f in self._dispatch.findings.all()}
            failed = any((f.check, f.offset) not in known for f in findings.all() if f.severity is Severity.ERROR)
        before = trial.journal.before()
        stored = Contents.of(self._memory, before.places)
        before.restore(self._memory)
        if failed:
            return "what it executes or accesses depends on it"
        place = self._first_difference(stored, any(space is Space.DEVICE for space, _ in trial.reads))
        return None if place is None else f"what it stores in {self._dispatch.place_of(BASE + place)} depends on it"

    def _first_difference(self, stored: Contents, may_keep: bool) -> int | None:
        before = Contents.of(self._memory, np.union1d(self._found.places, stored.places))
        one, other = self._found.over(before), stored.over(before)
        kept = ~(one.data ^ before.data) & ~(other.data ^ other_bytes(before.places))
        kept[(before.marks != 0) | (not may_keep)] = 0
        differs = ((one.data ^ other.data) & ~kept != 0) | (one.marks != other.marks)
        return int(before.places[np.argmax(differs)]) if differs.any() else None

    def _report(self, space: Space, read: Read, depending: str) -> None:
        address = read.offset + (BASE if space is Space.DEVICE else 0)
        message = f"reads {_NAMES[space]} never written"
        if space is Space.DEVICE:
            message += f": {self._allocation(address)}"
        i = read.instruction
        place = (i.offset, str(i), self._number, read.wave, read.lane, address)
        self._dispatch.findings.add(Finding("uninit", Severity.ERROR, f"{message}; {depending}", *place))

    def _allocation(self, address: int) -> str:
        start, end = self._memory.allocation(address)
        written = np.count_nonzero(self._memory.written[start:end])
        return (
            f"{self._dispatch.place_of(address)} ({end - start} bytes are allocated there, {written} of them written)"
        )
