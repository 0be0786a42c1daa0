"""mxcomp-check-sizes: asserts at run time that sizes agree which an operation requires to be equal.

An operation on tensors is defined only where dimensions that it goes through together are equally long; of dynamic ones
nobody has checked that. IREE 3.13 takes the size of one of them, and reads beyond the others.

Before, a residual that is added:

    %y = linalg.generic … ins(%r, %residual : tensor<?x64xf32>, tensor<?x64xf32>) …

After, at the beginning of the function:

    %m = tensor.dim %x, %c0   %n = tensor.dim %residual, %c0   %same = arith.cmpi eq, %m, %n
    cf.assert %same, "mxcomp: dimension 0 of argument 0 and dimension 0 of argument 1 must be equal: …"

Sizes are followed back to those of arguments (`mxcomp.matching.sizes`), and each pair of them is compared once. A
`tensor.cast` to a size that is known says that it is that size. What is computed in a branch, a loop or a function that
is called is compared there, and has the sizes of what it is computed from where these are known. Operands of
recognised matmuls are compared where they are materialised, or fall back (`mxcomp.packing.runtime_sizes`).
"""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir
from iree.compiler.dialects import arith, cf

from mxcomp.layout import ACC, LHS, RHS
from mxcomp.matching.decision import is_recognised
from mxcomp.matching.size import FUNCTIONS, Size
from mxcomp.matching.sizes import Sizes, concatenated
from mxcomp.mlir import build, graph, linalg_ops
from mxcomp.mlir.linalg_ops import indexing_maps, reassociation
from mxcomp.run.statuses import BRANCH


def run(module: ir.Operation) -> None:
    """Compares the dynamic sizes that operations below `module` require to be equal."""
    checks: dict[ir.Block, _Checks] = {}
    sizes = Sizes()
    for op in list(graph.walk(module, bodies=False)):
        for together in _together(op, sizes):
            first, *others = [size for size in dict.fromkeys(together) if size.is_known] or [Size()]
            for other in others:
                checks.setdefault(op.block, _Checks()).compare(op, first, other)


def _together(op: ir.Operation, sizes: Sizes) -> Iterator[list[Size]]:
    """Yields the sizes that an operation requires to be equal."""
    if op.name in _RESHAPES:
        yield from _elements(op, sizes)
        return
    for dims in _dims(op):
        if any(build.static_sizes(value)[dim] is None for value, dim in dims):
            yield [sizes.of(value, dim) for value, dim in dims]


_RESHAPES = ("tensor.reshape", "tensor.expand_shape")


def _elements(op: ir.Operation, sizes: Sizes) -> Iterator[list[Size]]:
    """Yields the number of elements of a reshape's source, and of its result by the given sizes."""
    source, result = op.operands[0], op.results[0]
    if None not in build.static_sizes(source) + build.static_sizes(result):
        return
    groups = reassociation(op) if op.name != "tensor.reshape" else [list(range(_rank(result)))]
    for i, group in enumerate(groups):
        before = [i] if op.name != "tensor.reshape" else range(_rank(source))
        yield [sizes.product(source, before), sizes.product(result, group)]


_Dims = list[tuple[ir.Value, int]]


def _dims(op: ir.Operation) -> list[_Dims]:
    """Returns the dimensions of tensors that have equal sizes."""
    if op.name == "tensor.cast":
        return [[(op.operands[0], dim), (op.results[0], dim)] for dim in range(_rank(op.operands[0]))]
    if op.name == "tensor.concat":
        others = [dim for dim in range(_rank(op.results[0])) if dim != concatenated(op)]
        return [[(value, dim) for value in op.operands] for dim in others]
    if op.name.startswith(("arith.", "math.")) and op.results and build.is_tensor(op.results[0]):
        tensors = [value for value in op.operands if build.is_tensor(value)]
        return [[(value, dim) for value in tensors] for dim in range(_rank(op.results[0]))]
    return _loops(op)


def _loops(op: ir.Operation) -> list[_Dims]:
    """Returns the dimensions that each loop of a linalg operation iterates over. Of a recognised matmul, rows and
    columns."""
    maps = indexing_maps(op)
    if maps is None:
        return []
    chosen = (LHS, RHS, ACC) if is_recognised(op) else range(len(op.operands))
    found: dict[int, _Dims] = {}
    for value, affine_map in ((op.operands[i], maps[i]) for i in chosen):
        for dim, expr in enumerate(affine_map.results):
            if isinstance(expr, ir.AffineDimExpr):
                found.setdefault(ir.AffineDimExpr(expr).position, []).append((value, dim))
    if is_recognised(op):  # only the operands have K
        found = {loop: found[loop] for loop in linalg_ops.loops(maps[ACC])}
    return list(found.values())


def _rank(value: ir.Value) -> int:
    return len(build.static_sizes(value))


class _Checks:
    """The assertions in a block: groups of equal sizes, and the last assertion at its beginning."""

    def __init__(self) -> None:
        self._groups: list[set[Size]] = []
        self._last: ir.Operation | None = None

    def compare(self, op: ir.Operation, first: Size, second: Size) -> None:
        """Asserts for an operation that two sizes are equal, if that does not follow from earlier assertions."""
        if 0 in (first.factor, second.factor):
            return
        first, second = first.over(second), second.over(first)
        ours = [group for group in self._groups if not group.isdisjoint({first, second})]
        if len(ours) == 1 and {first, second} <= ours[0]:
            return
        self._groups = [group for group in self._groups if group not in ours] + [{first, second}.union(*ours)]
        where = graph.placed(op.name, op.location)
        where += "" if _is_entry(op.block) and graph.is_public(op.block.owner.operation) else BRANCH
        with op.location, self._earliest(op, first, second):
            same = arith.CmpIOp(arith.CmpIPredicate.eq, first.build(), second.build()).result
            made = cf.AssertOp(same, f"mxcomp: {first} and {second} must be equal, for {where}").operation
        if _is_entry(op.block):
            self._last = made

    def _earliest(self, op: ir.Operation, *compared: Size) -> ir.InsertionPoint:
        """Returns the insertion point: at the beginning for an operation that is always executed if all sizes are known
        there; else in front of the operation."""
        made = [producer for size in compared for producer in size.producers]
        if not _is_entry(op.block) or any(producer.block != op.block for producer in made):
            return ir.InsertionPoint(op)
        last = self._last
        for producer in made:
            last = producer if last is None or last.is_before_in_block(producer) else last
        return ir.InsertionPoint.at_block_begin(op.block) if last is None else ir.InsertionPoint.after(last)


def _is_entry(block: ir.Block) -> bool:
    return block.owner.operation.name in FUNCTIONS and block == block.region.blocks[0]
