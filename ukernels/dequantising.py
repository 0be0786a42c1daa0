"""Ukernels for at most 16 rows of bf16 activations as they are, and MX weights: `mx_dequantising.mlir.in`.

The RHS is packed in units as for `mx_stream.mlir.in`. Operands are words and bytes as those of `quantising`. A lane has
the 32 elements that the packing gives it: a block, or halves of two blocks 64 elements apart of 8-bit elements. It
loads activations of the same K, and scales of the blocks that it has a part of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mxcomp.formats import BLOCK_SIZE, ELEMENT_TYPES, element_format
from mxcomp.layout import RHS
from mxcomp.ukernels import quantising
from mxcomp.ukernels.aliases import shaped

BODY = "mx_dequantising.mlir.in"
ACTIVATIONS = "bf16"
"""The MLIR type of what is multiplied."""

_BITS, _VECTOR = 16, 8
"""Of an activation, and activations that an MFMA of 16x16x32 takes of a lane."""

_WHOLE = {
    "first_scale": "(g, r) -> (g * 64 + r * 4)",
    "second_scale": "(g, r) -> (g * 64 + r * 4)",
    "x_block": "(i, kk, g, p) -> (i * 16 + kk * 4 + g)",
    "x_word": "(g, p) -> (p * 4)",
}
_HALVES = {
    "first_scale": "(g, r) -> ((g floordiv 2) * 64 + r * 4)",
    "second_scale": "(g, r) -> ((g floordiv 2) * 64 + r * 4 + 128)",
    "x_block": "(i, kk, g, p) -> (i * 16 + kk * 4 + g floordiv 2 + (p floordiv 2) * 2)",
    "x_word": "(g, p) -> ((g mod 2) * 8 + (p mod 2) * 4)",
}
"""Of lanes 16g + r: bytes of a unit's scales, and block and word of the activations that are load p of step kk.

A lane has a whole block, or halves of two, as `lane_unit` of the elements says.
"""


@dataclass(frozen=True)
class Instance(quantising.Instance):
    """A member: the tile, and the type of weights, in both places of `elements`."""

    @property
    def name(self) -> str:
        """For example mx_bf16_f4E2M1FN_f32_m16_n64_k512."""
        return self.plain.name.replace(f"mx_{self.elements[RHS]}_", f"mx_{ACTIVATIONS}_", 1)

    @property
    def body(self) -> str:
        return BODY

    @property
    def rule(self) -> dict[str, Any]:
        rule = super().rule
        return rule | {"types": [ACTIVATIONS, *rule["types"][1:]]}

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        wide = shaped("vector", (BLOCK_SIZE // _VECTOR, _VECTOR), ACTIVATIONS)
        yield f"!x_wide_ty = {wide}"
        yield f"!rhs_wide_ty = {wide}"
        maps = _WHOLE if element_format(self.elements[RHS]).lane_unit == BLOCK_SIZE else _HALVES
        yield from (f"#{name} = affine_map<{text}>" for name, text in maps.items())


_MOST_UNITS = 2
"""Along N: with four of them weights of 4 bits spill registers."""

INSTANCES = tuple(
    Instance(tile, (kind, kind), _BITS)
    for tile in quantising.TILES
    for kind in ELEMENT_TYPES
    if tile.fits((kind, kind)) and (tile.layout.units or (1, 1))[RHS] <= _MOST_UNITS
)
"""All of them."""
