"""Exceptions of the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mxcomp.errors import MxcompError

if TYPE_CHECKING:
    from mxcomp.sim.findings import Finding


class SimulationError(MxcompError):
    """A launch went wrong: `findings` holds what the checks reported."""

    def __init__(self, message: str, findings: tuple[Finding, ...] = ()) -> None:
        super().__init__("\n  ".join((message, *map(str, findings[:20]))))
        self.findings = findings


class CodeObjectError(SimulationError):
    """The code object is truncated, for another machine, or not a code object at all."""


class UnsupportedInstruction(SimulationError):  # noqa: N818 (named after what was met)
    """Reachable code holds an instruction that the simulator does not implement."""
