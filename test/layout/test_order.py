"""Orders of workgroups: each tile is taken once, by the XCD that it belongs to; and which order is chosen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from iree.compiler import ir

from mxcomp.layout.order import PLAIN_ORDER, HeadOrder, Order, tile_of
from mxcomp.layout.problem import Problem
from mxcomp.mlir import attributes
from mxcomp.options import Options
from mxcomp.plans import Plan, from_entries
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.plan import Proposal
from mxcomp.registry import Registry
from mxcomp.selection import times
from mxcomp.selection.ranking import candidate
from mxcomp.target import get_target

TYPES = ("f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32")
LARGE = "mx_f4E2M1FN_f4E2M1FN_f32_m256_n256_k512"
sizes = st.integers(1, 30)


@given(st.integers(1, 4), sizes, sizes, st.integers(1, 9), st.integers(1, 9))
def test_each_tile_once(matrices: int, rows: int, columns: int, xcds: int, band: int) -> None:
    """XCDs take parts of one walk, of which no two differ by more than one tile; arrays and numbers agree."""
    grid, total = (matrices, rows, columns), matrices * rows * columns
    numbers = np.arange(total)
    walked = np.stack(tile_of(numbers, grid, 1, band, np.minimum))
    taken = np.stack(tile_of(numbers, grid, xcds, band, np.minimum))
    assert len({tuple(tile) for tile in taken.T.tolist()}) == total
    assert (taken >= 0).all() and (taken < np.array(grid)[:, None]).all()
    parts = [taken[:, numbers % xcds == k] for k in range(xcds)]
    assert np.array_equal(np.concatenate(parts, axis=1), walked)
    assert max(part.shape[1] for part in parts) - min(part.shape[1] for part in parts) <= 1
    assert [tile_of(k, grid, xcds, band, min) for k in range(total)] == [tuple(tile) for tile in taken.T.tolist()]


@given(st.integers(1, 4), sizes, sizes, sizes)
def test_each_tile_of_heads_once(xcds: int, heads: int, shared: int, tiles: int) -> None:
    """An XCD finishes a head of keys before the next; the last tiles come first, of all heads that share it."""
    order, keys = HeadOrder(xcds, shared, tiles), heads * xcds
    found = [order.tile_of(number) for number in range(keys * shared * tiles)]
    assert sorted(found) == [(head, tile) for head in range(keys * shared) for tile in range(tiles)]
    for xcd in range(xcds):
        mine = [(head // shared, -tile) for head, tile in found[xcd::xcds]]
        assert mine == sorted(mine) and {head % xcds for head, _ in mine} == {xcd}


def test_the_plain_order_is_that_of_ids() -> None:
    grid = 2, 3, 5
    found = tile_of(np.arange(30), grid, PLAIN_ORDER.xcds, PLAIN_ORDER.band, np.minimum)
    assert np.array_equal(np.ravel_multi_index(found, grid), np.arange(30))


def test_an_attribute_keeps_it() -> None:
    with ir.Context():
        for plan in (DataTiled(order=Order(8, 5)), DataTiled(order=PLAIN_ORDER)):
            assert from_entries(attributes.to_python(plan.to_attr())) == plan


@pytest.mark.parametrize(
    ("m", "n", "order"),
    [(8192, 1280, Order(8, 1)), (1024, 16384, PLAIN_ORDER), (256, 16384, PLAIN_ORDER), (16384, 256, PLAIN_ORDER)],
)  # fmt: skip
def test_what_is_chosen(m: int, n: int, order: Order) -> None:
    """Of 32 × 5 tiles an XCD gets 4 × 5, of 4 × 64 it has 4 × 8 anyway; of one row or column all share all."""
    problem, options = Problem(m, n, 8192, TYPES), Options.make(ukernels=LARGE)
    with ir.Context(), ir.Location.unknown():
        registry = Registry(get_target("gfx950"))
        ukernel = registry[LARGE]

        def chosen(problem: Problem) -> DataTiled:
            found = DataTiled.propose(Site(problem), Context(registry, options), Plan())
            assert isinstance(found, Proposal) and isinstance(found.plan, DataTiled)
            return found.plan

        best = candidate(ukernel, problem)
        assert best is not None
        assert chosen(problem).order == best.order == order
        assert candidate(ukernel, Problem(m, n, None, TYPES)) is None
        assert chosen(Problem(None, n, 8192, TYPES)).order == Order(8, 4)
    plain = times.modelled(best.times, ukernel.tile, times.Matmul(problem))
    assert best.us <= plain
    assert (best.us < 0.995 * plain) == (order != PLAIN_ORDER)
