"""Estimates how long launches take on an MI355X: the formulas of `chip`, with a replay for each batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mxcomp.profiling import Estimate
from mxcomp.sim.timing.chip import Ask, Floats, Launches, Rates, cycle_ns, modelled_us
from mxcomp.sim.timing.costs import Unit
from mxcomp.sim.timing.examination import Examination
from mxcomp.sim.timing.parameters import Parameters, parameters_of
from mxcomp.sim.timing.workgroup import Replayed, replayed


def _replaying(work: Examination, p: Parameters, free: frozenset[Unit] = frozenset()) -> Ask:
    """Returns a function that replays each batch of one launch."""

    def ask(rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        pairs = zip(_rounded(rates.latency), _rounded(rates.bytes), strict=True)
        found = [replayed(work, p.machine, latency, rate, is_first, free) for latency, rate in pairs]
        return np.array([one.cycles for one in found]), np.array([one.matrix for one in found])

    return ask


def _rounded(values: Floats) -> list[float]:
    """Rounds values, so that those that differ in the last bits only share a replay."""
    return [float(f"{value:.4g}") for value in values]


_GREAT, _LAUNCH = 1e12, "launch"

RESOURCES: dict[str, tuple[dict[str, float], frozenset[Unit]]] = {
    "MFMA": ({"power_mfma": 0.0, "power_wide": 0.0}, frozenset({Unit.MATRIX})),
    "LDS": ({}, frozenset({Unit.LDS})),
    "issue": ({}, frozenset({Unit.SCALAR, Unit.VECTOR})),
    "CU bytes": ({"cu_bytes": _GREAT, "cold_cu_bytes": _GREAT, "in_flight": _GREAT, "power_loads": 0.0}, frozenset()),
    "L2 and fabric": ({"fabric_bytes": _GREAT}, frozenset()),
    "HBM": ({"cold_bytes": _GREAT, "hbm_terabytes": _GREAT, "hbm_write_terabytes": _GREAT}, frozenset()),
    "cache lines": ({"line_cycles": 0.0}, frozenset()),
    "stores": ({"drain_bytes": _GREAT}, frozenset()),
    "instruction fetch": ({}, frozenset({Unit.FETCH})),
    "latency": ({"cold_latency": 0.0, "warm_latency": 0.0}, frozenset()),
    _LAUNCH: ({"launch_us": 0.0, "dispatch_us": 0.0}, frozenset()),
}
"""The resources that can bind. Of each: the parameters and the units of a CU that are changed to model a launch without
it."""


def estimate(work: Examination, parameters: Parameters | None = None) -> Estimate:
    """Returns the modelled time of a launch, and the resource that binds in it. Raises SimulationError for an empty
    trace."""
    p = parameters or parameters_of(work.target)
    launches = Launches.of([work])

    def us_with(values: Mapping[str, float], units: frozenset[Unit]) -> float:
        changed = p.replaced(**values)
        return float(modelled_us(launches, changed, _replaying(work, changed, units))[0])

    us = us_with({}, frozenset())
    saved = {name: max(0.0, us - us_with(values, units)) for name, (values, units) in RESOURCES.items()}
    low, high = p.interval(us, work.fitted)
    others = [name for name in saved if name != _LAUNCH]
    bound = _LAUNCH if 2 * saved[_LAUNCH] >= us else max(others, key=lambda name: saved[name])
    one, ghz = _first(work, launches, p)
    busy = one.matrix / work.resident * work.workgroups / p.cus / (us * p.clock_ghz * 1e3)
    moved = {
        "CU": work.workgroups * work.load_bytes,
        "L2 misses": sum(batch.count * batch.fabric_bytes for batch in work.batches),
        "HBM": float(launches.loaded_once[0]),
        "stores": float(launches.stored_once[0]),
    }
    return Estimate(us, low, high, work.fitted, bound, saved, busy, ghz, work.flops, work.unique_bytes, moved)


def _first(work: Examination, launches: Launches, p: Parameters) -> tuple[Replayed, float]:
    """Returns the workgroups of a CU in the first batch, and the clock in GHz."""
    latency, rate = (column[0] for column in map(_rounded, launches.rates(p, True)))
    one = replayed(work, p.machine, latency, rate, True)
    batches = np.full(len(launches.running), one.cycles), np.full(len(launches.running), one.matrix)
    return one, 1 / float(cycle_ns(launches, p, *batches)[0])
