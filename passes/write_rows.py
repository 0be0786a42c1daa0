"""mxcomp-write-rows: writes new rows over those of a cache, without touching its other rows.

Before, as PyTorch's index_copy is imported, and as its where is:

    %u = iree_linalg_ext.scatter dimension_map = [0, 1, 2, 3] ins(%rows, %subscripts : tensor<1024xbf16>,
        tensor<1024x4xi64>) outs(%cache : tensor<1x8x1024x128xbf16>) { … }
    %u = linalg.generic … ins(%is_new, %gathered, %cache : …, tensor<1x8x1024x128xbf16>) { arith.select … }

After:

    %u = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_write_rows_…">}
          ins(%rows, %position : tensor<1024xbf16>, tensor<2xi32>) outs(%cache : tensor<8x1024x128xbf16>)
    }

IREE writes it where the cache lies if nothing reads that later, also where it is an argument, and the result a result.
Of a choice by `where`, which makes a new tensor, this becomes of a cache that is the program's to change alone: it is
an argument, or a global, and becomes a result, or what is stored there. A row whose place is beyond the cache is not
written. Caches that are written at the same places share a dispatch.

Of rows that are quantised in front, as `mxcomp.torch.quantise` does it, elements and scales are two caches; the kernel
is given rows as they were before, and quantises them. What reads one of these caches is moved behind the last write.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TypeAlias

from iree.compiler import ir

from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.matching import activations, updates
from mxcomp.matching.storage import BITCASTS
from mxcomp.matching.updates import SCATTER, Update
from mxcomp.mlir import attributes, build, graph
from mxcomp.mlir.attributes import ROWS
from mxcomp.mlir.variables import LOAD, STORE, SYMBOL
from mxcomp.options import Options
from mxcomp.packing import block_quantiser, elementwise, standing
from mxcomp.target import Target
from mxcomp.ukernels.builder import MOST_BYTES
from mxcomp.ukernels.rows import Rows

OPTIONS = ("ukernels", "reference")

_Found: TypeAlias = tuple[tuple[Update, ...], Rows]
"""An update, or that of elements and that of scales, and the kernel that does them alone with the rows of the first."""

_IMPORT = "hal.tensor.import"
_RETURNS = ("hal.tensor.barrier", "hal.tensor.export", "hal.tensor.alias", "util.return", "func.return")
_SAME_BYTES = (*graph.VIEWS, *BITCASTS)
_CALLS = ("util.call", "func.call")
_FOR_EACH_CU = 2
"""The number of workgroups for each CU that many rows are shared out among: while some wait, others store."""


def run(module: ir.Operation, options: Options) -> None:
    """Replaces updates of caches below `module`."""
    if not options.has_kernels:
        return
    ops = [op for op in graph.walk(module, bodies=False) if _found(op) is not None]
    for same in _together(ops, options.target):
        _replace(same, options.target)


def _found(op: ir.Operation) -> _Found | None:
    """Returns an update that the kernel supports, and that is not slower than IREE's."""
    if graph.is_in_dispatch(op):
        return None
    update = updates.find(op)
    kernel = None if update is None else _kernel(update)
    if update is None or kernel is None:
        return None
    return ((update,), kernel) if op.name == SCATTER or _is_state(update) else None


def _quantised(elements: _Found, scales: _Found, target: Target) -> _Found | None:
    """Returns updates of elements and of scales as one that quantises rows, which nothing may ask for in between."""
    ((one,), kernel), ((other,), of_scales) = elements, scales
    codes, powers = _before_bytes(one), _before_bytes(other)
    if codes is None or powers is None or not _may_wait(one, other):
        return None
    found = activations.of_rows(codes, powers)
    if found is None:
        return None
    kind, source = found.type, str(found.type)
    with one.op.location:
        functions = block_quantiser.texts([found])
    whole = replace(
        kernel, size=of_scales.size * BLOCK, element=source, bits=kind.width, format=str(build.element(codes)),
        functions=functions,
    )  # fmt: skip
    is_alike = [size for size, _ in whole.stored] == [kernel.size, of_scales.size]
    is_alike = is_alike and replace(kernel, size=of_scales.size) == of_scales
    if not is_alike or target.lacks_conversion(source, whole.format):
        return None
    return (replace(one, rows=found.source, rows_order=()), other), whole


def _before_bytes(update: Update) -> ir.Value | None:
    """Returns new rows as what their bytes are bits of, if these are in the order of the cache."""
    op = graph.producer(_in_memory(update.rows))
    is_bytes = op is not None and op.name in BITCASTS and str(build.element(update.rows)) == "i8"
    in_order = list(update.rows_order) == sorted(update.rows_order)
    return op.operands[0] if op is not None and is_bytes and in_order else None


def _in_memory(value: ir.Value) -> ir.Value:
    """Follows a value through reshapes, and transposes that move dimensions of size 1 only."""
    return graph.look_through(value, lambda op: op.name in graph.RESHAPES or updates.moves_nothing(op))


def _kernel(update: Update) -> Rows | None:
    """Returns the kernel of an update; None for sizes that it is not for."""
    kind, places = ir.RankedTensorType(update.cache.type), update.places
    element, table = kind.element_type, ir.RankedTensorType(places.table.type)
    if not isinstance(element, ir.FloatType | ir.IntegerType) or element.width not in (8, 16, 32):
        return None
    shape = list(kind.shape)
    groups, length, size = math.prod(shape[: update.axis]), shape[update.axis], math.prod(shape[update.axis + 1 :])
    # What scatters single elements, as sorting does, IREE fuses with what makes them.
    if size < 2 or math.prod(shape) * element.width // 8 > MOST_BYTES:
        return None
    integers = math.prod(table.shape) if table.has_static_shape else 0
    return Rows(
        groups, length, update.count.number or 0, size, str(element), element.width, integers,
        ir.IntegerType(table.element_type).width, groups // places.sequences, places.by_row, places.step, places.number,
    )  # fmt: skip


def _shared_out(kernel: Rows, target: Target) -> Rows:
    """Returns the kernel with about as many workgroups as are fast, each of which has as many rows.

    Of a dynamic number of rows it has one for each.
    """
    if not kernel.rows:
        return kernel
    rows = kernel.groups * kernel.rows
    fast = min(_FOR_EACH_CU * target.cus, rows)
    counts = (count for count in range(1, rows + 1) if rows % count == 0)
    return replace(kernel, workgroups=min(counts, key=lambda count: abs(math.log2(count / fast))))


def _is_state(update: Update) -> bool:
    """Returns whether a cache may be overwritten: nothing else reads it, and the new value replaces it."""
    cache, users = graph.look_through(update.cache, _SAME_BYTES), list(graph.readers(update.op.results[0], _SAME_BYTES))
    op = graph.producer(cache)
    if any(each != update.op and each.name != "tensor.dim" for each in graph.readers(cache, _SAME_BYTES)):
        return False
    if op is None or op.name == _IMPORT:
        return any(each.name in _RETURNS for each in users)
    stores = (each.attributes[SYMBOL] for each in users if each.name == STORE)
    return op.name == LOAD and op.attributes[SYMBOL] in stores


def _together(ops: Sequence[ir.Operation], target: Target) -> Iterator[list[_Found]]:
    """Yields updates grouped by dispatch: neighbours that write rows at the same positions, two at a time.

    Each is found again when its turn comes, as what it reads may be the result of one that was replaced.
    """
    rest = list(ops)
    while rest:
        one = _next(rest, target)
        if one is None:
            continue
        behind = list(rest)
        other = _next(behind, target) if rest else None
        if other is not None and one[1] == other[1] and all(_may_wait(each, other[0][-1]) for each in one[0]):
            rest = behind
            yield [one, other]
        else:
            yield [one]


def _next(rest: list[ir.Operation], target: Target) -> _Found | None:
    """Removes the first update, or those of elements and of scales, and returns it."""
    one, other = _found(rest.pop(0)), _found(rest[0]) if rest else None
    if one is not None and other is not None and (both := _quantised(one, other, target)) is not None:
        rest.pop(0)
        return both
    return one


def _may_wait(update: Update, other: Update) -> bool:
    """Returns whether an update may be delayed to a later one at the same positions, and what is made of it as well."""
    block = other.op.block
    is_alike = update.places == other.places and update.count == other.count
    if not is_alike or update.op.block != block or update.cache == other.cache:
        return False
    if len(block.region.blocks) > 1:
        return False
    early = _early([update], other.op)
    made = [update.op.results[0], *(result for op in early for result in op.results)]
    is_read = any(graph.in_block(use.owner.operation, block) == other.op for value in made for use in value.uses)
    return not is_read and all(op.name.startswith(graph.PURE) or _may_sink(op, other.op) for op in early)


def _early(waiting: Sequence[Update], op: ir.Operation) -> list[ir.Operation]:
    """Returns the operations before another one that are computed from new caches, in order."""
    values, early = [update.op.results[0] for update in waiting], set[ir.Operation]()
    while values:
        for use in values.pop().uses:
            user = graph.in_block(use.owner.operation, op.block)
            if user not in early and user.is_before_in_block(op):
                early.add(user)
                values += user.results
    return graph.in_order(early)


def _may_sink(store: ir.Operation, op: ir.Operation) -> bool:
    """Returns whether the store of a global may be moved behind a later operation, as nothing in between reads it."""
    if store.name != STORE:
        return False
    between = (view.operation for view in op.block.operations)
    passed = [each for each in between if store.is_before_in_block(each) and each.is_before_in_block(op)]
    asked = (each for each in passed if SYMBOL in each.attributes)
    own = store.attributes[SYMBOL]
    is_plain = not any(each.name in _CALLS or each.name.startswith("scf.") for each in passed)
    return is_plain and all(each.attributes[SYMBOL] != own for each in asked)


def _replace(same: Sequence[_Found], target: Target) -> None:
    """Writes rows of caches at the same places in one dispatch."""
    kernel = _shared_out(replace(same[0][1], caches=len(same)), target)
    written = [update for of, _ in same for update in of]
    last = written[-1].op
    with ir.InsertionPoint(last), last.location:
        pairs = zip(written, kernel.results, strict=True)
        caches = [build.reshaped(update.cache, kind.shape) for update, kind in pairs]
        table = build.flat(written[0].places.table)
        if not kernel.table:
            integers = build.times(written[0].count.build(), kernel.groups // kernel.sharing)
            table = build.tie_shape(table, [elementwise.limited(integers, [table])])
        operands = [*(_rows(of[0], kernel) for of, _ in same), table]
        with standing.named(last, "cache", "rows"):
            made = standing.dispatch(kernel, operands, caches)
        standing.placeholder(made[0]).attributes[ROWS] = attributes.from_python(asdict(kernel))
        for op in reversed(_early(written, last)):
            op.move_after(last)
        for update, value in zip(written, made, strict=True):
            _use(update, value)


def _rows(update: Update, kernel: Rows) -> ir.Value:
    """Returns new rows, contiguous, in the order of a cache, as the kernel takes them."""
    value, order = update.rows, list(update.rows_order)
    sizes = build.static_sizes(value)
    if order != sorted(order):
        whole = [i for i, size in enumerate(sizes) if size == 1] + order
        value = build.transpose(value, whole, [] if kernel.rows else [update.count.build()])
    if kernel.rows:
        return build.reshaped(_in_memory(value), [kernel.workgroups, kernel.own])
    return build.tie_shape(_by_row(value), [elementwise.limited(update.count.build(), [value])])


def _by_row(value: ir.Value) -> ir.Value:
    """Returns new rows of a dynamic number as groups, if there are several, rows, and their elements."""
    sizes = build.static_sizes(value)
    row = sizes.index(None)
    before, after = list(range(row)), list(range(row + 1, len(sizes)))
    parts = [before, [row], after] if math.prod(size or 0 for size in sizes[:row]) > 1 else [[*before, row], after]
    return value if len(parts) == len(sizes) else build.collapse(value, parts)


def _use(update: Update, written: ir.Value) -> None:
    """Replaces an update, and transposes behind it, by a cache."""
    op, kind = update.op, ir.RankedTensorType(update.cache.type)
    value = build.reshaped(written, kind.shape)
    back = tuple(update.order.index(dim) for dim in range(kind.rank))
    is_in_order = back == tuple(range(kind.rank))
    for use in list(op.results[0].uses):
        user = use.owner.operation
        if not is_in_order and updates.permutation(user) == back:
            graph.replace(user, value)
    if any(True for _ in op.results[0].uses):
        if not is_in_order:
            value = build.transpose(value, list(update.order))
        op.results[0].replace_all_uses_with(value)
    sources = list(op.operands)
    op.erase()
    graph.erase_unused(sources)
