"""Grouped matmuls by modelled time: what routing is expected to give, what is shared, and limits that time obeys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from iree.compiler import ir

from mxcomp.layout.order import PLAIN_ORDER
from mxcomp.layout.problem import Problem
from mxcomp.registry import Registry, Ukernel
from mxcomp.selection import grouped, times
from mxcomp.selection.grouped import Blocks, Work, expected
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.target import get_target

TARGET = get_target("gfx950")
CUS, XCDS = TARGET.cus, TARGET.xcds

TYPES = ("f4E2M1FN", "f4E2M1FN")


@pytest.fixture(scope="module")
def ukernel() -> Ukernel:
    with ir.Context(), ir.Location.unknown():
        return Registry(get_target("gfx950")).ukernels["mx_f4E2M1FN_f4E2M1FN_f32_m64_n128_k512"]


@pytest.fixture(scope="module")
def known(ukernel: Ukernel) -> times.KernelTimes:
    found = times.of(ukernel)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("tokens", "experts", "top_k", "block_m"), [(64, 32, 4, 16), (200, 257, 9, 16), (500, 8, 2, 32)]
)
def test_expected_blocks_are_those_of_drawn_routings(tokens: int, experts: int, top_k: int, block_m: int) -> None:
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(50):
        chosen = np.argsort(rng.random((tokens, experts)), axis=1)[:, :top_k]
        counts = np.bincount(chosen.ravel(), minlength=experts)
        drawn.append(((-(-counts // block_m)).sum(), np.count_nonzero(counts)))
    blocks, active = np.mean(drawn, axis=0)
    found = expected(tokens, experts, top_k, block_m)
    assert found.valid == pytest.approx(blocks, rel=0.02, abs=1)
    assert found.active == pytest.approx(active, rel=0.02, abs=1)
    assert found.slots == tokens * top_k


def test_what_needs_no_expectation() -> None:
    assert expected(1, 256, 8, 16) == Blocks(8, 8, 8)
    assert expected(40, 4, 4, 16) == Blocks(12, 4, 160)
    assert expected(131072, 1, 1, 128) == Blocks(1024, 1, 131072)


def test_workgroups_share_what_their_expert_has() -> None:
    """Distinct rows and columns against counting them one by one: 7 blocks of 3 experts, 5 tiles of N."""
    (found,) = grouped._batches(7, 3, 5, 1, (PLAIN_ORDER,), TARGET)
    expert = [0, 0, 0, 1, 1, 2, 2]
    tiles = [(k // 5, (expert[k // 5], k % 5)) for k in range(35)]
    chip = [len({tile[side] for tile in tiles}) for side in (0, 1)]
    fabric = [len({(k % XCDS, tile[side]) for k, tile in enumerate(tiles)}) for side in (0, 1)]
    assert (found.running, found.count) == (35, 1)
    assert found.chip[0].tolist() == chip == [7, 15]
    assert found.fabric[0].tolist() == fabric


def test_every_order_has_all_tiles() -> None:
    for order in Work(Blocks(9, 4, 9), 6, 512, TYPES, 9, 2).orders(TARGET):
        (found,) = grouped._batches(9, 4, 6, 1, (order,), TARGET)
        assert found.chip[0].tolist() == [9, 24]


@pytest.mark.parametrize("m", [64, 1024, 65536])
def test_one_expert_is_an_ordinary_matmul(known: times.KernelTimes, ukernel: Ukernel, m: int) -> None:
    """But that ids are waited for: a latency in every batch of workgroups."""
    n, k = 4096, 2048
    work = Work(expected(m, 1, 1, 64), n, k, TYPES, m, 2)
    problem = Problem(m, n, k, (*TYPES, "f8E8M0FNU", "f8E8M0FNU", "f32"))
    plain = times.modelled(known, ukernel.tile, times.Matmul(problem, 2))
    found = times.modelled(known, ukernel.tile, work)
    batches = -(-(m // 64) * (n // 128) // (known.resident * CUS))
    longest = batches * mi355x().cold_latency / mi355x().clock_ghz / 1e3
    assert plain < found < plain + 1.5 * longest


def test_weights_come_from_memory_once(known: times.KernelTimes, ukernel: Ukernel) -> None:
    """Time is never below that of active experts' weights from HBM, and with more of them it is longer."""
    before = 0.0
    for experts in (8, 32, 128, 512):
        blocks = expected(256, experts, 4, 64)
        work = Work(blocks, 4096, 7168, TYPES, 256, 1)
        _, us = times.ordered(known, ukernel.tile, work)
        assert us > blocks.active * 4096 * 7168 * 4.25 / 8 / (mi355x().hbm_terabytes * 1e6)
        assert us > before
        before = us


def test_bounds(known: times.KernelTimes, ukernel: Ukernel) -> None:
    """Weights of all experts are read once; with tiles of more rows the fabric is as slow as HBM."""
    many, few_rows = Work(Blocks(256, 256, 512), 4096, 7168, TYPES, 16, 1), (16, 64, 512)
    replays = times.table(TARGET)["mx_f4E2M1FN_f4E2M1FN_f32_m16_n64_k512"]
    assert times.bound(replays, few_rows, many, PLAIN_ORDER) == "HBM"
    small = Work(Blocks(1, 1, 1), 128, 512, TYPES, 1, 1)
    assert times.bound(known, ukernel.tile, small, PLAIN_ORDER) == "launch"


def test_padding_rows_are_not_stored(known: times.KernelTimes, ukernel: Ukernel) -> None:
    full = Work(Blocks(64, 8, 64 * 64), 7168, 512, TYPES, 64 * 64, 2)
    sparse = replace(full, blocks=Blocks(64, 8, 64), rows=64)
    assert times.ordered(known, ukernel.tile, sparse)[1] < times.ordered(known, ukernel.tile, full)[1]


def test_sums_take_their_bytes() -> None:
    p = mi355x()
    assert grouped.reduction_us(TARGET, 8, 1, 7168) == pytest.approx(p.launch_us + p.cold_latency / 2400, rel=0.02)
    large = 100_000 * 7168 * 2 / (p.hbm_terabytes * 1e6)
    assert grouped.reduction_us(TARGET, 80_000, 20_000, 7168) == pytest.approx(large, rel=0.01)
