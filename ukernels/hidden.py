"""Ukernels for few rows of hidden activations, which they compute of gate and up, and quantise: `mx_hidden.mlir.in`.

The RHS is packed in units as for `stream.py`, and operands are flat as those of `quantising`: a block of 32
activations is 64 words of f32, in which gate and up take turns. What makes a block of elements and a scale of them is
brought by a dispatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from mxcomp.formats import BLOCK_SIZE, E2M1, E4M3, element_format
from mxcomp.layout import GATE_AND_UP, LHS
from mxcomp.ukernels import quantising, stream
from mxcomp.ukernels.aliases import shaped
from mxcomp.ukernels.unit_aliases import local

BODY = "mx_hidden.mlir.in"
OPERANDS = "hidden"
"""What the match rule calls operands of which the LHS are gate and up."""

BITS = 32 * len(GATE_AND_UP)
"""Of an activation: an f32 gate and an f32 up."""

MOST_BLOCKS = 256
"""Of all rows, that LDS has room for: two rows of 4096, or eight of 1024."""

_WORDS = BLOCK_SIZE * len(GATE_AND_UP)
"""Of a block."""
_PARTS, _PIECES = 4, 4
"""Lanes that compute a block, and loads of each: what lanes load at a time lies together."""

_WHOLE = {"block": "(g, p) -> (g)", "byte": "(g, p) -> (0)"}
_HALVES = {"block": "(g, p) -> (g floordiv 2 + p * 2)", "byte": "(g, p) -> ((g mod 2) * 16)"}
"""Block of a step, and byte of it, that is piece p of a fragment in lanes of group g.

A lane has a whole block, or halves of two, as `lane_unit` of the elements says.
"""


@dataclass(frozen=True)
class Instance(quantising.Instance):
    """A member: the tile and the types of an instance of `stream.py`; `bits` are always `BITS`."""

    @property
    def name(self) -> str:
        """For example mx_hidden_f4E2M1FN_f4E2M1FN_f32_m16_n64_k512."""
        return self.plain.name.replace("mx_", "mx_hidden_", 1)

    @property
    def body(self) -> str:
        return BODY

    @property
    def operands(self) -> str:
        return OPERANDS

    @property
    def rule(self) -> dict[str, Any]:
        """Half units are for even numbers of K tiles, too, as smaller tiles wait less for their first data."""
        rule = super().rule
        k = {name: bound for name, bound in rule["constraints"]["k"].items() if name != "odd"}
        return rule | {"constraints": rule["constraints"] | {"k": k}}

    @property
    def timed_rows(self) -> tuple[int, int]:
        return _TIMED_ROWS

    @property
    def most_rows(self) -> int:
        return max(_TIMED_ROWS)

    def covers(self, m: int, n: int, k: int) -> bool:
        """Whether it computes a problem of this size, whose blocks, up to a whole K tile, LDS has room for."""
        step = self.layout.workgroup_tile[2]
        return super().covers(m, n, k) and m * -(-k // step) * step <= MOST_BLOCKS * BLOCK_SIZE

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        fmt = element_format(self.elements[LHS])
        maps = _WHOLE if fmt.lane_unit == BLOCK_SIZE else _HALVES
        piece, part = _WORDS // _PIECES // _PARTS, _WORDS // _PARTS
        pairs = piece // len(GATE_AND_UP)
        yield f"!part_ty = {shaped('vector', (_PIECES, piece), 'i32')}"
        yield f"!part_words_ty = {shaped('vector', (part,), 'i32')}"
        yield f"!hidden_part_ty = {shaped('vector', (_PIECES * pairs,), 'i32')}"
        yield f"!hidden_words_ty = {shaped('vector', (BLOCK_SIZE,), 'i32')}"
        yield f"#part_word = affine_map<(p, quarter) -> (p * {piece * _PARTS} + quarter * {piece})>"
        at = f"w floordiv {pairs} * {pairs * _PARTS} + quarter * {pairs} + w mod {pairs}"
        yield f"#hidden_word = affine_map<(w)[quarter] -> ({at})>"
        yield f"#parts = {_PARTS} : index"
        yield f"#part_pieces = {_PIECES} : index"
        yield f"#hidden_part = {BLOCK_SIZE // _PARTS} : index"
        yield f"!codes_ty = {local((MOST_BLOCKS, fmt.block_bytes), 'i8')}"
        yield f"!scales_ty = {local((MOST_BLOCKS,), 'i8')}"
        yield from (f"#code_{name} = affine_map<{text}>" for name, text in maps.items())


_TIMED_ROWS = (2, 8)
"""Of blocks of rows of few tokens: see `mxcomp.routing.MEANS`."""

_ELEMENTS = (E2M1.mlir_type, E4M3.mlir_type)

TILES = [tile for tile in stream.TILES if tile.max_m is None and (tile.layout.units or (0,))[LHS] == 1]

INSTANCES = tuple(
    Instance(tile, elements, BITS)
    for tile, elements in product(TILES, product(_ELEMENTS, _ELEMENTS))
    if tile.fits(elements)
)
"""All of them."""
