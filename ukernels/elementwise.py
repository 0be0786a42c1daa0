"""The kernel that computes several results at once, each element from elements of operands: horizontal fusion.

A workgroup has a part of each result: what has the same subscripts in dimensions that all of them have alike. Its waves
are shared out among results; a thread computes and stores a piece of a row, or several. The first results may be new
rows of caches, which are stored there (`mxcomp.ukernels.rows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.mlir.index import row_major
from mxcomp.ukernels import builder, standing
from mxcomp.ukernels.builder import Index, Threads, Values, select
from mxcomp.ukernels.rows import Rows
from mxcomp.ukernels.waves import LANES, MOST_THREADS

_MOST_TURNS = 4

Piece = Callable[[Values, Sequence[Index]], ir.Value]
"""Computes the neighbours from a place of a result on, from the kernel's operands as buffers."""


@dataclass(frozen=True)
class Elementwise(standing.Kernel):
    """Results of sizes none of which is 1, and one dimension of all of them may be dynamic.

    Attributes:
        taken: The types of operands, each of one dimension.
        made: The types of what is computed.
        dims: The dimensions that workgroups have parts of: first the dynamic one, which is of the slowest workgroups.
        width: The number of elements of a piece.
        pieces: What computes them, of each result.
        rows: What the first results are, if they are new rows of caches; the last operand says where they go.
    """

    taken: tuple[ir.RankedTensorType, ...]
    made: tuple[ir.RankedTensorType, ...]
    dims: tuple[int, ...]
    width: int
    pieces: tuple[Piece, ...]
    rows: Rows | None = None

    @property
    def inputs(self) -> Sequence[ir.RankedTensorType]:
        return self.taken

    @property
    def results(self) -> list[ir.RankedTensorType]:
        """The types of caches, and of what else is computed."""
        return [*(self.rows.results if self.rows else []), *self.made[self.in_place :]]

    @property
    def along(self) -> list[tuple[int, ...]]:
        return [*[()] * self.in_place, *[self.dims] * (len(self.made) - self.in_place)]

    @property
    def in_place(self) -> int:
        return self.rows.in_place if self.rows else 0

    @staticmethod
    def dimensions(shapes: Sequence[Sequence[int | None]], width: int) -> tuple[int, ...]:
        """Returns the dimensions that workgroups have parts of: the largest that are alike, as long as work is left."""
        first = shapes[0]
        alike = {i for i, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) == 1}
        pieces, along = sum(math.prod(size or 1 for size in shape) for shape in shapes) // width, list[int]()
        for i in sorted(alike - {len(first) - 1}, key=lambda i: -(first[i] or math.inf)):
            if not along or pieces > MOST_THREADS * _MOST_TURNS:
                along.append(i)
                pieces //= first[i] or 1
        return tuple(sorted(along, key=lambda i: (first[i] is not None, i)))

    @property
    def name(self) -> str:
        shapes = (["D" if size == build.DYNAMIC else str(size) for size in each.shape] for each in self.made)
        return "mx_elementwise_" + "_".join(map("x".join, shapes))

    @property
    def parts(self) -> list[list[int]]:
        return [[1 if i in self.dims else size for i, size in enumerate(each.shape)] for each in self.made]

    @property
    def counts(self) -> list[int]:
        """The number of pieces of a workgroup's part of each result."""
        return [math.prod(part) // self.width for part in self.parts]

    @property
    def shares(self) -> list[int]:
        """The number of threads of each result: whole waves, as many as a workgroup has room for."""
        turns = 1
        while sum(shares := [-(-count // (turns * LANES)) * LANES for count in self.counts]) > MOST_THREADS:
            turns += 1
        return shares

    @property
    def threads(self) -> int:
        return sum(self.shares)

    def write(self, workgroup: Index, given: Values, threads: Threads) -> None:
        buffers = [builder.whole_buffer(each) for each in given[: len(self.taken)]]
        of_workgroup, first = self._of_workgroup(workgroup), 0
        for number, (share, count) in enumerate(zip(self.shares, self.counts, strict=True)):
            for turn in range(-(-count // share)):
                end = min(share, count - turn * share)
                is_own = builder.both(threads.number >= first, threads.number < first + end)
                item = select(is_own, threads.number + -first, 0) + turn * share
                self._put(threads, number, item.here, of_workgroup, buffers, is_own)
            first += share
        threads.keep()

    def _of_workgroup(self, workgroup: Index) -> dict[int, Index]:
        found = dict[int, Index]()
        for i in reversed(self.dims):
            is_outermost = i == self.dims[0]
            size = self.made[0].shape[i]
            found[i] = (workgroup if is_outermost else workgroup % size).here
            workgroup = workgroup if is_outermost else workgroup // size
        return found

    def _put(
        self, threads: Threads, number: int, item: Index, of_workgroup: dict[int, Index], buffers: Values,
        is_own: ir.Value,
    ) -> None:  # fmt: skip
        """Puts a piece of a workgroup's part into a result."""
        *outer, last = self.parts[number]
        row, column = item // (last // self.width), (item % (last // self.width) * self.width).here
        inside: list[Index] = []
        for size in reversed(outer):
            inside.insert(0, (row % size).here)
            row = row // size
        place = [*(of_workgroup.get(i, each) for i, each in enumerate(inside)), column]
        at = [*(0 if i in of_workgroup else each for i, each in enumerate(inside)), column]
        if self.rows is not None and number < self.in_place:
            at, is_here = self._of_cache(self.rows, place, self.made[number].shape, buffers[-1])
            is_own = builder.both(is_own, is_here)
        threads.put(number, at, self.width, partial(self.pieces[number], buffers, place), is_own)

    @staticmethod
    def _of_cache(
        rows: Rows, place: Sequence[Index], shape: Sequence[int], table: ir.Value
    ) -> tuple[list[Index | int], ir.Value]:
        """Returns the place in a cache of an element of its new rows, and whether there is one."""
        if rows.rows:
            number = row_major(place, shape)
            of_row, column = (number // rows.size).here, number % rows.size
            group, row = (of_row // rows.rows).here, of_row % rows.rows
        else:
            axis = list(shape).index(build.DYNAMIC)
            group, row = row_major(place[:axis], shape[:axis]).here, place[axis]
            column = row_major(place[axis + 1 :], shape[axis + 1 :])
        at, is_here = rows.row_at(table, group, row)
        return [*at, column], is_here
