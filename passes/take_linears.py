"""mxcomp-take-linears: computes products of a few rows with 16-bit weights by kernels of ours.

Before:

    %t = linalg.transpose ins(%w : tensor<5120x2880xbf16>) … permutation = [1, 0]
    %p = linalg.matmul ins(%x, %t : tensor<16x2880xbf16>, …) outs(%zero) -> tensor<16x5120xf32>
    %s = linalg.generic … ins(%p, %bias : …) (added) -> tensor<16x5120xf32>
    %r = linalg.generic … ins(%s) (truncated) -> tensor<16x5120xbf16>

After:

    %d = flow.dispatch.region -> (tensor<16x320x16xbf16>) {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_linear_…">}
          ins(%x, %w, %bias) …
    }
    %r = tensor.collapse_shape %d [[0], [1, 2]] … into tensor<16x5120xbf16>

These are attention projections, routers and heads of models that have them unquantised. Queries, keys and values are
one dispatch, whose workgroups read one of their matrices each; a residual that is added behind is part of it. Of more
than 32 rows and many columns IREE's own kernels are faster: those stay with IREE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from iree.compiler import ir

from mxcomp.matching import linears, norms
from mxcomp.matching.linears import Product
from mxcomp.mlir import build, graph
from mxcomp.options import Options
from mxcomp.packing import block_quantiser, standing
from mxcomp.ukernels.attention import COLUMNS
from mxcomp.ukernels.linear import Norm

OPTIONS = ("ukernels", "reference")


_LATE = 2
"""The part of compute units that a matrix leaves without a workgroup, at least, where the time of its product is
latency."""


def run(module: ir.Operation, options: Options) -> None:
    """Replaces every such product below `module`."""
    if not options.has_kernels:
        return
    cus = options.target.cus
    found = [each for op in graph.walk(module, bodies=False) if (each := linears.find(op)) is not None]
    for group in _together(found, cus):
        # What was replaced meanwhile may be an operand of it.
        together = [each for of in group if (each := linears.find(of.op)) is not None]
        if len(together) < len(group):
            continue
        whole = linears.joined(together) if len(together) > 1 else together[0]
        kernel = whole.kernel.spread(cus)
        if kernel is not None and not options.target.lacks_short_products(kernel.element):
            _replace(together, _with_norm(together, replace(whole, kernel=kernel)))


def _with_norm(together: Sequence[Product], whole: Product) -> Product:
    """Returns products with the norm in front of them, where all other readers of its row come behind them."""
    x, *others = whole.operands
    source, last = graph.look_through_views(x), together[0].last
    found = norms.of(source) if whole.kernel.rows == 1 else None
    if found is None or not found.sums or source.owner.operation.block != last.block:
        return whole
    rows, *vectors = (str(build.element(value)) for value in found.operands)
    of_products = {user for each in together for user in _before(each.op, source)}
    readers = set(graph.readers(source, graph.RESHAPES)) - of_products
    with whole.op.location:
        norm = Norm(block_quantiser.norm_text(found), len(found.sums), tuple(vectors), bool(readers))
    if rows != whole.kernel.element or not whole.kernel.takes(norm) or not set(vectors) <= _WIDTHS:
        return whole
    if not all(reader.block == last.block and last.is_before_in_block(reader) for reader in readers):
        return whole
    return replace(whole, operands=(*found.operands, *others), kernel=replace(whole.kernel, norm=norm))


_WIDTHS = {"bf16", "f16", "f32"}


def _before(op: ir.Operation, source: ir.Value) -> set[ir.Operation]:
    """Returns a product, and what extends the rows that it reads."""
    made = graph.producer(op.operands[0])
    return {op} if made is None or op.operands[0] == source else {op, made}


def _together(found: Sequence[Product], cus: int) -> list[list[Product]]:
    """Returns products that one dispatch computes, in order: queries, keys and values."""
    groups: list[list[Product]] = []
    for each in found:
        of = next((group for group in groups if linears.join(group[0], each) and _is_better(group, each, cus)), None)
        if of is None:
            groups.append([each])
        else:
            of.append(each)
    return groups


def _is_better(group: Sequence[Product], more: Product, cus: int) -> bool:
    """Returns whether a product takes less time as a part of others.

    Of several rows results are slices, whose rows another dispatch may have to put together.
    """
    fewest = min(each.kernel.columns for each in (*group, more)) // COLUMNS
    is_worth = more.kernel.rows == 1 or fewest * _LATE <= cus
    return is_worth and all(_is_early(value, group[0].last) for value in more.operands[1:])


def _is_early(value: ir.Value, op: ir.Operation) -> bool:
    """Returns whether a tensor is known before an operation, or may be loaded there."""
    made = graph.producer(value)
    return made is None or not made.operands or (made.block == op.block and made.is_before_in_block(op))


def _replace(together: Sequence[Product], whole: Product) -> None:
    last, kernel, source = together[0].last, whole.kernel, graph.look_through_views(together[0].operands[0])
    for value in whole.operands:
        made = graph.producer(value)
        if made is not None and not made.operands and made.block == last.block and last.is_before_in_block(made):
            made.move_before(last)
    with ir.InsertionPoint(last), _named(together):
        x, *others = whole.operands
        residual = [_matrix(others.pop())] if kernel.residual else []
        count = len(kernel.norm.vectors) if kernel.norm else 0
        vectors = [build.flat(value) for value in others[:count]]
        operands = [_matrix(x), *vectors, *others[count:], *residual]
        tiles, *kept = standing.dispatch(kernel, operands)
    with ir.InsertionPoint(last), last.location:
        flat = build.flat(tiles) if kernel.rows == 1 else build.collapse(tiles, [[0], [1, 2]])
        ends = list(accumulate(kernel.matrices))
        parts = [_part(flat, end - columns, columns) for columns, end in zip(kernel.matrices, ends, strict=True)]
        made = [_shaped(part, each.last.results[0].type) for part, each in zip(parts, together, strict=True)]
        rows_kept = (_part(build.flat(value), 0, kernel.depth) for value in kept)
        row = [_shaped(value, source.type) for value in rows_kept]
    for value in row:
        source.replace_all_uses_with(value)
        _move_reshapes(value)
    for each, value in zip(together, made, strict=True):
        each.last.results[0].replace_all_uses_with(value)
        graph.erase_unused([each.last.results[0]])
    if kernel.norm and not any(True for _ in source.uses):
        source.owner.operation.erase()


def _move_reshapes(value: ir.Value) -> None:
    """Moves reshapes of a tensor behind it: they stood in front."""
    for use in value.uses:
        user = use.owner.operation
        if user.name in graph.RESHAPES:
            user.move_after(value.owner.operation)
            _move_reshapes(user.results[0])


def _named(together: Sequence[Product]) -> ir.Location:
    if len(together) == 1:
        return standing.named(together[0].op, "linear", "linear")
    where = ir.Location.fused([each.op.location for each in together])
    return ir.Location.name("mxcomp.linear.linear", childLoc=where)


def _matrix(value: ir.Value) -> ir.Value:
    """Returns rows as a matrix."""
    rank = len(build.static_sizes(value))
    if rank < _RANK:
        return build.expand(value, [1, *build.static_sizes(value)])
    return value if rank == _RANK else build.collapse(value, [list(range(rank - 1)), [rank - 1]])


_RANK = 2


def _part(value: ir.Value, start: int, columns: int) -> ir.Value:
    """Returns some columns of a result."""
    *rows, _ = [size or 0 for size in build.static_sizes(value)]
    return build.part(value, [*(0 for _ in rows), start], [*rows, columns])


def _shaped(value: ir.Value, kind: ir.RankedTensorType) -> ir.Value:
    """Returns a result with the dimensions of what it replaces."""
    rank, flat = kind.rank, len(build.static_sizes(value))
    groups = [list(range(rank))] if flat == 1 else [list(range(rank - 1)), [rank - 1]]
    return value if rank == flat else build.expand(value, list(kind.shape), groups)
