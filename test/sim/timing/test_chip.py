"""The chip's rules, each by itself, on batches whose workgroups take a given time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxcomp.selection import times
from mxcomp.sim.timing.chip import Batch, Floats, Launch, Launches, Rates, modelled_us
from mxcomp.sim.timing.estimates import RESOURCES
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.target.gfx950 import TARGET

GREAT = 1e12
CYCLES = 4800.0
"""The cycles of 2 µs."""
P = mi355x().replaced(power_mfma=0.0, power_wide=0.0, power_loads=0.0, power=1.0)
"""The parameters of a chip whose clock is 2.4 GHz, whatever runs."""


def launch(workgroups: int, *counts: int, load: float = 1e6, store: float = 0.0, resident: int = 1) -> Launch:
    """Batches of so many workgroups each, that share nothing."""
    batches = [Batch(workgroups, count, workgroups * load, workgroups * load) for count in counts]
    total = workgroups * sum(counts)
    return Launch(batches, resident, load, store, 0.0, total, total * (load + store))


def us(*launches: Launch) -> Floats:
    def ask(rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        return np.full(len(rates.bytes), CYCLES), np.zeros(len(rates.bytes))

    return modelled_us(Launches.of(launches), P.replaced(hbm_terabytes=GREAT, hbm_write_terabytes=GREAT), ask)


@pytest.mark.parametrize(("fabric", "chip", "waits"), [(1, 1, 1), (1, 1 / 4, 1 / 2), (1 / 4, 1 / 4, 1 / 4), (1, 0, 0)])
def test_who_shares_a_line_waits_for_hbm_with_who_loads_it(fabric: float, chip: float, waits: float) -> None:
    work = replace(launch(8, 1), batches=[Batch(8, 1, fabric * 8e6, chip * 8e6)], unique_bytes=8e6)
    p = P.replaced(fabric_bytes=GREAT, cold_bytes=GREAT, cu_bytes=40.0, cold_cu_bytes=20.0)
    first, later = (Launches.of([work]).rates(p, cold).bytes[0] for cold in (True, False))
    assert 1 / first == pytest.approx((1 - waits) / 40 + waits / 20, rel=1e-3)
    assert later == pytest.approx(40)


@pytest.mark.parametrize(("megabytes", "latency"), [(1.5, P.warm_latency), (4.0, P.cold_latency)])
def test_few_bytes_are_warm(megabytes: float, latency: float) -> None:
    found = Launches.of([launch(1, 1, load=megabytes * 1e6)]).rates(P, True)
    assert found.latency[0] == pytest.approx(latency, rel=1e-3)


@pytest.mark.parametrize(("resident", "exposed"), [(1, 3), (2, 1)])
def test_stores_overlap_only_with_workgroups_of_the_same_cu(resident: int, exposed: int) -> None:
    """A batch of three stores for a µs."""
    stores = P.drain_bytes * P.clock_ghz * 1e3 / 256
    with_stores, without = (us(launch(256, 1, 2, store=each, resident=resident))[0] for each in (stores, 0.0))
    assert with_stores - without == pytest.approx(exposed)


@pytest.mark.parametrize(("workgroups", "share"), [(1, 1 / 256), (64, 1 / 4), (256, 1), (512, 1)])
def test_dispatch_is_once_and_by_cus(workgroups: int, share: float) -> None:
    """A launch of three batches waits for the first one's."""
    for batches in (1, 3):
        work = launch(workgroups, *[1] * batches, resident=-(-workgroups // 256))
        assert us(work)[0] == pytest.approx(P.launch_us + share * P.dispatch_us + batches * 2)


def test_launches_are_modelled_together_as_apart() -> None:
    """Whatever number of batches each has."""
    works = launch(16, 1), launch(256, 1, 5, 1, store=4096.0), launch(1, 1), launch(512, 1, 1, resident=2, load=1e3)
    assert us(*works) == pytest.approx(np.concatenate([us(work) for work in works]))
    found = Launches.of(works).rates(P, True)
    apart = [Launches.of([work]).rates(P, True) for work in works]
    assert found.bytes == pytest.approx(np.concatenate([each.bytes for each in apart]))
    assert found.latency == pytest.approx(np.concatenate([each.latency for each in apart]))


def test_nothing_loaded_and_nothing_stored() -> None:
    assert us(launch(1, 1, load=0.0))[0] == pytest.approx(P.launch_us + P.dispatch_us / 256 + 2)


def test_resources_are_the_same_of_a_table_and_of_a_replay() -> None:
    """What is changed to do without one; `in_flight` was part of the replays that the table has."""
    for name, values in times.WITHOUT.items():
        replayed, _ = RESOURCES[name]
        assert values == {key: value for key, value in replayed.items() if key != "in_flight"}


def test_the_table_of_kernels_has_the_latencies_that_it_is_read_by() -> None:
    known = times.table(TARGET)
    assert {row.latency for row in known[next(iter(known))].replays} == set(times.LATENCIES)


@pytest.mark.parametrize("workgroups", [1, 40, 256, 512])
def test_more_bytes_never_take_less(workgroups: int) -> None:
    """Where nothing is shared; from what a cache holds to what no cache does, read and written."""
    p = mi355x()

    def modelled(work: Launch) -> float:
        def ask(rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
            return work.load_bytes / rates.bytes + rates.latency, np.zeros(len(rates.bytes))

        return float(modelled_us(Launches.of([work]), p, ask)[0])

    sizes = np.geomspace(100.0, 1e8, 80)
    assert np.diff([modelled(launch(workgroups, 1, 2, load=size)) for size in sizes]).min() >= 0
    assert np.diff([modelled(launch(workgroups, 1, 2, store=size)) for size in sizes]).min() >= 0
