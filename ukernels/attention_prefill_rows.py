"""Keys and values of attention of many queries: from memory through LDS to the registers of a matrix instruction.

LDS has the rows of a round as they are stored, one behind the other. Their chunks of eight elements change places, so
that no bank is met twice; values are transposed as they are read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import amdgpu, arith

from mxcomp.ukernels import builder
from mxcomp.ukernels.attention_memory import LANE, Operand
from mxcomp.ukernels.attention_turns import exhaust
from mxcomp.ukernels.builder import Index, Threads, select
from mxcomp.ukernels.waves import LANES

ROWS, DEPTH = 32, 16
"""The rows and columns of a fragment, and the elements that a matrix instruction takes along the third size."""
GROUPS = LANES // ROWS
"""The number of groups of lanes, which have different elements along the third size."""
SUMS = ROWS * ROWS // LANES
"""The number of elements of a fragment that a lane has: by fours, whose rows are neighbours."""
STEP, FRAGMENTS = 64, 2
"""The number of keys of a step, and of fragments of its scores."""
QUADS = STEP // DEPTH
"""The number of factors of the second product that a lane's powers of a step are."""
_BANKED = 16
"""The number of chunks of eight elements that all banks of LDS have."""


@dataclass(frozen=True)
class Staged:
    """The rows of keys or values that LDS has in a round, one behind the other, each of chunks of eight elements.

    Chunks of a row change places: lanes that are served at a time read `together` of them from each of so many rows
    that all banks are read.
    """

    chunks: int
    together: int
    waves: int
    rows: int = STEP

    @property
    def row(self) -> int:
        return self.chunks * LANE

    @property
    def turns(self) -> int:
        return -(-self.rows * self.chunks // (LANES * self.waves))

    @property
    def elements(self) -> int:
        """The elements of LDS, including unused copies of waves behind the last row."""
        return self.turns * self.waves * LANES * LANE

    def exchanged(self, row: Index) -> Index:
        """Returns the number by which chunks of a row change places."""
        rows = _BANKED // self.together
        several = math.gcd(self.chunks // self.together, rows) if self.chunks % self.together == 0 else 1
        return row % rows // (rows // several) * self.together


class Lane:
    """Finds the wave and lane of a thread, and the column and group of lanes that it has of a fragment."""

    def __init__(self, threads: Threads) -> None:
        self.wave = builder.uniform(threads.number // LANES)
        self.number = (threads.number % LANES).here
        self.column, self.group = (self.number % ROWS).here, (self.number // ROWS).here


class Rows(ABC):
    """Copies keys or values of a head to LDS, and reads the fragments of a wave's step of them.

    Args:
        slots: Rounds that LDS has room for.
        head, end: The head, and the end of its keys that are copied; zeros are copied behind it.
        part: The number of a wave's step in a round.
    """

    def __init__(
        self, staged: Staged, slots: int, source: Operand, head: Index, end: Index, part: Index, lane: Lane
    ) -> None:
        self.staged, self._slots, self._source, self._head, self._end = staged, slots, source, head, end
        self._part, self._lane = part, lane
        self.lds = builder.lds(slots * staged.elements, source.stored.element)
        self._chunks = [self._chunk(turn) for turn in range(staged.turns)]
        self.places = self._places()
        """The places of a lane's elements in the first fragment of all that lie along a row."""

    def _chunk(self, turn: int) -> tuple[ir.Value, Index]:
        """Returns the row of a chunk that a lane copies, and the chunk's distance from the round's first element."""
        staged, lane = self.staged, self._lane
        chunk = ((lane.wave + turn * staged.waves) * LANES + lane.number).here
        row = (chunk // staged.chunks).here
        of_row = (chunk % staged.chunks ^ staged.exchanged(row)) * LANE
        return builder.to_i32(row), (row * self._source.step + of_row).here

    def copy(self, round_: Index) -> None:
        exhaust(self.copies(round_))

    def copies(self, round_: Index) -> Iterator[None]:
        """Starts to copy, one piece of each wave after the other."""
        staged, source = self.staged, self._source
        base = (source.place(n=self._head) + (round_ * staged.rows) * source.step).here
        left = arith.SubIOp(builder.to_i32(self._end), builder.to_i32(round_ * staged.rows)).result
        for turn, (row, place) in enumerate(self._chunks):
            is_there = arith.CmpIOp(arith.CmpIPredicate.slt, row, left).result
            at = self._slot(round_) + (self._lane.wave + turn * staged.waves) * (LANES * LANE)
            source.copy_to_lds(base + select(is_there, place, source.beyond), self.lds, at, LANE)
            if turn == staged.turns - 1:
                builder.async_group()
            yield

    def _slot(self, round_: Index) -> Index:
        return round_ % self._slots * self.staged.elements

    @abstractmethod
    def _places(self) -> list[Index]: ...

    @abstractmethod
    def reads(self, round_: Index) -> list[Callable[[], ir.Value]]:
        """Returns what reads each fragment of a wave's step, in order."""


class KeyRows(Rows):
    """Keys, which are read as they are stored, fragments innermost."""

    def _places(self) -> list[Index]:
        staged, lane = self.staged, self._lane
        row, own = (lane.column * staged.row).here, staged.exchanged(lane.column)
        depths = (lane.group + depth * GROUPS for depth in range(staged.row // DEPTH))
        return [(row + (depth.here ^ own) * LANE).here for depth in depths]

    def reads(self, round_: Index) -> list[Callable[[], ir.Value]]:
        slot = self._slot(round_).here
        starts = [slot + (self._part * STEP + fragment * ROWS) * self.staged.row for fragment in range(FRAGMENTS)]
        return [partial(self._read, start + place) for place in self.places for start in starts]

    def _read(self, place: Index) -> ir.Value:
        return builder.read_lds(self.lds, place, LANE, 2 * LANE)


class ValueRows(Rows):
    """Values, which are transposed as they are read, those of all sizes for each factor from weights."""

    def _places(self) -> list[Index]:
        """Returns the places of four elements in the fragments of each 32 sizes.

        Sixteen lanes read four keys of 16 sizes, and each gets one of these sizes. Which they are is such that a lane's
        sums are of eight neighbours.
        """
        staged, lane = self.staged, self._lane
        of_group = (lane.number % DEPTH).here
        row = (lane.group * 4 + of_group // 4).here
        half, found = (lane.column // DEPTH).here, list[Index]()
        for start in range(0, staged.row, ROWS):
            is_whole = start + ROWS <= staged.row
            chunk = of_group % 2 + (half * GROUPS if is_whole else 0) + start // LANE
            place = (chunk.here ^ staged.exchanged(row)) * LANE + of_group % 4 // 2 * 4
            found.append((row * staged.row + place).here)
        return found

    def reads(self, round_: Index) -> list[Callable[[], ir.Value]]:
        slot = self._slot(round_).here
        starts = [slot + (self._part * STEP + quad * DEPTH) * self.staged.row for quad in range(QUADS)]
        return [partial(self._read, start + place) for start in starts for place in self.places]

    def _read(self, place: Index) -> ir.Value:
        halves = (place + half * LANE * self.staged.row for half in range(2))
        return builder.joined([_read_transposed(self.lds, each) for each in halves])


def _read_transposed(source: ir.Value, at: Index) -> ir.Value:
    """Reads four 16-bit elements in each lane: of four rows of 16 that sixteen lanes have the places of, a column."""
    kind = ir.VectorType.get([4], ir.MemRefType(source.type).element_type)
    return amdgpu.TransposeLoadOp(kind, source, [at.value]).result
