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
class Estimate:
    """How long a launch takes on an MI355X: modelled, never measured.

    Attributes:
        us: Microseconds.
        low, high: 80 % of measurements of kernels that the model had not seen lay between, relative to the estimate.
        bound: The resource that costs most: one of `mxcomp.sim.timing.RESOURCES`.
        saved: By resource: microseconds that the launch would take less if it cost nothing.
        matrix_share: Part of the time that MFMA pipes of the whole chip are busy, at the peak clock.
        flops: Of matrix instructions.
        unique_bytes: Loaded and stored, each once.
    """

    us: float
    low: float
    high: float
    bound: str
    saved: Mapping[str, float]
    matrix_share: float
    flops: float
    unique_bytes: float

    def __str__(self) -> str:
        return f"modelled {self.us:.1f} µs ({self.low:.1f} to {self.high:.1f}), bound by {self.bound}"


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
    modelled: Estimate | None
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
    modelled = None if "us" not in found else Estimate(**found)
    return DispatchProfile(
        line["kernel"], tuple(line["grid"]), line["counters"], line["seconds"], modelled, found.get("error", "")
    )
