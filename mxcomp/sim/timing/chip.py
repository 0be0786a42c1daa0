"""Launches on an MI355X: batches of workgroups, what they see of memory, and how long they take.

A launch is batches of workgroups, as many as fit on the CUs. Each batch takes as long as one workgroup does on a CU,
with data arriving at

    1 / (1 / cu_bytes + CUs · fabric share / fabric_bytes + CUs · cold share / cold_bytes)   bytes per cycle,

where the shares are of the bytes that all load: those that an XCD loads for the first time, and those that the chip
does. Only the first batch finds operands cold, in HBM; what follows finds them in Infinity Cache. The clock falls with
the part of the MFMA pipes that is busy. Stores of a batch go to memory together; behind the first batch some of them
overlap with other workgroups, all of them where a CU runs several. In all it takes no less than HBM takes for what is
loaded and stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.timing.parameters import Parameters

XCDS = 8
CUS = 256
Floats = NDArray[np.float64]
_COLD_STEEPNESS = 8
_FLOOR_POWER = 8


@dataclass(frozen=True)
class Batch:
    """Workgroups that run at the same time.

    Attributes:
        running: How many.
        count: How many such batches there are.
        fabric_bytes: Loaded by each XCD, each line once, summed over XCDs.
        chip_bytes: Loaded by all, each line once.
    """

    running: int
    count: int
    fabric_bytes: float
    chip_bytes: float


class Work(Protocol):
    """A launch: its batches in the order of dispatch, how many workgroups share a CU, and what they move."""

    @property
    def batches(self) -> Sequence[Batch]: ...
    @property
    def resident(self) -> int: ...
    @property
    def load_bytes(self) -> float: ...
    @property
    def store_bytes(self) -> float: ...
    @property
    def unique_bytes(self) -> float: ...


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
    def of(cls, works: Sequence[Work]) -> Launches:
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
