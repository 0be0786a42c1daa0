"""Activations that a ukernel can quantise in registers, block by block, on their way into a scaled matmul."""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir

from mxcomp.formats import element_format
from mxcomp.layout import LHS
from mxcomp.matching import quantiser
from mxcomp.matching.elements import Index
from mxcomp.matching.quantiser import TRUNCATIONS, Compute, Node, Producer, Read, is_inside
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import is_sub_byte
from mxcomp.mlir.linalg_ops import is_elementwise, yielded
from mxcomp.problem import Problem
from mxcomp.ukernels.quantising import SOURCE_BITS


@dataclass(frozen=True)
class Activations:
    """The LHS of a matmul is `producer` of the tensor `source`, of whose row-major elements each 32 are a block."""

    producer: Producer
    source: ir.Value

    @property
    def type(self) -> ir.Type:
        """Of an element."""
        return ir.RankedTensorType(self.source.type).element_type

    @property
    def bits(self) -> int:
        return SOURCE_BITS[str(self.type)]


def find(elements: ir.Value, scales: ir.Value, problem: Problem) -> Activations | str:
    """What elements and scales of the LHS of a problem are quantised from; why registers cannot be where, if so.

    The reason is "" where they are stored, and nothing is quantised.
    """
    producer = quantiser.find(elements, scales)
    if producer is None:
        return ""
    if problem.batch or problem.m is None or problem.k is None:
        return "it has a batch, or a dynamic size"
    if not element_format(problem.types[LHS]).loadable:
        return f"no conversion of vectors gives {problem.types[LHS]}"
    if not _converts(producer.elements):
        return f"no {CONVERTS} by a scale of the block makes its elements"
    read, *others = _reads(producer)
    if others:
        return f"LHS is computed from {1 + len(others)} operands: expected one"
    found = Activations(producer, read.value)
    if str(found.type) not in SOURCE_BITS:
        return f"activations are {found.type}: expected {', '.join(SOURCE_BITS)}"
    if not _is_row_major(read, problem.m, problem.k):
        return "activations are not read row by row"
    return found


CONVERTS = "arith.scaling_truncf"
"""What becomes conversion instructions: of all values of a block at once."""


def _converts(elements: Compute) -> bool:
    """Whether elements are what the conversion of something inside a block, by something that is not, gives."""
    op = elements.op
    if not elements.inside or elements.start is not None or is_elementwise(op) is False:
        return False
    found = [view.operation for view in op.regions[0].blocks[0].operations if view.operation.name in TRUNCATIONS]
    made = [inner for inner in found if inner.name == CONVERTS and inner.results[0] == yielded(op)]
    if len(made) != 1 or any(is_sub_byte(inner.results[0].type) for inner in found if inner not in made):
        return False
    inside = dict(zip(op.regions[0].blocks[0].arguments, map(is_inside, elements.operands), strict=False))
    x, scale = made[0].operands
    return _depends(x, inside) and not _depends(scale, inside)


def _depends(value: ir.Value, inside: dict[ir.Value, bool]) -> bool:
    """Whether a value of a body is computed from an argument that differs inside a block."""
    op = graph.producer(value)
    if op is None or value in inside:
        return inside.get(value, False)
    return any(_depends(operand, inside) for operand in op.operands)


def _reads(producer: Producer) -> list[Read]:
    """What is read of tensors, each place once."""
    found: dict[tuple[ir.Value, tuple[Index, ...]], Read] = {}

    def visit(node: Node) -> None:
        if isinstance(node, Compute):
            for operand in node.operands:
                visit(operand)
        else:
            found.setdefault((node.value, node.subscripts), node)

    for root in producer.nodes:
        visit(root)
    return list(found.values())


def _is_row_major(read: Read, m: int, k: int) -> bool:
    """Whether an [m, k] operand's element is at the same place among the elements of the tensor that is read."""
    stride = m * k
    for size, index in zip(build.static_sizes(read.value), read.subscripts, strict=True):
        if not size or stride % size:
            return False
        stride //= size
        expected = Index("row", stride // k, size) if stride % k == 0 else Index("k", stride, size)
        if size > 1 and index != expected:
            return False
    return stride == 1
