"""Runs both engines one after the other from the same state; any difference stops the launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mxcomp.sim.counters import Counters
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.fast import FastEngine
from mxcomp.sim.findings import Findings
from mxcomp.sim.memory import BASE
from mxcomp.sim.numpy.engine import NumpyEngine


class BothEngines:
    """Raises SimulationError unless memory, counters and findings are the same."""

    name = "both"

    def __init__(self) -> None:
        self.numpy, self.fast = NumpyEngine(), FastEngine()

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        memory = dispatch.memory
        starts, ends = memory.ranges()
        used = slice(int(starts.min()), int(ends.max()))
        before = memory.data[used].copy(), memory.written[used].copy()
        expected = self.numpy.run(dispatch)
        data, written = memory.data[used].copy(), memory.written[used].copy()
        memory.data[used], memory.written[used] = before
        again = replace(dispatch, findings=Findings())
        found = self.fast.run(again)
        differing = np.flatnonzero((memory.data[used] != data) | (memory.written[used] != written))
        if len(differing):
            raise self._error(
                dispatch, f"{len(differing)} bytes differ, the first at {BASE + used.start + int(differing[0]):#x}"
            )
        if found != expected:
            raise self._error(dispatch, f"counters differ: {found} instead of {expected}")
        reports = [_reports(side) for side in (again, dispatch)]
        if reports[0] != reports[1]:
            raise self._error(dispatch, f"findings differ: {reports[0]} instead of {reports[1]}")
        return expected

    @staticmethod
    def _error(dispatch: Dispatch, what: str) -> SimulationError:
        return SimulationError(f"kernel {dispatch.program.kernel.name}: fast and numpy engine: {what}")


def _reports(dispatch: Dispatch) -> list[str]:
    """Returns the findings without their order. Random turns end within compiled segments, so another wave may be the
    first to report."""
    found = dispatch.findings.all()
    if dispatch.schedule.order == "random":
        found = tuple(replace(finding, workgroup=(0, 0, 0), wave=0, lane=None, address=None) for finding in found)
    return [str(finding) for finding in found]
