"""What the aliases of the family's body stand for: all of it follows from a layout and two element types.

!lhs_fragment_ty = vector<32xf8E4M3FN>      what an MFMA takes of the LHS in one lane
#intrinsics_m = 8 : index                   a trip count of the body: arith.constant #intrinsics_m
#mfma = #iree_gpu.scaled_mma_layout<…>      how fragments are multiplied
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mxcomp.formats import BLOCK_SIZE, element_format
from mxcomp.layout import ACC, LHS, OPERAND_NAMES, RHS, RHS_SCALE, DataTiledLayout
from mxcomp.target import GFX950

LANES = GFX950.subgroup_size
STAGES = 3
"""K tiles that the LHS ring holds. The body counts on it."""
DYNAMIC = -(2**63)
"""A size or offset that is not known when compiling, as in MLIR's arrays."""


@dataclass(frozen=True)
class Pieces:
    """How a fragment moves: `count` loads of `size` bytes in each lane, `step` and `lane` bytes apart in memory.

    In LDS the bytes of a load follow each other by lanes; from there a lane reads its fragment `read` bytes at a time.
    """

    count: int
    size: int
    step: int
    lane: int
    read: int


PIECES = {16: Pieces(1, 16, 0, 16, 16), 24: Pieces(2, 12, 12 * LANES, 12, 24), 32: Pieces(2, 16, 16, 32, 16)}
"""By bytes of a fragment in a lane.

LDS takes 4, 12 or 16 bytes from a lane. The 24 bytes of 6-bit elements arrive as they lie in memory, so that a lane
finds its own in one place, on banks of its own; the 32 of 8-bit elements arrive in halves, each free of conflicts.
"""

UNIT_PIECES = PIECES | {32: Pieces(2, 16, 16 * LANES, 16, 16)}
"""The same in units, where the halves of 8-bit elements lie apart."""


@dataclass(frozen=True)
class Aliases:
    """The aliases for `layout` and the element types of LHS and RHS."""

    layout: DataTiledLayout
    elements: tuple[str, str]

    def lines(self) -> Iterator[str]:
        """Their definitions."""
        for name, kind in self._types():
            yield f"!{name}_ty = {kind}"
        for name, size in self._sizes().items():
            yield f"#{name} = {size} : index"
        for name, attribute in self._attributes():
            yield f"#{name} = {attribute}"

    @property
    def acc_lane(self) -> tuple[int, ...]:
        """What a lane has of a packed tile of the result: all but the dimensions of waves and lanes."""
        shape = list(self._acc)
        for dim in self._shared:
            shape[dim] = 1
        return tuple(shape)

    @property
    def _shared(self) -> tuple[int, int, int]:
        """Dimensions of a packed tile of the result along which waves, and lanes in two, have their parts."""
        waves = 2 + (self.layout.subgroups_m > 1)  # behind the outer tiles, and rows that every wave has
        return waves, len(self._acc) - 3, len(self._acc) - 2

    @property
    def _rows(self) -> int:
        """Fragments of LHS that every wave multiplies."""
        return self.layout.subgroups_m * self.layout.intrinsics_m

    @property
    def _acc(self) -> tuple[int, ...]:
        return tuple(size or 1 for size in self.layout.packed_shape(ACC, (1, 1)))

    def _element(self, operand: int) -> str:
        return self.elements[operand] if operand in (LHS, RHS) else "f8E8M0FNU"

    def _bytes(self, operand: int) -> int:
        """Bytes of a fragment in a lane."""
        return element_format(self.elements[operand]).block_bytes

    def _packed(self, operand: int) -> tuple[int | None, ...]:
        """The packed shape of an operand in a tile of the result, innermost in bytes."""
        shape = self.layout.packed_shape(operand, (1, None))
        return (*shape[:-1], self._bytes(operand)) if operand in (LHS, RHS) else shape

    def _groups(self, operand: int) -> list[list[int]]:
        """Packed dimensions of K tiles, fragments (of elements), lanes (of scales: of all waves), bytes."""
        rank = len(self._packed(operand))
        if operand == LHS:
            return split(rank, 2, rank - 3)
        if operand == RHS:
            return split(rank, 2, rank - 3, rank - 1)
        axis = "n" if operand == RHS_SCALE else "m"
        return split(rank, 2, rank - sum(getattr(self.layout, f"intrinsics_{name}") > 1 for name in (axis, "k")))

    def _rhs_places(self) -> Iterator[tuple[str, str]]:
        """Where a lane finds a piece of a fragment: the place, of as many bytes as it has of it, and the byte there."""
        size, pieces, rows = self._bytes(RHS), PIECES[self._bytes(RHS)], self.layout.shape.n
        place, byte = "lane", f"piece * {pieces.size}"
        if self.layout.rhs_row_lines:
            groups, parts = LANES // rows, size // pieces.size
            group = f"lane floordiv {rows} + piece * {groups}"
            place = f"(lane mod {rows}) * {groups} + ({group}) floordiv {parts}"
            byte = f"(({group}) mod {parts}) * {pieces.size}"
        yield "rhs_place", f"affine_map<(lane, piece) -> ({place})>"
        yield "rhs_byte", f"affine_map<(lane, piece) -> ({byte})>"

    def _sizes(self) -> dict[str, int]:
        layout = self.layout
        lhs, rhs = (PIECES[self._bytes(operand)] for operand in (LHS, RHS))
        return {
            "subgroups_m": layout.subgroups_m,
            "fragments_m": self._rows,
            "intrinsics_n": layout.intrinsics_n,
            "intrinsics_k": layout.intrinsics_k,
            "intrinsic_n": layout.shape.n,
            "threads": LANES * layout.subgroups_n,
            "copies": self._rows * layout.intrinsics_k * lhs.count // layout.subgroups_n,
            "copy_pieces": lhs.count,
            "copy_bytes": lhs.size * LANES,
            "copy_step": lhs.step,
            "copy_lane": lhs.lane,
            "lhs_pieces": self._bytes(LHS) // lhs.read,
            "lhs_bytes": lhs.read,
            "rhs_pieces": rhs.count,
        }

    def _types(self) -> Iterator[tuple[str, str]]:
        layout = self.layout
        for operand, name in enumerate(OPERAND_NAMES[:ACC]):
            packed = self._packed(operand)
            sizes = [[packed[i] for i in group] for group in self._groups(operand)]
            flat = [None if None in group else math.prod(size or 1 for size in group) for group in sizes]
            yield name, shaped("tensor", layout.packed_shape(operand, (1, None)), self._element(operand))
            yield f"{name}_byte", shaped("tensor", packed, "i8")
            yield f"{name}_packed", buffer(packed)
            yield f"{name}_buffer", buffer(flat)
        k = layout.intrinsics_k
        lhs, rhs = (PIECES[self._bytes(operand)] for operand in (LHS, RHS))
        for operand, rows, size in ((LHS, self._rows, lhs.read), (RHS, layout.intrinsics_n, rhs.size)):
            name = OPERAND_NAMES[operand]
            pieces = self._bytes(operand) // size
            yield f"{name}_vec", shaped("vector", (k, rows, pieces, size), "i8")
            yield f"{name}_pieces", shaped("vector", (pieces, size), "i8")
            yield f"{name}_piece", shaped("vector", (size,), "i8")
            yield f"{name}_bytes", shaped("vector", (pieces * size,), "i8")
            yield f"{name}_fragment", shaped("vector", (BLOCK_SIZE,), self.elements[operand])
            parts = layout.subgroups_m if operand == LHS else 1
            yield f"{name}_scale_piece", shaped("vector", (rows * k // parts,), "i8")
            yield f"{name}_scale_pieces", shaped("vector", (parts, rows * k // parts), "i8")
            yield f"{name}_scale_byte_vec", shaped("vector", (rows, k), "i8")
            yield f"{name}_scale_vec", shaped("vector", (rows, k), "f8E8M0FNU")
        yield "copy", shaped("vector", (PIECES[self._bytes(LHS)].size,), "i8")
        ring = (STAGES, self._rows * k, LANES * self._bytes(LHS))
        yield "ring", f"{shaped('memref', ring, 'i8')[:-1]}, #gpu.address_space<workgroup>>"
        per_lane = layout.shape.acc_outer * layout.shape.acc_inner
        yield "acc", shaped("tensor", self._acc, "f32")
        yield "acc_fragment", shaped("vector", (per_lane,), "f32")
        yield "acc_vec", shaped("vector", (self._rows, layout.intrinsics_n, per_lane), "f32")
        yield "acc_lane_vec", shaped("vector", self.acc_lane, "f32")
        yield "acc_lane", shaped("tensor", self.acc_lane, "f32")

    def _attributes(self) -> Iterator[tuple[str, str]]:
        layout, (lhs, rhs) = self.layout, self.elements
        for operand, name in enumerate(OPERAND_NAMES[:ACC]):
            yield f"{name}_groups", str(self._groups(operand))
        yield from self._rhs_places()
        lane = self.acc_lane
        yield "acc_lane_sizes", i64_array(lane)
        yield "acc_lane_offsets", i64_array(DYNAMIC if dim in self._shared else 0 for dim in range(len(lane)))
        yield "acc_lane_strides", i64_array([1] * len(lane))
        yield "acc_in_bounds", f"[{', '.join(['true'] * len(lane))}]"
        mfma = f"intrinsic = {layout.intrinsic}, lhs_elem_type = {lhs}, rhs_elem_type = {rhs}, acc_elem_type = f32"
        yield "mfma", f"#iree_gpu.scaled_mma_layout<{mfma}>"


def shaped(kind: str, shape: Iterable[int | None], element: str) -> str:
    return f"{kind}<{'x'.join('?' if size is None else str(size) for size in shape)}x{element}>"


def i64_array(values: Iterable[int | None]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>"


def split(rank: int, *starts: int) -> list[list[int]]:
    """The positions below `rank`, in groups that begin at 0 and at `starts`."""
    return [list(range(*bounds)) for bounds in pairwise((0, *starts, rank))]


def buffer(shape: Sequence[int | None]) -> str:
    """A buffer of bytes, contiguous inside a K tile."""
    tiles = shape.index(None)
    strides = [
        "?" if i < tiles or i == 0 else str(math.prod(size or 1 for size in shape[i + 1 :])) for i in range(len(shape))
    ]
    layout = f"strided<[{', '.join(strides)}], offset: ?>"
    return f"{shaped('memref', shape, 'i8')[:-1]}, {layout}, #amdgpu.address_space<fat_raw_buffer>>"
