"""Prints warnings of the simulator on stderr: one line for each kernel and kind of warning."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mxcomp.sim.findings import Finding

_OURS = "mxcomp_"
"""The prefix of the names of executables that mxcomp's passes outline."""


class Warnings:
    """The warnings of one simulation so far."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def say(self, kernel: str, findings: Sequence[Finding]) -> None:
        """Prints the first finding of each kind that is new for the kernel, and how many more there are."""
        kinds: dict[str, list[Finding]] = {}
        for finding in findings:
            kinds.setdefault(finding.check, []).append(finding)
        for check, (first, *others) in kinds.items():
            if (kernel, check) in self._said:
                continue
            self._said.add((kernel, check))
            more = f"; and at {len(others)} more places" if others else ""
            print(f"mxcomp simulator: {owner(kernel)}: {first}{more}", file=sys.stderr, flush=True)


def owner(kernel: str) -> str:
    """Returns a kernel's name, and who made it."""
    made_by = "made by mxcomp" if kernel.startswith(_OURS) else "not made by mxcomp"
    return f"kernel {kernel} ({made_by})"
