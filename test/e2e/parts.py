"""Matmuls whose operands are parts of parameters, or parameters in another order, and what the parameters hold.

Written apart from mxcomp: which bits of a parameter an operand has is found by moving an array of their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from string import Template

import numpy as np
from modules import BITS, Bytes
from numpy.typing import NDArray
from shapes import HERE, Shaped

NAMES = ("a", "b", "as", "bs")


@dataclass(frozen=True)
class Part:
    """A tensor of a module made of the parameter `name`; `bits` are the numbers of its bits there.

    They are int64[*shape, bits of an element]; `stored` is the parameter's shape in bytes, `lines` are the MLIR that
    makes the tensor, each of a value.
    """

    name: str
    element: str
    bits: NDArray[np.int64]
    stored: tuple[int, ...]
    lines: tuple[str, ...]

    @staticmethod
    def parameter(name: str, shape: Sequence[int]) -> Part:
        """All of it, a tensor of bytes."""
        whole = Part(name, "i8", np.arange(8 * math.prod(shape)).reshape(*shape, 8), tuple(shape), ())
        return replace(whole, lines=(f"util.global.load @{name} : {whole.type}",))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape[:-1]

    @property
    def type(self) -> str:
        return f"tensor<{''.join(f'{size}x' for size in self.shape)}{self.element}>"

    @property
    def value(self) -> str:
        """Its name in the module."""
        return f"%{self.name}_{len(self.lines) - 1}"

    @property
    def text(self) -> list[str]:
        return [f"%{self.name}_{i} = {line}" for i, line in enumerate(self.lines)]

    def _then(self, op: str, bits: NDArray[np.int64], element: str = "", word: str = "to") -> Part:
        new = replace(self, bits=bits, element=element or self.element)
        return replace(new, lines=(*self.lines, f"{op} : {self.type} {word} {new.type}"))

    def cast(self, shape: Sequence[int], element: str) -> Part:
        """The same bytes in another shape and type."""
        bits = self.bits.reshape(*shape, width(element))
        return self._then(f"iree_tensor_ext.bitcast {self.value}", bits, element, "->")

    def sliced(self, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int], drop: int = 0) -> Part:
        """A slice, without its first `drop` dimensions, of size 1."""
        places = tuple(slice(o, o + (n - 1) * s + 1, s) for o, n, s in zip(offsets, sizes, steps, strict=True))
        numbers = " ".join(str(list(each)) for each in (offsets, sizes, steps))
        return self._then(f"tensor.extract_slice {self.value}{numbers}", self.bits[places][(0,) * drop])

    def split(self, first: int) -> Part:
        """With the first dimension as two, the outer one of this size."""
        bits = self.bits.reshape(first, -1, *self.bits.shape[1:])
        groups, shape = _pairs(bits.ndim - 1), list(bits.shape[:-1])
        return self._then(f"tensor.expand_shape {self.value} {groups} output_shape {shape}", bits, word="into")

    def joined(self) -> Part:
        """With the first two dimensions as one."""
        bits = self.bits.reshape(-1, *self.bits.shape[2:])
        return self._then(f"tensor.collapse_shape {self.value} {_pairs(len(self.shape))}", bits, word="into")

    def transposed(self, order: Sequence[int]) -> Part:
        bits = self.bits.transpose(*order, len(order))
        result = replace(self, bits=bits).type
        lines = (
            *self.lines,
            f"tensor.empty() : {result}",
            f"linalg.transpose ins({self.value} : {self.type}) outs(%{self.name}_{len(self.lines)} : {result}) "
            f"permutation = {list(order)}",
        )
        return replace(self, bits=bits, lines=lines)


def _pairs(rank: int) -> list[list[int]]:
    """Dimensions, the first two of which belong together."""
    return [[0, 1], *([i] for i in range(2, rank))]


def width(element: str) -> int:
    return BITS.get(element, 8)


def typed(name: str, shape: Sequence[int], element: str) -> Part:
    """The parameter is the tensor: bytes with its shape, or flat if its rows are no whole ones."""
    *outer, last = *shape[:-1], shape[-1] * width(element)
    flat = [math.prod(shape) * width(element) // 8]
    return Part.parameter(name, flat if last % 8 else [*outer, last // 8]).cast(shape, element)


Recipe = Callable[[str, Sequence[int], str], Part]
"""Makes an operand of this shape and type from a parameter of this name."""


def expert(name: str, shape: Sequence[int], element: str) -> Part:
    """Expert 2 of three."""
    return typed(name, [3, *shape], element).sliced([2] + [0] * len(shape), [1, *shape], [1] * (1 + len(shape)), 1)


def strided(name: str, shape: Sequence[int], element: str) -> Part:
    """Every second of all but the last dimension, from the first on."""
    *outer, last = shape
    part = typed(name, [*(2 * size + 1 for size in outer), last], element)
    return part.sliced([1] * len(outer) + [0], shape, [2] * len(outer) + [1])


def in_bytes(name: str, shape: Sequence[int], element: str) -> Part:
    """Expert 1 of two, cut off in front and behind before the bytes get their type."""
    *outer, last = shape
    stored = [2, *(size + 3 for size in outer), last * width(element) // 8]
    part = Part.parameter(name, stored)
    return part.sliced([1, *[2] * len(outer), 0], [1, *outer, stored[-1]], [1] * len(stored), 1).cast(shape, element)


def reshaped(name: str, shape: Sequence[int], element: str) -> Part:
    """Rows of expert 2, which begin in its third row, of experts that are stored one behind the other."""
    rows, *rest = shape
    part = typed(name, [4 * (rows + 5), *rest], element).split(4)
    part = part.sliced([2, 0, *[0] * len(rest)], [2, rows + 5, *rest], [1] * (2 + len(rest))).joined()
    return part.sliced([3] + [0] * len(rest), shape, [1] * len(shape))


def straddling(name: str, shape: Sequence[int], element: str) -> Part:
    """The last half of a part of one expert, and the first half of the same part of the next."""
    first, *rest = shape
    zeros, ones = [0] * len(rest), [1] * (1 + len(rest))
    part = (
        typed(name, [2, first + 3, *rest], element).sliced([0, 1, *zeros], [2, first + 1, *rest], [1, *ones]).joined()
    )
    return part.sliced([first + 1 - first // 2, *zeros], shape, ones)


def padded(name: str, shape: Sequence[int], element: str) -> Part:
    """Of rows of bytes the first or last is no element's."""
    *outer, size = *shape[:-1], shape[-1] * width(element) // 8
    part = Part.parameter(name, [*outer, size + 1])
    return part.sliced([0] * len(outer) + [1], [*outer, size], [1] * len(shape)).cast(shape, element)


def within_bytes(name: str, shape: Sequence[int], element: str) -> Part:
    """Rows of the bytes of elements that begin within bytes, if these are of 6 bits."""
    *outer, last = shape
    rows = [outer[0] + 2, *outer[1:]]
    part = typed(name, [*rows, last + 4], element)
    part = part.sliced([0] * len(outer) + [2], [*rows, last], [1] * len(shape))
    size = last * width(element) // 8
    part = part.cast([*rows, size], "i8").sliced([2] + [0] * len(outer), [*outer, size], [1] * len(shape))
    return part.cast(shape, element)


def transposed(name: str, shape: Sequence[int], element: str) -> Part:
    """The last two dimensions in another order, before they get their type."""
    *outer, last = shape
    rank = len(shape)
    part = Part.parameter(name, [*outer[:-1], last * width(element) // 8, outer[-1]])
    return part.transposed([*range(rank - 2), rank - 1, rank - 2]).cast(shape, element)


@dataclass(frozen=True)
class Weights(Shaped):
    """`Shaped` with operands that are made of parameters; an order without r means the same scales for all rows."""

    recipes: tuple[Recipe | None, ...] = (None, typed, None, typed)

    @cached_property
    def codes(self) -> tuple[Bytes, Bytes, Bytes, Bytes]:
        lhs, rhs, *scales = super().codes
        lhs_scale, rhs_scale = (s if "r" in self.orders[2 + i] else s[:, :1] for i, s in enumerate(scales))
        return lhs, rhs, lhs_scale, rhs_scale

    @property
    def inputs(self) -> list[Bytes]:
        return [self.bytes(i).view(np.int8) for i, recipe in enumerate(self.recipes) if recipe is None]

    @cached_property
    def parts(self) -> list[Part]:
        kinds = (*self.types, "f8E8M0FNU", "f8E8M0FNU")
        recipes = zip(NAMES, self.recipes, kinds, strict=True)
        return [(recipe or typed)(name, self._sizes(i), kind) for i, (name, recipe, kind) in enumerate(recipes)]

    @cached_property
    def tensors(self) -> dict[str, Bytes]:
        """The parameters' bytes: random, but for those that the matmul reads."""
        rng, found = np.random.default_rng(11), {}
        for i, part in enumerate(self.parts):
            if self.recipes[i] is not None:
                bits = rng.integers(0, 2, 8 * math.prod(part.stored)).astype(np.uint8)
                codes = self._in_order(i)[..., None]
                bits[part.bits] = np.unpackbits(codes, axis=-1, count=part.bits.shape[-1], bitorder="little")
                found[part.name] = np.packbits(bits, bitorder="little").reshape(part.stored)
        return found

    def _in_order(self, operand: int) -> Bytes:
        """Codes with the dimensions of an operand."""
        order, codes = self.orders[operand], self.codes[operand]
        have = [axis for axis in "brki"[: codes.ndim] if axis in order]
        codes = codes[tuple(slice(None) if axis in order else 0 for axis in "brki"[: codes.ndim])]
        return codes.transpose([have.index(axis) for axis in order])

    def text(self) -> str:
        arguments, lines, loads = [], [], []
        for part, recipe in zip(self.parts, self.recipes, strict=True):
            kind = part.lines[0].split(" : ")[1]
            lines += part.text[recipe is None :]
            if recipe is None:
                arguments.append(f"%{part.name}_0: {kind}")
            else:
                loads.append(f'util.global private @{part.name} = #flow.parameter.named<"{part.name}"> : {kind}\n')
        return "".join(loads) + Template((HERE / "shaped.mlir.in").read_text()).substitute(
            arguments=", ".join(arguments),
            lines="\n  ".join(lines),
            maps=", ".join(self._maps()),
            iterators=", ".join(['"parallel"'] * (2 + self.has_batch) + ['"reduction"'] * 2),
            types=", ".join(part.type for part in self.parts),
            a=self.types[0],
            b=self.types[1],
            sizes="",
            result=f"tensor<{'x'.join(map(str, self._result_shape()))}xf32>",
        ).replace("(%a, %b, %as, %bs :", f"({', '.join(part.value for part in self.parts)} :")
