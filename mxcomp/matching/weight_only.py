"""Weight-only matmuls: bf16 activations times MX weights, `x · (elements · scales)ᵀ`, dequantised to bf16 or f32.

    %d = dequantised %w, %ws : … -> tensor<128x256xbf16>
    %r = linalg.matmul … ins(%x, %d : tensor<4x256xbf16>, tensor<128x256xbf16>) outs(%zero : tensor<4x128xf32>)

The canonical form has them as an LHS with scales of 1. Only what a ukernel dequantises in registers is recognised: all
else is a matmul of dequantised weights, as before.
"""

from __future__ import annotations

from iree.compiler import ir

from mxcomp.layout import RHS
from mxcomp.layout.problem import Problem
from mxcomp.matching.elements import Element, Index
from mxcomp.matching.expressions import Leaf
from mxcomp.matching.operands import NotOursError, Operand
from mxcomp.matching.storage import Access
from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import EXTENDS, extended_from
from mxcomp.ukernels.weight_only import ACTIVATIONS, INSTANCES, MOST_ROWS, Instance


def fitting(element: str, m: int, n: int, k: int) -> list[Instance]:
    """Instances for weights of this type and a problem of this size: of more rows those that take most at a time."""
    rows = min(m, MOST_ROWS)
    able = [each for each in INSTANCES if each.elements[RHS] == element and each.covers(rows, n, k)]
    return [each for each in able if m <= MOST_ROWS or each.most_rows == MOST_ROWS]


def argument(op: ir.Operation, factor: ir.Value) -> int | None:
    """Returns the operand of a contraction that a factor is, if that is bf16, perhaps extended to f32."""
    factor = graph.look_through(factor, (EXTENDS,))
    if not isinstance(factor, ir.BlockArgument) or ir.BlockArgument(factor).owner != op.regions[0].blocks[0]:
        return None
    position = ir.BlockArgument(factor).arg_number
    return position if _source(op.operands[position]) is not None else None


def operand(op: ir.Operation, position: int, subscripts: tuple[Index, ...]) -> Operand:
    """Returns that operand of a contraction, read at these subscripts."""
    source = _source(op.operands[position])
    assert source is not None
    return Operand(Leaf((Element(source, subscripts),)), ACTIVATIONS, None)


def _source(value: ir.Value) -> ir.Value | None:
    """Returns the tensor of bf16 that a value is, or is extended from."""
    if not isinstance(value.type, ir.RankedTensorType):
        return None
    source = extended_from(value)
    return source if str(build.element(source)) == ACTIVATIONS else None


def check(problem: Problem, access: Access, is_left: bool) -> None:
    """Raises NotOursError where no ukernel dequantises the weights of a problem in registers."""
    m, n, k = problem.m, problem.n, problem.k
    if not is_left:
        raise NotOursError(f"{ACTIVATIONS} activations that are not quantised are multiplied from the right")
    if n is None or k is None or (m is None and problem.batch):
        raise NotOursError(
            f"{ACTIVATIONS} activations are not quantised: expected static sizes, but for M without a batch"
        )
    if problem.batch and (m or 0) > MOST_ROWS:
        raise NotOursError(
            f"{ACTIVATIONS} activations are not quantised: expected 1 to {MOST_ROWS} rows of each matrix, got {m}"
        )
    if not fitting(problem.types[RHS], m or MOST_ROWS, n, k):
        raise NotOursError(
            f"{ACTIVATIONS} activations are not quantised: expected more than 16 columns, and more than one block, got "
            f"{n} and {k}"
        )
    if not access.row_major:
        raise NotOursError(f"{ACTIVATIONS} activations are not quantised, and not stored row by row")
