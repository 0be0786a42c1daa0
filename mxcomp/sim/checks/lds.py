"""LDS checks: races between waves, bytes in flight, bytes never written.

Time in a workgroup is counted in barrier intervals, which all waves pass together; within one, no order between waves
is taken for granted, so what is found does not depend on the schedule.

- A write is under way from its issue to the wait that proves it (s_waitcnt), in every interval in between, both ends
  included. A read happens when it is issued.
- Two waves that touch a byte in one interval, at least one of them writing: a race, an error. Two exceptions, warnings:
  both write the value the byte has anyhow, and somebody reads it then (nobody does where copies go that fill up a
  wave's share); or a direct load overwrites what another wave reads in the interval of its issue and is not waited for
  in that interval, which relies on latency (the data come from far, the read is faster).
- A read in a later interval, while the write has not been waited for: the byte is in flight ("late"), an error; also
  for the writing wave itself when a direct load brings the byte.
- A write to bytes that another wave reads and has not waited for, though a barrier lies between: a warning, as LDS
  serves instructions in order of issue.
- Atomics of several waves may meet in a byte; an atomic and another wave's read or write race.
- What becomes of reads of bytes never written: see `mxcomp.sim.checks.unwritten`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mxcomp.sim.checks.marks import SPREAD, Cells, Marks
from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.checks.trial import Trial
from mxcomp.sim.checks.waits import Issuer, Transfer
from mxcomp.sim.findings import Severity
from mxcomp.sim.instruction import Instruction, Space


class Shadow:
    """Receives LDS accesses. This one ignores them."""

    def read(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        """Records a read that is issued."""

    def write(self, wave: Issuer, i: Instruction, cells: Cells, transfer: Transfer, same: Callable[[], bool]) -> None:
        """Records a write that is issued; `same` tells whether it changes nothing."""

    def update(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        """Records an atomic that is issued."""

    def land(self, wave: Issuer, transfer: Transfer) -> None:
        """Records that a wait proves the arrival of a transfer."""

    def barrier(self) -> None:
        """Begins a new interval, as all waves have arrived."""


NO_SHADOW = Shadow()


class LdsShadow(Shadow):
    """Records which waves touched which byte of a workgroup's LDS; a trial is told which bytes were never written."""

    def __init__(self, size: int, report: Reporter, waves: Sequence[Issuer], trial: Trial | None = None) -> None:
        self._report, self._waves, self._trial = report, waves, trial
        self.written = Marks(size)  # 1: ever
        self.writer = Marks(size)  # wave + 1, this interval
        self.reader = Marks(size)  # wave + 1 or many, this interval
        self.arriving = Marks(size)  # wave + 1 of a direct load in flight
        self.updater = Marks(size)  # wave + 1 or many, of atomics this interval
        self.unproven = Marks(size)  # wave + 1 of a read issued before the last barrier and not waited for
        self.agreed = Marks(size)  # 1: two waves wrote it in one interval, what it was anyhow

    # -- reads

    def read(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        self._check_written(wave, i, cells)
        mark = wave.number + 1
        if self._report.late and (flight := self._marked(self.arriving, cells, mark)) is not None:
            lane, address = cells.byte(flight)
            self._report("late", "reads LDS bytes of its own direct load in flight", wave, i, lane, address)
        if self._report.race or self._report.late:
            if hit := self._other(self.writer, wave, cells):
                self._meets_write(wave, i, *hit)
            if hit := self._other(self.updater, wave, cells):
                self._race(wave, i, "reads LDS that another wave updates in the same barrier interval", *hit)
            self._check_agreed(wave, i, cells)
            self.reader.join(cells, mark)

    def _check_agreed(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        found = self.agreed.get(cells) != 0
        if found.any():
            message = "reads LDS that two waves wrote in one barrier interval, though the same"
            self._race(wave, i, message, *cells.byte(int(np.flatnonzero(found)[0])), certain=False)

    def _check_written(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        if self._trial is None or not self._trial.needs_reads:
            return
        written = self.written.get(cells)
        if (written != (SPREAD if cells.whole else 1)).any():
            missing = np.flatnonzero(np.ascontiguousarray(written).view(np.uint8) == 0)
            lanes, addresses = cells.bytes(missing)
            self._trial.read(Space.LDS, wave, i, lanes, addresses)

    @staticmethod
    def _marked(marks: Marks, cells: Cells, mark: int) -> int | None:
        """Returns an element all of whose bytes bear the mark."""
        hit = marks.get(cells) == (mark * SPREAD if cells.whole else mark)
        return int(np.flatnonzero(hit)[0]) if hit.any() else None

    @staticmethod
    def _other(marks: Marks, wave: Issuer, cells: Cells) -> tuple[int, int] | None:
        """Returns the lane and address of the first byte that bears another wave's mark."""
        others = marks.others(cells, wave.number + 1)
        return None if others is None else cells.byte(int(np.flatnonzero(others)[0]))

    def _meets_write(self, wave: Issuer, i: Instruction, lane: int, address: int) -> None:
        """Reports that another wave writes what this one reads."""
        transfer, owner = self._pending_write(wave, address)
        if transfer is None or owner is None:
            self._race(wave, i, "reads LDS that another wave writes in the same barrier interval", lane, address)
        elif transfer.interval < wave.barriers:
            by = f"{transfer.instruction.mnemonic} at {transfer.instruction.offset:#x} of wave {owner}"
            if self._report.late:
                self._report("late", f"reads LDS in flight, written by {by}", wave, i, lane, address)
        elif transfer.direct:
            transfer.conflicts.append((wave.number, lane, address))
        else:
            self._race(wave, i, f"reads LDS that wave {owner} writes in the same barrier interval", lane, address)

    def _pending_write(self, wave: Issuer, address: int) -> tuple[Transfer | None, int | None]:
        """Returns the transfer of another wave that is about to write an address."""
        for other in self._waves:
            if other is wave:
                continue
            for transfer in other.outstanding.transfers():
                for cells in transfer.writes:
                    unit = 4 if cells.whole else 1
                    if (cells.at == address // unit).any():
                        return transfer, other.number
        return None, None

    def _race(self, wave: Issuer, i: Instruction, message: str, lane: int, address: int, certain: bool = True) -> None:
        if self._report.race:
            severity = Severity.ERROR if certain else Severity.WARNING
            self._report("race", message, wave, i, lane, address, severity)

    # -- writes

    def write(self, wave: Issuer, i: Instruction, cells: Cells, transfer: Transfer, same: Callable[[], bool]) -> None:
        """Checks and records a write; `same` tells whether it changes nothing."""
        self.written.set(cells, 1)
        if not (self._report.race or self._report.late):
            return
        mark = wave.number + 1
        hit = self._other(self.writer, wave, cells)
        is_agreed = hit is not None and same()
        if hit and not is_agreed:
            self._race(wave, i, "writes LDS that another wave writes in the same barrier interval", *hit)
        self.agreed.set(cells, int(is_agreed))
        if hit := self._other(self.reader, wave, cells):
            if transfer.direct:
                transfer.conflicts.append((wave.number, *hit))
            else:
                message = "writes LDS that another wave reads in the same barrier interval"
                self._race(wave, i, message, *hit, certain=not same())
        if hit := self._other(self.updater, wave, cells):
            self._race(wave, i, "writes LDS that another wave updates in the same barrier interval", *hit)
        if hit := self._other(self.unproven, wave, cells):
            self._race(wave, i, "writes LDS that another wave reads and has not waited for", *hit, certain=False)
        self.writer.set(cells, mark)
        if transfer.direct:
            self.arriving.set(cells, mark)

    def update(self, wave: Issuer, i: Instruction, cells: Cells) -> None:
        """Checks and records an atomic."""
        self._check_written(wave, i, cells)
        if self._report.race or self._report.late:
            for marks, verb in ((self.writer, "writes"), (self.reader, "reads")):
                if hit := self._other(marks, wave, cells):
                    message = f"updates LDS that another wave {verb} in the same barrier interval"
                    self._race(wave, i, message, *hit)
            self._check_agreed(wave, i, cells)
            self.updater.join(cells, wave.number + 1)

    def land(self, wave: Issuer, transfer: Transfer) -> None:
        """Records that a wait proves the arrival of a transfer."""
        mark = wave.number + 1
        for cells in transfer.writes:
            self.arriving.set(cells, 0)
            if transfer.interval < wave.barriers:  # it may have landed at any time in this interval, too
                if self._report.late and (hit := self._other(self.reader, wave, cells)):
                    message = "LDS write waited for only after the barrier behind which another wave reads it"
                    self._report("late", message, wave, transfer.instruction, *hit)
                self.writer.set(cells, mark)
        for _, lane, address in transfer.conflicts:
            message = "direct load to LDS lands in the barrier interval in which another wave reads the bytes"
            self._race(wave, transfer.instruction, message, lane, address)
        transfer.conflicts.clear()
        for cells in transfer.reads:
            if transfer.interval < wave.barriers:
                self.unproven.set(cells, 0)

    # -- barriers

    def barrier(self) -> None:
        """Begins a new interval, as all waves have arrived."""
        self.writer.bytes[:] = 0
        self.reader.bytes[:] = 0
        self.updater.bytes[:] = 0
        for wave in self._waves:
            for transfer in wave.outstanding.transfers():
                for _, lane, address in transfer.conflicts:
                    message = (
                        "direct load to LDS overwrites what another wave reads in this interval: relies on latency"
                    )
                    self._race(wave, transfer.instruction, message, lane, address, certain=False)
                transfer.conflicts.clear()
                for cells in transfer.writes:
                    self.writer.set(cells, wave.number + 1)
                for cells in transfer.reads:
                    self.unproven.set(cells, wave.number + 1)
