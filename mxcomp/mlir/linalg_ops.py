"""Reads linalg operations: indexing maps, iterators, and the properties of their bodies."""

from __future__ import annotations

import math

from iree.compiler import ir

from mxcomp.mlir import linalg
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.graph import producer, real, without_cast

EXTENDS, TRUNCATES = "arith.extf", "arith.truncf"


def yielded(op: ir.Operation) -> ir.Value:
    """Returns the value a single-result linalg op yields."""
    return list(op.regions[0].blocks[0].operations)[-1].operands[0]


def indexing_maps(op: ir.Operation) -> list[ir.AffineMap] | None:
    """Returns the indexing maps of a linalg op, named ones included; None for others."""
    maps = linalg.get_indexing_maps(op) if op.name.startswith("linalg.") else None
    return [ir.AffineMapAttr(attr).value for attr in maps] if maps is not None else None


def is_elementwise(op: ir.Operation) -> bool:
    """Returns whether each result element of a linalg op comes from one element of each input."""
    maps = indexing_maps(op)
    return maps is not None and len(op.results) == 1 and len(maps) == len(op.operands) and maps[-1].is_permutation


def ask_init(dim: ir.Operation) -> None:
    """Takes a size from what linalg operations write to instead of from their result, which would have a reader."""
    while (made := producer(dim.operands[0])) is not None and made.name == "linalg.generic":
        dim.operands[0] = made.operands[ir.OpResult(dim.operands[0]).result_number - len(made.results)]


def extended_from(value: ir.Value) -> ir.Value:
    """Returns the tensor from whose elements those of another are extended one by one; the tensor itself if none is."""
    op = producer(value)
    if op is None or not _extends(op) or static_sizes(op.operands[0]) != static_sizes(value):
        return value
    return op.operands[0]


def _extends(op: ir.Operation) -> bool:
    """Returns whether an operation on tensors extends each element, and does nothing else."""
    return op.name == EXTENDS or _only_applies(op, EXTENDS)


def is_rounding(op: ir.Operation) -> bool:
    """Returns whether a linalg op rounds each element of a tensor to a narrower float, and does nothing else."""
    return _only_applies(op, TRUNCATES)


def _only_applies(op: ir.Operation, name: str) -> bool:
    """Returns whether a linalg op yields what one operation makes of each element of its only input."""
    if not is_elementwise(op) or len(op.operands) != 2:
        return False
    inner, (first, last) = producer(yielded(op)), indexing_maps(op) or []
    argument = op.regions[0].blocks[0].arguments[0]
    return first == last and inner is not None and inner.name == name and inner.operands[0] == argument


def reads_init(op: ir.Operation) -> bool:
    """Returns whether the body of a linalg op reads its init operands."""
    *_, out = op.regions[0].blocks[0].arguments
    return any(True for _ in out.uses)


def only_calculates(op: ir.Operation, *others: str) -> bool:
    """Returns whether the body of a linalg op has no effect but to calculate what it yields, or only `others`."""
    *body, _ = op.regions[0].blocks[0].operations
    return all(view.operation.name.startswith(("arith.", "math.", *others)) for view in body)


def reassociation(op: ir.Operation) -> list[list[int]]:
    """Returns the groups of a tensor.expand_shape or collapse_shape."""
    return [[ir.IntegerAttr(i).value for i in ir.ArrayAttr(g)] for g in ir.ArrayAttr(op.attributes["reassociation"])]


def inputs(op: ir.Operation) -> list[ir.Value]:
    """Returns the inputs of a linalg op on tensors, without its inits."""
    return list(op.operands)[: len(op.operands) - len(op.results)]


def loops(affine_map: ir.AffineMap) -> list[int]:
    """Returns the loops that are results of a map, in order; results of other forms are left out."""
    return [expr.position for expr in affine_map.results if isinstance(expr, ir.AffineDimExpr)]


def iterators(op: ir.Operation) -> list[str]:
    """Returns the iterator types of any linalg op: its result's loops are parallel."""
    *_, output = indexing_maps(op) or []
    parallel = loops(output)
    return ["parallel" if loop in parallel else "reduction" for loop in range(output.n_dims)]


def loop_sizes(op: ir.Operation, maps: list[ir.AffineMap]) -> dict[int, int | None]:
    """Returns the trip counts of the loops of a linalg op with these maps, as far as operands tell; None if dynamic."""
    sizes: dict[int, int | None] = {}
    for value, subscripts in zip(op.operands, maps, strict=True):
        if not subscripts.results:
            continue  # a scalar
        for expression, size in zip(subscripts.results, static_sizes(without_cast(value)), strict=True):
            if isinstance(expression, ir.AffineDimExpr):
                loop = expression.position
                sizes[loop] = size if sizes.get(loop) is None else sizes[loop]
    return sizes


def sums_products(op: ir.Operation) -> bool:
    """Returns whether a linalg op sums over loops what it computes from two tensors or more."""
    return indexing_maps(op) is not None and "reduction" in iterators(op) and len(inputs(op)) > 1


def steps_reduced(op: ir.Operation) -> int | None:
    """Returns the number of loop steps of a linalg op per element of its result; None if it is, or may be, dynamic."""
    maps = indexing_maps(op) or []
    sizes, kept = loop_sizes(op, maps), loops(maps[-1])
    reduced = [sizes.get(loop) for loop in range(maps[-1].n_dims) if loop not in kept]
    known = [size for size in reduced if size is not None]
    return math.prod(known) if len(known) == len(reduced) else None


def is_zero(value: ir.Value) -> bool:
    """Returns whether a value is a floating-point zero, or a tensor of them."""
    op = value.owner
    if not isinstance(op, ir.OpView):
        return False
    op = op.operation
    if is_elementwise(op):  # linalg.fill, and the generic that says the same
        element, arguments = yielded(op), list(op.regions[0].blocks[0].arguments)
        return is_zero(op.operands[arguments.index(element)] if element in arguments else element)
    return real(value) == 0.0
