"""What the aliases of `mx_experts.mlir.in` stand for: those of `mx_data_tiled`, whose tiles it has, and a few more.

!lhs_ring_ty = vector<2x16x1x16xi8>    K tiles of LHS in a lane's registers: places, fragments, loads, bytes
#lhs_beyond = 131072 : index           a K tile that is not in the buffer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from mxcomp.layout import ACC, LHS, OPERAND_NAMES, RHS
from mxcomp.ukernels.aliases import LANES, PIECES, Aliases, shaped, split
from mxcomp.ukernels.waves import BEYOND, Waves

_RING_BYTES, _RING_BYTES_ALONE = 32, 512
"""Of each fragment of LHS that a lane has on its way; of all of them, where a wave has a SIMD for itself."""

_OUTER, _FRAGMENTS = 1, 2
"""Dimensions of a packed tile of the result: of tiles along N, here one, and of fragments along M."""


@dataclass(frozen=True)
class StreamedAliases(Aliases):
    """The aliases for a layout without subgroups along N, the element types of LHS and RHS, and waves along K."""

    waves: Waves

    @property
    def depth(self) -> int:
        """K tiles that a wave has in registers, or on their way there."""
        bytes_ = _RING_BYTES if self.waves.k > 1 else _RING_BYTES_ALONE // self._rows
        return bytes_ // self._bytes(LHS)

    @property
    def share(self) -> int:
        """Fragments that a wave adds up and stores: some, or of gate and up all, as a lane needs whole blocks."""
        return self._rows if self.layout.subgroups_m > 1 else self._rows // self.waves.k

    @property
    def acc_lane(self) -> tuple[int, ...]:
        shape = list(super().acc_lane)
        if self.share < self._rows:
            shape[_FRAGMENTS] = self.share
        return tuple(shape)

    @property
    def _shared(self) -> tuple[int, int, int]:
        _, *lanes = super()._shared
        return _FRAGMENTS if self.share < self._rows else _OUTER, lanes[0], lanes[1]

    def _groups(self, operand: int) -> list[list[int]]:
        """Packed dimensions of rows, K tiles, fragments (of elements: of RHS also their places), bytes."""
        groups = super()._groups(operand) if operand in (LHS, RHS) else split(len(self._packed(operand)), 2)
        return [[0], [1], *groups[1:]]

    def _sizes(self) -> dict[str, int]:
        waves = self.waves.k
        beyond = {
            f"{OPERAND_NAMES[operand]}_beyond": -(-BEYOND // prod(size or 1 for size in self._packed(operand)))
            for operand in range(ACC)
        }
        sizes = {"waves": waves, "threads": LANES * waves, "depth": self.depth, "round": self.depth * waves}
        scales = {
            "lhs_scale_bytes": self.layout.intrinsics_m * self.layout.intrinsics_k,
            "rhs_scale_bytes": self.layout.intrinsics_n * self.layout.intrinsics_k,
        }
        shares = {"share": self.share, "share_step": self.share if self.share < self._rows else 0}
        return super()._sizes() | sizes | scales | shares | beyond

    def _types(self) -> Iterator[tuple[str, str]]:
        yield from super()._types()
        layout = self.layout
        for operand, rows in ((LHS, self._rows), (RHS, layout.intrinsics_n)):
            name, pieces = OPERAND_NAMES[operand], PIECES[self._bytes(operand)]
            yield f"{name}_ring", shaped("vector", (self.depth, rows, pieces.count, pieces.size), "i8")
        yield "lhs_scale_ring", shaped("vector", (self.depth, layout.subgroups_m, layout.intrinsics_m), "i8")
        yield "rhs_scale_ring", shaped("vector", (self.depth, layout.intrinsics_n), "i8")
        fragments = self._rows * layout.intrinsics_n
        parts = shaped("memref", (self.waves.k, fragments, LANES, layout.shape.acc_inner), "f32")
        yield "sum", shaped("vector", (self.share, layout.intrinsics_n, layout.shape.acc_inner), "f32")
        yield "parts", f"{parts[:-1]}, #gpu.address_space<workgroup>>"

    def _attributes(self) -> Iterator[tuple[str, str]]:
        yield from super()._attributes()
        yield "has_others", str(self.waves.k > 1).lower()
        size, pieces = self._bytes(LHS), PIECES[self._bytes(LHS)]
        yield "lhs_place", f"affine_map<(lane, piece) -> (lane * {size} + piece * {pieces.size})>"
