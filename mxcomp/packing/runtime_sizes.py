"""The sizes of one matmul at run time: guarded, and known to code generation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, cf

from mxcomp.layout import ACC, BLOCK_SIZE, LHS, LHS_SCALE, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.mlir import build
from mxcomp.packing.stored_operand import Dynamic
from mxcomp.ukernels import Sizes


@dataclass(frozen=True)
class Extents:
    """Sizes in elements, None where dynamic; `values` are then M and N, and K in blocks."""

    batch: list[int]
    sizes: Sizes
    values: dict[str, ir.Value]

    @property
    def m(self) -> int | None:
        return self.sizes["m"]

    @property
    def n(self) -> int | None:
        return self.sizes["n"]

    @property
    def limits(self) -> list[ir.Value | None]:
        """M and N where dynamic."""
        return [self.values.get("m"), self.values.get("n")]

    def of(self, operand: int) -> Dynamic:
        """Those that index operand 0 … 3."""
        return Dynamic(self.values.get("mn"[operand % 2]), self.values.get("k"))


class Tiles:
    """Counts of workgroup tiles where dynamic."""

    def __init__(self, extents: Extents, layout: DataTiledLayout) -> None:
        steps = dict(zip("mnk", (*layout.tile[:2], layout.tile[2] // BLOCK_SIZE), strict=True))
        self.counts = {axis: build.ceildiv(value, steps[axis]) for axis, value in extents.values.items()}

    def of(self, operand: int) -> list[ir.Value]:
        """The dynamic outer sizes of a packed operand, or of the packed result."""
        axes = "mn" if operand == ACC else ("mn"[operand % 2], "k")
        return [self.counts[axis] for axis in axes if axis in self.counts]


def guarded(operands: list[ir.Value], sizes: Sizes, entries: dict) -> dict[str, ir.Value]:
    """M, N and K (in blocks) at run time where they are dynamic.

    They are asserted to be the same for all operands, and between 1 and the limits that buffer offsets set: code
    generation relies on both.
    """
    values = {axis: _guarded(axis, operands, entries[f"max_{axis}"]) for axis in "mnk" if sizes[axis] is None}
    if "max_bytes" in entries:
        _guard_result(
            math.prod(size or 1 for size in build.static_sizes(operands[LHS])[:-3]), values, entries["max_bytes"]
        )
    return values


def _guarded(axis: str, operands: list[ir.Value], limit: int) -> ir.Value:
    least, unit = (BLOCK_SIZE, BLOCK_SIZE) if axis == "k" else (1, 1)
    at = ir.RankedTensorType(operands[LHS_SCALE].type).rank - (1 if axis == "k" else 2)
    first, *others = _AXES[axis]
    value = build.dim(operands[first], at)
    low = arith.CmpIOp(arith.CmpIPredicate.sge, value, build.constant_index(1)).result
    high = arith.CmpIOp(arith.CmpIPredicate.sle, value, build.constant_index(limit // unit)).result
    cf.AssertOp(arith.AndIOp(low, high).result, f"mxcomp: {axis.upper()} must be between {least} and {limit}")
    for other in others:
        same = arith.CmpIOp(arith.CmpIPredicate.eq, value, build.dim(operands[other], at)).result
        cf.AssertOp(same, f"mxcomp: {_LABELS[first]} and {_LABELS[other]} must have the same {axis.upper()}")
    return assume(value, limit // unit)


_LABELS = ("LHS", "RHS", "LHS scales", "RHS scales")
_AXES = {"m": (LHS, LHS_SCALE), "n": (RHS, RHS_SCALE), "k": (LHS, RHS, LHS_SCALE, RHS_SCALE)}
"""The operands that an axis indexes."""


def _guard_result(batch: int, values: dict[str, ir.Value], max_bytes: int) -> None:
    """Where M and N are dynamic: the result fits into a buffer. Their limits only make operands fit."""
    elements = arith.MulIOp(values["m"], values["n"]).result
    limit = build.constant_index(max_bytes // (4 * batch))
    fits = arith.CmpIOp(arith.CmpIPredicate.sle, elements, limit).result
    cf.AssertOp(fits, f"mxcomp: the result must be at most {max_bytes} bytes")


def assume(value: ir.Value, limit: int) -> ir.Value:
    """`value`, known to be between 1 and `limit`."""
    assumption = ir.Attribute.parse(f"[[#util.int.assumption<umin = 1, umax = {limit}>]]")
    return ir.Operation.create(
        "util.assume.int", results=[value.type], operands=[value], attributes={"assumptions": assumption}
    ).result
