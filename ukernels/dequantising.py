"""Ukernels for up to 64 rows at a time of bf16 activations as they are, and MX weights: `mx_dequantising.mlir.in`.

The RHS is packed in units as for `stream.py`. Operands are words and bytes as those of `quantising`. A lane has
the 32 elements that the packing gives it: a block, or halves of two blocks 64 elements apart of 8-bit elements. It
loads activations of the same K, and scales of the blocks that it has a part of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mxcomp.formats import BLOCK_SIZE, ELEMENT_TYPES, element_format
from mxcomp.layout import RHS
from mxcomp.ukernels import family, quantising, stream
from mxcomp.ukernels.aliases import shaped
from mxcomp.ukernels.unit_aliases import UnitAliases
from mxcomp.ukernels.waves import STEPS, Waves, unit_layout

BODY = "mx_dequantising.mlir.in"
ACTIVATIONS = "bf16"
"""The MLIR type of what is multiplied."""

_BITS, _VECTOR, _LOAD = 16, 8, 4
"""Of an activation, activations that an MFMA of 16x16x32 takes of a lane, and words that they are."""
ACTIVATION_BYTES = _BITS // 8

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
        units_m, _ = self.layout.units or (1, 1)
        yield f"!x_rows_vec_ty = {shaped('vector', (STEPS, units_m, BLOCK_SIZE // _VECTOR, _LOAD), 'i32')}"
        yield f"!x_wide_ty = {wide}"
        yield f"!rhs_wide_ty = {wide}"
        maps = _WHOLE if element_format(self.elements[RHS]).lane_unit == BLOCK_SIZE else _HALVES
        yield from (f"#{name} = affine_map<{text}>" for name, text in maps.items())

    def lists(self) -> dict[str, str]:
        units_m, _ = self.layout.units or (1, 1)
        aliases = self.tile.aliases(self.elements)
        assert isinstance(aliases, UnitAliases)
        place = ["%column0", *(["%row_of_share"] if units_m > 1 else []), "%g", "%r", "%value0"]
        ones = ["1"] * len(place)
        lists = {
            "result_place": place,
            "result_sizes": [str(aliases.share.columns), *ones[2:], str(aliases.share.values)],
            "result_strides": ones,
            "result_origin": ["%c0" for _ in place],
            "result_in_bounds": ["true" for _ in place],
        }
        return super().lists() | {name: ", ".join(items) for name, items in lists.items()}


_MOST_UNITS = 2
"""Along N: with four of them weights of 4 bits spill registers."""

_FOUR, _SIX, _EIGHT = ((4, 4),), ((6, 6),), ((8, 8),)
_TALL: tuple[tuple[int, int, int, family.Pairs], ...] = (
    (2, 1, 8, _SIX), (2, 1, 4, _FOUR + _EIGHT), (2, 2, 8, _SIX + _EIGHT), (2, 2, 4, _FOUR), (2, 4, 4, ()),
    (4, 1, 4, _SIX), (4, 2, 4, ()), (4, 4, 4, ()),
)  # fmt: skip
"""Units along M and N, waves along K, and bits that have others or spill registers, for more than 16 rows."""

_TILES = (
    *(tile for tile in quantising.TILES if (tile.layout.units or (1, 1))[RHS] <= _MOST_UNITS),
    *(stream.Tile(unit_layout(m, n), -4, waves=Waves(k=k), without=without) for m, n, k, without in _TALL),
)

INSTANCES = tuple(
    Instance(tile, (kind, kind), _BITS) for tile in _TILES for kind in ELEMENT_TYPES if tile.fits((kind, kind))
)
"""All of them."""

MOST_ROWS = max(instance.most_rows for instance in INSTANCES)
"""Of a workgroup, which takes all rows of a matrix if there are no more."""


MOST_ELEMENTS = {8: 3 * 256 * MOST_ROWS * 32}
"""Of a result in tiles, by bits of weights, with more of which IREE's own code is modelled as faster.

As many as three workgroups for each CU have in tiles of 64 × 32: those of 64 columns spill registers. By 8192 × 8192 of
8 bits 128 rows take 49 µs, 81 by IREE, 256 rows 93 and 85, 1024 rows 358 and 291; by 1280 × 8192, 512 rows 44 and 79.
With 4 bits tiles are faster at any size: 57 µs and 85 for 256 rows, 223 and 289 for 1024.
"""


def fitting(element: str, m: int, n: int, k: int) -> list[Instance]:
    """Those for weights of this type and a problem of this size: of more rows the ones that take most at a time."""
    rows = min(m, MOST_ROWS)
    able = [each for each in INSTANCES if each.elements[RHS] == element and each.covers(rows, n, k)]
    return [each for each in able if m <= MOST_ROWS or each.most_rows == MOST_ROWS]
