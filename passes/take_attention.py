"""mxcomp-take-attention: computes attention by kernels of ours.

Before:

    %k4 = linalg.generic … ins(%k : tensor<1x8x1024x128xbf16>) … -> tensor<1x8x4x1024x128xbf16>   (a broadcast)
    %k3 = tensor.collapse_shape %k4 … into tensor<32x1024x128xbf16>                               (and so for values)
    %r = iree_linalg_ext.attention … ins(%q, %k3, %v3, %scale : tensor<32x1x128xbf16>, …) … -> tensor<32x1x128xbf16>

After:

    %parts, %numbers = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "…", iree_codegen.ukernel = #iree_codegen.ukernel_descriptor<"mx_attention_…">}
          ins(%q, %k, %v : …, tensor<8x1024x128xbf16>, …) outs(…) -> tensor<256x4x128xf32>, tensor<256x4x2xf32>
    }
    %r = flow.dispatch.region {
      linalg.generic {… "mx_attention_combine_…"} ins(%parts, %numbers) outs(…) -> tensor<32x128xbf16>
    }

So is attention that is spelled out as two products and a softmax (`mxcomp.matching.softmax`).

Of many queries there is one dispatch, whose tiles are the result. A mask that says where the keys of a query start and
end (causal, a window, lengths of sequences) is known by how it is computed, also from positions that the program knows,
and is not computed then: keys that no query of a workgroup sees are not read.

The generics only stand for the kernels, each of whose workgroups finds its operands by its number. Keys and values are
read where they are stored: broadcasts to heads, transposes, views and slices of rows in front of them go, and, of few
queries, concatenations of two parts of each key, such as one that all heads share. What is not covered
(`mxcomp.matching.attention`) stays as it is, and the report has the reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import arith, cf

from mxcomp.matching import attention, attention_masks, offers, positions
from mxcomp.matching.attention import Attention, Few
from mxcomp.matching.decision import VERSIONS
from mxcomp.matching.positions import Guard
from mxcomp.mlir import attributes, build, graph, notes
from mxcomp.mlir import scalars as s
from mxcomp.mlir.assumptions import Range, assume
from mxcomp.mlir.attributes import DECODE
from mxcomp.options import Options
from mxcomp.packing import standing
from mxcomp.ukernels.attention_combine import Combine
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_memory import Stored
from mxcomp.ukernels.attention_prefill import Prefill
from mxcomp.ukernels.builder import MOST_BYTES

_NAMES = {"n": "batches", "t": "queries", "l": "keys"}
"""The axes that may be dynamic."""

OPTIONS = ("ukernels", "versions", "reference")


def run(module: ir.Operation, options: Options) -> None:
    """Replaces every attention below `module` that is covered."""
    entries = []
    for op in [op for op in graph.walk(module, bodies=False) if op.name in attention.NAMES]:
        found = attention.find(op, options.target)
        if found is None:
            continue
        axes, planned = found[0], _taken(found[1], options)
        entries.append(_entry(op, axes, planned))
        if isinstance(planned, Attention):
            _replace(planned)
    if entries:
        for op in [op for op in graph.walk(module, bodies=False) if op.name == "linalg.generic"]:
            _fold_largest(op)
    notes.attend(module, entries)


def _fold_largest(op: ir.Operation) -> None:
    """Folds the check whether a query sees any key (`mxcomp.torch`), where the mask is known."""
    number = positions.largest(op)
    if number is None or any(True for result in list(op.results)[1:] for _ in result.uses):
        return
    kind = ir.RankedTensorType(op.results[0].type)
    with op.location, ir.InsertionPoint(op):
        splat = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, number))
        value = arith.ConstantOp(kind, splat).result
    op.results[0].replace_all_uses_with(value)
    graph.erase_unused([op.results[0]])
    _fold_choices(value)


def _fold_choices(known: ir.Value) -> None:
    """Folds selections by what is known of a constant, such as whether it is positive.

    IREE would do so later; here it would be one more operand of what is computed of attention's result.
    """
    values = [known]
    for op in graph.users_in_order(values):
        if (chosen := positions.chosen(op)) is not None:
            op.results[0].replace_all_uses_with(chosen)
            graph.erase_dead(op)
        elif len(op.results) == 1 and (op.name == "tensor.expand_shape" or str(build.element(op.results[0])) == "i1"):
            values.append(op.results[0])


def _taken(found: Attention | str, options: Options) -> Attention | str:
    if not options.has_kernels:
        return "without ukernels"
    if isinstance(found, str):
        return found
    if found.few is not None and not options.versions:
        found = replace(found, kernel=found.few.kernel, few=None)
    kernel, target = found.kernel, options.target
    formats = (each.format for each in (kernel.key, kernel.value) if each.format)
    lacking = next(filter(None, (target.lacks_conversion(each, kernel.query.element) for each in formats)), "")
    room = max(each.lds_bytes for each in (kernel, *([found.few.kernel] if found.few else [])))
    return target.lacks_short_products(kernel.query.element) or lacking or target.lacks_lds(room) or found


def _entry(op: ir.Operation, axes: Mapping[str, int | None], found: Attention | str) -> dict[str, Any]:
    """Returns the entry for the report."""
    names = {**_NAMES, "n": "heads", "d": "size", "v": "value_size"}
    sizes = {name: axes[axis] for axis, name in names.items() if axes.get(axis) is not None}
    became = {"reason": found} if isinstance(found, str) else {"ukernel": found.kernel.name, "note": found.note}
    return notes.outcome(op.location, {**sizes, **became})


def _replace(found: Attention) -> None:
    op, kernel = graph.producer(found.result), found.kernel
    assert op is not None
    if found.guard is not None:
        _unguard(found.guard)
    with ir.InsertionPoint(op), op.location:
        values = list(found.operands)
        if kernel.mask is not None:
            mask = next(i for i, each in enumerate(kernel.operands) if each is kernel.mask)
            values[mask] = _added(values[mask], found.hides_finitely)
        operands, sizes = _guarded([_squeezed(value) for value in values], kernel)
        kind = ir.RankedTensorType(found.result.type)
        if isinstance(kernel, Decode):
            result = _decoded(op, kind, kernel, operands)
        else:
            result = _prefilled(op, kind, kernel, operands, sizes, found.few)
    sources = list(op.operands)
    found.result.replace_all_uses_with(result)
    op.erase()
    graph.erase_unused(sources)


def _unguard(guard: Guard) -> None:
    """Removes the operations that zero results that the kernel makes 0."""
    others = list(guard.op.operands)
    graph.replace(guard.op, guard.op.operands[guard.operand])
    graph.erase_unused([each for i, each in enumerate(others) if i != guard.operand])


def _decoded(op: ir.Operation, result: ir.RankedTensorType, kernel: Decode, operands: list[ir.Value]) -> ir.Value:
    """Builds a dispatch, and where its results are parts one that combines them."""
    with standing.named(op, "attention", "attention"):
        parts = standing.dispatch(kernel, operands)
    if kernel.may_rotate:
        entries = {"kernel": asdict(kernel), "functions": ""}
        standing.placeholder(parts[0]).attributes[DECODE] = attributes.from_python(entries)
    _may_pack(parts[0], kernel)
    if kernel.result:
        return build.reshaped(parts[0], result.shape)
    combine = Combine(
        kernel.heads * kernel.queries, kernel.rows, kernel.stored, kernel.value_size, kernel.splits,
        str(result.element_type),
    )  # fmt: skip
    with standing.named(op, "attention", "combine"):
        (rows,) = standing.dispatch(combine, parts)
    return build.expand(rows, result.shape, [[0, 1], [2]])


def _may_pack(result: ir.Value, kernel: Decode | Prefill) -> None:
    """Offers a kernel that also quantises and packs its result to what reads it, if there is one."""
    if kernel.may_pack:
        offers.offer(standing.placeholder(result), replace(kernel, packed=True))


def _prefilled(
    op: ir.Operation, result: ir.RankedTensorType, kernel: Prefill, operands: list[ir.Value],
    of_axes: Mapping[str, ir.Value], few: Few | None,
) -> ir.Value:  # fmt: skip
    """Builds one dispatch, by the sizes of axes.

    Of dynamic ones there is another version for few queries.
    """
    sizes = [_size(of_axes[axis], kernel.query, axis) for axis in kernel.dynamic]
    unread = build.tensor_type([None], "i8")
    operands = [*operands, *(build.barrier(build.empty(unread, [of_axes[axis]])) for axis in kernel.counted)]
    tiles = _dispatch(op, kernel, operands, sizes)
    if few is not None:
        known = math.prod(size or 1 for size in (kernel.heads, kernel.queries))
        count = build.times(build.product(sizes), known)
        of_few = _dispatch(op, few.kernel, operands, sizes)
        tiles = build.for_at_most([(few.below - 1, of_few), (None, tiles)], count, VERSIONS)
    rows = build.collapse(tiles, [[0], [1], [2, 3, 4]])
    return rows if rows.type == result else build.expand(rows, result.shape, [[0, 1], [2]], sizes)


def _dispatch(op: ir.Operation, kernel: Prefill, operands: list[ir.Value], sizes: Sequence[ir.Value]) -> ir.Value:
    with standing.named(op, "attention", "attention"):
        (tiles,) = standing.dispatch(kernel, operands, sizes=sizes)
    _may_pack(tiles, kernel)
    return tiles


def _size(dynamic: ir.Value, stored: Stored, axis: str) -> ir.Value:
    """Returns the size of an axis of a stored operand, of which one dimension is dynamic."""
    pairs = zip(stored.sizes, stored.subscripts, strict=True)
    return build.times(dynamic, math.prod(size or 1 for size, each in pairs if each.axis == axis))


def _guarded(operands: list[ir.Value], kernel: Decode | Prefill) -> tuple[list[ir.Value], Mapping[str, ir.Value]]:
    """Returns operands whose dynamic sizes are equal along each axis, asserted to fit into buffers, and these sizes."""
    found, limits = dict[str, list[ir.Value]](), dict[str, int]()
    for i, stored in enumerate([*kernel.operands, *kernel.outputs]):
        dynamic = {each.axis: dim for dim, each in enumerate(stored.subscripts) if stored.sizes[dim] is None}
        for axis, dim in dynamic.items() if i < len(operands) else ():
            found.setdefault(axis, []).append(build.dim(operands[i], dim))
        if dynamic:
            axes = "".join(sorted(dynamic))
            limits[axes] = min(limits.get(axes, stored.most), stored.most)
    sizes = {axis: _compared(axis, values) for axis, values in found.items()}
    for axes, limit in sorted(limits.items(), key=lambda each: len(each[0])):
        name = " times ".join(_NAMES[axis] for axis in axes)
        count = build.product([sizes[axis] for axis in axes])
        bounds = ((arith.CmpIPredicate.uge, 1), (arith.CmpIPredicate.ule, limit))
        low, high = (arith.CmpIOp(which, count, build.constant_index(each)).result for which, each in bounds)
        cf.AssertOp(arith.AndIOp(low, high).result, f"mxcomp: {name} of attention must be between 1 and {limit}")
    most = {axis: min(limit for axes, limit in limits.items() if axis in axes) for axis in sizes}
    known = {axis: assume(size, Range(1, most[axis])) for axis, size in sizes.items()}
    return [_tied(*each, known) for each in zip(operands, kernel.operands, strict=False)], known


def _compared(axis: str, values: Sequence[ir.Value]) -> ir.Value:
    """Returns one of several sizes, asserted to be equal."""
    first, *others = values
    for other in others:
        same = arith.CmpIOp(arith.CmpIPredicate.eq, first, other).result
        cf.AssertOp(same, f"mxcomp: operands of attention must have the same number of {_NAMES[axis]}")
    return first


def _tied(value: ir.Value, stored: Stored, sizes: Mapping[str, ir.Value]) -> ir.Value:
    """Returns an operand that is known to have these sizes along its axes where dynamic, or as many elements."""
    pairs = zip(stored.subscripts, stored.sizes, strict=True)
    dynamic = [sizes[each.axis] for each, size in pairs if size is None]
    if not stored.is_flat:
        return build.tie_shape(value, dynamic) if dynamic else value
    elements = build.times(build.product(dynamic), math.prod(size or 1 for size in stored.sizes))
    flat = build.collapse(value, [list(range(len(stored.sizes)))])
    return build.tie_shape(flat, [assume(elements, Range(1, MOST_BYTES // stored.element_bytes))])


def _added(mask: ir.Value, hides_finitely: bool) -> ir.Value:
    """Returns a mask as numbers that are added to scores. Finitely hiding ones are times log2(e), as are scores."""
    kind = build.element(mask)
    if isinstance(kind, ir.IntegerType):
        numbers = build.tensor_type(build.static_sizes(mask), "f32")
        return build.elementwise(numbers, [mask], lambda seen: s.select(seen, 0.0, -math.inf))
    if not hides_finitely:
        return mask
    return build.elementwise(
        mask.type, [mask], lambda number: arith.MaximumFOp(number, s.constant(attention_masks.LOWEST, kind)).result
    )


def _squeezed(value: ir.Value) -> ir.Value:
    """Returns a tensor as kernels take it: no dimension of size 1 beside others, and narrow elements as bytes."""
    groups = build.ones_apart(build.static_sizes(value))
    kind, sizes = build.element(value), [size for size in build.static_sizes(value) if size != 1]
    if any(len(group) > 1 for group in groups):
        value = build.collapse(value, groups)
    if not groups[0]:
        return build.flat(value)
    if build.is_narrow(kind):
        return build.bitcast(value, build.tensor_type(sizes, ir.IntegerType.get_signless(8)))
    return value
