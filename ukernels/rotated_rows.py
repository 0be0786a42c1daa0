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
from mxcomp.ukernels.builder import Index, Values
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

    def _by_thread(self, thread: Index, workgroup: Index, buffers: Values, outs: Values) -> Values:
        *taken, table = buffers
        *caches, other = outs
        *rows, of_other = self.elements
        other = self._with(other, [0], self.other, thread, partial(of_other, taken), workgroup * self.other)
        if self.format:
            return [*self._quantised(thread, workgroup, taken, table, caches), other]
        (at, is_here), first = self.row_at(table, workgroup), workgroup * self.size
        for number, row in enumerate(rows):
            caches[number] = self._with(caches[number], at, self.size, thread, partial(row, taken), first, is_here)
        return [*caches, other]

    def _quantised(self, thread: Index, workgroup: Index, taken: Values, table: ir.Value, caches: Values) -> Values:
        """Returns caches with blocks that a thread quantises of rows in LDS, which all threads have computed.

        Each wave has blocks of one of the rows.
        """
        new = [builder.lds(self.size, self.element) for _ in range(self.caches)]
        for row, to in zip(self.elements, new, strict=False):
            for first in range(0, self.size, self.threads):
                item = (thread + first).here
                with builder.when(item < self.size):
                    value = row(taken, workgroup * self.size + item)
                    builder.write_lds(builder.from_elements([value]), to, item)
        builder.lds_barrier()
        made, count = Values(), len(self.stored)

        def piece(item: Index) -> Row:
            return workgroup, Index.of(0), [item * self.piece]

        for number, row in enumerate(new):
            turned = (thread + (self.threads - number * LANES)) % self.threads
            own = caches[number * count :][:count]
            made += self._with_pieces(turned, 1, piece, [row], table, own, _ALIGNMENT)
        return made

    def _with(
        self, out: ir.Value, at: Sequence[Index | int], size: int, thread: Index,
        element: Callable[[Index], ir.Value], first: Index, condition: ir.Value | None = None,
    ) -> ir.Value:  # fmt: skip
        """Returns a result with a thread's elements, of so many, from a place on, if a condition holds."""
        for item, is_there in builder.shared_out(size, thread, self.threads):
            holds = builder.all_of([is_there, condition])
            out = builder.inserted(out, [*at, item], 1, partial(_vector, element, first + item), holds)
        return out


def _vector(element: Callable[[Index], ir.Value], number: Index) -> ir.Value:
    return builder.from_elements([element(number)])
