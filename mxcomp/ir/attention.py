"""Builds MX attention as IR: both products have MX operands, and the program quantises the weights of the second.

    scores  = queries · keysᵀ                                    a scaled matmul
    powers  = exp2(scores · scale − ceil(the largest of a query))
    weights = powers in MX, in blocks of 32 keys                  their scales by "rceil": none of them saturates
    result  = weights · values / the sum of the weights           a scaled matmul

As the largest score is rounded up to an integer, and scales are powers of two, weights do not depend on it: they are
the same, bit for bit, if it is the largest of some keys only. So kernels need not know all scores of a query.

With `LINEAR` powers the codes of weights, elements of 8 bits with scales of 1, are a linear function of scores, in
place of powers and their conversion:

    codes   = the integer nearest to scores · scale − units · (ceil(the largest of a query / units) − bias − 4), or 0

whose `units` are the codes from one power of 2 to the next: between them 1 + x stands for 2 to the power of x, which is
up to 6 % more. What is below 2 to the power of −11 of the largest (E4M3) fades to 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith, tensor
from iree.compiler.dialects import math as mlir_math

from mxcomp.formats import E8M0, MX_BLOCK, element_format
from mxcomp.ir.quantisation import quantise
from mxcomp.matching import canonical
from mxcomp.mlir import build, linalg
from mxcomp.mlir import scalars as s
from mxcomp.mlir.loops import reduced, tabled

EXACT, LINEAR = POWERS = ("exact", "linear")
"""The ways in which powers of 2 are computed."""
LINEAR_FORMATS = ("E4M3", "E5M2")
"""The formats of weights whose codes may be a linear function of scores."""
SCALE = E8M0.mlir_type
_ABOVE = 4
"""The exponent of the largest weight, below the largest element by what kernels may see late."""

Quantised = tuple[ir.Value, ir.Value]
"""Elements [heads, rows, blocks, 32] and scales [heads, rows, blocks]."""


@dataclass(frozen=True)
class Form:
    """The parameters of MX attention besides its operands.

    Attributes:
        scale: Of scores, times log2(e); 1 where queries are multiplied by it before they are quantised.
        keys: Behind which there is padding.
        queries: Of a head, if its query t sees keys up to t only; None: all of them.
        weights: The element format of weights.
        powers: One of `POWERS`; scores are in `units` of powers of 2.
    """

    scale: float
    keys: int
    queries: int | None
    weights: str
    powers: str = EXACT

    @property
    def units(self) -> int:
        """The number by which scores differ whose powers differ by 2."""
        return units(self.powers, self.weights)

    @property
    def offset(self) -> int:
        """The code of the largest weight, if codes are scores."""
        return self.units * (element_format(self.weights).bias + _ABOVE) if self.powers == LINEAR else 0

    @property
    def bounds(self) -> bool:
        return self.queries is not None or self.keys % MX_BLOCK != 0

    @property
    def is_plain(self) -> bool:
        """Whether scores are exponents of 2 as they are."""
        return self.scale == 1.0 and not self.bounds


def objection(powers: str, weights: str) -> str:
    """Returns why there are no such powers as weights; "" if there are."""
    if powers == EXACT or (powers == LINEAR and weights in LINEAR_FORMATS):
        return ""
    return f"powers '{powers}' as weights of {weights}: expected exact ones, or linear ones of 8 bits"


def units(powers: str, weights: str) -> int:
    """Returns the number of codes of weights from one power of 2 to the next, if codes are scores; else 1."""
    return 2 ** element_format(weights).mantissa_bits if powers == LINEAR else 1


def attention(queries: Quantised, keys: Quantised, values: Quantised, form: Form) -> ir.Value:
    """Returns attention of [heads, rows, size], [heads, keys, size] and [heads, value size, keys]: f32 [heads, rows,
    value size].

    The rows of a head are those of several heads of queries that share its keys, one after the other.
    """
    scores = canonical.scaled_matmul(queries[0], keys[0], queries[1], keys[1])
    weights, scales = _weights(_scaled(scores, form), form)
    sums = canonical.scaled_matmul(weights, values[0], scales, values[1])
    parts = [("hrv", sums), ("hr", _total(weights, scales))]
    return tabled("hrv", build.static_sizes(sums), "f32", parts, lambda a, b, _: arith.DivFOp(a, b).result)


def _scaled(scores: ir.Value, form: Form) -> ir.Value:
    """Returns scores as exponents of 2, minus infinity for hidden keys."""
    if form.is_plain:
        return scores
    f32 = ir.F32Type.get()

    def body(score: ir.Value) -> ir.Value:
        scaled = score if form.scale == 1.0 else arith.MulFOp(score, arith.ConstantOp(f32, form.scale).result).result
        if not form.bounds:
            return scaled
        row, key = (linalg.IndexOp(i).result for i in (1, 2))
        bound = build.constant_index(form.keys)
        if form.queries is not None:
            query = arith.RemUIOp(row, build.constant_index(form.queries)).result
            behind = arith.AddIOp(query, build.constant_index(1)).result
            bound = arith.MinUIOp(behind, bound).result
        is_seen = arith.CmpIOp(arith.CmpIPredicate.ult, key, bound).result
        return arith.SelectOp(is_seen, scaled, arith.ConstantOp(f32, -math.inf).result).result

    return build.elementwise(ir.RankedTensorType(scores.type), [scores], body)


def _weights(scores: ir.Value, form: Form) -> Quantised:
    """Returns powers of 2 in MX."""
    heads, rows, keys = shape = ir.RankedTensorType(scores.type).shape
    largest = reduced(
        "hrk", "hr", (heads, rows), "f32", [("hrk", scores)],
        lambda score, so_far: arith.MaximumFOp(score, so_far).result, lambda score: score, start=-math.inf,
    )  # fmt: skip

    def power(score: ir.Value, most: ir.Value, _: ir.Value) -> ir.Value:
        difference = arith.SubFOp(score, mlir_math.CeilOp(most).result).result
        return mlir_math.Exp2Op(difference).result

    def code(score: ir.Value, most: ir.Value, _: ir.Value) -> ir.Value:
        return _linear(score, most, form)

    blocks, is_linear, element = keys // MX_BLOCK, form.powers == LINEAR, element_format(form.weights).mlir_type
    kind, made = (element, code) if is_linear else ("f32", power)
    powers = tabled("hrk", shape, kind, [("hrk", scores), ("hr", largest)], made)
    if is_linear:
        one = arith.ConstantOp(ir.Type.parse(SCALE), 1.0).result
        ones = build.filled(one, build.tensor_type((heads, rows, blocks), SCALE))
        return build.split(powers, 2, (blocks, MX_BLOCK)), ones
    elements, scales = quantise(build.collapse(powers, [[0, 1], [2]]), element, "rceil")
    return build.split(elements, 0, (heads, rows)), build.split(scales, 0, (heads, rows))


def _linear(score: ir.Value, most: ir.Value, form: Form) -> ir.Value:
    """Returns the weight whose code is a score relative to the largest one; NaN of what is no number."""
    f32, i8, i32 = ir.F32Type.get(), ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(32)

    def number(value: float) -> ir.Value:
        return arith.ConstantOp(f32, float(value)).result

    power = mlir_math.CeilOp(arith.MulFOp(most, number(1 / form.units)).result).result
    base = arith.SubFOp(number(form.offset), arith.MulFOp(power, number(form.units)).result).result
    relative = arith.AddFOp(score, base).result
    nearest = mlir_math.RoundEvenOp(arith.MaxNumFOp(relative, number(0)).result).result
    code = arith.FPToUIOp(i32, arith.MinNumFOp(nearest, number(form.offset)).result).result
    is_none = arith.CmpFOp(arith.CmpFPredicate.UNO, relative, relative).result
    none = arith.ConstantOp(i32, element_format(form.weights).nan_code).result
    chosen = arith.TruncIOp(i8, arith.SelectOp(is_none, none, code).result).result
    return arith.BitcastOp(ir.Type.parse(element_format(form.weights).mlir_type), chosen).result


def _total(weights: ir.Value, scales: ir.Value) -> ir.Value:
    """Returns the sum of a query's weights."""
    f32 = ir.F32Type.get()
    return reduced(
        "hrbk", "hr", build.static_sizes(weights)[:2], "f32", [("hrbk", weights), ("hrb", scales)],
        lambda weight, total: arith.AddFOp(total, weight).result,
        lambda weight, scale: arith.ScalingExtFOp(f32, weight, scale).result,
    )  # fmt: skip


def quantised_attention(
    queries: ir.Value,
    keys: ir.Value,
    values: ir.Value,
    formats: tuple[str, str, str],
    mode: str,
    scale: float,
    is_causal: bool,
    powers: str = EXACT,
) -> ir.Value:
    """Returns attention of queries [batch, heads, T, size], keys and values [batch, key heads, L, …]: static floats.

    `formats` are those of queries and keys, of values and of weights; values are quantised in blocks of 32 keys.
    Queries are multiplied by the scale, and by log2(e), before they are quantised: scores are exponents of 2 then,
    in `units` if powers are linear.
    """
    (batch, heads, count, _), (_, key_heads, length, value_size) = (
        ir.RankedTensorType(each.type).shape for each in (queries, values)
    )
    qk, v = (element_format(fmt).mlir_type for fmt in formats[:2])
    behind = -(-length // MX_BLOCK) * MX_BLOCK
    keys, values = (padded(each, [batch, key_heads, behind, each.type.shape[3]]) for each in (keys, values))
    groups, rows = batch * key_heads, heads // key_heads * count
    form = Form(1.0, length, count if is_causal else None, formats[2], powers)

    def quantised(value: ir.Value, element: str, rows: int) -> Quantised:
        """Returns […, K] in blocks along K, as [heads, rows, K]."""
        elements, scales = quantise(build.collapse(value, [[0, 1, 2], [3]]), element, mode)
        return build.split(elements, 0, (groups, rows)), build.split(scales, 0, (groups, rows))

    result = attention(
        quantised(_times(queries, scale * math.log2(math.e) * form.units), qk, rows),
        quantised(keys, qk, behind),
        quantised(build.transpose(values, [0, 1, 3, 2]), v, value_size),
        form,
    )
    result = build.cast(result, build.element(queries))
    split = build.expand(result, (batch, key_heads, heads // key_heads, count, value_size), [[0, 1], [2, 3], [4]])
    return build.collapse(split, [[0], [1, 2], [3], [4]])


def _times(values: ir.Value, number: float) -> ir.Value:
    """Returns f32 of floats times a number."""
    kind = build.tensor_type(build.static_sizes(values), "f32")
    return build.elementwise(kind, [values], lambda value: s.multiplied(s.widened(value), number))


def padded(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Pads a tensor with zeros in some dimensions."""
    kind = ir.RankedTensorType(value.type)
    if list(shape) == list(kind.shape):
        return value
    behind = [size - have for size, have in zip(shape, kind.shape, strict=True)]
    result = ir.RankedTensorType.get(shape, kind.element_type)
    op = tensor.PadOp(result, value, [], [], [0] * len(behind), behind)
    block = op.operation.regions[0].blocks.append(*[ir.IndexType.get()] * len(behind))
    with ir.InsertionPoint(block):
        is_float = isinstance(kind.element_type, ir.FloatType)
        tensor.YieldOp(arith.ConstantOp(kind.element_type, 0.0 if is_float else 0).result)
    return op.result
