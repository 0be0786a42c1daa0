"""mxcomp-join-rows: rotary embeddings of few queries and keys are computed where the keys' rows are written to a cache.

Before (`mxcomp-write-rows` made the dispatch; %r is a rotation of queries, %k one of keys, of one token):

    %r = linalg.generic … -> tensor<32x128xbf16>                   %k = linalg.generic … -> tensor<8x128xbf16>
    %caches:2 = flow.dispatch.region {
      linalg.generic {mxcomp.kernel = "… @mx_write_rows_…", mxcomp.rows = {…}} ins(%k, %v, %position) outs(%old, %other)
    }

After, with operands that all of it is computed from:

    %written:3 = flow.dispatch.region -> (…, …, tensor<8x512xbf16>) {
      linalg.generic {mxcomp.kernel = "… @mx_write_rotated_rows_…"} ins(%qkv, %frequencies, %positions, %position) …
    }
    %r = tensor.expand_shape %written#2 …

Rotations are then no dispatch of their own, nor is cutting values out of a product with queries and keys. Where
attention of these queries to the caches follows, its kernel does all of it (`mxcomp.ukernels.attention_rotated`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import msgspec
from iree.compiler import ir

from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import attributes, build, composing, graph
from mxcomp.mlir.attributes import DECODE, ROWS
from mxcomp.options import Options
from mxcomp.packing import elementwise, standing
from mxcomp.passes.join_rotations import FORMS, new_rows, pairs, region_of, rows_of
from mxcomp.ukernels import builder
from mxcomp.ukernels.attention_decode import Decode
from mxcomp.ukernels.attention_rotated import CACHES, RotatedDecode
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.rotated_rows import Element, RotatedRows
from mxcomp.ukernels.rows import Rows

OPTIONS = ("reference",)

_MOST = 4096
"""The largest number of elements that a workgroup computes: its threads compute a few each."""
_MOST_OF_THREAD = 16
"""The largest number of elements of queries that a thread of attention computes: with a sine and a cosine of each they
take 1.9 µs, and the dispatch that they spare 2.9."""
_OF_CACHES = (*FORMS, *BITCASTS)


def run(module: ir.Operation, options: Options) -> None:
    """Joins writing of rows below `module` with what computes them."""
    if options.reference:
        return
    for op in _with_attribute(module, DECODE):
        graph.erase_dead(region_of(op))  # of a kernel in whose place is one that packs
    written = _with_attribute(module, ROWS)
    joined = set[ir.Operation]()
    for pair in pairs(module):
        op = next((op for op in written if joined.isdisjoint(pair) and _joins(op, pair)), None)
        if op is not None:
            written.remove(op)
            joined.update(pair)
            _join(op, pair)
    for op in _with_attribute(module, DECODE):
        del op.attributes[DECODE]


def _with_attribute(module: ir.Operation, name: str) -> list[ir.Operation]:
    return [op for op in graph.walk(module, bodies=False) if name in op.attributes]


def _made(op: ir.Operation) -> set[ir.Operation]:
    """Returns the operations that compute the new rows."""
    return {made for value in new_rows(op) for made in composing.followed(value)}


def _joins(op: ir.Operation, roots: tuple[ir.Operation, ir.Operation]) -> bool:
    """Returns whether one of two rotations is what is written, and nothing asks for the other one before."""
    rows, new, region, made = rows_of(op), new_rows(op), region_of(op), _made(op)
    keys = [root for root in roots if root in made]
    if len(keys) != 1 or rows.rows != 1 or rows.groups < 2 or any(root.block != region.block for root in roots):
        return False
    other = next(root for root in roots if root not in keys)
    size, rest = divmod(_count(other.results[0]), rows.groups)
    if rest or size < 2 or size + rows.caches * rows.size > _MOST:
        return False
    if any(str(build.element(each)) != rows.element for each in new) or not _is_read_by(region, keys[0], made):
        return False
    if not other.is_before_in_block(region) and _attention(region, other.results[0], rows, size) is None:
        return False
    behind = (graph.in_block(user, region.block) for user in graph.readers(other.results[0], FORMS))
    is_behind = all(map(region.is_before_in_block, behind))
    return is_behind and all(map(elementwise.is_taken, composing.leaves([other.results[0], *new])))


def _is_read_by(region: ir.Operation, op: ir.Operation, between: set[ir.Operation]) -> bool:
    """Returns whether nothing but a region reads an operation, or what these operations make of it."""
    users = set(graph.readers(op.results[0], FORMS))
    others = [user for user in users if region_of(user) != region]
    return all(user in between and _is_read_by(region, user, between) for user in others)


def _count(value: ir.Value) -> int:
    """Returns the number of elements, 0 where that is dynamic."""
    return math.prod(size or 0 for size in build.static_sizes(value))


def _join(op: ir.Operation, roots: tuple[ir.Operation, ir.Operation]) -> None:
    rows, new, region, made = rows_of(op), new_rows(op), region_of(op), _made(op)
    other = next(root for root in roots if root not in made).results[0]
    results = [*new, other]
    leaves = [each for each in composing.leaves(results) if isinstance(each.type, ir.RankedTensorType)]
    numbers = {leaf: number for number, leaf in enumerate(leaves)}
    caches = list(op.operands)[rows.caches + 1 :]
    table = list(op.operands)[rows.caches]
    size = _count(other) // rows.groups
    reader = _attention(region, other, rows, size)
    before = region if reader is None else region_of(reader)
    with ir.InsertionPoint(before), standing.named(region, "cache", "rows"):
        taken = [build.flat(leaf) for leaf in leaves]
        kinds = tuple(ir.RankedTensorType(value.type) for value in taken)
        elements = tuple(_element(value, numbers) for value in results)
        kernel = RotatedRows(
            **vars(rows), other=size, other_element=str(build.element(other)), taken=kinds, elements=elements
        )
        if reader is not None:
            written = _with_attention(reader, kernel, [*taken, table], region)
        else:
            *written, computed = standing.dispatch(kernel, [*taken, table], caches)
            other.replace_all_uses_with(build.reshaped(computed, build.static_sizes(other)))
    for old, new_ in zip(region.results, written, strict=True):
        old.replace_all_uses_with(new_)
    operands = [*op.operands, *([] if reader is None else list(reader.operands)[: 1 + len(caches)])]
    if reader is not None:
        graph.erase_dead(before)
    graph.erase_dead(region)
    graph.erase_unused([*operands, *results])


def _attention(region: ir.Operation, other: ir.Value, rows: Rows, size: int) -> ir.Operation | None:
    """Returns attention that alone reads the other rotation, and the caches before anything else does."""
    users = list(graph.readers(other, FORMS))
    found = users[0] if users and DECODE in users[0].attributes else None
    if found is None or len(users) > 1 or rows.caches != CACHES:
        return None
    kernel, own = _decode(found), region_of(found)
    of_caches = list(found.operands)[1 : 1 + len(kernel.caches)]
    sources = [graph.look_through(each, FORMS) for each in (found.operands[0], *of_caches)]
    if own.block != region.block or {*sources[1:]} != {*region.results} or sources[0] != other:
        return None
    behind = (graph.in_block(user, own.block) for each in region.results for user in graph.readers(each, _OF_CACHES))
    if any(each != own and each.is_before_in_block(own) for each in behind):
        return None
    ours = size, rows.groups, rows.length, rows.size
    is_alike = (kernel.rows * kernel.size, kernel.heads // kernel.group, kernel.keys, kernel.size) == ours
    formats = {(each.format, each.scales is not None) for each in (kernel.key, kernel.value)}
    is_alike = is_alike and formats == {(rows.format or kernel.key.format, bool(rows.format))}
    parts = [rows.groups * rows.length * width / kernel.workgroups for width, _ in rows.stored]
    is_few = size <= _MOST_OF_THREAD * kernel.threads
    return found if is_alike and is_few and all(part.is_integer() for part in parts) else None


def _decode(op: ir.Operation) -> Decode:
    return msgspec.convert(attributes.to_python(op.attributes[DECODE])["kernel"], Decode)


def _with_attention(
    reader: ir.Operation, rows: RotatedRows, operands: list[ir.Value], region: ir.Operation
) -> list[ir.Value]:
    """Builds attention that rotates, in the place of one that reads what is rotated; returns caches."""
    own, functions = region_of(reader), attributes.to_python(reader.attributes[DECODE])["functions"]
    decode, count = _decode(reader), len(region.results)
    sources = [graph.look_through(each, FORMS) for each in list(reader.operands)[1 : 1 + count]]
    order = [list(region.results).index(each) for each in sources]
    elements = (*(rows.elements[i // len(rows.stored)] for i in order[:CACHES]), rows.elements[-1])
    kernel = RotatedDecode(decode, replace(rows, elements=elements), functions)
    (op,) = _with_attribute(region, ROWS)
    caches = [list(op.operands)[rows.caches + 1 + i] for i in order]
    inits = [build.reshaped(each, kind.shape) for each, kind in zip(caches, kernel.results, strict=False)]
    others = list(reader.operands)[1 + count : -len(own.results)]
    with standing.named(own, "attention", "attention"):
        results = standing.dispatch(kernel, [*operands, *others], inits)
    for before, after in zip(own.results, results[count:], strict=True):
        before.replace_all_uses_with(after)
    for op in reversed(_views(region, own)):
        op.move_after(own)
    written = [
        build.reshaped(each, ir.RankedTensorType(region.results[i].type).shape)
        for i, each in zip(order, results, strict=False)
    ]
    return [written[order.index(i)] for i in range(count)]


def _views(of: ir.Operation, before: ir.Operation) -> list[ir.Operation]:
    """Returns the views of an operation's results before another one, in order."""
    ops = [view.operation for view in of.block.operations if view.operation.name in _OF_CACHES]
    is_early = [op for op in ops if of.is_before_in_block(op) and op.is_before_in_block(before)]
    return [op for op in is_early if graph.look_through(op.operands[0], _OF_CACHES) in list(of.results)]


def _element(result: ir.Value, numbers: Mapping[ir.Value, int]) -> Element:
    """Returns the function that makes an element of a result by its number."""
    sizes = [size or 1 for size in build.static_sizes(result)]

    def element(buffers: Values, number: Index) -> ir.Value:
        def stored(leaf: ir.Value, place: composing.Place) -> ir.Value:
            return builder.element(elementwise.load(leaf, buffers[numbers[leaf]], place, 1), 0)

        return composing.Elements(stored).at(result, composing.split(number.value, sizes))

    return element
