"""The operands of a scaled matmul: the stored elements and scales of a dequantised factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mxcomp.formats import E8M0, FORMATS, BlockFormat, block_format, blocks
from mxcomp.matching.expressions import Apply, Expr, Leaf

SCALE_TYPE = E8M0.mlir_type
WIDE_SCALES = ("f32", "f16", "bf16")
"""The types of scales of which `arith.scaling_extf` takes the exponent, as if they were truncated to f8E8M0FNU."""
_EXACT_CASTS = {"f32", "bf16", "f64"}  # of a dequantised value; f16 would overflow

_WARNINGS = {
    6: "6-bit operands are dequantised to f32 first, which is slow: stock IREE cannot load them",
    8: "8-bit operands are dequantised to f32 first, which is slow: stock IREE lays them out wrongly on gfx950",
}
"""The treatment by mxcomp-fall-back of operands that are left to IREE 3.13, by their width in bits."""


def warning_of(types: Sequence[str]) -> str:
    """Returns a warning about a matmul of these element types that is left to IREE."""
    widths = {FORMATS[kind].bits for kind in types if kind in FORMATS}
    return "; ".join(warning for width, warning in _WARNINGS.items() if width in widths)


class NotOursError(Exception):
    """A scaled matmul is left to IREE; the message is the reason, `warning` a warning for the user."""

    def __init__(self, reason: str, warning: str = "") -> None:
        super().__init__(reason)
        self.warning = warning


@dataclass
class Operand:
    """One dequantised factor: `element * scale`, both before any cast. A factor that is not quantised has no scale.

    Of a scale of one of `WIDE_SCALES` the exponent is meant.
    """

    element: Leaf
    element_type: str
    scale: Leaf | None
    scale_type: str = SCALE_TYPE

    @property
    def format(self) -> BlockFormat | None:
        """The block format of a quantised operand; None for one that is not quantised."""
        kind = SCALE_TYPE if self.scale_type in WIDE_SCALES else self.scale_type
        return None if self.scale is None else block_format(self.element_type, kind)

    @property
    def block(self) -> int:
        """The number of elements that share a scale; 1 without scales."""
        return 1 if self.format is None else self.format.size

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.element,) if self.scale is None else (self.element, self.scale)


def _telling_types() -> set[str]:
    """Returns the types of scales and of narrow elements; 8-bit types also occur outside of block formats."""
    scales = {each.scale.mlir_type for each in blocks.BLOCK_FORMATS}
    return scales | {each.element.mlir_type for each in blocks.BLOCK_FORMATS if each.element.bits < each.scale.bits}


def mentions_mx(expr: Expr) -> bool:
    """Returns whether a factor has any part of an MX operand, so that a user may expect it to be one."""
    if isinstance(expr, Apply):
        return expr.name == "arith.scaling_extf" or any(mentions_mx(operand) for operand in expr.operands)
    return isinstance(expr, Leaf) and str(expr.type) in _telling_types()


def _strip_casts(expr: Expr) -> Expr:
    """Removes casts that keep every dequantised value exact."""
    while isinstance(expr, Apply) and expr.name in ("arith.extf", "arith.truncf") and str(expr.type) in _EXACT_CASTS:
        expr = expr.operands[0]
    return expr


def _raw(expr: Expr) -> tuple[Leaf, str] | None:
    """Returns a stored element and its type; stored bytes may be bitcast to it."""
    expr = _strip_casts(expr)
    kind = str(expr.type)
    if isinstance(expr, Apply) and expr.name == "arith.bitcast":
        expr = expr.operands[0]
    return (expr, kind) if isinstance(expr, Leaf) else None


def _keeps_exponents(expr: Expr) -> bool:
    """Returns whether casts of a scale round none of them to another power of two."""
    while isinstance(expr, Apply) and expr.name in ("arith.extf", "arith.truncf"):
        if expr.name == "arith.truncf" and str(_strip_casts(expr).type) != SCALE_TYPE:
            return False
        expr = expr.operands[0]
    return True


def operand_of(expr: Expr) -> Operand:
    """Splits a factor into element and scale. Raises NotOursError."""
    expr = _strip_casts(expr)
    if isinstance(expr, Apply) and expr.name in ("arith.scaling_extf", "arith.mulf"):
        parts = [_raw(part) for part in expr.operands]
        if expr.name == "arith.mulf":
            parts.sort(key=lambda part: part is not None and part[1] == SCALE_TYPE)
            first, second = (part[1] if part is not None else "" for part in parts)
            if block_format(first, second) is None and block_format(second, first) is not None:
                parts.reverse()
        if parts[0] is not None and parts[1] is not None:
            (element, element_type), (scale, scale_type) = parts[0], parts[1]
            if str(expr.type) not in _EXACT_CASTS:
                raise NotOursError(f"dequantised to {expr.type}: expected one of {', '.join(sorted(_EXACT_CASTS))}")
            takes_exponent = expr.name == "arith.scaling_extf" and _keeps_exponents(expr.operands[1])
            is_known = block_format(element_type, scale_type) is not None and expr.name == "arith.mulf"
            if scale_type != SCALE_TYPE and not is_known and not (takes_exponent and scale_type in WIDE_SCALES):
                raise NotOursError(f"scale type {scale_type}: expected {SCALE_TYPE}")
            return Operand(element, element_type, scale, scale_type)
    what = f"arithmetic ending in {expr.name}" if isinstance(expr, Apply) else f"a plain {expr.type} operand"
    raise NotOursError(f"expected element × {SCALE_TYPE} scale on both sides, got {what}")


def follows(operand: Operand, axis: str) -> bool:
    """Returns whether an element or scale of the operand depends on an axis, its parts included."""
    accesses = (*operand.element.accesses[-1:], *(operand.scale.accesses[-1:] if operand.scale is not None else ()))
    return any(index.axis.startswith(axis) for place in accesses for index in place.indices)
