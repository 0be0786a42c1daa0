"""MX operands: elements and E8M0 scales, stored in any order, as slices, of parts, or as views of bytes that others
look at, too.

Axes have letters: k are blocks, i the 32 elements in one, others rows and batches. Those of a tensor are a string, the
outermost first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from drawing import Drawing, Storage
from iree.compiler import ir
from iree.compiler.dialects import tensor
from nodes import BITS, BLOCK, SCALE, VALUES, Bytes, Floats, Node, packed, unpacked

from mxcomp.mlir import build

Sizes = Mapping[str, int]

KINDS = {"f4E2M1FN": 4, "f6E2M3FN": 1, "f6E3M2FN": 1, "f8E4M3FN": 1.5, "f8E5M2": 1.5}
RANGES = {"": 8, "zeros": 1, "fine": 2, "all": 1, "special": 0.5}
"""Elements: those that f4E2M1FN has, whatever the format; with zero blocks; more digits; everything finite; NaN."""
SPREADS = {2: 5, 3: 4, 5: 2, 24: 1}
"""How many different scales there are."""
ORDERS = {"": 6, "outer": 2, "any": 1}
"""Of axes in memory: rows, blocks, elements; elements innermost; any."""
SHARED = {"": 12, "rows": 1, "splat": 0.5}
SLICES = {"": 9, "elements": 1.5, "bytes": 1.5, "scales": 1.5, "expert": 1, "joined": 1, "overwritten": 1}
BYTE_SHAPES = {"same": 4, "rows": 2, "flat": 1}


@dataclass(frozen=True, eq=False)
class Operand:
    """Elements [`axes`] and scales [`scale_axes`]; a scale without a row's letter is that of all rows."""

    elements: Node
    scales: Node
    axes: str
    scale_axes: str

    @cached_property
    def values(self) -> Floats:
        """What it stands for, [`axes`]."""
        scales = VALUES[SCALE][self.scales.data]
        kept = [axis for axis in self.axes if axis in self.scale_axes]
        scales = scales.transpose([self.scale_axes.index(axis) for axis in kept])
        sizes = dict(zip(self.axes, self.elements.shape, strict=True))
        with np.errstate(all="ignore"):
            return VALUES[self.elements.kind][self.elements.data] * scales.reshape(
                [sizes[axis] if axis in kept else 1 for axis in self.axes]
            )

    def renamed(self, names: Mapping[str, str]) -> Operand:
        """The same operand with other letters."""
        axes, scale_axes = ("".join(names.get(a, a) for a in letters) for letters in (self.axes, self.scale_axes))
        return Operand(self.elements, self.scales, axes, scale_axes)


def draw(
    drawing: Drawing,
    axes: str,
    sizes: Sizes,
    kind: str = "",
    dynamic: str = "",
    base: int = 127,
    tame: bool = False,
    order: str = "",
) -> Operand:
    """An operand that is stored, `axes` in canonical order and `order` the one in memory, if it is known.

    `base` is the least scale code; `tame` is for sums that are surely exact and finite.
    """
    dice = drawing.dice
    kind = kind or dice.noted("type", KINDS)
    sizes = {**sizes, "i": BLOCK}
    may_view = not dynamic and axes[1:] == "ki" and order in ("", axes)
    if may_view and (found := _view(drawing, axes, sizes, kind)) is not None:
        elements, order = found, axes
    else:
        cut = "" if dynamic else dice.noted("slice", SLICES)
        codes = _codes(drawing, kind, [sizes[axis] for axis in axes], tame)
        order = order or _order(drawing, axes, kind, sizes, dynamic)
        codes = codes.transpose([axes.index(axis) for axis in order])
        elements = _placed(drawing, codes, kind, order, dynamic, "" if cut == "scales" else cut)
    scales, scale_axes = _scales(drawing, axes, sizes, dynamic, base, tame, order)
    return Operand(elements, scales, order, scale_axes)


def _codes(drawing: Drawing, kind: str, shape: list[int], tame: bool) -> Bytes:
    """Codes in canonical order."""
    dice, values = drawing.dice, VALUES[kind]
    found = "" if tame else dice.noted("elements", RANGES)
    size = np.abs(values)
    coarse = np.isin(size, VALUES["f4E2M1FN"]) & np.isfinite(values)
    allowed = {"fine": (size >= 2**-3) & (size < 16), "all": np.isfinite(values)}.get(found, coarse)
    codes = dice.numbers.choice(np.flatnonzero(allowed).astype(np.uint8), shape)
    if found == "zeros":
        codes[dice.numbers.random(shape[:-1]) < 0.3] = 0
    bad = np.flatnonzero(~np.isfinite(values))
    if found == "special" and len(bad):
        codes.reshape(-1)[dice.below(codes.size)] = dice.pick(list(bad))
    return codes


def _order(drawing: Drawing, axes: str, kind: str, sizes: Sizes, dynamic: str) -> str:
    """An order in which the innermost axis is static and fills bytes."""
    wanted = drawing.dice.noted("order", ORDERS)
    if not wanted:
        return axes
    while True:
        order = "".join(drawing.dice.shuffled(axes))
        if wanted == "outer":
            order = order.replace("i", "") + "i"
        if order[-1] not in dynamic and (not dynamic or sizes[order[-1]] * BITS[kind] % 8 == 0):
            return order


def _scales(
    drawing: Drawing, axes: str, sizes: Sizes, dynamic: str, base: int, tame: bool, order: str
) -> tuple[Node, str]:
    dice = drawing.dice
    letters = axes.replace("i", "")
    shared = "" if dynamic else dice.noted("shared scales", SHARED)
    if shared == "rows":
        letters = letters.replace(letters[0], "", 1)
    spread = 2 if tame else dice.pick(SPREADS)
    shape = [sizes[axis] for axis in letters]
    codes = (base + dice.numbers.integers(0, spread, shape)).astype(np.uint8)
    if base == 127:
        codes = codes + np.uint8(dice.below(9)) - np.uint8(4)
    if shared == "splat":
        codes[...] = codes.flat[0]
    if not tame and dice.chance(0.03, "scale:NaN"):
        codes.reshape(-1)[dice.below(codes.size)] = 255
    kept = "".join(axis for axis in order if axis in letters)
    if dice.chance(0.1, "order:scales"):
        kept = "".join(dice.shuffled(letters))
    cut = "" if dynamic else dice.pick(SLICES)
    cut = cut if cut in ("bytes", "scales", "joined", "overwritten") and kept else ""
    if cut:
        dice.features.add("slice:scales")
    codes = codes.transpose([letters.index(axis) for axis in kept])
    return _placed(drawing, codes, SCALE, kept, dynamic, {"scales": "elements"}.get(cut, cut)), kept


def _placed(drawing: Drawing, codes: Bytes, kind: str, axes: str, dynamic: str, cut: str) -> Node:
    """Codes as a tensor, which is part of a larger one if it is `cut`: of bytes, or after they have got their type."""
    if not cut:
        return Node(_typed(drawing, codes, kind, [i for i, a in enumerate(axes) if a in dynamic]), codes, kind)
    dice, expert = drawing.dice, cut == "expert"
    inner = codes.shape
    if cut in ("joined", "overwritten"):
        return _of_parts(drawing, codes, kind, cut)
    if cut == "bytes":
        if not inner or inner[-1] * BITS[kind] % 8:
            return Node(_typed(drawing, codes, kind, []), codes, kind)
        codes_or_bytes = packed(codes, BITS[kind]).reshape(*inner[:-1], inner[-1] * BITS[kind] // 8)
        axes = axes[:-1] + "i" if BITS[kind] != 8 else axes
    else:
        codes_or_bytes = codes
    parts = [(0, 1, 0) if axis == "i" or expert else _part(drawing) for axis in axes]
    if expert:
        parts, codes_or_bytes = [(dice.below(3), 1, dice.below(2)), *parts], codes_or_bytes[None]
    offsets, strides, _ = (list(numbers) for numbers in zip(*parts, strict=True))
    sizes = list(codes_or_bytes.shape)
    shape = [at + (n - 1) * by + 1 + more for n, (at, by, more) in zip(sizes, parts, strict=True)]
    limit = 256 if cut == "bytes" else 1 << BITS[kind]
    larger = dice.numbers.integers(0, limit, shape).astype(np.uint8)
    larger[tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(offsets, sizes, strides, strict=True))] = (
        codes_or_bytes
    )
    kept = sizes[1:] if expert else sizes
    if cut == "bytes":
        whole = drawing.value(larger, "i8")
        part = _cut(whole, kept, offsets, sizes, strides)
        return Node(build.bitcast(part, build.tensor_type(inner, kind)), codes, kind)
    whole = _typed(drawing, larger, kind, [])
    return Node(_cut(whole, kept, offsets, sizes, strides), codes, kind)


def _of_parts(drawing: Drawing, codes: Bytes, kind: str, how: str) -> Node:
    """Codes that two tensors are joined to along a dimension, or of which a part is written over others."""
    dice, rank = drawing.dice, codes.ndim
    axis = dice.below(rank) if rank else 0
    unit = 4 if axis == rank - 1 and BITS[kind] < 8 else 1  # of elements that are whole bytes
    if not rank or codes.shape[axis] <= unit:
        return Node(_typed(drawing, codes, kind, []), codes, kind)
    at = unit * (1 + dice.below((codes.shape[axis] - 1) // unit))
    first, second = np.split(codes, [at], axis)
    if how == "joined":
        values = [_typed(drawing, part, kind, []) for part in (first, second)]
        return Node(tensor.ConcatOp(build.tensor_type(codes.shape, kind), axis, values).result, codes, kind)
    before = np.concatenate([first, dice.numbers.integers(0, 1 << BITS[kind], second.shape).astype(np.uint8)], axis)
    offsets = [at if i == axis else 0 for i in range(rank)]
    whole, part = (_typed(drawing, part, kind, []) for part in (before, second))
    return Node(build.inserted(part, whole, offsets, list(second.shape)), codes, kind)


def _part(drawing: Drawing) -> tuple[int, int, int]:
    """Offset, stride, and what is left behind the last."""
    return drawing.dice.pick({(0, 1, 0): 3, (0, 1, 1): 2, (1, 1, 0): 2, (0, 2, 0): 1, (1, 2, 1): 1, (2, 1, 2): 1})


def _cut(whole: ir.Value, kept: list[int], offsets: list[int], sizes: list[int], strides: list[int]) -> ir.Value:
    result = build.tensor_type(kept, ir.RankedTensorType(whole.type).element_type)
    return tensor.ExtractSliceOp(result, whole, [], [], [], offsets, sizes, strides).result


def _typed(drawing: Drawing, codes: Bytes, kind: str, dynamic: list[int]) -> ir.Value:
    """Codes as bytes of some shape, which then get their type."""
    data, bits, shape = packed(codes, BITS[kind]), BITS[kind], codes.shape
    if not shape:
        return build.bitcast(drawing.value(data.reshape(()), "i8", place="constant"), build.tensor_type([], kind))
    options = ["flat"]
    if shape[-1] * bits % 8 == 0:
        options.append("same")
    if codes[0].size * bits % 8 == 0:
        options.append("rows")
    form = "same" if dynamic else drawing.dice.pick({form: BYTE_SHAPES[form] for form in options})
    shapes = {
        "flat": [data.size],
        "same": [*shape[:-1], shape[-1] * bits // 8],
        "rows": [shape[0], -1],
    }
    array = data.reshape(shapes[form])
    value = drawing.value(array, "i8", dynamic)
    if not dynamic:
        drawing.storages.append(Storage(value, array))
    return build.bitcast(value, build.tensor_type([None if i in dynamic else n for i, n in enumerate(shape)], kind))


def _view(drawing: Drawing, axes: str, sizes: Sizes, kind: str) -> Node | None:
    """Elements that are a view of bytes which something else has been made of, if there are any that fit."""
    rows, blocks = sizes[axes[0]], sizes["k"]
    if not drawing.storages or not drawing.dice.chance(0.25):
        return None
    for storage in drawing.dice.shuffled(drawing.storages):
        count = storage.data.size * 8 // BITS[kind]
        if storage.data.size * 8 % (BITS[kind] * blocks * BLOCK) or count // (blocks * BLOCK) < rows:
            continue
        codes = unpacked(storage.data, BITS[kind]).reshape(-1, blocks, BLOCK)
        start = drawing.dice.below(len(codes) - rows + 1)
        value = build.bitcast(storage.ir, build.tensor_type(codes.shape, kind))
        drawing.dice.features.add("view")
        if len(codes) != rows:
            value = _cut(value, [rows, blocks, BLOCK], [start, 0, 0], [rows, blocks, BLOCK], [1, 1, 1])
        return Node(value, codes[start : start + rows], kind)
    return None
