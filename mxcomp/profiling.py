"""What each dispatch of a program does on the simulated GPU, and how long it would take on an MI355X, modelled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "instructions": ("instructions",),
    "MFMA": ("mfma",),
    "bytes read": ("global.load.bytes", "scalar.load.bytes", "lds.direct.bytes"),
    "bytes written": ("global.store.bytes", "global.atomic.bytes"),
    "LDS bytes": ("lds.load.bytes", "lds.store.bytes"),
    "bank conflicts": ("lds.conflict.cycles",),
}
"""Columns of the table, and the counters (see `mxcomp.sim.counters`) that each adds up."""


@dataclass(frozen=True)
class Modelled:
    """See `mxcomp.sim.timing.Estimate`: µs, what it may be, what binds, what each resource costs in µs; FLOP, bytes."""

    us: float
    low: float
    high: float
    bound: str
    saved: Mapping[str, float]
    matrix_share: float
    flops: float
    unique_bytes: float


@dataclass(frozen=True)
class DispatchProfile:
    """One launch of a kernel.

    Attributes:
        grid: Workgroups in x, y and z.
        counters: What it did, see `mxcomp.sim.counters`.
        seconds: The simulator's own time.
        modelled: None where the timing model cannot follow the kernel; `reason` says why.
    """

    kernel: str
    grid: tuple[int, ...]
    counters: Mapping[str, int]
    seconds: float
    modelled: Modelled | None
    reason: str = ""


@dataclass(frozen=True)
class Profile:
    """The dispatches of a call, in their order."""

    dispatches: tuple[DispatchProfile, ...]

    @property
    def modelled_us(self) -> float:
        """The sum over dispatches that can be modelled, launches included, nothing in between."""
        return sum(d.modelled.us for d in self.dispatches if d.modelled is not None)

    def to_json(self) -> str:
        """All of it."""
        data = {"modelled_us": self.modelled_us, "dispatches": [asdict(d) for d in self.dispatches]}
        return json.dumps(data, indent=2) + "\n"

    def table(self) -> Table:
        """For a terminal; times are modelled."""
        table = Table("dispatch", "grid")
        for name in ("modelled µs", "low", "high"):
            table.add_column(name, justify="right")
        table.add_column("bound")
        for name in (*_COUNTED, "ms simulated"):
            table.add_column(name, justify="right")
        for d in self.dispatches:
            m = d.modelled
            times = ("", "", "", d.reason) if m is None else (f"{m.us:.1f}", f"{m.low:.1f}", f"{m.high:.1f}", m.bound)
            sums = (sum(d.counters.get(counter, 0) for counter in parts) for parts in _COUNTED.values())
            counts = [f"{total:,}" for total in sums]
            table.add_row(d.kernel, "×".join(map(str, d.grid)), *times, *counts, f"{1000 * d.seconds:.1f}")
        return table


def read(path: Path) -> Profile:
    """What the simulator's worker noted, a line of JSON for each launch; nothing where it noted none."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Profile(tuple(_dispatch(json.loads(line)) for line in lines))


def _dispatch(line: Mapping[str, Any]) -> DispatchProfile:
    found = line["modelled"] or {}
    modelled = None if "us" not in found else Modelled(**found)
    return DispatchProfile(
        line["kernel"], tuple(line["grid"]), line["counters"], line["seconds"], modelled, found.get("error", "")
    )
