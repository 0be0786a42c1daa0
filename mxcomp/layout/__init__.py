"""Data-tiled layouts of scaled matmul operands, as plain data.

A layout defines how one workgroup tile of each operand is stored in memory. It follows IREE's
`#iree_gpu.data_tiled_scaled_mma_layout`: every operand has a `TileSwizzle` of its own (`mxcomp.layout.swizzle`). The
older scale permutation [3, 0, 1, 2], which IREE's attribute cannot express, is supported too.

Operand indices are IREE's: 0 LHS, 1 RHS (transposed: N×K), 2 LHS scales, 3 RHS scales, 4 accumulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

from mxcomp.formats import element_format
from mxcomp.layout.swizzle import COLUMNS, ROWS, Dim, TileSwizzle, split

LHS, RHS, LHS_SCALE, RHS_SCALE, ACC = range(5)
OPERAND_NAMES = ("lhs", "rhs", "lhs_scale", "rhs_scale", "acc")
GATE_AND_UP = (0, 1)
"""The names of the two rows in each pair of rows of gated weights."""


class IntrinsicShape(NamedTuple):
    """The lane layout of one scaled MFMA: m, n, K elements, and accumulator rows per lane as (outer, inner) factors.

    A lane of `lanes` has `block` elements along K of each factor, which share a scale.
    """

    m: int
    n: int
    k: int
    acc_outer: int
    acc_inner: int
    block: int
    lanes: int

    def lane_bytes(self, element: str) -> int:
        """Returns the bytes of a fragment's elements in a lane."""
        return self.block * element_format(element).bits // 8

    def lane_unit(self, element: str) -> int:
        """Returns the number of consecutive elements along K in a lane; 8-bit elements are in two separate halves.

        Source: CDNA4 ISA, section 7.1.5.
        """
        return self.block // 2 if element_format(element).bits == 8 else self.block

    def holds_blocks(self, element: str) -> bool:
        """Returns whether a lane has whole blocks."""
        return self.lane_unit(element) == self.block


INTRINSICS = {
    "MFMA_SCALE_F32_16x16x128_B32": IntrinsicShape(16, 16, 128, 1, 4, block=32, lanes=64),
    "MFMA_SCALE_F32_32x32x64_B32": IntrinsicShape(32, 32, 64, 4, 4, block=32, lanes=64),
}
"""Scaled MFMA instructions (lane layouts: AMD CDNA4 ISA, v_mfma_scale_f32_*_f8f6f4). A `Target` lists those it has."""


def _intrinsic_swizzle(shape: IntrinsicShape, operand: int, unit: int) -> TileSwizzle:
    rows = shape.n if operand in (RHS, RHS_SCALE) else shape.m
    blocks = Dim("CrossThread", shape.k // shape.block)
    lanes = Dim("CrossThread", rows)
    if operand in (LHS, RHS) and unit < shape.block:
        parts = Dim("Internal", shape.block // unit)
        return TileSwizzle(((lanes,), (parts, blocks), (Dim("Internal", unit),)), (2, 0, 1, 3))
    if operand in (LHS, RHS):
        return TileSwizzle(((lanes,), (blocks,), (Dim("Internal", shape.block),)), (1, 0, 2))
    if operand in (LHS_SCALE, RHS_SCALE):
        return TileSwizzle(((lanes,), (blocks,)), (1, 0))
    groups = Dim("CrossThread", shape.m // (shape.acc_outer * shape.acc_inner))
    swizzle = TileSwizzle(((groups, Dim("Internal", shape.acc_inner)), (Dim("CrossThread", shape.n),)), (0, 2, 1))
    return swizzle.expand(ROWS, Dim("Internal", shape.acc_outer))


@dataclass(frozen=True)
class DataTiledLayout:
    """The workgroup tile of a scaled matmul, with the fields of `#iree_gpu.data_tiled_scaled_mma_layout`.

    `scale_permutation`, where given, orders the scale factors [[intrinsics, lanes], [intrinsics_k, lanes_k]] before
    subgroups are added, in place of what the interleavings give: [3, 1, 0, 2] or the older [3, 0, 1, 2].

    With `inner_tiles`, (along M, along N), a workgroup computes so many of these tiles, and operands are padded to as
    many. How operands are packed does not depend on them, so that kernels of different sizes take the same ones.

    With `lane_rows` the accumulators of a lane are consecutive rows: 32 of them, a block, for 8 MFMA along M. Rows of
    LHS are packed so that they come out there; nothing changes for IREE and ukernels, which know no row by its number.

    With `lane_columns` the accumulators of a lane are neighbours in a row of the result, and not in a column: factors
    of the MFMA have changed places. So a lane stores them in one piece. A ukernel has to multiply so; nothing changes
    for IREE.

    With `lhs_row_lines` a row of an LHS fragment is in one piece, and not in four: the first few rows are few cache
    lines then. Nothing changes for IREE here either; a ukernel has to know it.

    With `rhs_row_lines` so is a row of an RHS fragment, whose blocks then are whole for elements of 8 bits, too: what
    computes them block by block can store them. A ukernel has to know this, too.

    A `gated` layout has lane rows, of which every other one, gate and up, is in the other of two subgroups along M: so
    tiles of both lie behind one another in a lane, each as those of the layout `half`.
    """

    intrinsic: str = "MFMA_SCALE_F32_16x16x128_B32"
    intrinsics_m: int = 1
    intrinsics_n: int = 1
    intrinsics_k: int = 1
    subgroups_m: int = 1
    subgroups_n: int = 1
    subgroups_k: int = 1
    operands_interleaving_intrinsics_m: tuple[int, ...] = ()
    operands_interleaving_intrinsics_n: tuple[int, ...] = ()
    operands_interleaving_intrinsics_k: tuple[int, ...] = ()
    scale_permutation: tuple[int, ...] | None = None
    inner_tiles: tuple[int, int] | None = None
    lane_rows: bool = False
    lane_columns: bool = False
    gated: bool = False
    lhs_row_lines: bool = False
    rhs_row_lines: bool = False

    def __post_init__(self) -> None:
        if self.intrinsic not in INTRINSICS:
            raise ValueError(f"unknown intrinsic '{self.intrinsic}': expected one of {', '.join(INTRINSICS)}")
        for field in ("intrinsics_m", "intrinsics_n", "intrinsics_k", "subgroups_m", "subgroups_n"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}")
        if self.subgroups_k != 1:
            raise ValueError(f"subgroups_k must be 1 (no reduction across subgroups), got {self.subgroups_k}")
        if self.lane_rows and self.lane_columns:
            raise ValueError("accumulators of a lane are consecutive in rows or in columns, not in both")
        if self.gated and (self.subgroups_m != len(GATE_AND_UP) or not self.lane_rows):
            raise ValueError(f"a gated layout has lane_rows and subgroups_m = {len(GATE_AND_UP)}")
        if self.inner_tiles is not None and (len(self.inner_tiles) != 2 or min(self.inner_tiles) < 1):
            raise ValueError(f"inner tiles must be two counts of at least 1, got {list(self.inner_tiles)}")
        if self.lhs_row_lines and (self.inner_tiles is None or self.lane_rows):
            raise ValueError("lhs_row_lines are for layouts with inner tiles, without lane_rows")
        if self.scale_permutation is not None:
            if sorted(self.scale_permutation) != [0, 1, 2, 3]:
                raise ValueError(f"scale_permutation must order 4 dimensions, got {list(self.scale_permutation)}")
            if 1 in (self.intrinsics_m, self.intrinsics_n, self.intrinsics_k):
                raise ValueError("scale_permutation needs intrinsics_m, intrinsics_n and intrinsics_k above 1")

    @property
    def shape(self) -> IntrinsicShape:
        return INTRINSICS[self.intrinsic]

    @property
    def tile(self) -> tuple[int, int, int]:
        """The tile size (M, N, K) in elements."""
        return (
            self.shape.m * self.intrinsics_m * self.subgroups_m,
            self.shape.n * self.intrinsics_n * self.subgroups_n,
            self.shape.k * self.intrinsics_k,
        )

    @property
    def workgroup_tile(self) -> tuple[int, int, int]:
        """The part that a workgroup computes: (M, N) in elements, and K of a tile."""
        m, n, k = self.tile
        inner_m, inner_n = self.inner_tiles or (1, 1)
        return m * inner_m, n * inner_n, k

    def packed(self, inner_tiles: tuple[int, int]) -> DataTiledLayout:
        """Returns the layout of packed operands, padded to so many inner tiles."""
        return replace(self, inner_tiles=inner_tiles, lane_columns=False)

    @property
    def half(self) -> DataTiledLayout:
        """The layout of the tiles of gate, and of up, in a gated layout."""
        return replace(self, subgroups_m=1, gated=False)

    @property
    def threads(self) -> int:
        """The number of lanes that the layout distributes over."""
        return self.shape.lanes * self.subgroups_m * self.subgroups_n

    @property
    def expressible_in_iree(self) -> bool:
        """Whether `#iree_gpu.data_tiled_scaled_mma_layout` gives the same swizzles."""
        plain = replace(self, scale_permutation=None)
        return all(self.swizzle(i) == plain.swizzle(i) for i in (LHS_SCALE, RHS_SCALE))

    def swizzle(self, operand: int, element: str | None = None) -> TileSwizzle:
        """Returns the tile swizzle of operand 0 … 4 (port of getSwizzleImpl in IREE's GPUTileSwizzleUtils.cpp).

        IREE takes all elements for blocks of 32 along K. With the `element` type of LHS or RHS it is the swizzle that
        the hardware wants: for 8 bits, of source dimensions [rows, K/16, 16]. Its last two packed dimensions, two
        halves of 16, are IREE's 32.
        """
        return _swizzle(self, operand, element)

    def packing(self, operand: int, element: str | None = None) -> TileSwizzle:
        """Returns the swizzle by which operand 0 … 4 is packed: `swizzle` without lane rows and row lines.

        Its packed dimensions then may be finer than those of `swizzle`, which they lie in, in the same order. And of a
        fragment of 8-bit elements in inner tiles the first halves of all lanes come first: so lanes load what lies
        together, and MFMA of 32x32x64 take one half. Nothing changes for IREE here; ukernels over inner tiles know it.
        """
        if self.lhs_row_lines and operand in (LHS, LHS_SCALE):
            swizzle = _with_row_lines(self.swizzle(operand))
        elif self.rhs_row_lines and operand == RHS:
            swizzle = _with_blocks_in_rows(self.swizzle(operand))
        else:
            swizzle = self.swizzle(operand, element)
            if (
                self.inner_tiles is not None
                and len(swizzle.tile_shape) > 2
                and swizzle.tile_shape[-1] < self.shape.block
            ):
                swizzle = _with_halves_apart(swizzle)
        if self.inner_tiles is not None and operand != ACC:
            swizzle = replace(swizzle, multiples=(self.inner_tiles[operand % 2], 1))
        if self.lane_rows and operand in (LHS, LHS_SCALE, ACC):
            return self._with_lane_rows(swizzle, operand)
        return self._with_lane_columns(swizzle) if self.lane_columns and operand == ACC else swizzle

    @property
    def _lane_factors(self) -> int:
        """Returns the factors of an intrinsic's rows in the accumulator: (outer,) group and inner."""
        return 2 + (self.shape.acc_outer > 1)

    def _with_lane_columns(self, swizzle: TileSwizzle) -> TileSwizzle:
        """Transposes accumulators: rows in a fragment, (outer, group, inner) of a lane, become its columns, and the
        reverse."""
        rows, columns = swizzle.expand_shape
        front, last = len(rows) - self._lane_factors, len(rows) + len(columns) - 1
        order = [*range(front), last, *range(len(rows), last), *range(front, len(rows))]
        every = [*rows, *columns]
        places = {old: new for new, old in enumerate(order)}
        expanded = tuple(every[i] for i in order[: front + 1]), tuple(every[i] for i in order[front + 1 :])
        return replace(swizzle, expand_shape=expanded, permutation=tuple(places[p] for p in swizzle.permutation))

    def _with_lane_rows(self, swizzle: TileSwizzle, operand: int) -> TileSwizzle:
        """Returns rows [subgroups, intrinsics, (outer, group, inner) of a lane] in the order [subgroups, group, …]."""
        rows, *others = swizzle.expand_shape
        if operand != ACC:
            *front, lanes = rows
            parts = (self.shape.acc_outer, lanes.size // (self.shape.acc_outer * self.shape.acc_inner))
            factors = [Dim(lanes.kind, size) for size in (*parts, self.shape.acc_inner) if size > 1]
            swizzle = split(swizzle, len(front), factors)
            rows = swizzle.expand_shape[ROWS]
        group = len(rows) - 2  # before the inner rows
        first = len(rows) - self._lane_factors - (self.intrinsics_m > 1)
        order = [*range(first), group, *(i for i in range(first, len(rows)) if i != group)]
        if self.gated:
            order = [*order[1:], order[0]]
        places = {old: new for new, old in enumerate(order)}
        permutation = tuple(places.get(p, p) for p in swizzle.permutation)
        return replace(swizzle, expand_shape=(tuple(rows[i] for i in order), *others), permutation=permutation)

    def packed_shape(self, operand: int, outer: Iterable[int | None]) -> tuple[int | None, ...]:
        """Returns the full packed tensor shape: outer tile counts (rows, K tiles), a 1 for the block dimension, packed
        tile."""
        unit = (1,) if operand in (LHS, RHS) else ()
        return (*outer, *unit, *self.swizzle(operand).packed_shape)

    def multiplied_shape(self, operand: int, packed: Sequence[int | None]) -> tuple[int | None, ...]:
        """Returns a packed operand's shape as workgroups read it: tiles of rows in their inner tiles, if there are
        inner tiles."""
        if self.inner_tiles is None or operand == ACC:
            return tuple(packed)
        at = len(packed) - len(self.packed_shape(operand, (None, None)))
        rows, count = packed[at], self.inner_tiles[operand % 2]
        return (*packed[:at], None if rows is None else rows // count, count, *packed[at + 1 :])


def _with_row_lines(swizzle: TileSwizzle) -> TileSwizzle:
    """Returns […, blocks, rows, 32] of a fragment in the order [rows, blocks, 32]; scales are unchanged."""
    columns = swizzle.expand_shape[COLUMNS]
    blocks, rows = columns[-1], swizzle.expand_shape[ROWS][-1]
    swizzle = split(swizzle, 0, [Dim(rows.kind, blocks.size), Dim(rows.kind, rows.size // blocks.size)])
    if len(swizzle.expand_shape) == 2:
        return swizzle
    *steps, _ = range(2, 2 + len(columns))
    return replace(swizzle, permutation=(*steps, 0, 1, len(columns) + 1, len(columns) + 2))


def _with_blocks_in_rows(swizzle: TileSwizzle) -> TileSwizzle:
    """Returns […, blocks, rows, 32] of a fragment in the order [rows, blocks, 32]."""
    *outer, blocks, rows, inside = swizzle.permutation
    return replace(swizzle, permutation=(*outer, rows, blocks, inside))


def _with_halves_apart(swizzle: TileSwizzle) -> TileSwizzle:
    """Returns […, blocks, rows, halves, 16] of a fragment in the order [halves, blocks, rows, 16]."""
    *outer, blocks, rows, halves, inside = swizzle.permutation
    return replace(swizzle, permutation=(*outer, halves, blocks, rows, inside))


@cache
def _swizzle(layout: DataTiledLayout, operand: int, element: str | None) -> TileSwizzle:
    shape = layout.shape
    swizzle = _intrinsic_swizzle(shape, operand, shape.block if element is None else shape.lane_unit(element))

    def intrinsics(axis: str, source_dim: int, swizzle: TileSwizzle) -> TileSwizzle:
        count = getattr(layout, f"intrinsics_{axis}")
        swizzle = swizzle.expand(source_dim, Dim("CrossIntrinsic", count))
        interleaved = operand in getattr(layout, f"operands_interleaving_intrinsics_{axis}")
        return swizzle.interleave() if interleaved and count > 1 else swizzle

    if operand == ACC:
        swizzle = intrinsics("m", ROWS, intrinsics("n", COLUMNS, swizzle))
        swizzle = swizzle.expand(COLUMNS, Dim("CrossThread", layout.subgroups_n))
        swizzle = swizzle.expand(ROWS, Dim("CrossThread", layout.subgroups_m))
        return swizzle if layout.inner_tiles is None else swizzle.over_inner_tiles(*layout.inner_tiles)
    axis = "n" if operand in (RHS, RHS_SCALE) else "m"
    swizzle = intrinsics(axis, ROWS, intrinsics("k", COLUMNS, swizzle))
    if layout.scale_permutation is not None and operand in (LHS_SCALE, RHS_SCALE):
        swizzle = replace(swizzle, permutation=layout.scale_permutation)
    return swizzle.expand(ROWS, Dim("CrossThread", getattr(layout, f"subgroups_{axis}")))


def layout_from(entries: dict[str, Any]) -> DataTiledLayout:
    """Returns a layout from the entries of a dictionary attribute. Raises ValueError, TypeError."""
    known = [field.name for field in fields(DataTiledLayout)]
    if unknown := [key for key in entries if key not in known]:
        raise ValueError(f"unknown entries of layout {', '.join(unknown)}: expected {', '.join(known)}")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()}
    return DataTiledLayout(**values)


def layout_entries(layout: DataTiledLayout) -> dict[str, Any]:
    """Inverts `layout_from`; defaults are left out."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in _entries(layout).items()}


@cache
def _entries(layout: DataTiledLayout) -> dict[str, Any]:
    entries = {f.name: getattr(layout, f.name) for f in fields(layout) if getattr(layout, f.name) != f.default}
    return {"intrinsic": layout.intrinsic, **entries}
