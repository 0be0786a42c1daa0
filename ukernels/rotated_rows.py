"""The kernel that computes rows, writes them over those of caches, and computes the elements of another result.

Where rotary embeddings of few queries and keys are what is computed (`passes/join_rows.py`), a workgroup has a head of
keys: its threads compute elements of the keys' and values' new rows, and of the queries that share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir

from mxcomp.mlir import build
from mxcomp.ukernels import builder
from mxcomp.ukernels.builder import Index, Threads, Values
from mxcomp.ukernels.rows import Row, Rows
from mxcomp.ukernels.waves import LANES, MOST_THREADS

_ALIGNMENT = 16
"""The alignment of rows in LDS in bytes."""

Element = Callable[[Values, Index], ir.Value]
"""Makes the element of this number of a result, from the kernel's operands as buffers."""


@dataclass(frozen=True)
class RotatedRows(Rows):
    """New rows, one for each group of caches, and `other` elements of another result for each group.

    Attributes:
        other, other_element: The number of them, and their type.
        taken: The types of operands that elements are computed from, each of one dimension.
        elements: The new rows of each cache, all groups one behind the other, and the other result.
    """

    other: int = 0
    other_element: str = ""
    taken: tuple[ir.RankedTensorType, ...] = ()
    elements: tuple[Element, ...] = ()

    divided = ()

    @property
    def name(self) -> str:
        return f"mx_write_rotated_rows_d{self.size}_{self.other}" + (f"_{self.format}" if self.format else "")

    @property
    def threads(self) -> int:
        return min(MOST_THREADS, -(-max(self.other, self.size) // LANES) * LANES)

    @property
    def inputs(self) -> list[ir.RankedTensorType]:
        return [*self.taken, super().inputs[-1]]

    @property
    def results(self) -> list[ir.RankedTensorType]:
        return [*super().results, build.tensor_type([self.groups, self.other], self.other_element)]

    @property
    def along(self) -> list[tuple[int, ...]]:
        return [*super().along, (0,)]

    def _put(self, threads: Threads, workgroup: Index, buffers: Values) -> None:
        *taken, table = buffers
        *rows, of_other = self.elements
        self._put_elements(threads, self.in_place, [0], self.other, partial(of_other, taken), workgroup * self.other)
        if self.format:
            return self._put_quantised(threads, workgroup, taken, table)
        (at, is_here), first = self.row_at(table, workgroup), workgroup * self.size
        for number, row in enumerate(rows):
            self._put_elements(threads, number, at, self.size, partial(row, taken), first, is_here)

    def _put_quantised(self, threads: Threads, workgroup: Index, taken: Values, table: ir.Value) -> None:
        """Puts blocks into caches that a thread quantises of rows in LDS, which all threads have computed.

        Each wave has blocks of one of the rows.
        """
        new, thread = [builder.lds(self.size, self.element) for _ in range(self.caches)], threads.number
        for row, to in zip(self.elements, new, strict=False):
            for first in range(0, self.size, self.threads):
                item = (thread + first).here
                with builder.when(item < self.size):
                    value = row(taken, workgroup * self.size + item)
                    builder.write_lds(builder.from_elements([value]), to, item)
        builder.lds_barrier()

        def piece(item: Index) -> Row:
            return workgroup, Index.of(0), [item * self.piece]

        for number, row in enumerate(new):
            turned = (thread + (self.threads - number * LANES)) % self.threads
            self._put_pieces(threads, turned, 1, piece, [row], table, number * len(self.stored), _ALIGNMENT)

    def _put_elements(
        self, threads: Threads, result: int, at: Sequence[Index | int], size: int,
        element: Callable[[Index], ir.Value], first: Index, condition: ir.Value | None = None,
    ) -> None:  # fmt: skip
        """Puts a thread's elements, of so many, into a result from a place on, if a condition holds."""
        for item, is_there in builder.shared_out(size, threads.number, self.threads):
            holds = builder.all_of([is_there, condition])
            threads.put(result, [*at, item], 1, partial(_vector, element, first + item), holds)


def _vector(element: Callable[[Index], ir.Value], number: Index) -> ir.Value:
    return builder.from_elements([element(number)])
