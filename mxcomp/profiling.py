"""What each dispatch of a program does on the simulated GPU, and how long it would take on an MI355X, modelled."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

_COUNTED: Mapping[str, tuple[str, ...]] = {
    "instructions": ("instructions",),
    "MFMA": ("mfma",),
    "bytes read": ("global.load.bytes", "scalar.load.bytes", "lds.direct.bytes"),
    "bytes written": ("global.store.bytes", "global.atomic.bytes"),
    "LDS bytes": ("lds.load.bytes", "lds.store.bytes"),
    "bank conflicts": ("lds.conflict.cycles",),
}
"""Columns of the table, and the counters (see `mxcomp.sim.counters`) that each adds up."""

_NAME_COLUMNS = 32
"""A dispatch's name gets at least as many, if it is that long."""

_DIRECTORIES = re.compile(r" of (?:[^\s:]*/)(?=[^/\s:]+:\d)")
"""Of a file, in the place of a matmul."""


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
        seconds: The simulator's own time, which says nothing of a GPU's.
        modelled: None where the timing model cannot follow the kernel; `reason` says why.
        owner: Which part of which matmul it computes, where a report says so.
        depends: On which of its data the modelled time depends that was not computed: it is that of some other data.
    """

    kernel: str
    grid: tuple[int, ...]
    counters: Mapping[str, int]
    seconds: float
    modelled: Estimate | None
    reason: str = ""
    owner: str = ""
    depends: str = ""


@dataclass(frozen=True)
class Profile:
    """The dispatches of a call, in their order."""

    dispatches: tuple[DispatchProfile, ...]

    @property
    def modelled_us(self) -> float:
        """The sum over dispatches that can be modelled, launches included, nothing in between."""
        return sum(d.modelled.us for d in self.dispatches if d.modelled is not None)

    @property
    def guessed(self) -> tuple[DispatchProfile, ...]:
        """The dispatches whose modelled times depend on data that was not computed."""
        return tuple(d for d in self.dispatches if d.depends)

    @property
    def instructions(self) -> int:
        """Of all waves."""
        return sum(d.counters.get("instructions", 0) for d in self.dispatches)

    def to_json(self) -> str:
        """All of it."""
        data = {
            "modelled_us": self.modelled_us,
            "guessed": len(self.guessed),
            "dispatches": [asdict(d) for d in self.dispatches],
        }
        return json.dumps(data, indent=2) + "\n"

    def table(self) -> Table:
        """For a terminal; times are modelled, and the simulator's own is not among them.

        A dispatch is named by its part of a matmul where that is known, else by its kernel.
        """
        names = [_DIRECTORIES.sub(" of ", d.owner) or d.kernel for d in self.dispatches]
        table = Table(caption=self._caption(), caption_justify="left")
        longest = max((len(line) for name in names for line in name.splitlines()), default=0)
        table.add_column("dispatch", overflow="fold", min_width=min(longest, _NAME_COLUMNS))
        table.add_column("grid")
        for name in ("modelled µs", "low", "high"):
            table.add_column(name, justify="right")
        table.add_column("bound")
        for name in _COUNTED:
            table.add_column(name, justify="right")
        for name, d in zip(names, self.dispatches, strict=True):
            m = d.modelled
            times = ("", "", "", d.reason) if m is None else (f"{m.us:.1f}", f"{m.low:.1f}", f"{m.high:.1f}", m.bound)
            if d.depends:
                times = f"{times[0]} ?", "", "", f"depends on data: {d.depends}"
            sums = (sum(d.counters.get(counter, 0) for counter in parts) for parts in _COUNTED.values())
            counts = [f"{total:,}" for total in sums]
            table.add_row(Text(name), "×".join(map(str, d.grid)), *times, *counts)
        return table

    def _caption(self) -> str:
        known = sum(d.modelled is not None for d in self.dispatches)
        text = f"{known} of {len(self.dispatches)} dispatches: {self.modelled_us:.1f} µs on an MI355X, modelled"
        if self.guessed:
            text += f"\n? {len(self.guessed)} depend on data that was not computed: profile while computing results"
        return text


def owners(matmuls: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By the name of a kernel: which part of which matmul it computes; from the entries of a report."""
    found: dict[str, list[str]] = {}
    for matmul in matmuls:
        for kernel, part in zip(matmul.get("kernels", ()), matmul["dispatches"], strict=False):
            found.setdefault(kernel, []).append(f"{part} of {matmul['location']}")
    return {kernel: "\n".join(dict.fromkeys(lines)) for kernel, lines in found.items()}


def read(path: Path, owner: Mapping[str, str] | None = None) -> Profile:
    """What the simulator's worker noted, a line of JSON for each launch; nothing where it noted none.

    `owner` says by kernels' names what they belong to (`owners`).
    """
    lines = path.read_text().splitlines() if path.exists() else []
    return Profile(tuple(_dispatch(json.loads(line), owner or {}) for line in lines))


def _dispatch(line: Mapping[str, Any], owner: Mapping[str, str]) -> DispatchProfile:
    found = line["modelled"] or {}
    depends = found.pop("depends", "")
    modelled = None if "us" not in found else Estimate(**found)
    kernel, reason = line["kernel"], found.get("error", "")
    return DispatchProfile(
        kernel, tuple(line["grid"]), line["counters"], line["seconds"], modelled, reason, owner.get(kernel, ""), depends
    )
