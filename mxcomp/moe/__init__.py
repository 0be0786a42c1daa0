"""Mixtures of experts, written in Python: matmuls grouped by expert, in plain linalg that stock IREE can compile too.

    import mxcomp.ir as mx
    from mxcomp import moe

    def layer(x, gate, gate_scales, …, slots, experts, positions, weights):
        routing = moe.Routing(slots, experts, positions, weights)
        gate, up, down = (moe.Experts(mx.operand(…)) for …)
        return moe.layer(mx.quantise(x, "E4M3"), gate, up, down, routing, "E4M3")

Slots are the top-k choices of all tokens, slot t · top_k + i the i-th of token t. Routing sorts them by expert into
blocks of BM rows, each of one expert (`mxcomp.routing.route` does it); rows that are left over are padding.
docs/howto/moe.md has the form, and what of it becomes a part of which dispatch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor

from mxcomp import ir as mx
from mxcomp.errors import InputError
from mxcomp.formats import mx_format
from mxcomp.mlir import build, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import names, reduced, tabled
from mxcomp.routing import Routing

__all__ = [
    "Experts", "Routing", "by_expert", "clamped_swiglu", "gated_layer", "gelu", "grouped_matmul", "layer", "rows",
    "swiglu",
]  # fmt: skip


@dataclass(frozen=True)
class Experts:
    """Weights [E, N, K/32, 32] and scales [E, N, K/32] of E experts, and f32 biases [E, N] if there are any."""

    weights: mx.Operand
    bias: ir.Value | None = None


Activation: TypeAlias = Callable[[ir.Value, ir.Value], ir.Value] | str
"""A function of an f32 gate and an f32 up projection; or the name of one of `ACTIVATIONS`."""


def swiglu(gate: ir.Value, up: ir.Value) -> ir.Value:
    """Returns SiLU of the gate, times the up projection."""
    return mx.multiply(_sigmoid_times(gate, mx.subtract(0.0, gate)), up)


def clamped_swiglu(
    gate: ir.Value, up: ir.Value, alpha: float = 1.702, limit: float = 7.0, offset: float = 1.0
) -> ir.Value:
    """Returns GPT-OSS's activation: gate · sigmoid(alpha · gate) · (up + offset), with the gate at most, and up within,
    the limit."""
    if math.isfinite(limit):
        gate, up = _minimum(gate, limit), mx.maximum(_minimum(up, limit), -limit)
    return mx.multiply(_sigmoid_times(gate, mx.multiply(gate, -alpha)), mx.add(up, offset) if offset else up)


def _sigmoid_times(gate: ir.Value, exponent: ir.Value) -> ir.Value:
    """Returns gate / (1 + e to the power of an exponent), off by some units in the last place of f32.

    Computed exactly it is most of what a tile of gate and up does behind its product: 25 instructions, not 7.
    """
    return mx.divide(gate, mx.add(mx.exp(exponent, approximate=True), 1.0), approximate=True)


def gelu(gate: ir.Value, up: ir.Value) -> ir.Value:
    """Returns GELU of the gate (its approximation by tanh), times the up projection."""
    cube = mx.multiply(mx.multiply(gate, gate), gate)
    inner = mx.multiply(mx.add(gate, mx.multiply(cube, 0.044715)), 0.7978845608028654)
    return mx.multiply(mx.multiply(mx.multiply(gate, 0.5), mx.add(mx.tanh(inner), 1.0)), up)


ACTIVATIONS = {function.__name__: function for function in (swiglu, clamped_swiglu, gelu)}
"""The activations by name."""


def _activation(wanted: Activation) -> Callable[[ir.Value, ir.Value], ir.Value]:
    if callable(wanted):
        return wanted
    if wanted not in ACTIVATIONS:
        raise InputError(f"activation '{wanted}': expected one of {', '.join(ACTIVATIONS)}, or a function")
    return ACTIVATIONS[wanted]


def _minimum(a: ir.Value, limit: float) -> ir.Value:
    return arith.MinimumFOp(a, arith.ConstantOp(a.type, limit).result).result


def gather(source: ir.Value, ids: ir.Value, divisor: int = 1) -> ir.Value:
    """Gathers slices of [count, …] by integers [ids…], each divided and then clamped to [0, count): [ids…, …].

    So an id that is out of range takes the first or the last part. Raises InputError.
    """
    (count, *inner), leading = build.static_sizes(source), build.static_sizes(ids)
    if None in (count, *inner, *leading) or not isinstance(build.element(ids), ir.IntegerType):
        raise InputError(f"a gather from {source.type} by {ids.type}: expected static sizes, and integer ids")
    result = build.tensor_type([*leading, *inner], build.element(source))

    def body(id_: ir.Value, _: ir.Value) -> ir.Value:
        part = id_ if divisor == 1 else arith.DivSIOp(id_, s.constant(divisor, id_.type)).result
        part = s.subscript(s.clamped(part, (count or 0) - 1))
        loops = [linalg.IndexOp(i).result for i in range(len(leading), result.rank)]
        return tensor.ExtractOp(source, [part, *loops]).result

    loops = names(result.rank)
    return tabled(loops, [*leading, *inner], result.element_type, [(loops[: len(leading)], ids)], body)


def _gathered(operand: mx.Operand, ids: ir.Value, divisor: int = 1) -> mx.Operand:
    """Gathers slices of an operand as bytes."""
    parts = []
    for value in (operand.elements, operand.scales):
        kind, sizes = build.element(value), build.static_sizes(value)
        inner = sizes[1:]
        if value is operand.elements:
            *outer, blocks, _ = inner
            stored = [*outer, None if blocks is None else blocks * mx_format(str(kind)).block_bytes]
        else:
            stored = inner
        found = gather(build.bitcast(value, build.tensor_type([sizes[0], *stored], "i8")), ids, divisor)
        parts.append(build.bitcast(found, build.tensor_type([*build.static_sizes(ids), *inner], kind)))
    return mx.Operand(*parts)


Rows: TypeAlias = mx.Operand | ir.Value
"""The left operand of a grouped matmul: an MX operand, or a tensor of bf16 that is not quantised."""


def rows(tokens: Rows, routing: Routing) -> Rows:
    """Returns the tokens [T, K] of all rows of all blocks: [B, BM, K]. Padding has the last token, which nothing
    reads."""
    if isinstance(tokens, ir.Value):
        return gather(tokens, routing.slots, routing.top_k)
    return _gathered(tokens, routing.slots, routing.top_k)


def by_expert(experts: Experts, routing: Routing) -> mx.Operand:
    """Returns the weights of the expert of each block: [B, N, K]. Ids out of range are clamped, also negative ones."""
    return _gathered(experts.weights, routing.experts)


def grouped_matmul(lhs: Rows, experts: Experts, routing: Routing) -> ir.Value:
    """Returns rows [B, BM, K] of each block times the weights of its expert, without biases: f32 [B, BM, N].

    Raises InputError for rows that are neither of MX nor of bf16.
    """
    weights = by_expert(experts, routing)
    return mx.dequantised_matmul(lhs, weights) if isinstance(lhs, ir.Value) else mx.scaled_matmul(lhs, weights)


def layer(
    tokens: Rows,
    gate: Experts,
    up: Experts,
    down: Experts,
    routing: Routing,
    fmt: str | None,
    activation: Activation = swiglu,
    result: str = "bf16",
) -> ir.Value:
    """Returns the experts of a layer, [T, H] for tokens [T, H]: down(activation(gate(x), up(x))), weighted and added
    up.

    Products of blocks without an expert, whose id is negative, are zero, and not computed.
    What `activation` makes is quantised to `fmt` again; without one it is multiplied as bf16, as tokens of bf16 are.
    What each expert gives is rounded to the type of the result, as in PyTorch. Sums over top-k are made in f32 in
    their order, and rounded once, so that results are the same in every run.
    """
    lhs = rows(tokens, routing)
    parts = [(grouped_matmul(lhs, each, routing), each.bias) for each in (gate, up)]
    hidden = _combined(_activation(activation), parts, routing)
    return _behind(hidden, down, routing, fmt, result)


def gated_layer(
    tokens: Rows,
    gate_up: Experts,
    down: Experts,
    routing: Routing,
    fmt: str | None,
    activation: Activation = swiglu,
    result: str = "bf16",
    mode: str = "even",
) -> ir.Value:
    """Returns the same as `layer`, with gate and up in one tensor of experts, whose rows alternate: [E, 2 · inner, …].

    So GPT-OSS stores them. Both are one product, and what `activation` makes of them is quantised in its tile, in scale
    mode `mode`: nothing else of them is written to memory.
    """
    out = grouped_matmul(rows(tokens, routing), gate_up, routing)
    out = _combined(lambda both: both, [(out, gate_up.bias)], routing)
    if fmt is None:
        return _behind(_met(_activation(activation), out), down, routing, fmt, result)
    hidden = mx.elementwise(_activation(activation), *gate_and_up(out))
    return _behind(hidden, down, routing, fmt, result, mode)


def gate_and_up(both: ir.Value) -> list[ir.Value]:
    """Returns the even and odd columns of a tensor [B, BM, 2 · inner]. Raises InputError for an odd number of them."""
    half = build.tensor_type(_halved(both), build.element(both))
    sizes, steps = list(half.shape), [1, 1, 2]
    return [tensor.ExtractSliceOp(half, both, [], [], [], [0, 0, i], sizes, steps).result for i in range(2)]


def _halved(both: ir.Value) -> list[int]:
    """Returns the shape [B, BM, inner] of gate, and of up."""
    *outer, width = (size or 0 for size in build.static_sizes(both))
    if width % 2:
        raise InputError(f"gate and up in {width} rows: expected an even number of them")
    return [*outer, width // 2]


def _met(activation: Callable[[ir.Value, ir.Value], ir.Value], both: ir.Value) -> ir.Value:
    """Returns hidden activations of gate and up that alternate, f32 [B, BM, 2 · inner]: in one operation, without
    copies."""
    shape = _halved(both)
    split = build.split(both, 2, (shape[2], 2))
    dims = [ir.AffineExpr.get_dim(i) for i in range(3)]
    maps = [ir.AffineMap.get(3, 0, [*dims, ir.AffineExpr.get_constant(i)]) for i in range(2)]
    result = build.tensor_type(shape, build.element(both))
    return build.generic(
        result,
        [split, split],
        build.empty(result),
        [*maps, ir.AffineMap.get_identity(3)],
        ["parallel"] * 3,
        lambda gate, up, _: activation(gate, up),
    ).results[0]


def _behind(
    hidden: ir.Value, down: Experts, routing: Routing, fmt: str | None, result: str, mode: str = "even"
) -> ir.Value:
    """Returns the rest of a layer, from hidden activations f32 [B, BM, inner]."""
    out = grouped_matmul(requantised(hidden, fmt, mode), down, routing)
    out = _combined(lambda y: y, [(out, down.bias)], routing, result)
    return _added_up(out, routing, result)


def requantised(hidden: ir.Value, fmt: str | None, mode: str = "even") -> Rows:
    """Returns hidden activations [B, BM, inner] in a format, or in bf16."""
    if fmt is None:
        return mx.elementwise(lambda value: value, hidden, result="bf16")
    blocks, height, _ = build.static_sizes(hidden)
    quantised = mx.quantise(build.collapse(hidden, [[0, 1], [2]]), fmt, mode)
    parts = (build.split(value, 0, (blocks, height)) for value in (quantised.elements, quantised.scales))
    return mx.Operand(*parts)


_Part: TypeAlias = tuple[ir.Value, ir.Value | None]
"""A product [B, BM, N], and biases [E, N] that belong to it."""


def _combined(
    activation: Callable[..., ir.Value], parts: Sequence[_Part], routing: Routing, result: str = "f32"
) -> ir.Value:
    """Returns [B, BM, N] of products, each with the bias of its block's expert; zeros where there is no expert."""
    biases = [None if bias is None else gather(bias, routing.experts) for _, bias in parts]
    of_values = [("bmn", value) for value, _ in parts]
    of_columns = [("bn", bias) for bias in biases if bias is not None]

    def body(*elements: ir.Value) -> ir.Value:
        *added, expert, _ = elements[len(parts) :]
        biased, products = iter(added), where_expert(elements[: len(parts)], expert)
        pairs = zip(products, biases, strict=True)
        combined = activation(*(value if bias is None else mx.add(value, next(biased)) for value, bias in pairs))
        return mx.cast(combined, ir.Type.parse(result))

    inputs = [*of_values, *of_columns, ("b", routing.experts)]
    return tabled("bmn", build.static_sizes(parts[0][0]), result, inputs, body)


def where_expert(elements: Sequence[ir.Value], expert: ir.Value) -> list[ir.Value]:
    """Returns elements of a block, or zeros where it has no expert."""
    none, zero = s.constant(0, expert.type), s.constant(0.0, elements[0].type)
    has_expert = arith.CmpIOp(arith.CmpIPredicate.sge, expert, none).result
    return [s.select(has_expert, each, zero) for each in elements]


def _added_up(rows_: ir.Value, routing: Routing, result: str) -> ir.Value:
    """Returns rows [B, BM, H] of all slots, weighted and added up: [T, H]. Positions outside of the rows add
    nothing."""
    flat = build.collapse(rows_, [[0, 1], [2]])
    count, width = build.static_sizes(flat)

    def body(position: ir.Value, weight: ir.Value) -> ir.Value:
        is_row = s.above(count or 0, position)
        row = s.select(is_row, position, 0)
        weighted = s.multiplied(s.widened(s.at(flat, row, s.loop_index(1))), weight)
        return s.select(is_row, weighted, 0.0)

    inputs, tokens = [("ti", routing.positions), ("ti", routing.weights)], build.static_sizes(routing.weights)[0]
    summed = reduced("thi", "th", (tokens, width), "f32", inputs, lambda new, acc: s.added(acc, new), body)
    return summed if result == "f32" else mx.elementwise(lambda value: value, summed, result=result)
