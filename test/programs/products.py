"""Scaled matmuls of any rank in every spelling: fused, dequantised first, as named operations; loops in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from drawing import Drawing
from iree.compiler import ir
from iree.compiler.dialects import arith, linalg
from iree.compiler.dialects import math as math_dialect
from mx_operands import Operand
from nodes import Floats, Node, clean, steps, summed

from mxcomp.mlir import build

FORMS = {"fused": 5, "unfused": 2, "collapsed": 2, "named": 1.5, "mixed": 0.3}
RESULTS = {"f32": 8, "f16": 1, "bf16": 1}
BEFORE = {"f32": 4, "bf16": 1}
"""What operands are dequantised to."""
SMALL = 60000.0
"""Sums up to this can be made in f16."""
LARGE = 2.0**128
"""Numbers from this on have no f32."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A tensor that is multiplied, or elements and scales."""

    tensors: tuple[ir.Value, ...]
    axes: tuple[str, ...]


def draw(drawing: Drawing, lhs: Operand, rhs: Operand, out: str, start: Node | None = None) -> Node:
    """The product [`out`] in a spelling drawn, added to `start` if there is one."""
    dice = drawing.dice
    form = dice.noted("form", FORMS)
    sums = _sums(lhs, rhs, out)
    results = RESULTS if sums.magnitude.max(initial=0.0) < SMALL else {"f32": 1, "bf16": 0.1}
    kind = "f32" if start is not None else dice.noted("result", results)
    before = dice.pick(BEFORE)
    split = [form in ("unfused", "collapsed", "named"), form in ("unfused", "collapsed", "named", "mixed")]
    collapse = form in ("collapsed", "named") and "ki" in lhs.axes and "ki" in rhs.axes
    factors = [
        _dequantised(drawing, side, before, collapse)
        if apart
        else Factor((side.elements.ir, side.scales.ir), (side.axes, side.scale_axes))
        for side, apart in zip((lhs, rhs), split, strict=True)
    ]
    sizes = _sizes(factors)
    init = _start(sizes, out, kind, start)
    named = form == "named" and kind == "f32" and collapse
    value = _named(factors, out, init) if named else None
    if value is None:
        value = _generic(drawing, factors, out, init, kind)
    drawing.module.products += sums.data.size * sums.terms
    return _added(value, sums, kind, start)


def weight_only(drawing: Drawing, x: Node, weights: Operand) -> Node:
    """[(b,) m, K] of bf16, not quantised, times weights [(b,) n, k, i] that are dequantised."""
    dice, batch = drawing.dice, "b" * ("b" in weights.axes)
    values = x.data.reshape(*x.shape[:-1], -1, weights.elements.shape[-1])
    out = f"{batch}mn"
    sums = sums_of((values, f"{batch}mki"), (weights.values, weights.axes), out)
    results = RESULTS if sums.magnitude.max(initial=0.0) < SMALL else {"f32": 1, "bf16": 0.1}
    kind = dice.noted("result", results)
    before = dice.noted("dequantised to", {"f32": 1, "bf16": 1})
    factors = [
        Factor((_in_f32(x) if before == "f32" else x.ir,), (f"{batch}mK",)),
        _dequantised(drawing, weights, before, True),
    ]
    init = _start(_sizes(factors), out, kind, None)
    named = kind == "f32" and not batch and dice.chance(0.5)
    value = _named(factors, out, init) if named else _generic(drawing, factors, out, init, kind)
    drawing.module.products += sums.data.size * sums.terms
    return _added(value, sums, kind, None)


def _in_f32(x: Node) -> ir.Value:
    result = build.tensor_type(build.static_sizes(x.ir), "f32")
    sizes = build.dynamic_sizes(x.ir)
    return build.elementwise(result, [x.ir], lambda value: arith.ExtFOp(result.element_type, value).result, sizes)


def _dequantised(drawing: Drawing, side: Operand, kind: str, collapse: bool) -> Factor:
    """Elements times scales as a tensor of floats, K in one dimension if it is to be collapsed."""
    element = ir.Type.parse(kind)
    sizes = build.static_sizes(side.elements.ir)
    result = build.tensor_type(sizes, element)
    rank, scaling = len(side.axes), drawing.dice.chance(0.3)

    def body(x: ir.Value, scale: ir.Value, _: ir.Value) -> ir.Value:
        if scaling:
            return arith.ScalingExtFOp(element, x, scale).result
        return arith.MulFOp(arith.ExtFOp(element, x).result, arith.ExtFOp(element, scale).result).result

    maps = [_map(side.axes, axes) for axes in (side.axes, side.scale_axes, side.axes)]
    init = build.empty(result, build.dynamic_sizes(side.elements.ir))
    inputs = [side.elements.ir, side.scales.ir]
    value = build.generic(result, inputs, init, maps, ["parallel"] * rank, body).results[0]
    if not collapse:
        return Factor((value,), (side.axes,))
    at = side.axes.index("ki")
    groups = [[i] for i in range(at)] + [[at, at + 1]] + [[i] for i in range(at + 2, rank)]
    return Factor((build.collapse(value, groups),), (side.axes.replace("ki", "K"),))


def _map(letters: Sequence[str], axes: str) -> ir.AffineMap:
    dims = [ir.AffineExpr.get_dim(list(letters).index(axis)) for axis in axes]
    return ir.AffineMap.get(len(letters), 0, dims)


def _sizes(factors: Sequence[Factor]) -> dict[str, int | ir.Value]:
    """The size of each axis: a number, or a value if it is dynamic."""
    found: dict[str, int | ir.Value] = {}
    for factor in factors:
        for value, axes in zip(factor.tensors, factor.axes, strict=True):
            for i, (axis, size) in enumerate(zip(axes, build.static_sizes(value), strict=True)):
                if axis not in found:
                    found[axis] = build.dim(value, i) if size is None else size
    return found


def _start(sizes: dict[str, int | ir.Value], out: str, kind: str, start: Node | None) -> ir.Value:
    if start is not None:
        return start.ir
    shape = [size if isinstance(size := sizes[axis], int) else None for axis in out]
    dynamic = [size for axis in out if not isinstance(size := sizes[axis], int)]
    return build.zero_filled(build.tensor_type(shape, kind), dynamic)


def _named(factors: Sequence[Factor], out: str, init: ir.Value) -> ir.Value | None:
    """linalg.matmul or linalg.batch_matmul, if the axes are theirs."""
    (a, b), (x, y) = (factor.axes[0] for factor in factors), (factor.tensors[0] for factor in factors)
    batch, m, n = out[:-2], out[-2:-1], out[-1:]
    if len(out) not in (2, 3) or a != f"{batch}{m}K" or b not in (f"{batch}{n}K", f"{batch}K{n}"):
        return None
    letters = [*out, "K"]
    maps = [_map(letters, axes) for axes in (a, b, out)]
    make = linalg.batch_matmul if batch else linalg.matmul
    return make(x, y, outs=[init], indexing_maps=maps)


def _generic(drawing: Drawing, factors: Sequence[Factor], out: str, init: ir.Value, kind: str) -> ir.Value:
    """A linalg.generic with loops and operands in an order drawn."""
    dice = drawing.dice
    result, f32 = ir.RankedTensorType(init.type), ir.F32Type.get()
    reduced = [axis for axis in _sizes(factors) if axis not in out]
    letters = [*out, *reduced]
    if dice.chance(0.2, "loops permuted"):
        letters = dice.shuffled(letters)
    slots = [(side, part) for side, factor in enumerate(factors) for part in range(len(factor.tensors))]
    slots = sorted(slots, key=lambda slot: slot[1]) if dice.chance(0.8) else dice.shuffled(slots)
    swapped, late = dice.chance(0.15, "sides swapped"), dice.chance(0.1)
    apart = len(slots) == 4 and dice.chance(0.1, "scales multiplied")
    fused = kind == "f32" and dice.chance(0.1, "fma")

    def body(*values: ir.Value) -> ir.Value:
        given = dict(zip(slots, values, strict=False))
        sides = (1, 0) if swapped else (0, 1)
        if apart:  # (a · b) · (a's scale · b's scale)
            a, b = (_product([_extended(given[side, part], f32) for side in sides]) for part in (0, 1))
        else:
            a, b = (_scalar(given, side, f32) for side in sides)
        if fused:
            return math_dialect.FmaOp(a, b, values[-1]).result
        term = _product([a, b])
        if kind != "f32":
            term = arith.TruncFOp(result.element_type, term).result
        return arith.AddFOp(*((term, values[-1]) if late else (values[-1], term))).result

    maps = [_map(letters, factors[side].axes[part]) for side, part in slots]
    inputs = [factors[side].tensors[part] for side, part in slots]
    iterators = ["parallel" if axis in out else "reduction" for axis in letters]
    return build.generic(result, inputs, init, [*maps, _map(letters, out)], iterators, body).results[0]


def _product(factors: Sequence[ir.Value]) -> ir.Value:
    first, second = factors
    return arith.MulFOp(first, second).result


def _extended(value: ir.Value, f32: ir.Type) -> ir.Value:
    return value if value.type == f32 else arith.ExtFOp(f32, value).result


def _scalar(given: dict[tuple[int, int], ir.Value], side: int, f32: ir.Type) -> ir.Value:
    """The number of a side, in f32."""
    value = given[side, 0]
    if (side, 1) in given:
        return arith.ScalingExtFOp(f32, value, given[side, 1]).result
    return _extended(value, f32)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of products, of their magnitudes, what all products are multiples of, and how many are summed.

    `beyond`: where an operand that goes into a sum is too large for an f32. A matmul that is left to IREE takes it for
    an infinity, as a program that dequantises it first says itself; the scaled MFMA does not.
    """

    data: Floats
    magnitude: Floats
    step: Floats
    terms: int
    beyond: np.ndarray


def numbers(value: ir.Value | None, lhs: Operand, rhs: Operand, out: str, kind: str, start: Node | None) -> Node:
    """A product in NumPy, of which `value` is the IR."""
    return _added(value, _sums(lhs, rhs, out), kind, start)


def _added(value: ir.Value | None, sums: Sums, kind: str, start: Node | None) -> Node:
    found = _total(value, sums, kind, start)
    if not sums.beyond.any():
        return found
    error = np.zeros_like(found.data) if found.error is None else found.error
    return Node(value, found.data, kind, np.where(sums.beyond & ~np.isnan(found.data), np.nan, error))


def _total(value: ir.Value | None, sums: Sums, kind: str, start: Node | None) -> Node:
    if start is None:
        return summed(value, sums.data, sums.magnitude, sums.step, sums.terms, kind)
    step = np.minimum(sums.step, steps(start.data[..., None], (-1,)))
    magnitude = sums.magnitude + np.abs(clean(start.data))
    found = summed(value, sums.data + start.data, magnitude, step, sums.terms + 1, kind)
    if start.error is None:
        return found
    return Node(value, found.data, kind, start.error + (0.0 if found.error is None else found.error))


def _sums(lhs: Operand, rhs: Operand, out: str) -> Sums:
    return sums_of((lhs.values, lhs.axes), (rhs.values, rhs.axes), out)


def sums_of(lhs: tuple[Floats, str], rhs: tuple[Floats, str], out: str) -> Sums:
    """Sums [`out`] of the products of two arrays with these axes."""
    sides = (lhs, rhs)
    over = f"{lhs[1]},{rhs[1]}->{out}"
    with np.errstate(all="ignore"):
        data = np.einsum(over, lhs[0], rhs[0], optimize=True)
        magnitude = np.einsum(over, *(np.abs(clean(values)) for values, _ in sides), optimize=True)
    reduced = [tuple(i for i, axis in enumerate(axes) if axis not in out) for _, axes in sides]
    rows = [values for values, _ in sides]
    least = [steps(values, axes) for values, axes in zip(rows, reduced, strict=True)]
    fit = [(np.abs(clean(values)) < LARGE).all(axes).astype(float) for values, axes in zip(rows, reduced, strict=True)]
    names = ",".join("".join(axis for axis in axes if axis in out) for _, axes in sides)
    terms = math.prod(size for axis, size in zip(lhs[1], lhs[0].shape, strict=True) if axis not in out)
    step, within = (np.einsum(f"{names}->{out}", *parts) for parts in (least, fit))
    return Sums(data, magnitude, step, terms, within == 0)
