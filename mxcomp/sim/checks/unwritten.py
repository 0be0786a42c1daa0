"""Reads of memory that was never written ("uninit") are errors if a result depends on them.

Correct kernels read such memory as well: padding whose products are not stored, whole words of which only some bytes
count, bytes of which they replace four bits. So a workgroup that has read some is run again from the same state, with
other bytes in place of those never written: tame ones, then noise. If all that it stores is the same each time, nothing
depends on them. Bits that keep their old value do not depend on them, either.

Doubts of `registers` are handled alike: one is a warning if other values in registers never written change a result.

Device memory is replaced where it is read, LDS and scratch where a workgroup or a wave starts. So a finding names an
instruction that reads device memory, or a dword of LDS or of a lane's scratch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mxcomp.sim.checks.journal import Contents
from mxcomp.sim.checks.trial import Read, Trial, other_bytes
from mxcomp.sim.counters import Counters
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import Finding, Findings, Severity
from mxcomp.sim.instruction import Space
from mxcomp.sim.memory import BASE
from mxcomp.support.progress import tracked

Doubts = frozenset[tuple[str, int]]

Execute = Callable[[Dispatch, Workgroup, Trial | None], Counters]


class UnwrittenCheck:
    """Runs the workgroups of one launch, those that read never-written memory several times.

    Nothing is looked into after the first error.
    """

    def __init__(self, dispatch: Dispatch, execute: Execute) -> None:
        self._dispatch, self._execute = dispatch, execute
        self._on = "uninit" in dispatch.checks
        self._met: Counter[Doubts] = Counter()
        self._matter: set[Doubts] = set()

    def run_all(self) -> dict[Workgroup, Counters]:
        """Returns the counters of each workgroup of the launch."""
        with np.errstate(all="ignore"):
            workgroups = tracked(self._dispatch.workgroups, f"simulating {self._dispatch.program.kernel.name}")
            return {number: self.run(number) for number in workgroups}

    def run(self, number: Workgroup) -> Counters:
        findings = self._dispatch.findings
        trial = Trial(self._dispatch.memory) if self._on else None
        try:
            counters = self._execute(self._dispatch, number, trial)
        except SimulationError:
            findings.resolve_doubts(matter=True)
            raise
        if trial is None:
            findings.resolve_doubts(matter=False)
            return counters
        suspect = _SuspectWorkgroup(self._dispatch, number, self._execute, trial, counters)
        if doubts := findings.doubts():
            findings.resolve_doubts(self._affect_results(doubts, suspect))
        if trial.suspect:
            self._on = not suspect.has_error()
        return counters

    def _affect_results(self, doubts: Doubts, suspect: _SuspectWorkgroup) -> bool:
        """Returns whether results depend on the registers in doubt, here or in an earlier workgroup. Repeated doubts
        are examined ever more rarely.

        Those are the first, second, fourth, eighth … workgroup that has them.
        """
        self._met[doubts] += 1
        met = self._met[doubts]
        if doubts not in self._matter and met & (met - 1) == 0 and suspect.depends_on_registers():
            self._matter.add(doubts)
        return doubts in self._matter


@dataclass(frozen=True)
class _Outcome:
    """The state that an execution of the workgroup leaves.

    Attributes:
        has_failed: It meets errors that the first execution did not meet.
        may_keep: It has read device memory never written, bits of which may be among those stored.
    """

    has_failed: bool
    stored: Contents
    may_keep: bool = False


class _SuspectWorkgroup:
    """A workgroup that read never-written memory. Leaves memory as its first execution did."""

    def __init__(
        self, dispatch: Dispatch, number: Workgroup, execute: Execute, first: Trial, counters: Counters
    ) -> None:
        self._dispatch, self._number, self._execute, self._memory = dispatch, number, execute, dispatch.memory
        self._first, self._limit = first, 2 * counters["instructions"] + 10_000

    def depends_on_registers(self) -> bool:
        """Returns whether what it stores depends on registers never written; True if it stores too much to find out."""
        if self._first.journal.is_full:
            return True
        before = self._first.journal.before()
        found = _Outcome(False, Contents.of(self._memory, before.offsets))
        before.restore(self._memory)
        trials = (Trial(self._memory, is_tame=is_tame, has_other_registers=True) for is_tame in (True, False))
        depends = any(self._difference(found, self._outcome(trial), trial.is_tame) is not None for trial in trials)
        found.stored.restore(self._memory)
        return depends

    def has_error(self) -> bool:
        """Reports reads that results depend on, and returns whether there are any."""
        if self._first.journal.is_full:
            message = "reads memory never written, and stores too much to find out whether anything depends on it"
            self._report_at_entry(Severity.WARNING, message)
            return False
        before = self._first.journal.before()
        found = _Outcome(False, Contents.of(self._memory, before.offsets))
        before.restore(self._memory)
        for is_tame in (True, False):
            other = self._outcome(Trial(self._memory, None, is_tame))
            depending = self._difference(found, other, is_tame)
            if depending is not None:
                self._report(self._cause(other, is_tame), depending)
                break
        found.stored.restore(self._memory)
        return depending is not None

    def _cause(self, other: _Outcome, is_tame: bool) -> tuple[Space, Read] | None:
        """Returns a read that changes the result when it alone is replaced, found by bisection.

        None: an execution that fails may not know what it has read.
        """
        trial = Trial(self._memory, None, is_tame, is_recording=True)
        self._outcome(trial)
        suspects = sorted(trial.reads)
        same, differing = 0, len(suspects)
        while differing - same > 1:
            middle = (same + differing) // 2
            fewer = self._outcome(Trial(self._memory, frozenset(suspects[middle:]), is_tame))
            if self._difference(fewer, other, is_tame) is None:
                same = middle
            else:
                differing = middle
        return (suspects[same][0], trial.reads[suspects[same]]) if suspects else None

    def _outcome(self, trial: Trial) -> _Outcome:
        """Returns the state after a trial, and undoes its stores."""
        findings = Findings()
        dispatch = replace(self._dispatch, findings=findings, max_instructions=self._limit)
        try:
            self._execute(dispatch, self._number, trial)
        except SimulationError:
            has_failed = True
        else:
            known = {(f.check, f.offset) for f in self._dispatch.findings.all()}
            has_failed = any((f.check, f.offset) not in known for f in findings.all() if f.severity is Severity.ERROR)
        before = trial.journal.before()
        stored = Contents.of(self._memory, before.offsets)
        before.restore(self._memory)
        return _Outcome(
            has_failed, stored, not trial.is_first and any(space is Space.DEVICE for space, _ in trial.reads)
        )

    def _difference(self, fewer: _Outcome, other: _Outcome, is_tame: bool) -> str | None:
        """Returns what depends on bytes that are replaced in `other` only, or None."""
        if fewer.has_failed or other.has_failed:
            same = fewer.has_failed and other.has_failed
            return None if same else "what it executes or accesses depends on it"
        before = Contents.of(self._memory, np.union1d(fewer.stored.offsets, other.stored.offsets))
        one, two = fewer.stored.over(before), other.stored.over(before)
        kept = ~(one.data ^ before.data) & ~(two.data ^ other_bytes(before.offsets, is_tame))
        kept[(before.marks != 0) | (not other.may_keep)] = 0
        differs = ((one.data ^ two.data) & ~kept != 0) | (one.marks != two.marks)
        if not differs.any():
            return None
        place = self._dispatch.place_of(BASE + int(before.offsets[np.argmax(differs)]))
        return f"what it stores in {place} depends on it"

    def _report(self, cause: tuple[Space, Read] | None, depending: str) -> None:
        if cause is None:
            self._report_at_entry(Severity.ERROR, f"reads memory never written; {depending}")
            return
        space, read = cause
        address = read.offset + (BASE if space is Space.DEVICE else 0)
        message = f"reads {space} never written"
        if space is Space.DEVICE:
            message += f": {self._allocation(address)}"
        i = read.instruction
        place = (i.offset, str(i), self._number, read.wave, read.lane, address)
        self._dispatch.findings.add(Finding("uninit", Severity.ERROR, f"{message}; {depending}", *place))

    def _report_at_entry(self, severity: Severity, message: str) -> None:
        i = self._dispatch.program.instructions[self._dispatch.entry]
        self._dispatch.findings.add(Finding("uninit", severity, message, i.offset, str(i), self._number, 0))

    def _allocation(self, address: int) -> str:
        start, end = self._memory.allocation(address)
        written = np.count_nonzero(self._memory.written[start:end])
        return (
            f"{self._dispatch.place_of(address)} ({end - start} bytes are allocated there, {written} of them written)"
        )
