"""Quantisers in matmuls' dispatches: nothing is chosen that is modelled to take longer, whatever the number of rows."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from statistics import geometric_mean

import pytest
from iree.compiler import ir

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from layer_times import CHAIN, GATED, KINDS, PLAIN, Layer, decided, modelled, profiled
from layers import MEANS_ALLOW

import mxcomp
from mxcomp.options import AUTO, OFF, ON, Options
from mxcomp.plans import Plan
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.packed_hidden import PackedHidden
from mxcomp.plans.requantised import Requantised
from mxcomp.registry import Registry
from mxcomp.selection.versions import RANGES
from mxcomp.target import get_target

ROWS = (1, 16, 64, 65, 512, 8192)
LLAMA, SMALL = (4096, 14336), (256, 256)


@pytest.fixture(scope="module")
def registry() -> Registry:
    with ir.Context(), ir.Location.unknown():
        return Registry(get_target("gfx950"))


@cache
def decisions(layer: Layer, way: str) -> list[Plan]:
    return decided(layer, Options.make(fuse_quantisers=way))


def us(layer: Layer, way: str, m: int, registry: Registry) -> float:
    return sum(modelled(layer, decisions(layer, way), m, registry))


@pytest.mark.parametrize(
    "size", [LLAMA, pytest.param((2880, 2880), marks=pytest.mark.slow), pytest.param(SMALL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_chosen_that_takes_longer(kind: str, size: tuple[int, int], registry: Registry) -> None:
    dynamic = Layer(kind, *size, None)
    for m in ROWS:
        static = Layer(kind, *size, m)
        for layer in (static, dynamic):
            chosen, plain, wherever = (us(layer, way, m, registry) for way in (AUTO, OFF, ON))
            assert chosen <= plain * (MEANS_ALLOW if layer is dynamic else 1.0), (layer, m)
            assert chosen <= wherever or layer is dynamic, (layer, m)
    points = [m for each in RANGES for m in each.points]
    chosen, plain = (geometric_mean(us(dynamic, way, m, registry) for m in points) for way in (AUTO, OFF))
    assert chosen <= plain


def test_a_static_m_takes_no_longer_than_a_dynamic_one(registry: Registry) -> None:
    """Llama's MLP of 512 rows took 193 µs with 512 in its types, against 112 without."""
    for kind, m in ((GATED, 512), (CHAIN, 512), (PLAIN, 512), (GATED, 65)):
        static, dynamic = (us(Layer(kind, *LLAMA, rows), AUTO, m, registry) for rows in (m, None))
        assert static <= dynamic


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size", "way"),
    [(kind, (2048, 6144), way) for kind, way in ((GATED, OFF), (GATED, AUTO), (CHAIN, OFF), (CHAIN, ON))]
    + [(CHAIN, (16384, 256), AUTO)],
)
@pytest.mark.parametrize("m", [16, 512, 2048])
def test_sums_are_those_of_profiles(
    kind: str, size: tuple[int, int], way: str, m: int, registry: Registry, tmp_path: Path
) -> None:
    """What the compiled program takes, by the simulator's profile of its dispatches."""
    layer = Layer(kind, *size, m)
    (profile,) = profiled(layer, (m,), tmp_path, way)
    assert profile.modelled_us == pytest.approx(us(layer, way, m, registry), rel=0.08)


def test_activations_are_modelled_as_they_are_built() -> None:
    """The bf16 that a matmul in front stores was modelled as its f32, which takes up to three times as long."""
    layer = Layer(CHAIN, *SMALL, 16)
    program = mxcomp.compile(str(layer.module()), fuse_quantisers=ON, compile_to="flow")
    assert [each.note for each in program.report.matmuls] == [each.note for each in decisions(layer, ON)]
    assert not any(each.unfused for each in program.report.matmuls)


@pytest.mark.parametrize(("hidden", "inter", "m", "is_fused"), [(128, 1024, 65536, True), (1024, 128, 65536, False)])
def test_a_result_is_quantised_in_its_tile_where_that_is_faster(
    hidden: int, inter: int, m: int, is_fused: bool, registry: Registry
) -> None:
    """Of many rows and a short K, of which a dispatch between would have much to pass over."""
    layer = Layer(CHAIN, hidden, inter, m)
    fused, plain, chosen = (us(layer, way, m, registry) for way in (ON, OFF, AUTO))
    assert (fused < plain) == is_fused
    assert chosen == min(fused, plain)
    assert is_requantised(decisions(layer, AUTO)[0]) == is_fused


def is_requantised(plan: Plan) -> bool:
    return isinstance(plan, Requantised) and plan.requantised_for is not None


def quantises(plan: Plan) -> bool:
    """Whether it, or a version of it, quantises LHS where it is multiplied, or made."""
    return any(
        isinstance(each, FusedQuant | PackedHidden) for each in (plan, *(version for _, version in plan.by_rows))
    )


@pytest.mark.parametrize("rows", [16, 512, None])
@pytest.mark.parametrize("kind", KINDS)
def test_the_switch(kind: str, rows: int | None) -> None:
    layer = Layer(kind, *(LLAMA if rows is None else SMALL), rows)
    assert not any(quantises(plan) or is_requantised(plan) for plan in decisions(layer, OFF))
    on = decisions(layer, ON)
    fused = [each for each in on if is_requantised(each)]
    quantising = [each for each in on if quantises(each)]
    assert len(fused) == (rows == 512 and kind == CHAIN)
    assert len(quantising) >= (0 if rows == 512 else 1)
