"""The operands of a scaled matmul: the stored elements and scales that a dequantised factor is made of, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.build import static_sizes
from mxcomp.formats import FORMATS
from mxcomp.layout import BLOCK_SIZE
from mxcomp.passes.trace import ZERO, Apply, Expr, Index, Leaf, UntraceableError

SCALE_TYPE = "f8E8M0FNU"
_EXACT_CASTS = {"f32", "bf16", "f64"}  # of a dequantised value; f16 would overflow

_WARNINGS = {
    6: "stock IREE cannot compile 6-bit operands: they need a ukernel",
    8: "stock IREE lays 8-bit operands out wrongly on gfx950: results are wrong for non-uniform scales",
}
"""What becomes of operands that are left to IREE 3.13, by their width in bits."""

_TAKEN_APART = {
    8: "8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950"
}
"""The same of matmuls that mxcomp-fall-back takes apart."""


def warning_of(types: Sequence[str], taken_apart: bool = False) -> str:
    """What users ought to know of a matmul of these element types that is left to IREE."""
    widths = {FORMATS[kind].bits for kind in types if kind in FORMATS}
    warnings = _WARNINGS | (_TAKEN_APART if taken_apart else {})
    return "; ".join(warning for width, warning in warnings.items() if width in widths)


class NotOursError(Exception):
    """A scaled matmul that is left to IREE; the message is the reason, `warning` what the user should know."""

    def __init__(self, reason: str, warning: str = "") -> None:
        super().__init__(reason)
        self.warning = warning


@dataclass
class Operand:
    """One dequantised factor: `element * scale`, both before any cast."""

    element: Leaf
    element_type: str
    scale: Leaf
    scale_type: str


def mentions_mx(expr: Expr) -> bool:
    """Whether a factor has anything of an MX operand, so that a user may expect it to be one."""
    if isinstance(expr, Apply):
        return expr.name == "arith.scaling_extf" or any(mentions_mx(operand) for operand in expr.operands)
    return isinstance(expr, Leaf) and str(expr.type) in {SCALE_TYPE, "f4E2M1FN", "f6E2M3FN", "f6E3M2FN"}


def _strip_casts(expr: Expr) -> Expr:
    """Without casts that keep every dequantised value exact."""
    while isinstance(expr, Apply) and expr.name in ("arith.extf", "arith.truncf") and str(expr.type) in _EXACT_CASTS:
        expr = expr.operands[0]
    return expr


def _raw(expr: Expr) -> tuple[Leaf, str] | None:
    """A stored element and its type; stored bytes may be bitcast to it."""
    expr = _strip_casts(expr)
    kind = str(expr.type)
    if isinstance(expr, Apply) and expr.name == "arith.bitcast":
        expr = expr.operands[0]
    return (expr, kind) if isinstance(expr, Leaf) else None


def operand_of(expr: Expr) -> Operand:
    """Splits a factor into element and scale. Raises NotOursError."""
    expr = _strip_casts(expr)
    if isinstance(expr, Apply) and expr.name in ("arith.scaling_extf", "arith.mulf"):
        parts = [_raw(part) for part in expr.operands]
        if expr.name == "arith.mulf":
            parts.sort(key=lambda part: part is not None and part[1] == SCALE_TYPE)
        if parts[0] is not None and parts[1] is not None:
            (element, element_type), (scale, scale_type) = parts[0], parts[1]
            if str(expr.type) not in _EXACT_CASTS:
                raise NotOursError(f"dequantised to {expr.type}: expected one of {', '.join(sorted(_EXACT_CASTS))}")
            if scale_type != SCALE_TYPE:
                raise NotOursError(f"scale type {scale_type}: expected {SCALE_TYPE}")
            return Operand(element, element_type, scale, scale_type)
    what = f"arithmetic ending in {expr.name}" if isinstance(expr, Apply) else f"a plain {expr.type} operand"
    raise NotOursError(f"expected element × {SCALE_TYPE} scale on both sides, got {what}")


def row_axis(operand: Operand) -> str:
    """The result dimension that indexes an operand; "" where it has size 1 and left no trace."""
    axes = {index.axis for _, indices in operand.element.places for index in indices} - {"k", ""}
    return axes.pop() if len(axes) == 1 else ""


def stored_at(leaf: Leaf, axis: str, rows: int | None, k: int, block: bool) -> ir.Value:
    """The tensor furthest back that holds [rows, K] (or [rows, K blocks]) in row-major order."""
    step = BLOCK_SIZE if block else 1
    row = ZERO if rows == 1 else Index(axis, 1, rows)
    column = Index("k", step, k // step) if k > step else ZERO
    for value, indices in reversed(leaf.places):
        sizes = static_sizes(value)
        if [index.extent for index in indices] != sizes:
            continue
        used = [index for index in indices if index.extent != 1]
        parts = sum(index.axis == axis for index in used)
        try:
            if Index.join(used[:parts]) == row and Index.join(used[parts:]) == column:
                return value
        except UntraceableError:
            continue
    raise NotOursError("an operand is not stored row-major along K: expected [rows, K] elements, [rows, K/32] scales")
