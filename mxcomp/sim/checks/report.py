"""Turns what a check found into a `Finding` of the wave and instruction at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mxcomp.sim.findings import Finding, Severity
from mxcomp.sim.instruction import Instruction

if TYPE_CHECKING:
    from mxcomp.sim.engine import Dispatch


class Numbered(Protocol):
    """A wave, as far as reports name it."""

    number: int


class Reporter:
    """Reports for one workgroup; disabled checks stay silent."""

    def __init__(self, dispatch: Dispatch, workgroup: tuple[int, int, int]) -> None:
        self._findings, self._workgroup = dispatch.findings, workgroup
        on = dispatch.checks
        self.late, self.race, self.hazard = "late" in on, "race" in on, "hazard" in on
        self.bounds, self.uninit = "bounds" in on, "uninit" in on

    def __call__(
        self,
        check: str,
        message: str,
        wave: Numbered,
        instruction: Instruction,
        lane: int | None = None,
        address: int | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        where = (instruction.offset, str(instruction), self._workgroup, wave.number, lane, address)
        self._findings.add(Finding(check, severity, message, *where))
