"""The table of plans: all of them are in it, under names of their own, and an attribute keeps what each says."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

import pytest
from iree.compiler import ir

from mxcomp import plans
from mxcomp.layout import RHS
from mxcomp.layout.order import Order
from mxcomp.layout.problem import SCALES_AND_RESULT, Problem
from mxcomp.mlir import attributes
from mxcomp.options import Options
from mxcomp.plans import PLANS, Plan, from_entries
from mxcomp.plans.context import Context, Site
from mxcomp.plans.data_tiled import DataTiled
from mxcomp.plans.dual import Dual
from mxcomp.plans.dual_packed import DualPacked
from mxcomp.plans.dual_versions import DualVersions
from mxcomp.plans.few_rows import FewRows
from mxcomp.plans.fused_quant import FusedQuant
from mxcomp.plans.grouped_experts import GroupedExperts
from mxcomp.plans.hidden_versions import HiddenVersions
from mxcomp.plans.joint import Joint, Paired
from mxcomp.plans.multi_m import MultiM
from mxcomp.plans.packed_hidden import PackedHidden
from mxcomp.plans.plan import Launched, Proposal
from mxcomp.plans.row_major import RowMajor
from mxcomp.plans.split_k import SplitK
from mxcomp.plans.tiled import Tiled
from mxcomp.registry import Registry
from mxcomp.selection import versions
from mxcomp.selection.ranking import fastest
from mxcomp.selection.times import UNKNOWN

FP4 = ("f4E2M1FN", "f4E2M1FN", *SCALES_AND_RESULT)
UKERNEL = "mx_f4E2M1FN_f4E2M1FN_f32_m16_n64_k512"


@pytest.fixture(scope="module")
def registry() -> Registry:
    with ir.Context(), ir.Location.unknown():
        return Registry(Options.make().target)


def below(kind: type[Plan]) -> Iterator[type[Plan]]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def test_all_are_in_the_table() -> None:
    for module in pkgutil.iter_modules(plans.__path__):
        import_module(f"mxcomp.plans.{module.name}")
    assert set(below(Plan)) - {Launched, Tiled, Paired, Joint} == set(PLANS)
    assert [kind.plan for kind in PLANS] == [kind.__module__.rpartition(".")[2] for kind in PLANS]


def test_an_attribute_keeps_it(registry: Registry) -> None:
    ukernel = registry[UKERNEL]
    tiled = DataTiled().by(ukernel, Order(8, 5))
    fused = FusedQuant.of(tiled, fused="mx_fused")
    each = [
        Plan(reason="left to IREE: a reason", warning="a warning"),
        RowMajor(index=0, tile=(32, 128, 256), ukernel="mine", workgroup_size=(128, 1, 1)),
        tiled,
        DataTiled.of(tiled, index=3, gathered=(1, 3), skips=True, limits={"m": 64, "bytes": 2**31}, note="why"),
        SplitK.of(tiled, parts=4),
        fused,
        Dual.of(fused, fused="mx_dual", partner=2),
        DualPacked.of(tiled, partner=2, instead=tiled),
        GroupedExperts.of(tiled, transposed=True, requantised_for=1),
        MultiM.of_versions([(16, tiled), (None, tiled)], index=1, limits={"m": 64}),
        DualVersions.of_versions([(None, DualPacked(instead=tiled))], instead=MultiM.of_versions([(None, tiled)])),
        HiddenVersions.of_versions([(64, PackedHidden(packs_for=2)), (None, PackedHidden(packs_for=2))], instead=tiled),
        MultiM.of_versions([(64, tiled), (None, tiled)], steps=(4, 16)),
        FewRows.of_versions([(8, fused), (64, tiled), (None, tiled)], note="up to 8 rows"),
    ]
    with ir.Context():
        assert [from_entries(attributes.to_python(plan.to_attr())) for plan in each] == each


@pytest.mark.parametrize(
    ("us", "instead", "is_cheaper"), [(94.0, 100.0, True), (96.0, 100.0, False), (None, 1.0, True)]
)
def test_what_is_cheaper(us: float | None, instead: float, is_cheaper: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataTiled, "least_gain", 0.05)
    assert Proposal(DataTiled(), us, instead).is_cheaper == is_cheaper


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ((64, 4096, 7168), DataTiled),
        ((16, 512, 16384), SplitK),
        ((2048, 2048, 2048), DataTiled),
        ((None, 4096, 4096), MultiM),
    ],
)
def test_what_a_plan_says_is_its_cost(sizes: tuple[int | None, int, int], kind: type[Plan], registry: Registry) -> None:
    problem, plan = Problem(*sizes, FP4), Plan()
    context, site = Context(registry, Options.make()), Site(problem)
    for each in (DataTiled, SplitK, MultiM):
        found = each.propose(site, context, plan)
        plan = found.plan if isinstance(found, Proposal) and found.is_cheaper else plan
    assert type(plan) is kind
    us = plan.cost(replace(problem, m=problem.m or 64), site.result_bytes, registry)
    assert 0 < us < UNKNOWN
    assert isinstance(plan, MultiM) or f"modelled {us:.1f} µs" in (plan.note or "")


@pytest.mark.parametrize(("n", "expected"), [(744, {1, 2, 4, 6, 8, 12, 16}), (512, {1, 2, 4, 8, 16})])
def test_columns_of_versions_divide_those_of_all(n: int, expected: set[int], registry: Registry) -> None:
    """RHS is padded to a multiple of 256 columns for all versions: 768 are also whole tiles of 96 and of 192."""
    problem = Problem(None, n, 512, FP4)
    ranked = versions.Ranked(problem, fastest(problem, registry), 4)
    layouts = [each.ukernel.layout for each in ranked.candidates if ranked.packing_for(each) is not None]
    assert {(layout.inner_tiles or (1, 1))[RHS] for layout in layouts if layout is not None} == expected
