"""Builds operands of MX attention: bytes of queries, keys and values, in the order in which its kernel reads them.

What the program quantises right in front of attention is quantised by a kernel that stores it so, all of it in one
dispatch (`ukernels/attention_quantise.py`); elsewhere elements stay as they are stored, and scales are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from iree.compiler import ir

from mxcomp.ir.attention import padded
from mxcomp.layout.inner_tiles import BLOCK
from mxcomp.matching import activations, blocks
from mxcomp.matching.activations import Activations
from mxcomp.mlir import build, graph
from mxcomp.packing import block_quantiser, standing
from mxcomp.target import Target
from mxcomp.ukernels.attention_mx import MxAttention
from mxcomp.ukernels.attention_mx_rows import GROUPS, STEP, row_order
from mxcomp.ukernels.attention_quantise import Quantised, Quantisers, Subscript

_Sizes = tuple[int, int, int]


class _Found(NamedTuple):
    """Holds what an operand is quantised from, the tensor of it in memory, and how a kernel quantises it."""

    activations: Activations
    source: ir.Value
    operand: Quantised


def operands(given: Sequence[ir.Value], kernel: MxAttention, target: Target, op: ir.Operation) -> list[ir.Value]:
    """Returns elements and scales of each as the kernel takes them, from those in the order of `op`'s program."""
    quantised = _quantised(given, kernel, target, op)
    return [each for number in range(3) for each in quantised.get(number) or _stored(given, kernel, number)]


def _stored(given: Sequence[ir.Value], kernel: MxAttention, number: int) -> list[ir.Value]:
    """Returns elements and scales of an operand that is in memory."""
    elements, scales = given[2 * number : 2 * number + 2]
    moved = build.bitcast(scales, build.tensor_type(build.static_sizes(scales), "i8"))
    heads, steps, (keys, values) = kernel.heads // kernel.shared, kernel.stored_steps, kernel.staged
    if number == 0:
        moved = build.flat(moved)
    elif number == 1:
        factors = [("n", heads), ("s", steps), *row_order(keys.unit, STEP), ("d", keys.depths), ("b", GROUPS)]
        moved = _ordered(padded(moved, [heads, steps * STEP, keys.depths * GROUPS]), factors, "nsdbgipf")
    else:
        factors = [("n", heads), *row_order(values.unit, kernel.value_size), ("s", steps), ("b", GROUPS)]
        moved = _ordered(padded(moved, [heads, kernel.value_size, steps * STEP // BLOCK]), factors, "nsbgipf")
    return [build.bitcast(elements, kernel.inputs[2 * number]), moved]


def _ordered(value: ir.Value, factors: Sequence[tuple[str, int]], order: str) -> ir.Value:
    """Returns a tensor whose elements have these factors, with the factors reordered."""
    names = [name for name, _ in factors]
    split = build.reshaped(value, [size for _, size in factors])
    return build.merged(split, [[names.index(name) for name in order]])


def _quantised(
    given: Sequence[ir.Value], kernel: MxAttention, target: Target, op: ir.Operation
) -> dict[int, list[ir.Value]]:
    """Returns elements and scales of those that are quantised by a kernel, which is a dispatch in front."""
    (keys, values), size = kernel.staged, kernel.size // BLOCK
    heads, rows, stored = kernel.heads // kernel.shared, kernel.heads * kernel.queries, kernel.stored_keys
    forms = (
        ((1, rows, size), (STEP, size), 0),
        ((heads, stored, size), (STEP, keys.depths * GROUPS), keys.unit),
        ((heads, kernel.value_size, stored // BLOCK), (kernel.value_size, GROUPS), values.unit),
    )
    pairs = zip(given[::2], given[1::2], forms, strict=True)
    all_ = [_found(elements, scales, *form, target) for elements, scales, form in pairs]
    # Values first: their units take the longest, and would be all that is left at the end.
    found = {number: each for number, each in reversed(list(enumerate(all_))) if each is not None}
    if not found:
        return {}
    with op.location:
        functions = block_quantiser.texts([each.activations for each in found.values()])
    made = Quantisers(tuple(each.operand for each in found.values()), functions)
    sources = [build.flat(each.source) for each in found.values()]
    with standing.named(op, "attention", "quantise"):
        results = standing.dispatch(made, sources)
    sizes = [size for each in made.operands for size in each.stored]
    parts = [build.part(build.flat(result), [0], [size]) for result, size in zip(results, sizes, strict=True)]
    return {number: parts[2 * i : 2 * i + 2] for i, number in enumerate(found)}


def _found(
    elements: ir.Value, scales: ir.Value, sizes: _Sizes, unit: tuple[int, int], neighbours: int, target: Target
) -> _Found | None:
    """Returns what an operand is quantised from, and how a kernel does it; None where it does not."""
    flat = blocks.in_order(elements, scales)
    found = None if flat is None else activations.of_blocks(flat.elements, flat.scales)
    if found is None:
        return None
    source, read = found
    inside = _behind_zeros(source.source)
    subscripts = [
        Subscript(index.axis, index.stride, index.extent or 0, size or 0)
        for index, size in zip(read.subscripts, build.static_sizes(inside), strict=True)
        if index.axis or size != 1
    ]
    kinds = str(source.type), str(build.element(elements))
    if not all(each.axis and each.extent and each.size for each in subscripts) or target.lacks_conversion(*kinds):
        return None
    made = Quantised(*sizes, unit, neighbours, kinds[1], kinds[0], source.bits, tuple(subscripts))
    return _Found(source, inside, made) if made.is_taken else None


def _behind_zeros(value: ir.Value) -> ir.Value:
    """Returns the tensor behind whose last elements there are zeros; the value itself if it has no such."""
    op = graph.producer(value, "tensor.pad")
    if op is None or any(low != 0 for low in op.opview.static_low):
        return value
    (yielded,) = list(op.regions[0].blocks[0].operations)[-1].operands
    return op.operands[0] if str(graph.real(yielded)) == "0.0" else value
