"""Ways to compute the experts of a layer: each with what belongs to it, and the fastest of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from iree.compiler import ir

from mxcomp.registry import Registry, Ukernel
from mxcomp.selection import grouped
from mxcomp.selection.layers import Layer, Sizes, better, fastest, us_of
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.target import get_target
from mxcomp.ukernels import gating

E2M1, E4M3, E2M3 = "f4E2M1FN", "f8E4M3FN", "f6E2M3FN"
LAYER = Sizes(64, 2880, 2880, 32, 4, E2M1, E2M1)


@pytest.fixture(scope="module")
def ukernels() -> Mapping[str, Ukernel]:
    with ir.Context(), ir.Location.unknown():
        return Registry(get_target("gfx950")).ukernels


def layer(sizes: Sizes, block_m: int, ukernels: Mapping[str, Ukernel]) -> Layer:
    return Layer(sizes, grouped.expected(sizes.tokens, sizes.experts, sizes.top_k, block_m), block_m, ukernels)


@pytest.mark.parametrize("types", [(a, w) for a in gating.ELEMENTS for w in gating.ELEMENTS])
def test_both_products_have_tiles_of_as_many_rows(types: tuple[str, str], ukernels: Mapping[str, Ukernel]) -> None:
    """What gate and up pack, down reads: of a block of 16 rows by tiles of 16."""
    sizes = replace(LAYER, a_type=types[0], w_type=types[1])
    for block_m, rows in ((2, 16), (16, 16), (128, None)):
        pair = layer(sizes, block_m, ukernels).in_tiles()
        assert pair is not None
        assert pair[0].tile[0] == pair[1].tile[0] == (rows or pair[0].tile[0])
        assert pair[0].others == () and len(pair[1].others) == 1


def test_a_dispatch_between_products_is_counted(ukernels: Mapping[str, Ukernel]) -> None:
    pair = layer(LAYER, 16, ukernels).apart()
    assert pair is not None
    (quantised,) = pair[0].others
    p = mi355x()
    hidden = 64 * 4 * 2880
    latency, per_byte = p.cold_latency / 2400, 1 / (p.hbm_terabytes * 1e6)
    passing = p.launch_us + 2 * latency + hidden * (2 * 4 + 4.25 / 8) * per_byte
    assert passing + 1 < quantised < passing + 2
    assert pair[0].whole_us == pytest.approx(pair[0].us + quantised)
    low, high = pair[0].interval
    assert low < pair[0].whole_us < high


def test_no_weights_come_faster_than_memory(ukernels: Mapping[str, Ukernel]) -> None:
    """Of 32 experts, all with tokens: 4.25 bits for each of 3 · 2880² elements."""
    least = 32 * 3 * 2880**2 * 4.25 / 8 / (mi355x().hbm_terabytes * 1e6)
    for way in (Layer.in_tiles, Layer.apart):
        pair = way(layer(LAYER, 16, ukernels))
        assert pair is not None and us_of(pair) > least


def test_a_dispatch_more_has_to_be_worth_it(ukernels: Mapping[str, Ukernel]) -> None:
    """Of one token it is: tiles of gate and up are large, and few. Where all experts have tokens they are enough."""
    for tokens, rows, is_apart in ((1, 2, True), (64, 16, False)):
        sizes = replace(LAYER, tokens=tokens)
        inside, outside = (way(layer(sizes, rows, ukernels)) for way in (Layer.in_tiles, Layer.apart))
        assert inside is not None and outside is not None
        assert (us_of(outside) < us_of(inside)) == is_apart
        assert better(inside, outside) is (outside if is_apart else inside)
        assert fastest(sizes, rows, ukernels) == better(inside, outside)
    assert better(None, outside) is outside and better(inside, None) is inside


def test_types_without_ukernels_for_experts(ukernels: Mapping[str, Ukernel]) -> None:
    sizes = replace(LAYER, a_type=E2M3)
    assert layer(sizes, 16, ukernels).in_tiles() is None
    pair = fastest(sizes, 16, ukernels)
    assert pair is not None and pair[0].ukernel.types[:2] == (E2M3, E2M1)


def test_activations_of_bf16(ukernels: Mapping[str, Ukernel]) -> None:
    """Rows are gathered and activations computed in dispatches of their own, up to 64 rows of a block."""
    sizes = replace(LAYER, a_type="bf16")
    pair = fastest(sizes, 32, ukernels)
    assert pair is not None
    assert len(pair[0].others) == 2 and len(pair[1].others) == 1
    assert pair[0].ukernel.name.startswith("mx_bf16_f4E2M1FN_")
    assert fastest(sizes, 128, ukernels) is None
    few, many = (replace(layer(sizes, 16, ukernels), block_m=rows).unquantised() for rows in (2, 16))
    assert few is not None and many is not None
    assert few[0].us <= many[0].us


def test_one_choice_has_nothing_to_add_up(ukernels: Mapping[str, Ukernel]) -> None:
    pair = fastest(replace(LAYER, top_k=1), 16, ukernels)
    assert pair is not None and pair[1].others == ()
