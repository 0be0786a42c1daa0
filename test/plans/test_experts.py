"""What is decided on products of experts whose weights, once for each block, no buffer would hold."""

from __future__ import annotations

from typing import Any

import pytest
from iree.compiler import ir
from iree.compiler.dialects import tensor

import mxcomp.ir as mx
from mxcomp import moe, pipeline
from mxcomp.layout.problem import Problem
from mxcomp.matching.decision import DATA_TILED
from mxcomp.mlir import build
from mxcomp.options import Options
from mxcomp.plans import plans_below
from mxcomp.plans.grouped_experts import GroupedExperts
from mxcomp.routing import Routing
from mxcomp.selection.limits import limits

MAX_BYTES = 2**31 - 1
TYPES = ("f4E2M1FN", "f4E2M1FN", "f8E8M0FNU", "f8E8M0FNU", "f32")


def test_matrices_that_ids_choose_count_once() -> None:
    problem = Problem(16, 5760, 2880, TYPES, batch=(300,))
    assert limits(problem, (16, 64, 512), MAX_BYTES) is None
    chosen = Problem(16, 5760, 2880, TYPES, batch=(300,), stored=(None, 32))
    assert limits(chosen, (16, 64, 512), MAX_BYTES) == {}
    assert limits(chosen.flipped, (64, 16, 512), MAX_BYTES) == {}
    assert limits(Problem(16, 5760, 2880, TYPES, (300,), (None, 257)), (16, 64, 512), MAX_BYTES) is None


def decided(experts: int, blocks: int, ukernels: str = "benefit") -> list[Any]:
    """On gate and up, and on down, of GPT-OSS's size."""
    hidden, packed, scales = 2880, 1440, 90

    def layer(*given: ir.Value) -> ir.Value:
        tokens, gu, gus, d, ds, *tables = given
        gate_up, down = (moe.Experts(mx.operand(*stored, "E2M1")) for stored in ((gu, gus), (d, ds)))
        return moe.gated_layer(mx.quantise(tokens, "E2M1"), gate_up, down, Routing(*tables), "E2M1", "swiglu")

    module = mx.module(
        layer, f"64x{hidden}xf32", f"{experts}x{2 * hidden}x{packed}xi8", f"{experts}x{2 * hidden}x{scales}xi8",
        f"{experts}x{hidden}x{packed}xi8", f"{experts}x{hidden}x{scales}xi8",
        f"{blocks}x16xi32", f"{blocks}xi32", "64x4xi32", "64x4xf32",
    )  # fmt: skip
    options = Options.make(ukernels=ukernels)
    pipeline.run(module.operation, (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), options)
    return [plan for _, plan in plans_below(module.operation)]


@pytest.mark.parametrize("blocks", [32, 300])
def test_more_blocks_than_a_buffer_holds_weights_of(blocks: int) -> None:
    decisions = decided(experts=32, blocks=blocks)
    assert [each.operands for each in decisions] == [DATA_TILED] * 2
    assert [each.gathered for each in decisions] == [(1, 3)] * 2
    assert decisions[0].requantised_for == 1


def test_more_experts_than_a_buffer_holds() -> None:
    """Gate and up of 257 experts exceed 2 GiB: those that are wanted are packed, if they are fewer, or else by IREE."""
    gate_up, down = decided(experts=257, blocks=64)
    assert (gate_up.operands, gate_up.gathered) == (DATA_TILED, ())
    assert (down.operands, down.gathered) == (DATA_TILED, (1, 3))
    gate_up, _ = decided(experts=257, blocks=300)
    assert not gate_up.is_ours
    assert "exceeds 2147483647 bytes" in str(gate_up.reason)


def gated(also: str) -> ir.Module:
    """Gate and up in one product, and down; of what is between them something else is made of, too."""

    def layer(*given: ir.Value) -> list[ir.Value]:
        tokens, gu, gus, d, ds, factors, *tables = given
        gate_up, down = (moe.Experts(mx.operand(*stored, "E2M1")) for stored in ((gu, gus), (d, ds)))
        routing = Routing(*tables)
        both = moe.grouped_matmul(moe.rows(mx.quantise(tokens, "E2M1"), routing), gate_up, routing)
        half = build.tensor_type((3, 16, 96), "f32")
        firsts, step = ((0, 96), 1) if also == "columns in another order" else ((0, 1), 2)
        gate, up = (
            tensor.ExtractSliceOp(half, both, [], [], [], [0, 0, i], [3, 16, 96], [1, 1, step]).result for i in firsts
        )
        hidden = mx.elementwise(mx.multiply, gate, up)
        if also == "another tensor":
            hidden = mx.elementwise(mx.multiply, hidden, factors)
        quantised = mx.quantise(build.collapse(hidden, [[0, 1], [2]]), "E2M1")
        parts = (
            tensor.ExpandShapeOp(build.tensor_type([3, 16, *sizes], build.element(value)), value, groups, [],
                                 [3, 16, *sizes]).result
            for value, sizes, groups in (
                (quantised.elements, [3, 32], [[0, 1], [2], [3]]), (quantised.scales, [3], [[0, 1], [2]])
            )
        )  # fmt: skip
        out = moe.grouped_matmul(mx.Operand(*parts), down, routing)
        return [out, *{"both": [both], "gate": [gate], "hidden": [hidden]}.get(also, [])]

    return mx.module(
        layer, "5x64xf32", "2x192x32xi8", "2x192x2xi8", "2x64x48xi8", "2x64x3xi8", "3x16x96xf32",
        "3x16xi32", "3xi32", "5x2xi32", "5x2xf32",
    )  # fmt: skip


@pytest.mark.parametrize("also", ["", "both", "gate", "hidden", "another tensor", "columns in another order"])
def test_what_is_quantised_in_its_tile(also: str) -> None:
    """Gate and up of which nothing else is made, and which nothing else is made from."""
    module = gated(also)
    passes, options = (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), Options.make(fuse_quantisers="on")
    pipeline.run(module.operation, passes, options)
    plans: list[Any] = [plan for _, plan in plans_below(module.operation)]
    assert [each.operands for each in plans] == [DATA_TILED] * 2
    assert [isinstance(each, GroupedExperts) for each in plans] == [not also] * 2
    assert also or [each.requantised_for for each in plans] == [1, None]
    assert [each.layout.gated for each in plans] == [not also, False]


def test_gate_and_up_in_tiles_by_time() -> None:
    """Two blocks would be few tiles, and long ones: another dispatch is faster. The report has both times."""
    for blocks, is_inside in ((2, False), (32, True)):
        gate_up, _ = decided(32, blocks, "fastest")
        assert (isinstance(gate_up, GroupedExperts) and gate_up.requantised_for == 1) == is_inside
