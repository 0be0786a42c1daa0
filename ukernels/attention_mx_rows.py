"""Keys and values of MX attention: from memory through LDS to the registers of a matrix instruction.

LDS has the rows of a step, keys or elements of values, each with 128 elements or a multiple of that, and their scales.
Rows of elements of 4 and 8 bits lie one behind the other as they are stored, so that whole cache lines are copied;
their chunks of 16 bytes lie in an order by which lanes that read the same chunk of their rows meet no bank twice. Of 6
bits it has fragments, each the bytes of its lanes. Scales are by lanes in memory already (`row_order`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from iree.compiler import ir

from mxcomp.layout import INTRINSICS
from mxcomp.layout.inner_tiles import LANES
from mxcomp.ukernels import builder
from mxcomp.ukernels.attention_turns import exhaust
from mxcomp.ukernels.builder import Index, Values, select
from mxcomp.ukernels.waves import BEYOND, INNER_PIECES

INTRINSIC = "MFMA_SCALE_F32_16x16x128_B32"
MFMA = INTRINSICS[INTRINSIC]
ROWS, STEP, VALUES = MFMA.m, MFMA.k, MFMA.acc_inner
"""The rows of a fragment; its depth, which is the keys of a step; and the numbers that a lane has of a result."""
GROUPS = LANES // ROWS
"""The number of groups of lanes, each with a block of its own."""
_CHUNK, _BANKED, _WORD = 16, 16, 4
"""Bytes of a chunk; lanes that read one each at a time, from all banks; and bytes of scales that a lane copies."""


def row_order(unit: int, rows: int) -> list[tuple[str, int]]:
    """Returns factors of the rows of a step, outermost first.

    Of a fragment ("f") of a part ("p") a group of lanes ("g") has four neighbours ("i"). A lane has `unit` neighbours.
    """
    return [("p", rows // (GROUPS * unit)), ("g", GROUPS), ("f", unit // VALUES), ("i", VALUES)]


@dataclass(frozen=True)
class Staged:
    """An operand's rows of a step.

    Attributes:
        rows: Of a step.
        depths: Fragments along a row.
        unit: Neighbouring rows of which a lane has results.
        head_rows, stored_bytes: Rows of a head in memory, and bytes of a row there.
        is_along: Whether the following step is behind this one in each row; else it has the following rows.
        waves: That copy.
    """

    element: str
    rows: int
    depths: int
    unit: int
    head_rows: int
    stored_bytes: int
    is_along: bool
    waves: int

    @property
    def fragments(self) -> int:
        return self.rows // ROWS

    @property
    def fragment_bytes(self) -> int:
        return MFMA.lane_bytes(self.element)

    @property
    def piece(self) -> int:
        """Bytes that a lane copies at a time."""
        return INNER_PIECES[self.fragment_bytes].size

    @property
    def in_rows(self) -> bool:
        return self.piece == _CHUNK

    @property
    def row_bytes(self) -> int:
        """The bytes of a row in LDS, with zeros behind those that are stored."""
        return self.depths * GROUPS * self.fragment_bytes

    @property
    def step_bytes(self) -> int:
        """The distance of steps in memory."""
        return self.row_bytes if self.is_along else self.rows * self.stored_bytes

    @property
    def turns(self) -> int:
        return -(-self.rows * self.row_bytes // (LANES * self.piece * self.waves))

    @property
    def bytes(self) -> int:
        """The bytes of LDS, including unused copies of waves behind the last row."""
        return self.turns * self.waves * LANES * self.piece

    @property
    def scale_bytes(self) -> int:
        """The bytes of scales: for each fragment one of each lane."""
        return self.rows * GROUPS * self.depths

    @property
    def scale_turns(self) -> int:
        return -(-self.scale_bytes // (LANES * _WORD * self.waves))

    @property
    def scale_room(self) -> int:
        """The bytes of LDS for scales, including unused copies."""
        return self.scale_turns * self.waves * LANES * _WORD

    def first_row(self, fragment: Index) -> Index:
        """Returns the first row of a fragment (`row_order`)."""
        in_part = self.unit // VALUES
        return fragment // in_part * (GROUPS * self.unit) + fragment % in_part * VALUES

    def row(self, fragment: Index | int, of_fragment: Index) -> Index:
        """Returns the row of a step that a row of a fragment is."""
        return self.first_row(Index.of(fragment)) + of_fragment // VALUES * self.unit + of_fragment % VALUES

    def exchanged(self, of_fragment: Index) -> Index:
        """Returns the number by which chunks of a row of a fragment change places."""
        several = math.gcd(self.row_bytes // _CHUNK, _BANKED)
        return of_fragment % _BANKED // (_BANKED // several)


class Rows:
    """Copies an operand of a head to LDS, and reads it.

    Args:
        slots: Steps that LDS has room for.
        sources: Elements and scales in memory, as bytes.
        head, steps: The head, and the steps of each in memory.
        end: Of the steps that are copied.
    """

    def __init__(
        self, staged: Staged, slots: int, sources: Sequence[ir.Value], head: Index, steps: int, end: Index,
        wave: Index, lane: Index,
    ) -> None:  # fmt: skip
        self.staged, self._slots, self._sources = staged, slots, sources
        self._head, self._steps, self._end = head, steps, end
        self._wave, self._lane = wave, lane
        self._elements, self._scales = (builder.lds(slots * size) for size in (staged.bytes, staged.scale_room))
        self._chunks = self._read_chunks() if staged.in_rows else []

    def copy(self, step: Index) -> None:
        exhaust(self.copies(step))

    def copies(self, step: Index) -> Iterator[None]:
        """Starts to copy, one copy at a time; nothing behind the last step."""
        staged, (elements, scales) = self.staged, self._sources
        is_there, slot = step < self._end, step % self._slots
        of_head = self._head * (staged.head_rows * staged.stored_bytes)
        start = select(is_there, of_head + step * staged.step_bytes, BEYOND)
        for turn in range(staged.turns):
            copied = self._wave + turn * staged.waves
            row, byte = (each.here for each in (self._chunk if staged.in_rows else self._of_fragment)(copied))
            place = row * staged.stored_bytes + byte
            if staged.stored_bytes % staged.row_bytes:
                in_row = byte + step * staged.row_bytes if staged.is_along else byte
                place = select(in_row < staged.stored_bytes, place, BEYOND)
            at = slot * staged.bytes + copied * (LANES * staged.piece)
            builder.copy_to_lds(elements, [start + place], self._elements, at, staged.piece)
            yield
        of_step = (self._head * self._steps + step) * staged.scale_bytes
        for turn in range(staged.scale_turns):
            byte = (self._wave + turn * staged.waves) * (LANES * _WORD)
            start = select(builder.both(is_there, byte < staged.scale_bytes), of_step + byte, BEYOND)
            at = slot * staged.scale_room + byte
            builder.copy_to_lds(scales, [start + self._lane * _WORD], self._scales, at, _WORD)
        builder.async_group()
        yield

    def _chunk(self, copied: Index) -> tuple[Index, Index]:
        """Returns the row, and the byte in it, of the chunk that a lane copies."""
        staged, chunks = self.staged, self.staged.row_bytes // _CHUNK
        chunk = (copied * LANES + self._lane).here
        row = (chunk // chunks).here
        of_fragment = row // staged.unit % GROUPS * VALUES + row % VALUES
        return row, (chunk % chunks ^ staged.exchanged(of_fragment)) * _CHUNK

    def _of_fragment(self, copied: Index) -> tuple[Index, Index]:
        """Returns the same of a piece of a fragment's bytes."""
        staged, size = self.staged, self.staged.fragment_bytes
        byte = ((copied * LANES + self._lane) * staged.piece).here
        lane, fragment = (byte // size % LANES).here, (byte // (size * LANES)).here
        row = staged.row(fragment // staged.depths, lane % ROWS)
        return row, (fragment % staged.depths * GROUPS + lane // ROWS) * size + byte % size

    def scales(self, step: Index) -> Values:
        """Reads a lane's scales of all fragments of a step, for each depth."""
        staged, count = self.staged, self.staged.fragments
        start = step % self._slots * staged.scale_room
        places = [start + (self._lane + depth * LANES) * count for depth in range(staged.depths)]
        return [builder.read_lds(self._scales, place, count, count & -count) for place in places]

    def reads(self, step: Index) -> list[Callable[[], ir.Value]]:
        """Returns what reads each fragment of a step, and each of its depths, in order."""
        numbers = product(range(self.staged.fragments), range(self.staged.depths))
        return [partial(self._read, step, *each) for each in numbers]

    def _read(self, step: Index, fragment: int, depth: int) -> ir.Value:
        staged = self.staged
        slot, size = step % self._slots * staged.bytes, staged.fragment_bytes
        if staged.in_rows:
            behind, count = slot + staged.first_row(Index.of(fragment)) * staged.row_bytes, size // _CHUNK
            places = [behind + self._chunks[depth * count + i] for i in range(count)]
        else:
            places = [slot + (fragment * staged.depths + depth) * (LANES * size) + self._lane * size]
        each = size // len(places)
        return builder.joined([builder.read_lds(self._elements, place, each, each & -each) for place in places])

    def _read_chunks(self) -> list[Index]:
        """Returns the places of a lane's chunks in a fragment at row 0: of two that groups have, its own."""
        staged, of_fragment = self.staged, self._lane % ROWS
        own = (self._lane // ROWS ^ staged.exchanged(of_fragment)).here
        row = staged.row(0, of_fragment) * staged.row_bytes
        count = staged.depths * staged.fragment_bytes // _CHUNK
        return [(row + (own ^ Index.of(i * GROUPS)) * _CHUNK).here for i in range(count)]
