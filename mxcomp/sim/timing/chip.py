"""Models launches on an MI355X: batches of workgroups, the memory latency and bandwidth they see, and how long they
take.

A launch consists of batches of workgroups, as many as fit on the CUs. A batch takes the cycles of one workgroup on a
CU, with data arriving at

    1 / (own^q + shared^q)^(1/q)   bytes per cycle, q the shared_power,
    own    = (1 − w) / cu_bytes + w / cold_cu_bytes,   w = √(f · c)
    shared = CUs · ((f − c) / fabric_bytes + c / cold_bytes)

where f and c are the fractions of the bytes that an XCD, and that the chip, load for the first time. Workgroups that
share a line run side by side, so that those that do not load it first wait for HBM, too: w is between c and f. Only the
first batch finds operands cold, in HBM, and only of a launch that moves more than `warm_megabytes`; others find them in
Infinity Cache (c = w = 0). Cycles are longer the busier MFMA pipes and vector memory are (`power_ns`). The stores of a
batch go to memory together; where a CU runs several workgroups, those of the first batch only, as others overlap. The
first batch starts as fast as its workgroups are dispatched. The total is at least the time of HBM for what is loaded
and stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.timing.parameters import Parameters

Floats = NDArray[np.float64]
_COLD_STEEPNESS = 16


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


@dataclass(frozen=True)
class Launch:
    """A launch.

    Attributes:
        batches: In the order of dispatch.
        resident: Workgroups of a CU that run at the same time.
        load_bytes, store_bytes: Moved by a workgroup from and to global memory.
        wide: Part of its MFMA cycles that scaled 32×32×64 take.
        workgroups: In the grid.
        unique_bytes: Loaded and stored by the whole launch, each line once.
    """

    batches: Sequence[Batch]
    resident: int
    load_bytes: float
    store_bytes: float
    wide: float
    workgroups: int
    unique_bytes: float


class Rates(NamedTuple):
    """The memory that a workgroup sees: latency in cycles, and bytes per cycle."""

    latency: Floats
    bytes: Floats


@dataclass(frozen=True)
class Launches:
    """The batches of launches, as arrays over batches.

    Attributes:
        launch: Number of the launch that a batch belongs to.
        first: Whether it is the launch's first.
        running, count: Workgroups of a batch, and how many batches are like it.
        fabric, chip: Part of the loaded bytes that an XCD, and that the chip loads for the first time.
        stored: Bytes that a batch stores.
        moved: Bytes that workgroups of a CU load.
        wide: Part of the MFMA cycles that scaled 32×32×64 take.
        alone: Whether a workgroup has a CU for itself.
        loaded_once, stored_once: Bytes, by launch.
    """

    launch: NDArray[np.int64]
    first: NDArray[np.bool_]
    running: Floats
    count: Floats
    fabric: Floats
    chip: Floats
    stored: Floats
    moved: Floats
    wide: Floats
    alone: NDArray[np.bool_]
    loaded_once: Floats
    stored_once: Floats

    @classmethod
    def of(cls, works: Sequence[Launch]) -> Launches:
        rows: list[tuple[Any, ...]] = []
        for number, work in enumerate(works):
            for k, batch in enumerate(work.batches):
                total = max(batch.running * work.load_bytes, 1.0)
                shares = min(1.0, batch.fabric_bytes / total), min(1.0, batch.chip_bytes / total)
                moved = batch.running * work.store_bytes, work.resident * work.load_bytes
                counts = float(batch.running), float(batch.count)
                rows.append((number, k == 0, *counts, *shares, *moved, work.wide, work.resident == 1))
        stored_once = np.array([work.workgroups * work.store_bytes for work in works], float)
        loaded_once = np.maximum(np.array([work.unique_bytes for work in works], float) - stored_once, 0.0)
        columns: list[Any] = [*map(np.array, zip(*rows, strict=True)), loaded_once, stored_once]
        return cls(*columns)

    def rates(self, p: Parameters, cold: bool) -> Rates:
        """Returns the memory rates that a workgroup of each batch sees."""
        cus, power = np.minimum(p.cus, self.running), p.shared_power
        size = np.maximum((self.loaded_once + self.stored_once)[self.launch], 1.0)
        coldness = 1 / (1 + (p.warm_megabytes * 1e6 / size) ** _COLD_STEEPNESS) if cold else 0.0 * size
        latency = p.warm_latency + (p.cold_latency - p.warm_latency) * coldness
        chip = self.chip * coldness
        waits = np.sqrt(self.fabric * self.chip) * coldness
        own = (1 - waits) / p.cu_bytes + waits / p.cold_cu_bytes
        shared = cus * ((self.fabric - chip) / p.fabric_bytes + chip / p.cold_bytes)
        return Rates(latency, (own**power + shared**power) ** (-1 / power))


Ask = Callable[[Rates, bool], tuple[Floats, Floats]]
"""Returns the cycles of each batch as if it were a first one or not, and the cycles in which an MFMA pipe is busy."""


def modelled_us(launches: Launches, p: Parameters, ask: Ask) -> Floats:
    """Returns the microseconds of each launch."""
    cold, warm = (_batch_us(launches, p, ask, cold) for cold in (True, False))
    total = np.where(launches.first, cold + (launches.count - 1) * warm, launches.count * warm)
    us = np.bincount(launches.launch, total, len(launches.loaded_once))
    floor = launches.loaded_once / (p.hbm_terabytes * 1e6) + launches.stored_once / (p.hbm_write_terabytes * 1e6)
    running = np.minimum(1.0, launches.running[launches.first] / p.cus)
    begins = p.launch_us + p.dispatch_us * running
    result: Floats = begins + (us**p.floor_power + floor**p.floor_power) ** (1 / p.floor_power)
    return result


def _batch_us(launches: Launches, p: Parameters, ask: Ask, cold: bool) -> Floats:
    cycles, matrix = ask(launches.rates(p, cold), cold)
    exposed = 1.0 if cold else launches.alone
    stores = launches.stored / p.drain_bytes * exposed / (p.clock_ghz * 1e3)
    result: Floats = cycles * cycle_ns(launches, p, cycles, matrix) / 1e3 + stores
    return result


def cycle_ns(launches: Launches, p: Parameters, cycles: Floats, matrix: Floats) -> Floats:
    """Returns the nanoseconds of a CU cycle in each batch, at the clock that the power limit allows.

    Args:
        cycles: Of a batch.
        matrix: Cycles that a SIMD's MFMA pipe is busy in them.
    """
    active = np.minimum(1.0, launches.running / p.cus) / np.maximum(cycles, 1.0)
    law = power_ns(p, active * matrix, launches.wide, active * launches.moved)
    result: Floats = np.maximum(1 / p.clock_ghz, p.power * law)
    return result


def power_ns(p: Parameters, mfma_share: Floats, wide: Floats, load_bytes: Floats) -> Floats:
    """Returns the nanoseconds of a cycle by the power law, for the die that the law is stated for.

    Args:
        mfma_share: Part of the cycles that MFMA pipes are busy.
        wide: Part of these that scaled 32×32×64 take.
        load_bytes: That a CU loads in a cycle.
    """
    busy = mfma_share * (p.power_mfma + p.power_wide * wide) + load_bytes / _LOAD_BYTES * p.power_loads
    result: Floats = p.power_idle + busy
    return result


_LOAD_BYTES = 64
"""The bytes per cycle and CU that the power of loads is stated for."""
