"""mxcomp-join-rotations: rotary embeddings are one dispatch, with what their tables are computed from.

Before:

    %angles = tensor.concat dim(1) %a, %a : (tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<1x128xf32>
    %cos = linalg.generic … ins(%angles) { math.cos }          (and so the sine)
    %first = tensor.extract_slice %q[0, 0] …                   %second = tensor.extract_slice %q[0, 64] …
    %turned = tensor.concat dim(1) (neg %second), %first : … -> tensor<32x128xbf16>
    %r = linalg.generic … ins(%q, %cos, %turned, %sin) { arith.mulf, arith.mulf, arith.addf } -> tensor<32x128xbf16>
                                                               (and so for keys, tensor<8x128xbf16>)

After:

    %both = flow.dispatch.region {
      linalg.generic outs(%empty : tensor<40x128xbf16>) {
        … tensor.extract %q[…], tensor.extract %q[…], math.cos, … arith.select …
      }
    }
    %r = tensor.extract_slice %both[0, 0] [32, 128] [1, 1] : tensor<40x128xbf16> to tensor<32x128xbf16>

IREE has a dispatch for each concatenation, each table, and each rotation. Rotations of as few elements as a call for
one more token has are one, and their tables are computed for each element. Of more, and of a dynamic number, tables are
stored as the model rounds them, by one dispatch for all layers, and rotations that stand together are one kernel
(`mxcomp.ukernels.elementwise`), which also transposes other parts of what they are computed from, such as values.
Where mxcomp-write-rows has a dispatch that writes some of them to caches, and nothing else reads these, it stores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise

from iree.compiler import ir
from iree.compiler.dialects import tensor

from mxcomp.layout.inner_tiles import LANES
from mxcomp.matching import updates
from mxcomp.matching.sizes import Sizes
from mxcomp.mlir import attributes, build, composing, graph, linalg
from mxcomp.mlir.attributes import ROWS
from mxcomp.mlir.build import is_narrow
from mxcomp.options import Options
from mxcomp.packing import elementwise, standing
from mxcomp.ukernels.rows import Rows

OPTIONS = ("reference",)

_VIEWS = (*graph.RESHAPES, "tensor.extract_slice")
FORMS = (*graph.RESHAPES, "util.optimization_barrier", "flow.tensor.tie_shape")
"""Operations that only give rows another form, or hold them."""
_CONCAT = "tensor.concat"
_FEW = 2**16
"""Elements for each of which a sine and a cosine may be computed; so many take less time than a launch."""
_MOST_FOLLOWED = 80
_THREADS = 256
_COSTLY = ("math.cos", "math.sin", "math.exp", "math.powf", "math.fpowi", "math.pow", "math.tan", "math.log")


def run(module: ir.Operation, options: Options) -> None:
    """Joins rotations below `module`, those that stand together into one."""
    if options.reference:
        return
    for group in list(_together(_roots(module), _stand_together)):
        if _are_few(group) or not _fuse(group):
            for together in list(_together(group, _joins)):
                _join(together)
    for op in graph.walk(module, bodies=False):
        if ROWS in op.attributes:
            del op.attributes[ROWS]


def pairs(module: ir.Operation) -> list[tuple[ir.Operation, ir.Operation]]:
    """Returns the last operations of rotations below a module that follow one another, if both are of few elements."""
    return [pair for pair in pairwise(_roots(module)) if _are_few(pair)]


def _roots(module: ir.Operation) -> list[ir.Operation]:
    """Returns the last operations of rotations."""
    concats = [op for op in graph.walk(module, bodies=False) if op.name == _CONCAT and _halves(op)]
    roots = dict.fromkeys(root for op in concats if (root := _root(op)) is not None)
    return [root for root in roots if len(composing.followed(root.results[0])) <= _MOST_FOLLOWED]


def _halves(op: ir.Operation) -> bool:
    """Returns whether a concatenation outside of dispatches is of two halves of rows of floats, of a known size."""
    sizes, kind = build.static_sizes(op.results[0]), build.element(op.results[0])
    is_last = ir.IntegerAttr(op.attributes["dim"]).value == len(sizes) - 1
    is_known = None not in sizes[-1:] and sizes.count(None) <= 1
    is_wide = isinstance(kind, ir.FloatType) and not is_narrow(kind)
    alike = len({tuple(build.static_sizes(each)) for each in op.operands}) == 1
    return is_last and is_known and is_wide and alike and len(op.operands) == 2 and not graph.is_in_dispatch(op)


def _root(concat: ir.Operation) -> ir.Operation | None:
    """Returns the last of the calculations on halves whose other results nobody else reads, if they are of slices."""
    if not any(op.name == "tensor.extract_slice" for op in composing.followed(concat.results[0])):
        return None
    sizes = build.static_sizes(concat.results[0])

    def fits(op: ir.Operation) -> bool:
        is_wide = composing.is_calculation(op) and not is_narrow(build.element(op.results[0]))
        return is_wide and build.static_sizes(op.results[0]) == sizes

    *_, last = concat, *graph.chain_behind(concat, fits)
    return _with_rest(last)


def _with_rest(rotated: ir.Operation) -> ir.Operation:
    """Returns the concatenation of rotated elements of rows and of others that are as they were, if that is all."""
    user = graph.only_user(rotated)
    if user is None or user.name != _CONCAT or graph.is_in_dispatch(user):
        return rotated
    others = [graph.producer(each) for each in user.operands if each != rotated.results[0]]
    is_last = ir.IntegerAttr(user.attributes["dim"]).value == len(build.static_sizes(user.results[0])) - 1
    is_rest = is_last and len(others) == 1 and others[0] is not None and others[0].name == "tensor.extract_slice"
    return user if is_rest and build.static_sizes(user.results[0]).count(None) < 2 else rotated


def _together(
    roots: Sequence[ir.Operation], joins: Callable[[list[ir.Operation], ir.Operation], bool]
) -> Iterator[list[ir.Operation]]:
    """Yields neighbours, as long as the next one joins those before."""
    group: list[ir.Operation] = []
    for root in roots:
        if group and not joins(group, root):
            yield group
            group = []
        group.append(root)
    if group:
        yield group


def _joins(group: list[ir.Operation], root: ir.Operation) -> bool:
    return _are_few([*group, root]) and _stand_together(group, root)


def _are_few(roots: Sequence[ir.Operation]) -> bool:
    return sum(map(_elements, roots)) <= 2 * _FEW


def _stand_together(group: list[ir.Operation], root: ir.Operation) -> bool:
    """Returns whether all can be computed where the last of them stands, and are of one type."""
    kinds = {(build.element(op.results[0]), build.static_sizes(op.results[0])[-1]) for op in (*group, root)}
    if len(kinds) != 1 or root.block != group[0].block:
        return False
    users = [use.owner.operation for op in group for use in op.results[0].uses]
    return all(op.block == root.block and not op.is_before_in_block(root) and op != root for op in users)


def rows_of(op: ir.Operation) -> Rows:
    """Returns the kernel that writes rows, of its placeholder."""
    return Rows(**attributes.to_python(op.attributes[ROWS]))


def new_rows(op: ir.Operation) -> list[ir.Value]:
    """Returns the new rows of each cache that a placeholder writes, without what only gives them another form."""
    return [graph.look_through(value, FORMS) for value in list(op.operands)[: rows_of(op).caches]]


def region_of(op: ir.Operation) -> ir.Operation:
    """Returns the dispatch of a placeholder."""
    assert op.parent is not None
    return op.parent.operation


def _elements(op: ir.Operation) -> int:
    """Returns the number of elements; of a dynamic one, more than are few."""
    return math.prod(size or 2 * _FEW + 1 for size in build.static_sizes(op.results[0]))


def _fuse(roots: list[ir.Operation]) -> bool:
    """Computes rotations of many elements by one kernel, with transposes of what they are computed from; or nothing."""
    results, last = [root.results[0] for root in roots], roots[-1]
    if not elementwise.fits(results):
        return False
    for op in _transposes(results):
        behind = [graph.in_block(use.owner.operation, last.block) for use in op.results[0].uses]
        if all(map(last.is_before_in_block, behind)) and elementwise.fits([*results, op.results[0]]):
            results.append(op.results[0])
    _store_tables(results)
    _free_sizes(results)
    writer = _writer(results)
    unused = [*results, *([] if writer is None else writer.operands)]
    with standing.named(last, "rotation", "rotation"), ir.InsertionPoint(last if writer is None else region_of(writer)):
        made = elementwise.fused(results) if writer is None else _written(writer, results)
    for result, value in zip(results[-len(made) :], made, strict=True):
        result.replace_all_uses_with(value)
    graph.erase_unused(unused)
    return True


def _free_sizes(results: Sequence[ir.Value]) -> None:
    """Asks what results are computed from for their dynamic sizes, so that results may be computed later."""
    sizes = Sizes()
    for op in [op for value in results for op in graph.readers(value, graph.RESHAPES) if op.name == "tensor.dim"]:
        with ir.InsertionPoint(op), op.location:
            graph.replace(op, sizes.of_index(op.results[0]).build())


def _writer(results: Sequence[ir.Value]) -> ir.Operation | None:
    """Returns what alone reads some results, as new rows of caches, if the others are not read before it."""
    users = {value: list(graph.readers(value, FORMS)) for value in results}
    writer = next((op for of in users.values() for op in of if ROWS in op.attributes), None)
    if writer is None:
        return None
    rows, region = rows_of(writer), region_of(writer)
    new, others = new_rows(writer), [value for value in results if users[value] != [writer]]
    behind = (graph.in_block(user, region.block) for value in others for user in users[value])
    is_alone = set(new) == set(results) - {*others} and len(new) == len(set(new)) and bool(others)
    is_alike = not rows.format and rows.element == str(build.element(results[0]))
    is_whole = rows.size % (build.static_sizes(results[0])[-1] or 1) == 0
    is_behind = region.block == results[0].owner.operation.block and all(map(region.is_before_in_block, behind))
    return writer if is_alone and is_alike and is_whole and is_behind else None


def _written(writer: ir.Operation, results: list[ir.Value]) -> list[ir.Value]:
    """Computes results, some of which are written to caches, and returns the others; orders them so."""
    rows, region = rows_of(writer), region_of(writer)
    new, (table, *caches) = new_rows(writer), list(writer.operands)[rows.caches :]
    results[:] = [*new, *(value for value in results if value not in new)]
    written = elementwise.fused(results, rows, caches, [table])
    for before, after in zip(region.results, written, strict=False):
        before.replace_all_uses_with(after)
    graph.erase_dead(region)
    return written[len(new) :]


def _transposes(results: Sequence[ir.Value]) -> list[ir.Operation]:
    """Returns transposes of parts of tensors that rotations are computed from, which these do not need themselves."""
    block, inside = results[0].owner.operation.block, {op for value in results for op in composing.followed(value)}
    moved = dict.fromkeys(
        op for leaf in composing.leaves(results) for op in graph.readers(leaf, _VIEWS) if updates.permutation(op)
    )
    return [op for op in moved if op not in inside and op.block == block and any(True for _ in op.results[0].uses)]


def _join(roots: list[ir.Operation]) -> None:
    """Builds one dispatch for rotations of few elements; IREE forms those of many."""
    results, last = [root.results[0] for root in roots], roots[-1]
    with standing.named(last, "rows", "rotation"), ir.InsertionPoint(last):
        made = _together_in_rows(results) if _is_small(roots) else [_alone(result) for result in results]
    for result, value in zip(results, made, strict=True):
        result.replace_all_uses_with(value)
    graph.erase_unused(results)


def _is_small(roots: list[ir.Operation]) -> bool:
    return all(_elements(op) <= _FEW for op in roots)


def _alone(result: ir.Value) -> ir.Value:
    """Replaces a rotation of many elements by one operation."""
    _store_tables([result])
    return _generated(result)


def _store_tables(results: Sequence[ir.Value]) -> None:
    """Replaces tables, from which rotations are computed, by stored ones: those that are alike by one operation."""
    followed = (op for result in results for op in composing.followed(result))
    tables = list(dict.fromkeys(_rounded(op) for op in followed if _is_costly(op)))
    for together in [tables] if _are_alike(tables) else [[op] for op in tables]:
        values, last = [op.results[0] for op in together], graph.in_order(together)[-1]
        with last.location, ir.InsertionPoint(last):
            stored = _tables(values) if len(values) > 1 else [_generated(value) for value in values]
        for value, made in zip(values, stored, strict=True):
            value.replace_all_uses_with(made)
        graph.erase_unused(values)


def _rounded(table: ir.Operation) -> ir.Operation:
    """Returns the last operation behind a table that alone reads it, and makes no larger elements of its own."""
    user, before = graph.only_user(table), table.results[0]
    if user is None or not composing.is_calculation(user) or list(user.operands)[:-1] != [before]:
        return table
    kind, width = build.element(user.results[0]), build.element(before).width
    is_stored = isinstance(kind, ir.FloatType) and not is_narrow(kind) and kind.width <= width
    is_like = build.static_sizes(user.results[0]) == build.static_sizes(before)
    return _rounded(user) if is_stored and is_like else table


def _are_alike(tables: list[ir.Operation]) -> bool:
    """Returns whether tables of one shape can be computed where the last of them stands."""
    sizes, ranks = Sizes(), {len(build.static_sizes(op.results[0])) for op in tables}
    if len(ranks) != 1 or len({(op.block, *map(partial(sizes.of, op.results[0]), range(*ranks))) for op in tables}) > 1:
        return False
    last = graph.in_order(tables)[-1]
    behind = (graph.in_block(use.owner.operation, last.block) for op in tables for use in op.results[0].uses)
    return all(map(last.is_before_in_block, behind))


def _tables(values: list[ir.Value]) -> list[ir.Value]:
    """Computes elements of tables in one dispatch."""
    kinds = [ir.RankedTensorType(value.type) for value in values]
    rank, elements = kinds[0].rank, composing.Elements()

    def body(*_: ir.Value) -> list[ir.Value]:
        place = [linalg.IndexOp(i).result for i in range(rank)]
        return [elements.at(value, place) for value in values]

    maps = [ir.AffineMap.get_identity(rank)] * len(kinds)
    sizes = _dynamic(values[0])
    with build.dispatch_region(kinds, sizes * len(kinds)) as region:
        empty = [build.empty(kind, sizes) for kind in kinds]
        op = build.generics(kinds, [], empty, maps, ["parallel"] * rank, body)
        region.returned = list(op.results)
    return region.results


def _generated(result: ir.Value) -> ir.Value:
    elements = composing.Elements()
    return build.generate(ir.RankedTensorType(result.type), lambda place: elements.at(result, place), _dynamic(result))


def _dynamic(result: ir.Value) -> list[ir.Value]:
    """Returns the dynamic sizes of a linalg operation's result, as known in front of it."""
    *_, init = result.owner.operation.operands
    return build.dynamic_sizes(init)


def _together_in_rows(results: list[ir.Value]) -> list[ir.Value]:
    """Computes the rows of all rotations in one tensor, an element in each lane, and slices the results out of it."""
    *_, size = build.static_sizes(results[0])
    rows = [_elements(result.owner.operation) // (size or 1) for result in results]
    kind, made = build.tensor_type([sum(rows), size], build.element(results[0])), []
    joined = tensor.ConcatOp(kind, 0, list(map(_matrix, results))).result
    with build.dispatch_region([kind], []) as region:
        elements = composing.Elements()
        value = build.generate(kind, lambda place: elements.at(joined, place))
        _configure(value.owner.operation, sum(rows), size or 1)
        region.returned = [value]
    graph.erase_unused([joined])
    for result, count, end in zip(results, rows, accumulate(rows), strict=True):
        piece = build.part(region.results[0], [end - count, 0], [count, size or 1])
        sizes = build.static_sizes(result)
        *outer, last = range(len(sizes))
        made.append(build.expand(piece, sizes, [outer, [last]]))
    return made


def _matrix(value: ir.Value) -> ir.Value:
    """Returns a tensor with all its dimensions but the last one put together."""
    *outer, last = range(ir.RankedTensorType(value.type).rank)
    return build.collapse(value, [outer, [last]]) if len(outer) > 1 else value


def _configure(op: ir.Operation, rows: int, size: int) -> None:
    """Says that a lane computes one element, where as many rows are as many lanes of whole waves; else IREE says."""
    counts = [count for count in range(1, rows + 1) if rows % count == 0 and count * size <= _THREADS]
    if fitting := [count for count in counts if count * size % LANES == 0]:
        count = fitting[-1]
        op.attributes["compilation_info"] = attributes.tiled(
            workgroup=[count, size], thread=[1, 1], reduction=[], threads=count * size, lanes=LANES
        )


def _is_costly(op: ir.Operation) -> bool:
    return op.name.startswith("linalg.") and any(inner.name in _COSTLY for inner in graph.walk(op))
