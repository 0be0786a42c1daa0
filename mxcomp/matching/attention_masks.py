"""Finds which keys the mask of an attention leaves: by positions, where the kernel need not read it, or as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.matching import positions, softmax
from mxcomp.matching.attention_operands import as_stored, find_stored, integers
from mxcomp.matching.elements import Element, Index
from mxcomp.matching.positions import Guard, Seen
from mxcomp.matching.size import Size
from mxcomp.matching.sizes import Sizes
from mxcomp.matching.softmax import Form, Hidden
from mxcomp.mlir import build
from mxcomp.mlir import scalars as s
from mxcomp.ukernels.attention_memory import Bound, Reach, Stored

LOWEST = -2.3e38
"""A number that hides a score it is added to, and is finite times log2(e)."""


@dataclass(frozen=True)
class Mask:
    """The keys that queries see, in the kernel's form, its operands, and the operations that become redundant."""

    operands: tuple[ir.Value, ...] = ()
    stored: Stored | None = None
    positions: tuple[ir.Value, ...] = ()
    reach: Reach | None = None
    guard: Guard | None = None


def of(form: Form) -> Mask:
    """Returns the mask of an attention. Raises NotCoveredError where no kernel can read it."""
    if form.mask is None:
        return Mask()
    hides = softmax.LOW if form.adds_in_f16 else positions.HIDES
    seen = positions.seen(form.mask.value, form.mask.indices, hides)
    if seen is not None:
        result = [Index(axis, 1, form.axes[axis]) for axis in "ntv"]
        of_keys = [index.axis == "l" for index in form.key.indices]
        keys = Sizes().of(form.key.value, of_keys.index(True)) if True in of_keys else Size()
        guard = positions.guard(form.result, result, seen, keys)
        if (mask := _by_position(form, seen, guard)) is not None:
            return mask
    value, stored = find_stored(_deepened(form.op, form.mask) if form.adds_in_f16 else form.mask, form.axes, whole="")
    return Mask((value,), stored)


def _by_position(form: Form, seen: Seen, guard: Guard | None) -> Mask | None:
    """Returns the mask by positions, or None where the kernel needs it as it is."""
    zeroes = form.sink is not None or (guard is not None and guard.zeroes)
    blind_sees_all = seen.hides_finitely and not zeroes
    elements = list(dict.fromkeys(each.position for each in (*seen.ends, *seen.starts) if each.position is not None))
    read = [integers(each) for each in elements]
    if any(each is None for each in read):
        return None
    ends, starts = (
        tuple(
            Bound(each.number, each.of_query, None if each.position is None else elements.index(each.position))
            for each in bounds
        )
        for bounds in (seen.ends, seen.starts)
    )
    reach = Reach(ends, starts, tuple(each for each in read if each), blind_sees_all)
    mask = Mask((), None, tuple(each.value for each in elements), reach if ends or starts else None, guard)
    if seen.among is None:
        return mask
    stored = None if blind_sees_all else as_stored(seen.among, form.axes, "", ("l",))
    return None if stored is None else replace(mask, operands=(seen.among.value,), stored=stored)


def as_added(op: ir.Operation, hidden: Hidden) -> Element:
    """Builds, in front of the attention, what hides as much if it is added to scores."""
    lowest = LOWEST if math.isfinite(hidden.number) else hidden.number
    yes, no = (lowest, 0.0) if hidden.truth else (0.0, lowest)
    return _made_of(op, hidden.values, lambda truth: s.select(truth, yes, no))


def _deepened(op: ir.Operation, mask: Element) -> Element:
    """Builds, in front of an attention whose sums PyTorch rounds to f16, a mask in which low numbers hide all there is.

    What is left of a score then is less than 32.
    """

    def number(value: ir.Value) -> ir.Value:
        wide = s.widened(value)
        low, infinite = (s.constant(each, wide.type) for each in (softmax.LOW, -math.inf))
        is_low = arith.CmpFOp(arith.CmpFPredicate.OLE, wide, low).result
        is_finite = arith.CmpFOp(arith.CmpFPredicate.OGT, wide, infinite).result
        return s.select(s.both(is_low, is_finite), LOWEST, wide)

    return _made_of(op, mask, number)


def _made_of(op: ir.Operation, mask: Element, number: Callable[[ir.Value], ir.Value]) -> Element:
    """Builds, in front of the attention, numbers of f32 from those of a mask."""
    with ir.InsertionPoint(op), op.location:
        kind = build.tensor_type(build.static_sizes(mask.value), "f32")
        return Element(build.elementwise(kind, [mask.value], number), mask.indices)
