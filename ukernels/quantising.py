"""Ukernels for at most 16 rows that take activations, and quantise them in registers: `mx_quantising.mlir.in`.

The RHS is packed in units as for `stream.py`, so an instance can take the place of one of that body, and the
other way round (`Instance.plain`). Operands are words and bytes: [M · K/32 blocks, words of 32 activations], the RHS
[units, K tiles, steps, bytes of all lanes], its scales [units, K tiles, bytes of all lanes]; the result is
[units, 4, 16, 4]. What makes a block of it
elements and a scale is no part of an instance: a dispatch brings its model's arithmetic, which the linker puts in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from mxcomp.formats import BLOCK_SIZE, ELEMENT_TYPES, element_format
from mxcomp.layout import LHS, RHS
from mxcomp.ukernels import family, stream
from mxcomp.ukernels.aliases import DYNAMIC, LANES, i64_array, shaped
from mxcomp.ukernels.unit_aliases import UnitAliases

BODY = "mx_quantising.mlir.in"
OPERANDS = "quantising"
"""What the match rule calls operands of which the LHS are activations."""

MOST_ROWS = 16
"""Of a unit."""
SOURCE_BITS = {"bf16": 16, "f16": 16, "f32": 32}
"""Of activations, by MLIR type."""

_BEYOND = 2**31
_LOAD, _WORD_BITS = 4, 32
"""Words of 32 bits that a lane loads at a time: LLVM takes vectors of bytes apart."""
_BUFFER = "#amdgpu.address_space<fat_raw_buffer>"


def fragment(units_m: int) -> tuple[int, ...]:
    """Shape of the result of a unit along N: units along M where there are more, groups of lanes, lanes, values."""
    return (*(() if units_m == 1 else (units_m,)), 4, 16, 4)


_SPILLING = ((32, 2, 6), (32, 2, 8), (32, 4, 4))
"""Bits of activations, units along N and bits of an RHS element for which there is no instance, as registers would be
spilled: found by compiling all (benchmarks/kernel_times.py)."""

_ELEMENTS = tuple(kind for kind in ELEMENT_TYPES if element_format(kind).loadable)
"""LHS elements that conversion instructions of vectors make: no 6-bit ones."""


@dataclass(frozen=True)
class _Aliases:
    """The aliases beside those of the instance's units: of activations with so many bits, and of flat operands.

    Nothing has a dimension that is 1 but in a tile: IREE drops such of an operation that it knows nothing special of.
    """

    units: UnitAliases
    bits: int

    def lines(self) -> Iterator[str]:
        words, (units_m, units_n), share = BLOCK_SIZE * self.bits // _WORD_BITS, self.units.units, self.units.share
        pieces = words // _LOAD
        steps = self.units.steps
        rhs = (units_n, None, steps, LANES * element_format(self.units.elements[RHS]).block_bytes)
        lane = (share.columns, *(1 for _ in fragment(units_m)[:-1]), share.values)
        yield from self.units.lines()
        yield f"!x_ty = {shaped('tensor', (None, words), 'i32')}"
        yield f"!x_buffer_ty = memref<?x{words}xi32, strided<[{words}, 1], offset: ?>, {_BUFFER}>"
        yield f"!x_vec_ty = {shaped('vector', (steps, pieces, _LOAD), 'i32')}"
        yield f"!a_vec_ty = {shaped('vector', (steps, element_format(self.units.elements[LHS]).block_bytes), 'i8')}"
        yield f"!x_loads_ty = {shaped('vector', (pieces, _LOAD), 'i32')}"
        yield f"!x_words_ty = {shaped('vector', (words,), 'i32')}"
        yield f"#x_load_pieces = {pieces} : index"
        yield f"#x_beyond = {_BEYOND * 8 // (BLOCK_SIZE * self.bits)} : index"
        yield f"!rhs_flat_ty = {shaped('tensor', rhs, 'i8')}"
        yield f"!rhs_scale_flat_ty = {shaped('tensor', (units_n, None, steps * LANES), 'i8')}"
        yield f"!units_ty = {shaped('tensor', (units_n, *fragment(units_m)), 'f32')}"
        yield f"!units_lane_ty = {shaped('tensor', lane, 'f32')}"
        yield f"!units_lane_vec_ty = {shaped('vector', lane, 'f32')}"
        yield f"#units_lane_offsets = {i64_array([DYNAMIC] * len(lane))}"
        yield f"#units_lane_sizes = {i64_array(lane)}"


def suffix(rows: int) -> str:
    """Behind an instance's name in a table of times: how many rows it was given."""
    return f"_rows{rows}"


@dataclass(frozen=True)
class Instance(family.Instance):
    """A member: the tile, and the types, of an instance of `stream.py`, and the bits of an activation."""

    tile: stream.Tile
    bits: int

    @property
    def name(self) -> str:
        """For example mx_quantising16_f4E2M1FN_f4E2M1FN_f32_m16_n64_k512."""
        return self.plain.name.replace("mx_", f"mx_quantising{self.bits}_", 1)

    @property
    def plain(self) -> stream.Instance:
        """The one that takes the same RHS, and an LHS that is packed."""
        return stream.Instance(self.tile, self.elements)

    @property
    def body(self) -> str:
        return BODY

    @property
    def operands(self) -> str:
        """What the match rule calls its operands."""
        return OPERANDS

    @property
    def rule(self) -> dict[str, Any]:
        rule = super().rule
        return rule | {"operands": self.operands, "constraints": rule["constraints"] | {"m": {"max": self.most_rows}}}

    @property
    def most_rows(self) -> int:
        """That there may be in its units along M."""
        return self.layout.workgroup_tile[0]

    @property
    def timed_rows(self) -> tuple[int, int]:
        """Between which its times are known: the fewest that no fewer units have room for, and the most."""
        return (1 if self.most_rows == MOST_ROWS else self.most_rows // 2 + 1), self.most_rows

    def covers(self, m: int, n: int, k: int) -> bool:
        """Whether it computes a problem of this size: of more than one unit along N, and of more than one block of LHS.

        IREE would drop the loop over a single one, and with it what it was told of the others.
        """
        _, tile_n, _ = self.layout.workgroup_tile
        units = -(-n // tile_n) * (self.layout.units or (1, 1))[RHS]
        return 1 <= m <= self.most_rows and units > 1 and m * k > BLOCK_SIZE and k % BLOCK_SIZE == 0

    def lines(self) -> Iterator[str]:
        aliases = self.tile.aliases(self.elements)
        assert isinstance(aliases, UnitAliases)
        yield from _Aliases(aliases, self.bits).lines()


TILES = [
    tile
    for tile in stream.TILES
    if not tile.is_half
    and tile.max_m is None  # whose operand it quantises, whatever rows it has
    and tile.threads > LANES
    and (tile.layout.units or (0,))[LHS] == 1
]

INSTANCES = tuple(
    Instance(tile, elements, bits)
    for tile, elements, bits in product(TILES, product(_ELEMENTS, ELEMENT_TYPES), sorted({*SOURCE_BITS.values()}))
    if tile.fits(elements)
    and (bits, (tile.layout.units or (0, 0))[RHS], element_format(elements[RHS]).bits) not in _SPILLING
)
"""All of them: of the tiles of one unit along M those that registers have room for."""
