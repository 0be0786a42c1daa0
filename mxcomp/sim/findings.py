"""The findings of the checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"
    DOUBT = "doubt"
    """Becomes a warning if results depend on what was found (`checks.unwritten`)."""


CHECKS = ("late", "race", "hazard", "bounds", "uninit")
"""The checks that can be turned on and off; barrier mismatches ("barrier") are always errors."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    Attributes:
        check: Which check made it.
        message: What is wrong, with the other party if there is one.
        offset: Virtual address of the instruction in the code object.
        instruction: Its text.
        workgroup: Workgroup id.
        wave: Wave within the workgroup.
        lane: Lane, or None when the whole wave is meant.
        address: Global, LDS or scratch address in bytes, or None.
        count: How often the same instruction met the same thing.
    """

    check: str
    severity: Severity
    message: str
    offset: int
    instruction: str
    workgroup: tuple[int, int, int]
    wave: int
    lane: int | None = None
    address: int | None = None
    count: int = 1

    def __str__(self) -> str:
        where = f"workgroup {self.workgroup}, wave {self.wave}"
        where += "" if self.lane is None else f", lane {self.lane}"
        where += "" if self.address is None else f", address {self.address:#x}"
        times = f" ({self.count} times)" if self.count > 1 else ""
        what = f"{self.severity.value}[{self.check}] {self.message}"
        return f"{what} at {self.offset:#x}: {self.instruction}; {where}{times}"


class Findings:
    """Collects findings; the same message from the same instruction is counted, not repeated."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, Severity, str, int], Finding] = {}

    def add(self, finding: Finding) -> None:
        key = (finding.check, finding.severity, finding.message, finding.offset)
        known = self._first.get(key)
        self._first[key] = finding if known is None else replace(known, count=known.count + finding.count)

    def resolve_doubts(self, matter: bool) -> None:
        """Turns the doubts so far into warnings, or drops them."""
        doubts = [key for key, finding in self._first.items() if finding.severity is Severity.DOUBT]
        for finding in [self._first.pop(key) for key in doubts]:
            if matter:
                self.add(replace(finding, severity=Severity.WARNING))

    def doubts(self) -> frozenset[tuple[str, int]]:
        """Returns the messages and instructions of the doubts that are not resolved yet."""
        found = (finding for finding in self._first.values() if finding.severity is Severity.DOUBT)
        return frozenset((finding.message, finding.offset) for finding in found)

    def all(self) -> tuple[Finding, ...]:
        """Returns all findings, errors first, then by instruction."""
        return tuple(sorted(self._first.values(), key=lambda f: (f.severity is Severity.WARNING, f.offset)))
