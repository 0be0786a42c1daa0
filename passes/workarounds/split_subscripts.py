"""mxcomp-split-subscripts: makes reductions on a wave read each dimension by a single loop, without which IREE fails.

A quantiser that is written over rows may read element i of block b at b * 32 + i. IREE computes it together with a
product of one row or column that reads its result, and where lanes of a wave share that, it packs the loops that are
reduced: "failed to pack reduction dimensions for partial reduction", or stores of less than a byte that it cannot make.
Tensors that reductions over more than an MX block read so, or that is read for them, are expanded instead.

Before:

    %q = linalg.generic {indexing_maps = [(m, b, i) -> (m, b * 32 + i), (m, b, i) -> (m, b), (m, b, i) -> (m, b, i)], …}
        ins(%x, %scales : tensor<32x128xbf16>, tensor<32x4xbf16>) … -> tensor<32x4x32xi8>
    %r = linalg.generic … ins(%q, %w : tensor<32x4x32xi8>, tensor<4x32xf4E2M1FN>) … -> tensor<32xf32>

After:

    %e = tensor.expand_shape %x [[0], [1, 2]] … : tensor<32x128xbf16> into tensor<32x4x32xbf16>
    %q = linalg.generic {indexing_maps = [(m, b, i) -> (m, b, i), (m, b, i) -> (m, b), (m, b, i) -> (m, b, i)], …}
        ins(%e, %scales : tensor<32x4x32xbf16>, tensor<32x4xbf16>) … -> tensor<32x4x32xi8>
    %r = …                                                                                                 (as it was)

Loops that do not read all of a dimension, or overlap in it as those of a convolution do, stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from iree.compiler import ir

from mxcomp.mlir import build, graph
from mxcomp.mlir.linalg_ops import indexing_maps, inputs, is_elementwise, loop_sizes
from mxcomp.passes.workarounds.legalise_reductions import may_be_shared


def run(module: ir.Operation) -> None:
    """Rewrites reductions outside of dispatches below `module`, and their elementwise producers."""
    ops = [op for op in graph.walk(module, bodies=False, outside=True) if op.name == "linalg.generic"]
    found = dict.fromkeys(each for op in filter(may_be_shared, ops) for each in (op, *_producers(op)))
    for op in found:
        with op.location, ir.InsertionPoint(op):
            _split(op)


def _producers(op: ir.Operation) -> Iterator[ir.Operation]:
    """Returns the producers that IREE may fuse with an operation."""
    return graph.producers(inputs(op), lambda each: each.name == "linalg.generic" and is_elementwise(each), inputs)


def _split(op: ir.Operation) -> None:
    """Makes an operation read each input by one loop per dimension, if its dimensions are products of loops."""
    maps = indexing_maps(op) or []
    sizes = loop_sizes(op, maps)
    for position, value in enumerate(inputs(op)):
        if maps[position].is_projected_permutation:  # scalars have this too
            continue
        subscripts = zip(maps[position].results, build.static_sizes(value), strict=True)
        groups = [_loops(expression, size, sizes) for expression, size in subscripts]
        if any(len(group) > 1 for group in groups):
            op.operands[position] = _expanded(value, groups, sizes)
            results = [expression for group in groups for expression in group]
            maps[position] = ir.AffineMap.get(maps[position].n_dims, 0, results)
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(each) for each in maps])


def _loops(expression: ir.AffineExpr, size: int | None, sizes: dict[int, int | None]) -> list[ir.AffineExpr]:
    """Returns the loops that together iterate over a dimension once, outermost first. The subscript itself if they do
    not."""
    terms, stride = sorted(_terms(expression)), 1
    for factor, loop in terms:
        if factor != stride or (steps := sizes.get(loop)) is None:
            return [expression]
        stride *= steps
    return [ir.AffineExpr.get_dim(loop) for _, loop in reversed(terms)] if stride == size else [expression]


def _terms(expression: ir.AffineExpr) -> Iterator[tuple[int, int]]:
    """Yields the factors and loops of a sum of loops with factors; a factor 0 stands for all else."""
    if isinstance(expression, ir.AffineAddExpr):
        both = ir.AffineAddExpr(expression)
        yield from _terms(both.lhs)
        yield from _terms(both.rhs)
        return
    factor = 1
    if isinstance(expression, ir.AffineMulExpr) and isinstance(ir.AffineMulExpr(expression).rhs, ir.AffineConstantExpr):
        product = ir.AffineMulExpr(expression)
        expression, factor = product.lhs, ir.AffineConstantExpr(product.rhs).value
    is_loop = isinstance(expression, ir.AffineDimExpr)
    yield (factor, ir.AffineDimExpr(expression).position) if is_loop else (0, 0)


def _expanded(value: ir.Value, groups: list[list[ir.AffineExpr]], sizes: dict[int, int | None]) -> ir.Value:
    """Returns a tensor with a dimension for each loop of these groups, one group per dimension."""
    shape: list[int | None] = []
    groups_: list[list[int]] = []
    for group, size in zip(groups, build.static_sizes(value), strict=True):
        groups_.append([len(shape) + i for i in range(len(group))])
        shape += [size] if len(group) == 1 else [sizes[ir.AffineDimExpr(loop).position] for loop in group]
    return build.expand(value, shape, groups_, build.dynamic_sizes(value))
