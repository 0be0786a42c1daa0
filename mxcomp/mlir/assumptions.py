"""Assumptions about sizes, which code generation relies on (`util.assume.int`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import util

from mxcomp.mlir import build, graph


@dataclass(frozen=True)
class Range:
    """An interval from `low` to `high`, both included; neither is negative."""

    low: int
    high: int


def assume(value: ir.Value, known: Range) -> ir.Value:
    """Returns `value` with the assumption that it is in a range."""
    assumption = ir.Attribute.parse(f"#util.int.assumption<umin = {known.low}, umax = {known.high}>")  # has no builder
    assumptions = ir.ArrayAttr.get([ir.ArrayAttr.get([assumption])])
    return util.AssumeIntOp([value.type], [value], assumptions).results[0]


def hidden_one() -> ir.Value:
    """Returns a size of 1 that IREE does not know: it would fold a static unit dimension away."""
    return assume(build.barrier(build.constant_index(1)), Range(1, 2))  # from 1 to 1 would be folded


def assumed(value: ir.Value) -> Range | None:
    """Returns the assumed range of an index, or of a number of tiles that cover an assumed size."""
    op = graph.producer(value)
    if op is None:
        return None
    if op.name == "util.assume.int":
        assumption = ir.ArrayAttr(op.attributes["assumptions"])[ir.OpResult(value).result_number]
        found = dict(re.findall(r"(umin|umax) = (\d+)", str(assumption)))
        return Range(int(found["umin"]), int(found["umax"])) if len(found) == 2 else None
    step = _step(op)
    size = assumed(op.operands[0]) if step else None
    return Range(-(-size.low // step), -(-size.high // step)) if size else None


def _step(op: ir.Operation) -> int:
    """Returns the tile that an operation divides its only operand by, rounding up; 0 for others."""
    if op.name != "affine.apply" or len(op.operands) != 1:
        return 0
    match list(ir.AffineMapAttr(op.attributes["map"]).value.results):
        case [
            ir.AffineCeilDivExpr(lhs=ir.AffineDimExpr() | ir.AffineSymbolExpr(), rhs=ir.AffineConstantExpr() as tile)
        ]:
            return tile.value
    return 0
