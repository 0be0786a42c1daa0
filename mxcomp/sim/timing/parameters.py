"""The numbers of the timing model, from one file, each with its source (`mi355x.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from mxcomp.sim.errors import SimulationError

FILE = "mi355x.toml"


class Machine(NamedTuple):
    """Of one compute unit; cycles, bytes, and bytes per cycle. `fetch_…` are of the instruction cache."""

    lds_read: float = 128.0
    lds_write: float = 128.0
    lds_latency: float = 64.0
    line_cycles: float = 2.0
    return_bytes: float = 64.0
    store_bytes: float = 64.0
    scalar_latency: float = 200.0
    matrix_latency: float = 8.0
    barrier_latency: float = 8.0
    store_latency: float = 500.0
    fetch_bytes: float = 65536.0
    fetch_ways: float = 8.0
    fetch_line: float = 64.0
    fetch_ahead: float = 1024.0
    fetch_latency: float = 200.0


@dataclass(frozen=True)
class Entry:
    """One number.

    Attributes:
        source: "document", "measured elsewhere", "fitted" or "assumed", and where from.
        low, high: Of fitted ones: 80 % of fits to resampled measurements lie between.
    """

    value: float
    unit: str
    source: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Residuals:
    """How far estimates of left-out tiles were off: measured / modelled, the 10th and 90th percentile.

    Attributes:
        below_us: Of estimates below so many µs.
    """

    below_us: float
    low: float
    high: float


@dataclass(frozen=True)
class Parameters:
    """All numbers; see the file for what they mean and where they come from. Rates are bytes per cycle of `clock_ghz`.

    Attributes:
        machine: Of a compute unit.
        residuals: By size of the estimate.
        entries: As they stand in the file, by name.
    """

    clock_ghz: float
    launch_us: float
    cold_latency: float
    warm_latency: float
    cu_bytes: float
    fabric_bytes: float
    cold_bytes: float
    power: float
    drain_bytes: float
    store_overlap: float
    hbm_terabytes: float
    warm_megabytes: float
    machine: Machine
    residuals: tuple[Residuals, ...]
    entries: Mapping[str, Entry] = field(repr=False)

    def replaced(self, **values: float) -> Parameters:
        """With other values of the device's numbers, for fits and for what-if questions."""
        changed: dict[str, Any] = dict(values)
        return replace(self, **changed)

    def interval(self, modelled_us: float) -> tuple[float, float]:
        """µs between which 80 % of measurements of such an estimate lay."""
        row = next((row for row in self.residuals if modelled_us < row.below_us), self.residuals[-1])
        return modelled_us * row.low, modelled_us * row.high


@cache
def mi355x() -> Parameters:
    """Of MI355X, as they come with this package."""
    return load((resources.files("mxcomp.sim.timing") / FILE).read_text())


def load(text: str) -> Parameters:
    """Parameters from the text of a file. Raises SimulationError for one that is not complete."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
        device, unit = data["device"], data["compute_unit"]
        entries = {name: Entry(**row) for table in (device, unit) for name, row in table.items()}
        return Parameters(
            **{name: entries[name].value for name in device},
            machine=Machine(**{name: float(entries[name].value) for name in unit}),
            residuals=tuple(Residuals(**row) for row in data["residuals"]),
            entries=entries,
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SimulationError(f"timing parameters: {error}: expected tables as in {FILE}") from None


def load_file(path: Path) -> Parameters:
    return load(path.read_text())
