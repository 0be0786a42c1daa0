"""The base of kernels over inner tiles whose waves share A and B in LDS: `multistage` and `intrawave`.

A kernel is a class with a prologue, a main loop and an epilogue, in this order (`family.Kernel`). Waves are distributed
along M and N; a wave has `rows` x `columns` fragments of the result in registers.

Where a lane's accumulators are adjacent in a row of the result, so are those of two joined fragments (`operands`), and
a lane stores 16 bytes of bf16, in 16 rows at a time. Of f32 it would store the first half of 32 bytes, and then the
second: so lanes exchange them, and store 8 rows of 128 bytes each, whole cache lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from iree.compiler import ir

from mxcomp.layout import LHS, RHS
from mxcomp.mlir import build
from mxcomp.target import Target
from mxcomp.ukernels import builder, family
from mxcomp.ukernels.builder import Index, Values
from mxcomp.ukernels.family import Kernel
from mxcomp.ukernels.operands import Operand, RowMajor, Staging
from mxcomp.ukernels.waves import INNER_PIECES, MFMA

_F32 = 4
"""Bytes of an f32."""

Scales = dict[tuple[Operand, int], ir.Value]
"""The scales of a wave's fragments, in registers."""


@dataclass(frozen=True)
class Tile(family.Tile):
    """A tile whose operands are staged in LDS for some steps."""

    least_stages: ClassVar[int] = 3
    """The least number of stages of the ring buffer, with which data from HBM are requested early enough."""
    joinable: ClassVar[tuple[int, ...]] = tuple(INNER_PIECES)
    """The bytes of a fragment in a lane for which two may be joined."""

    def objection(self, elements: tuple[str, str], target: Target) -> str:
        stages = self.staging(elements, target)[RHS].stages
        few = f"{target.lds_bytes} bytes of LDS of {target.name} hold {max(0, stages)} of {self.least_stages} stages"
        return super().objection(elements, target) or (few if stages < self.least_stages else "")

    def lds_bytes(self, elements: tuple[str, str], target: Target) -> int:
        return sum(each.ring_bytes + each.scale_ring_bytes for each in self.staging(elements, target))

    def staging(self, elements: tuple[str, str], target: Target) -> tuple[Staging, ...]:
        """Returns the LDS staging of LHS and RHS, and of further RHS."""
        raise NotImplementedError

    def unstaged(self, elements: tuple[str, str]) -> list[Staging]:
        """Returns the same without stages, and without slots for scales."""
        layout = self.layout
        sides = [
            Staging(inner_tiles, layout.intrinsics_k, MFMA.lane_bytes(kind), self.waves.count)
            for inner_tiles, kind in zip(self.inner_tiles, elements, strict=True)
        ]
        number, waves = (RHS, self.waves.n) if layout.lane_columns else (LHS, self.waves.m)
        side = sides[number]
        joined = (layout.lane_columns or self.for_rhs) and side.fragments // waves % 2 == 0
        sides[number] = replace(side, joined=joined and side.fragment_bytes in self.joinable)
        return sides


class Gemm(Kernel):
    operand: type[Operand] = Operand
    row_major: type[Operand] = RowMajor
    """The classes that copy and read operands in inner tiles, and row-major ones."""
    sums = False
    """Whether LLVM adds up places of results with padding, whatever it knows of them: found by compiling."""

    def __init__(self, instance: family.Instance, target: Target) -> None:
        super().__init__(instance, target)
        tile = instance.tile
        assert isinstance(tile, Tile)
        self.waves, self.staging = tile.waves, tile.staging(instance.elements, target)
        self.rows = tile.inner_tiles[LHS] // tile.waves.m
        self.columns = tile.inner_tiles[RHS] // tile.waves.n * self.results
        self.steps = self.layout.intrinsics_k
        self.stages, self.slots = self.staging[RHS].stages, self.staging[RHS].scale_slots

    @property
    def joined(self) -> int | None:
        """The side of which two fragments are joined."""
        return next((side for side in (LHS, RHS) if self.staging[side].joined), None)

    @property
    def exchanges(self) -> bool:
        """Whether lanes exchange parts of two joined fragments, so that a store of f32 is of whole cache lines."""
        return self.joined is not None and self.instance.stores.element_bytes == _F32

    def _open(self, *arguments: ir.Value) -> None:
        self.k_tiles = Index.of(build.dim(arguments[LHS], 2))
        lhs, rhs = self.instance.elements
        of_wave = [(lhs, self.rows), *[(rhs, self.columns // self.results)] * self.results]
        operands = zip(self._pairs(*arguments[: -self.results]), of_wave, self.staging, strict=True)
        self.sides: tuple[Operand, ...] = tuple(
            (self.row_major if staging.is_row_major else self.operand)(*pair, kind, fragments, staging, self.k_tiles)
            for pair, (kind, fragments), staging in operands
        )
        self.of_column = [(x, n) for x in self.sides[RHS:] for n in range(x.fragments)]
        self._stage()

    def _stage(self) -> None:
        for x in self.sides:
            x.stage()
        for x in self.sides:
            x.stage_scales()

    def _distribute(self, thread: Index) -> None:
        super()._distribute(thread)
        wave, lane = self.wave, self.lane
        self.lane_place = lane // self.layout.shape.n, lane % self.layout.shape.n
        self.row = (wave // self.waves.n * self.rows).here
        self.column = (wave % self.waves.n * (self.columns // self.results)).here
        lhs, *each_rhs = self.sides
        lhs.distribute(wave, lane, self.row)
        for rhs in each_rhs:
            rhs.distribute(wave, lane, self.column)

    def _stored_type(self, result: ir.RankedTensorType) -> ir.RankedTensorType:
        """Returns the result with pairs of inner tiles expanded along the joined side, as lanes store parts of both."""
        if self.joined is None:
            return result
        *above, m, n, groups, rows, inner = result.shape
        sides = [[m], [n]]
        sides[self.joined] = [[m, n][self.joined] // 2, 2]
        of_lanes = [groups // 2, 2, *([2, rows // 2] if self.exchanges else [rows])]
        return build.tensor_type([*above, *sides[LHS], *sides[RHS], *of_lanes, inner], str(result.element_type))

    def _epilogue(self, acc: Values, threads: builder.Threads) -> None:
        """Stores the wave's fragments, row by row, of one result behind the other."""
        # No copy may arrive after another kernel or the next tile of this workgroup reuses LDS.
        builder.wait_groups(0)
        group, row = self.lane_place
        inner, columns = self.layout.shape.acc_inner, self.columns // self.results
        acc = [acc[n] for of in range(self.results) for n in range(len(acc)) if n // columns % self.results == of]
        sizes = [[self.rows], [columns]]
        place: list[list[Index | int]] = [[self.row], [self.column]]
        at: list[Index | int]
        if self.joined is None:
            of_lane, at = [1, 1], [group, row]
        else:
            sizes[self.joined] = [sizes[self.joined][0] // 2, 1]
            place[self.joined] = [place[self.joined][0] // 2, group // 2]
            if self.joined == LHS:
                numbers = product(range(0, len(acc) // columns, 2), range(columns), range(2))
                acc = [acc[(m + of_two) * columns + n] for m, n, of_two in numbers]
            if self.exchanges:
                half = self.layout.shape.n // 2
                acc = [each for pair in zip(acc[::2], acc[1::2], strict=True) for each in builder.exchanged(*pair)]
                of_lane, at = [1, 1, 2, 1], [group % 2, row // half, 0, row % half]
            else:
                # LLVM makes one store of two neighbours if it sees an addition to one place: of bits that it knows it
                # would set others by OR.
                second = group % 2 if self.instance.stores.padded and self.sums else builder.pinned(group % 2)
                of_lane, at = [1, 2, 1], [second, 0, row]
        shape, where = ([*each[LHS], *each[RHS]] for each in (sizes, place))
        threads.store(acc, [1, 1, *shape, *of_lane, inner], [0, 0, *where, *at, 0])
