"""Which products of experts need not be computed where there is no expert, and which do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from iree.compiler import ir
from iree.compiler.dialects import arith

import mxcomp.ir as mx
from mxcomp import moe, pipeline
from mxcomp.mlir import build
from mxcomp.options import Options
from mxcomp.plans import plans_below
from mxcomp.plans.tiled import Tiled
from mxcomp.routing import Routing

BLOCKS, ROWS, INNER, EXPERTS = 16, 16, 128, 4
SGE, SGT, UGE = (arith.CmpIPredicate.sge, arith.CmpIPredicate.sgt, arith.CmpIPredicate.uge)
Chosen = Callable[[ir.Value, ir.Value], ir.Value]
"""What is made of a product's element and of an id."""


def selecting(
    predicate: arith.CmpIPredicate = SGE, least: int = 0, instead: float = 0.0, *, swapped: bool = False
) -> Chosen:
    """A product's element where its id is one, and else a constant."""

    def chosen(element: ir.Value, id_: ir.Value) -> ir.Value:
        has = arith.CmpIOp(predicate, id_, arith.ConstantOp(id_.type, least).result).result
        constant = arith.ConstantOp(element.type, instead).result
        return arith.SelectOp(has, *((constant, element) if swapped else (element, constant))).result

    return chosen


def both(element: ir.Value, id_: ir.Value) -> ir.Value:
    return arith.AddFOp(selecting()(element, id_), element).result


def twice(element: ir.Value, id_: ir.Value) -> ir.Value:
    return arith.MulFOp(selecting()(element, id_), selecting()(element, id_)).result


def skips(chosen: Chosen, ids_along: int = 0, *, other_ids: bool = False, also_returned: bool = False) -> bool:
    """What is decided on a product, of whose elements and of ids along a dimension something is made."""

    def grouped(*given: ir.Value) -> list[ir.Value]:
        a, a_scales, w, w_scales, slots, positions, weights, *ids = given
        experts = moe.Experts(mx.operand(w, w_scales, "E2M1"))
        routing = Routing(slots, ids[0], positions, weights)
        product = moe.grouped_matmul(mx.operand(a, a_scales, "E2M1"), experts, routing)
        dims = [ir.AffineExpr.get_dim(i) for i in range(3)]
        maps = [ir.AffineMap.get(3, 0, each) for each in (dims, [dims[ids_along]], dims)]
        inputs = [product, ids[other_ids]]
        made = build.generic(
            product.type, inputs, build.empty(product.type), maps, ["parallel"] * 3, lambda y, i, _: chosen(y, i)
        )
        return [made.results[0], product] if also_returned else [made.results[0]]

    module = mx.module(
        grouped, f"{BLOCKS}x{ROWS}x{INNER // 2}xi8", f"{BLOCKS}x{ROWS}x{INNER // 32}xi8",
        f"{EXPERTS}x64x{INNER // 2}xi8", f"{EXPERTS}x64x{INNER // 32}xi8",
        f"{BLOCKS}x{ROWS}xi32", "64x4xi32", "64x4xf32", f"{BLOCKS}xi32", f"{BLOCKS}xi32",
    )  # fmt: skip
    options = Options.make()
    pipeline.run(module.operation, (*pipeline.PREPARING_PASSES, *pipeline.CHOOSING_PASSES), options)
    ((_, plan),) = plans_below(module.operation)
    assert isinstance(plan, Tiled) and plan.gathered == (1, 3)
    return plan.skips


@pytest.mark.parametrize("chosen", [selecting(), selecting(instead=1.0), twice], ids=["zero", "one", "twice"])
def test_products_that_nothing_reads_without_an_expert(chosen: Chosen) -> None:
    assert skips(chosen)


@pytest.mark.parametrize(
    "chosen",
    [
        selecting(SGT), selecting(UGE), selecting(least=-1), selecting(swapped=True), both, lambda element, _: element,
    ],
    ids=["not of expert 0", "unsigned", "of -1", "swapped", "both", "always"],
)  # fmt: skip
def test_products_that_something_reads(chosen: Chosen) -> None:
    assert not skips(chosen)


def test_products_that_other_ids_hide() -> None:
    assert not skips(selecting(), other_ids=True)
    assert not skips(selecting(), ids_along=1)  # of as many rows as there are blocks


def test_products_that_are_returned_as_they_are() -> None:
    assert not skips(selecting(), also_returned=True)
