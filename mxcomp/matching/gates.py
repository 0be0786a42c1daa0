"""Finds products of gate and up with alternating columns, whose hidden activations are quantised again.

    %both = (a product: f32 [blocks, rows, 2 · inner], perhaps behind elementwise consumers such as biases)
    %gate = tensor.extract_slice %both[0, 0, 0] [B, M, I] [1, 1, 2]
    %up   = tensor.extract_slice %both[0, 0, 1] [B, M, I] [1, 1, 2]
    %h    = linalg.generic … ins(%gate, %up)                 any activation
    %q, %s = elements and scales of blocks of 32, quantised from %h      the LHS of the next product

As GPT-OSS stores them. All of it can be computed in the tile of the product (`mxcomp.packing.requantised_result`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.layout import GATE_AND_UP, LHS, LHS_SCALE
from mxcomp.matching import blocks, quantiser, replacing, requantise_chains
from mxcomp.matching.canonical import problem_of
from mxcomp.matching.elements import RESHAPES
from mxcomp.matching.quantiser import Producer
from mxcomp.matching.replacing import Reading
from mxcomp.matching.requantise_chains import Chain
from mxcomp.matching.storage import BITCASTS
from mxcomp.mlir import build, graph
from mxcomp.mlir.build import static_sizes
from mxcomp.mlir.linalg_ops import is_elementwise

SLICE = "tensor.extract_slice"
_STEP = len(GATE_AND_UP)
_MOST_BITS = 32
"""The most bits of an element of which a lane loads two as one integer."""
NOT_ALONE = "hidden activations are not computed from gate and up alone"


def find(recognised: list[ir.Operation], watched: bool) -> Iterator[Chain]:
    """Returns the chains of gate and up and down among batched matmuls without a decision.

    There are none if they are `watched` by mxcomp.verify.
    """
    ours = {op.results[0]: op for op in recognised}
    for op in recognised:
        found = None if watched else pair_of(op.operands[LHS], op.operands[LHS_SCALE])
        if found is None:
            continue
        producer, pair = found
        product = _product(both(pair), ours)
        if product is not None and problem_of(product).batch == problem_of(op).batch:
            ends = [Reading(op, index, None) for index in (LHS, LHS_SCALE)]
            yield Chain(product, op, True, objection(producer, pair, op, ends))


def pair_of(elements: ir.Value, scales: ir.Value) -> tuple[Producer, tuple[ir.Value, ir.Value]] | None:
    """Returns what quantises elements [blocks, rows, K/32, 32] and scales, and the gate and up that it reads.

    None where the rows of blocks are no one matrix, or it reads anything else.
    """
    of = blocks.in_order(elements, scales)
    producer = None if of is None else quantiser.find(of.elements, of.scales)
    pair = None if producer is None else _halves(producer.reads(wide=True))
    return None if producer is None or pair is None else (producer, pair)


def _halves(values: Collection[ir.Value]) -> tuple[ir.Value, ir.Value] | None:
    """Returns gate and up, if values are all even and all odd columns of one tensor."""
    found = {first: value for value in values if (first := _first(value)) is not None}
    pair = [found[first] for first in GATE_AND_UP if first in found]
    if len(pair) != _STEP or len(values) != _STEP:
        return None
    sources = {op.operands[0] for value in pair if (op := graph.producer(value)) is not None}
    return (pair[0], pair[1]) if len(sources) == 1 else None


def both(pair: tuple[ir.Value, ir.Value]) -> ir.Value:
    """Returns the tensor whose columns are gate and up."""
    op = graph.producer(pair[0])
    assert op is not None
    return op.operands[0]


def pairs(value: ir.Value) -> tuple[ir.Value, Callable[[ir.Value], ir.Value]]:
    """Returns a tensor of integers, each a gate and its up, and how `value`, one of the two, is taken of them.

    So a lane loads both at once. Slices IREE would copy, in a dispatch for each. Other values are returned themselves.
    """
    kind, first = ir.RankedTensorType(value.type), _first(value)
    bits = getattr(kind.element_type, "width", None)
    if first is None or bits is None or bits > _MOST_BITS:
        return value, lambda element: element
    half = ir.IntegerType.get_signless(bits)

    def taken(pair: ir.Value) -> ir.Value:
        moved = arith.ShRUIOp(pair, arith.ConstantOp(pair.type, first * bits).result).result
        return arith.BitcastOp(kind.element_type, arith.TruncIOp(half, moved).result).result

    return build.bitcast(both((value, value)), build.tensor_type(kind.shape, f"i{_STEP * bits}")), taken


def _first(value: ir.Value) -> int | None:
    """Returns the first column of a slice of every other column, or None."""
    if (op := graph.producer(value, SLICE)) is None or len(op.operands) != 1:
        return None
    sizes, result = static_sizes(op.operands[0]), static_sizes(value)
    if None in sizes or len(sizes) != len(result) or [*sizes[:-1], (sizes[-1] or 0) // _STEP] != result:
        return None
    offsets, _, strides = graph.slicing(op)
    is_gated = not any(offsets[:-1]) and strides == [1] * (len(sizes) - 1) + [_STEP] and (sizes[-1] or 0) % _STEP == 0
    return offsets[-1] if is_gated and offsets[-1] in GATE_AND_UP else None


def _product(value: ir.Value, ours: dict[ir.Value, ir.Operation]) -> ir.Operation | None:
    """Returns the matmul whose result, behind elementwise operations of one wide operand, is `value`."""
    while value not in ours:
        op = graph.producer(value)
        if op is None or not is_elementwise(op):
            return None
        wide = [each for each in list(op.operands)[:-1] if each.type == value.type]
        if len(wide) != 1:
            return None
        (value,) = wide
    return ours[value]


def objection(
    producer: Producer, pair: tuple[ir.Value, ir.Value], consumer: ir.Operation, ends: Sequence[Reading]
) -> str:
    """Returns why `producer`, of the LHS of `consumer`, cannot be fused where gate and up are computed; "" if it can.

    `ends` are where its elements and scales are read, perhaps behind other shapes.
    """
    if producer.reads() != set(pair):
        return NOT_ALONE
    of = blocks.in_order(*(end.user.operands[end.operand] for end in ends))
    assert of is not None
    readings = list(ends)
    for end, start in zip(ends, (of.elements, of.scales), strict=True):
        value = end.user.operands[end.operand]
        while value != start:
            op = graph.producer(value)
            assert op is not None and op.name in (*RESHAPES, *BITCASTS)
            readings.append(Reading(op, 0, None))
            if reason := replacing.objection(value, readings):
                return reason
            value = op.operands[0]
        if reason := replacing.objection(start, [*producer.readings, *readings]):
            return reason
    if reason := requantise_chains.objection(producer, pair, problem_of(consumer), readings, packed=True):
        return reason
    slices = [op for value in pair if (op := graph.producer(value)) is not None]
    return replacing.objection(slices[0].operands[0], [Reading(op, 0, None) for op in slices])
