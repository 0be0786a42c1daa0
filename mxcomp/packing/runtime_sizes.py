"""The sizes of one matmul at run time: checked, and assumed by code generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, cf

from mxcomp.layout import ACC, LHS, LHS_SCALE, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.layout.problem import Problem
from mxcomp.mlir import build
from mxcomp.mlir.assumptions import Range, assume, assumed
from mxcomp.packing.stored_operand import Dynamic


@dataclass(frozen=True)
class RuntimeSizes:
    """A problem as it is multiplied; `values` are the dynamic ones of its M and N, and of its K in blocks.

    Where a dynamic M has versions, `inner_tiles` are the inner tiles of rows that LHS is padded to.
    """

    problem: Problem
    values: dict[str, ir.Value]
    inner_tiles: ir.Value | None = None

    @property
    def rows_and_columns(self) -> list[ir.Value | None]:
        """M and N where dynamic."""
        return [self.values.get("m"), self.values.get("n")]

    def of(self, operand: int) -> Dynamic:
        """Returns the sizes that index operand 0 … 3."""
        rows = self.values.get("mn"[operand % 2])
        return Dynamic(rows, self.values.get("k"), self.inner_tiles if operand in (LHS, LHS_SCALE) else None)


class TileCounts:
    """The numbers of workgroup tiles of a matmul, where dynamic."""

    def __init__(self, sizes: RuntimeSizes, layout: DataTiledLayout, has_all_rows: bool = False) -> None:
        """Computes the numbers; `has_all_rows`: the kernel's tile has as many rows as it is ever given."""
        m, n, k = layout.workgroup_tile
        steps = {"m": m, "n": n, "k": k // layout.shape.block}
        self.counts = {axis: build.ceildiv(value, steps[axis]) for axis, value in sizes.values.items()}
        if sizes.inner_tiles is not None and layout.inner_tiles is not None:
            self.counts["m"] = _tiles(sizes.inner_tiles, layout.inner_tiles[0])
        if has_all_rows:
            self.counts.pop("m", None)

    def of(self, operand: int) -> list[ir.Value]:
        """Returns the dynamic outer sizes of a packed operand, or of the packed result."""
        axes = "mn" if operand == ACC else ("mn"[operand % 2], "k")
        return [self.counts[axis] for axis in axes if axis in self.counts]


def _tiles(inner_tiles: ir.Value, each: int) -> ir.Value:
    """Returns the number of whole tiles of so many inner tiles each; 0 is possible where another version runs."""
    known = assumed(inner_tiles)
    assert known is not None
    return assume(build.floordiv(inner_tiles, each), Range(0, known.high // each))


def padded_inner_tiles(rows: ir.Value, unit: int, steps: Sequence[tuple[int | None, int]]) -> ir.Value:
    """Returns the inner tiles of rows that LHS is padded to: a multiple of so many for each range of rows."""
    known = assumed(rows)
    assert known is not None
    padded = [(max_m, build.times(build.ceildiv(rows, unit * step), step)) for max_m, step in steps]
    return assume(
        build.for_at_most(padded, rows), Range(1, max(-(-known.high // (unit * step)) * step for _, step in steps))
    )


def guarded(operands: list[ir.Value], problem: Problem, limits: Mapping[str, int]) -> RuntimeSizes:
    """Returns the sizes of `problem`, asserted to be equal in all operands, and between 1 and `limits` of m, n and k.

    Code generation relies on both: limits are what buffer offsets can reach. A result may have a limit of bytes.
    """
    steps = {"m": 1, "n": 1, "k": problem.block}
    values = {axis: _guarded(axis, operands, limits.get(axis, 0), steps[axis]) for axis in problem.dynamic}
    if "bytes" in limits:
        _guard_result(problem.matrices, values, limits["bytes"])
    return RuntimeSizes(problem, values)


def _guarded(axis: str, operands: list[ir.Value], limit: int, unit: int) -> ir.Value:
    value, *others = _sizes(axis, operands)
    low = arith.CmpIOp(arith.CmpIPredicate.sge, value, build.constant_index(1)).result
    high = arith.CmpIOp(arith.CmpIPredicate.sle, value, build.constant_index(limit // unit)).result
    cf.AssertOp(arith.AndIOp(low, high).result, f"mxcomp: {axis.upper()} must be between {unit} and {limit}")
    _compare(axis, value, others)
    return assume(value, Range(1, limit // unit))


def compared(operands: list[ir.Value], problem: Problem) -> None:
    """Asserts that the dynamic sizes of `problem` are equal in all operands."""
    for axis in problem.dynamic:
        value, *others = _sizes(axis, operands)
        _compare(axis, value, others)


def _sizes(axis: str, operands: list[ir.Value]) -> list[ir.Value]:
    """Returns the sizes of an axis in each operand that it indexes; K in blocks."""
    at = ir.RankedTensorType(operands[LHS_SCALE].type).rank - (1 if axis == "k" else 2)
    return [build.dim(operands[i], at) for i in _AXES[axis]]


def _compare(axis: str, value: ir.Value, others: list[ir.Value]) -> None:
    first, *rest = (_LABELS[i] for i in _AXES[axis])
    for label, other in zip(rest, others, strict=True):
        same = arith.CmpIOp(arith.CmpIPredicate.eq, value, other).result
        cf.AssertOp(same, f"mxcomp: {first} and {label} must have the same {axis.upper()}")


_LABELS = ("LHS", "RHS", "LHS scales", "RHS scales")
_AXES = {"m": (LHS, LHS_SCALE), "n": (RHS, RHS_SCALE), "k": (LHS, RHS, LHS_SCALE, RHS_SCALE)}
"""The operands that an axis indexes."""


def _guard_result(matrices: int, values: dict[str, ir.Value], max_bytes: int) -> None:
    """Asserts, where M and N are dynamic, that the result fits into a buffer; their limits only make operands fit."""
    elements = arith.MulIOp(values["m"], values["n"]).result
    limit = build.constant_index(max_bytes // (4 * matrices))
    fits = arith.CmpIOp(arith.CmpIPredicate.sle, elements, limit).result
    cf.AssertOp(fits, f"mxcomp: the result must be at most {max_bytes} bytes")
