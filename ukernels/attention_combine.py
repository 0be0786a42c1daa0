"""The kernel that combines the results of several parts of the keys (`attention_decode.py`, `attention_mx.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from iree.compiler import ir
from iree.compiler.dialects import arith

from mxcomp.mlir import build
from mxcomp.ukernels import attention, builder, standing
from mxcomp.ukernels.attention import Pieces
from mxcomp.ukernels.builder import Index, Threads, Values, element, load, select
from mxcomp.ukernels.softmax import added, exp2, largest, of_lane, of_wave, splat
from mxcomp.ukernels.waves import BEYOND, LANES


@dataclass(frozen=True)
class Combine(standing.Plain):
    """The kernel that combines `splits` parts to each of `rows` results of `value_size`, in a type.

    `group` rows, which have their parts side by side, are stored as so many fragments of so many rows.
    """

    rows: int
    group: int
    stored: tuple[int, int]
    value_size: int
    splits: int
    element: str

    @property
    def name(self) -> str:
        return f"mx_attention_combine_r{self.rows}_g{self.group}_d{self.value_size}_s{self.splits}_{self.element}"

    @property
    def threads(self) -> int:
        return -(-self.value_size // (2 * LANES)) * LANES

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return part_types(self.rows // self.group * self.splits, self.stored, self.value_size)

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return [build.tensor_type([self.rows, self.value_size], self.element)]

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        """Writes what a workgroup does for a row: a lane has two neighbours of it, and the statistics of one part."""
        rows = math.prod(self.stored)
        first = workgroup // self.group * (self.splits * rows) + workgroup % self.group
        (parts, _), (numbers, _) = (builder.whole(builder.whole_buffer(value)) for value in given[:2])
        lane = (threads.number % LANES).here
        is_part = lane < self.splits
        mine = load(numbers, [(first + select(is_part, lane, 0) * rows) * 2], 2, alignment=8)
        begin = (threads.number * 2).here
        is_inside = begin < self.value_size
        place = (first * self.value_size + select(is_inside, begin, 0)).here
        each = [load(parts, [place + rows * self.value_size * i], 2, alignment=8) for i in range(self.splits)]
        high = of_wave(element(mine, 0), largest)
        weight = builder.masked(is_part, exp2(arith.SubFOp(element(mine, 0), high).result))
        total = of_wave(arith.MulFOp(element(mine, 1), weight).result, added)
        share = arith.DivFOp(weight, attention.divisor(total)).result
        sums = builder.f32_zeros(2)
        for i, value in enumerate(each):
            sums = added(sums, arith.MulFOp(value, splat(of_lane(share, i), 2)).result)
        threads.store([builder.cast(sums, self.element)], [1, 2], [0, select(is_inside, begin, BEYOND // 4).here])


def part_types(parts: int, stored: tuple[int, int], size: int) -> list[ir.RankedTensorType]:
    """Returns the types of parts: sums, and the largest score and the sum of powers of each."""
    return [build.tensor_type([parts, *stored, *row], "f32") for row in (Pieces.of(size).shape, [2])]
