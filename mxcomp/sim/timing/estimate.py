"""How long launches take on an MI355X, modelled.

A launch is batches of workgroups, as many as fit on the CUs. Each batch takes as long as one workgroup's replay does on
a CU, with data arriving at

    1 / (1 / cu_bytes + CUs · fabric share / fabric_bytes + CUs · cold share / cold_bytes)   bytes per cycle,

where the shares are of the bytes that all load: those that an XCD loads for the first time, and those that the chip
does. Only the first batch finds operands cold, in HBM; what follows finds them in Infinity Cache. The clock falls with
the part of the MFMA pipes that is busy. Stores of a batch go to memory together; behind the first batch some of them
overlap with other workgroups, all of them where a CU runs several. In all it takes no less than HBM takes for what is
loaded and stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.profiling import Estimate
from mxcomp.sim.timing.costs import Unit
from mxcomp.sim.timing.examine import CUS, Examination
from mxcomp.sim.timing.parameters import Parameters, mi355x
from mxcomp.sim.timing.workgroup import Replayed, replayed

Floats = NDArray[np.float64]
_COLD_STEEPNESS = 8
_FLOOR_POWER = 8


class Rates(NamedTuple):
    """What a workgroup sees of memory: cycles until data comes, and bytes per cycle."""

    latency: Floats
    bytes: Floats


@dataclass(frozen=True)
class Launches:
    """Batches of launches, as arrays over batches.

    Attributes:
        launch: Number of the launch that a batch belongs to.
        first: Whether it is the launch's first.
        running, count: Workgroups of a batch, and how many batches are like it.
        fabric, chip: Part of the loaded bytes that an XCD, and that the chip loads for the first time.
        stored: Bytes that a batch stores.
        alone: Whether a workgroup has a CU for itself.
        unique: Bytes loaded and stored once, by launch.
    """

    launch: NDArray[np.int64]
    first: NDArray[np.bool_]
    running: Floats
    count: Floats
    fabric: Floats
    chip: Floats
    stored: Floats
    alone: NDArray[np.bool_]
    unique: Floats

    @classmethod
    def of(cls, works: Sequence[Examination]) -> Launches:
        rows: list[tuple[Any, ...]] = []
        for number, work in enumerate(works):
            for k, batch in enumerate(work.batches):
                loaded = max(batch.running * work.load_bytes, 1.0)
                shares = min(1.0, batch.fabric_bytes / loaded), min(1.0, batch.chip_bytes / loaded)
                stored = batch.running * work.store_bytes
                rows.append((number, k == 0, work.resident == 1, batch.running, batch.count, *shares, stored))
        launch, first, alone, *others = zip(*rows, strict=True)
        running, count, fabric, chip, stored_bytes = (np.array(column, float) for column in others)
        unique = np.array([work.unique_bytes for work in works], float)
        numbers, is_first, is_alone = np.array(launch), np.array(first), np.array(alone)
        return cls(numbers, is_first, running, count, fabric, chip, stored_bytes, is_alone, unique)

    def rates(self, p: Parameters, cold: bool) -> Rates:
        """What a workgroup of each batch sees of memory."""
        cus = np.minimum(CUS, self.running)
        chip = self.chip if cold else 0.0 * self.chip
        size = np.maximum(self.unique[self.launch], 1.0)
        coldness = 1 / (1 + (p.warm_megabytes * 1e6 / size) ** _COLD_STEEPNESS) if cold else 0.0 * size
        latency = p.warm_latency + (p.cold_latency - p.warm_latency) * coldness
        per_byte = 1 / p.cu_bytes + cus * self.fabric / p.fabric_bytes + cus * chip / p.cold_bytes
        return Rates(latency, 1 / per_byte)


Ask = Callable[[Rates, bool], tuple[Floats, Floats]]
"""Cycles of each batch as if it were a first one or not, and cycles that an MFMA pipe is busy in them."""


def modelled_us(launches: Launches, p: Parameters, ask: Ask) -> Floats:
    """Microseconds of each launch."""
    cold, warm = (_batch_cycles(launches, p, ask, cold) for cold in (True, False))
    cycles = np.where(launches.first, cold + (launches.count - 1) * warm, launches.count * warm)
    us = np.bincount(launches.launch, cycles, len(launches.unique)) / (p.clock_ghz * 1e3)
    floor = launches.unique / (p.hbm_terabytes * 1e6)
    result: Floats = p.launch_us + (us**_FLOOR_POWER + floor**_FLOOR_POWER) ** (1 / _FLOOR_POWER)
    return result


def _batch_cycles(launches: Launches, p: Parameters, ask: Ask, cold: bool) -> Floats:
    """Cycles of the peak clock that a batch takes, so they mean time."""
    cycles, matrix = ask(launches.rates(p, cold), cold)
    busy = matrix / np.maximum(cycles, 1.0) * np.minimum(1.0, launches.running / CUS)
    exposed = 1.0 if cold else np.where(launches.alone, 1 - p.store_overlap, 0.0)
    stores = launches.stored / p.drain_bytes * exposed
    return cycles * (1 + p.power * busy) + stores


def _replaying(work: Examination, p: Parameters, free: frozenset[Unit] = frozenset()) -> Ask:
    """Replays each batch of one launch."""

    def ask(rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        pairs = zip(_rounded(rates.latency), _rounded(rates.bytes), strict=True)
        found = [replayed(work, p.machine, latency, rate, is_first, free) for latency, rate in pairs]
        return np.array([one.cycles for one in found]), np.array([one.matrix for one in found])

    return ask


def _rounded(values: Floats) -> list[float]:
    """So that replays of what differs in the last bits only are made once."""
    return [float(f"{value:.4g}") for value in values]


_GREAT = 1e12

RESOURCES: dict[str, tuple[dict[str, float], frozenset[Unit]]] = {
    "MFMA": ({"power": 0.0}, frozenset({Unit.MATRIX})),
    "LDS": ({}, frozenset({Unit.LDS})),
    "issue": ({}, frozenset({Unit.SCALAR, Unit.VECTOR})),
    "CU bytes": ({"cu_bytes": _GREAT}, frozenset()),
    "L2 and fabric": ({"fabric_bytes": _GREAT}, frozenset()),
    "HBM": ({"cold_bytes": _GREAT, "hbm_terabytes": _GREAT}, frozenset()),
    "stores": ({"drain_bytes": _GREAT}, frozenset()),
    "latency": ({"cold_latency": 0.0, "warm_latency": 0.0}, frozenset()),
    "launch": ({"launch_us": 0.0}, frozenset()),
}
"""What can bind: parameters, and units of a CU, that are changed to see what a launch takes without it."""


def estimate(work: Examination, parameters: Parameters | None = None) -> Estimate:
    """The modelled time of a launch. Raises SimulationError for an empty trace."""
    p = parameters or mi355x()
    launches = Launches.of([work])

    def us_with(values: Mapping[str, float], units: frozenset[Unit]) -> float:
        changed = p.replaced(**values)
        return float(modelled_us(launches, changed, _replaying(work, changed, units))[0])

    us = us_with({}, frozenset())
    saved = {name: max(0.0, us - us_with(values, units)) for name, (values, units) in RESOURCES.items()}
    low, high = p.interval(us)
    one = _first(work, launches, p)
    busy = one.matrix / work.resident * work.workgroups / CUS / (us * p.clock_ghz * 1e3)
    return Estimate(us, low, high, max(saved, key=lambda name: saved[name]), saved, busy, work.flops, work.unique_bytes)


def _first(work: Examination, launches: Launches, p: Parameters) -> Replayed:
    """A workgroup of the first batch."""
    latency, rate = (column[0] for column in map(_rounded, launches.rates(p, True)))
    return replayed(work, p.machine, latency, rate, True)
