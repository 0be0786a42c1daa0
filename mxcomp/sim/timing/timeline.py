"""Shows what the waves and units of a compute unit do over time, for ui.perfetto.dev."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.timing.costs import Costs, Unit
from mxcomp.sim.timing.examination import SIMDS, Examination
from mxcomp.sim.timing.parameters import Parameters, parameters_of
from mxcomp.sim.timing.workgroup import Issues, first_issues

_MOST_EVENTS = 300_000


@dataclass(frozen=True)
class Timeline:
    """The instructions of the workgroups that share a CU in the first batch of a launch.

    Attributes:
        names: Of instructions, by number.
        unit: `Unit` of each instruction.
        busy: Cycles that VECTOR or MATRIX is busy with each.
        waves: What each wave issues, and when.
    """

    kernel: str
    names: tuple[str, ...]
    unit: NDArray[np.int64]
    busy: NDArray[np.int64]
    waves: list[Issues]
    clock_ghz: float

    @classmethod
    def of(cls, work: Examination, parameters: Parameters | None = None) -> Timeline:
        """Returns the timeline of the trace with the most steps. Raises SimulationError for an empty one."""
        p = parameters or parameters_of(work.target)
        trace, _ = max(work.parts, key=lambda part: part[0].steps)
        costs = Costs.of(trace.instructions)
        names = tuple(str(i) for i in trace.instructions)
        return cls(work.kernel, names, costs.unit, costs.busy, first_issues(work, trace, p), p.clock_ghz)

    def events(self) -> list[dict[str, Any]]:
        """Returns events in Chrome's trace event format: a process with a track for each wave, and one with a track for
        each unit.

        Times are µs at the peak clock. Of a long kernel these are the first instructions.
        """
        scale = 1 / (self.clock_ghz * 1e3)
        found = [_meta(0, 0, "process_name", f"{self.kernel}: waves"), _meta(1, 0, "process_name", "units of the CU")]
        most = _MOST_EVENTS // max(1, len(self.waves))
        tracks: dict[str, int] = {}
        for wave, (codes, issued) in enumerate(self.waves):
            found.append(_meta(0, wave, "thread_name", f"wave {wave}, SIMD {wave % SIMDS}"))
            ends = np.append(issued[1:], issued[-1:] + 4)
            for code, start, end in zip(codes[:most].tolist(), issued.tolist(), ends.tolist(), strict=False):
                unit = Unit(int(self.unit[code]))
                slot = {"name": self.names[code].split()[0], "ph": "X", "cat": unit.name, "ts": start * scale}
                found.append({**slot, "dur": (end - start) * scale, "pid": 0, "tid": wave,
                              "args": {"instruction": self.names[code]}})  # fmt: skip
                if unit in (Unit.VECTOR, Unit.MATRIX):
                    track = tracks.setdefault(f"SIMD {wave % SIMDS} {unit.name}", len(tracks))
                    found.append({**slot, "dur": float(self.busy[code]) * scale, "pid": 1, "tid": track})
        found += [_meta(1, number, "thread_name", name) for name, number in tracks.items()]
        return found

    def json(self) -> str:
        """Returns the file that ui.perfetto.dev and chrome://tracing open."""
        return json.dumps({"traceEvents": self.events(), "displayTimeUnit": "ns"})


def _meta(process: int, thread: int, kind: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}
