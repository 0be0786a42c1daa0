"""The numbers of the timing model, from one file (`mi355x.toml`).

Each has a unit, and a source: "document", "measured elsewhere", "fitted" or "assumed", and where from. Of fitted ones
80 % of fits to resampled measurements lie between `low` and `high`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from math import inf
from typing import Any, NamedTuple

from mxcomp.sim.errors import SimulationError
from mxcomp.target import DEFAULT, Target, get_target


class Machine(NamedTuple):
    """One compute unit, in cycles, bytes, and bytes per cycle.

    Attributes:
        lds_row: What LDS takes for one row of its banks (`mxcomp.sim.banks`), of all SIMDs together.
        lds_return: What the data bus of a pair of SIMDs carries.
        lds_queue: Instructions of a pair of SIMDs that wait for LDS, at most.
        lds_start: Between two instructions that come to a queue.
        lds_direct: What direct loads write into LDS, at the expense of others.
        memory_issue: Between two LDS or vector memory instructions of a SIMD.
        line_cycles: Of a vector memory access, for each cache line.
        narrow_lines: How much longer lines take of accesses with 8 bytes a lane.
        requests: Vector memory instructions whose addresses are not through, at most.
        in_flight: Bytes that loads bring, at most at the same time.
        matrix_hold, scale_hold: A SIMD issues no other vector or memory instruction with a matrix instruction, nor so
            long behind it; a scaled one adds to that.
        matrix_latency, accumulate_latency: From the end of a matrix instruction to who reads its result, and to the
            next one that adds to it.
        vector_latency: From a VALU instruction to the next one that reads its result.
        transcendental: Of v_exp_f32 and the like.
        packed_wait: What a packed float32 instruction waits for behind a matrix instruction.
        fetch_bytes, fetch_ways, fetch_line, fetch_ahead, fetch_latency: Of the instruction cache.
    """

    lds_row: float = 1.0
    lds_return: float = 128.0
    lds_queue: float = 8.0
    lds_start: float = 4.0
    lds_direct: float = 256.0
    lds_latency: float = 64.0
    memory_issue: float = 4.0
    line_cycles: float = 2.0
    narrow_lines: float = 2.0
    requests: float = 12.0
    in_flight: float = inf
    return_bytes: float = 64.0
    store_bytes: float = 64.0
    scalar_latency: float = 200.0
    matrix_hold: float = 8.0
    scale_hold: float = 4.0
    matrix_latency: float = 8.0
    accumulate_latency: float = 2.0
    vector_latency: float = 8.0
    transcendental: float = 8.0
    packed_wait: float = 12.0
    barrier_latency: float = 8.0
    store_latency: float = 500.0
    fetch_bytes: float = 65536.0
    fetch_ways: float = 8.0
    fetch_line: float = 64.0
    fetch_ahead: float = 1024.0
    fetch_latency: float = 200.0


@dataclass(frozen=True)
class Residuals:
    """The error of estimates of left-out tiles: the 10th and 90th percentile of measured / modelled.

    Attributes:
        below_us: Of estimates below so many µs.
    """

    below_us: float
    low: float
    high: float


@dataclass(frozen=True)
class Parameters:
    """All numbers of the model; the file has their meanings and sources. Rates are bytes per cycle of `clock_ghz`.

    Attributes:
        cus: Compute units of the GPU.
        machine: Of a compute unit.
        residuals: Of kernels like those that were fitted, by size of the estimate.
        unseen: Of kernels of other families.
    """

    cus: int
    clock_ghz: float
    launch_us: float
    dispatch_us: float
    cold_latency: float
    warm_latency: float
    cu_bytes: float
    cold_cu_bytes: float
    fabric_bytes: float
    cold_bytes: float
    shared_power: float
    power: float
    power_idle: float
    power_mfma: float
    power_wide: float
    power_loads: float
    drain_bytes: float
    hbm_terabytes: float
    hbm_write_terabytes: float
    floor_power: float
    warm_megabytes: float
    machine: Machine
    residuals: tuple[Residuals, ...]
    unseen: Residuals

    def replaced(self, **values: float) -> Parameters:
        """Returns parameters with other values of some numbers, for fits and for what-if questions."""
        unit = {name: value for name, value in values.items() if name in Machine._fields}
        changed: dict[str, Any] = {name: value for name, value in values.items() if name not in unit}
        return replace(self, machine=self.machine._replace(**unit), **changed)

    def interval(self, modelled_us: float, fitted: bool = False) -> tuple[float, float]:
        """Returns the interval in µs that contained 80 % of measurements for such an estimate.

        Args:
            fitted: The kernel is of the kind that was fitted: four waves and scaled 16×16×128.
        """
        rows = self.residuals if fitted else (self.unseen,)
        row = next((row for row in rows if modelled_us < row.below_us), rows[-1])
        return modelled_us * row.low, modelled_us * row.high


def mi355x() -> Parameters:
    """Returns the parameters of MI355X that come with this package."""
    return parameters_of(get_target(DEFAULT))


@cache
def parameters_of(target: Target) -> Parameters:
    """Returns the parameters of a GPU that come with this package."""
    return load((resources.files("mxcomp.sim.timing") / target.timing).read_text(), target)


def load(text: str, target: Target) -> Parameters:
    """Parses parameters from the text of a file, with the description of the GPU. Raises SimulationError for an
    incomplete file."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
        device, unit = (
            {name: float(row["value"]) for name, row in data[table].items()} for table in ("device", "compute_unit")
        )
        return Parameters(
            cus=target.cus,
            clock_ghz=target.clock_ghz,
            **device,
            machine=Machine(**unit),
            residuals=tuple(Residuals(**row) for row in data["residuals"]),
            unseen=Residuals(inf, **data["unseen"]),
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SimulationError(f"timing parameters: {error}: expected tables as in {target.timing}") from None
