"""One execution of a workgroup with replaced contents of memory that was never written; see `unwritten`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.journal import Journal
from mxcomp.sim.checks.report import Numbered
from mxcomp.sim.instruction import Instruction, Space
from mxcomp.sim.memory import UNWRITTEN, Memory, gather

Offsets = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]

LIMIT = 1 << 28
"""The largest size of the journal in bytes. Workgroups that store more are not run again."""


def other_bytes(offsets: Offsets, is_tame: bool = False) -> Bytes:
    """Returns bytes that replace those never written, which are NaN in most formats.

    Tame bytes are finite in any format, and sums and products of many are; others are noise, where NaN comes up: eight
    at a time, three times out of four, else zeros.
    """
    words = (offsets >> 3).astype(np.uint64)
    words = words * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ words >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(32)
    noise = words >> ((offsets & 7).astype(np.uint64) << np.uint64(3))
    if is_tame:
        return (noise & np.uint64(0x1F)).astype(np.uint8) + np.uint8(0x30)
    return np.where(words >> np.uint64(62) == 0, 0, noise).astype(np.uint8)


Suspect = tuple[Space, int]
"""A read that results may depend on: the offset of an instruction that reads device memory, or the number of the first
byte of a dword in LDS or scratch.

Bytes of scratch are numbered lane by lane, wave by wave.
"""


@dataclass(frozen=True)
class Read:
    """The first read of never-written memory at an instruction or byte, by the wave with the lowest number.

    Attributes:
        offset: Of a byte: in device memory, in LDS, or in the lane's scratch.
    """

    instruction: Instruction
    wave: int
    lane: int | None
    offset: int


class Trial:
    """One execution of a workgroup.

    Attributes:
        others: Suspects where other bytes are read in place of those never written; None: everywhere.
        is_tame: What the other bytes are like.
        has_other_registers: Registers never written hold something else.
        reads: Those of device memory (compiled code leaves them out of the first execution); if recording, all of them.
        suspect: Something never written was read; compiled code may leave it at that.
    """

    def __init__(
        self,
        memory: Memory,
        others: frozenset[Suspect] | None = frozenset(),
        is_tame: bool = False,
        is_recording: bool = False,
        has_other_registers: bool = False,
    ) -> None:
        self._memory, self.others, self.is_tame, self._is_recording = memory, others, is_tame, is_recording
        self.has_other_registers = has_other_registers
        self.journal = Journal(memory, LIMIT if self.is_first and not has_other_registers else 1 << 62)
        self.reads: dict[Suspect, Read] = {}
        self.suspect = False

    @property
    def is_first(self) -> bool:
        """Whether no memory is replaced, as in the execution whose results count."""
        return self.others is not None and not self.others

    @property
    def needs_reads(self) -> bool:
        """Whether reads of LDS and scratch still have to be recorded."""
        return self._is_recording or (self.is_first and not self.suspect)

    def registers(self, wave: int, unwritten: Words) -> Words:
        """Returns the replaced contents of registers, uint32[…, 64]: tame bytes, or every bit inverted."""
        if not self.is_tame:
            return ~unwritten
        numbers = np.arange(unwritten.nbytes) + ((wave + 1) << 48)
        return other_bytes(numbers, is_tame=True).view(np.uint32).reshape(unwritten.shape)

    def content(self, space: Space, first: int, count: int) -> Bytes:
        """Returns the initial contents of `count` bytes of LDS or scratch, from number `first` on."""
        fresh = np.full(count, UNWRITTEN, np.uint8)
        if self.is_first:
            return fresh
        numbers = np.arange(first, first + count)
        noise = other_bytes(numbers + (space << 48), self.is_tame)
        if self.others is None:
            return noise
        return np.where(
            np.isin(numbers & ~3, [number for where, number in self.others if where == space]), noise, fresh
        )

    def read(
        self, space: Space, wave: Numbered, i: Instruction, lanes: Offsets, offsets: Offsets, stride: int = 0
    ) -> None:
        """Records that lanes read never-written bytes at these offsets of LDS or scratch. `stride` is the size of a
        lane's scratch."""
        self.suspect = True
        if not self._is_recording:
            return
        for lane, offset in zip(lanes.tolist(), offsets.tolist(), strict=True):
            number = (wave.number * 64 + lane) * stride + offset
            self._note((space, number & ~3), Read(i, wave.number, lane, offset))

    def _note(self, suspect: Suspect, read: Read) -> None:
        known = self.reads.get(suspect)
        if known is None or read.wave < known.wave:  # the same ones whatever the order of waves
            self.reads[suspect] = read

    def load(
        self, wave: Numbered, i: Instruction, lanes: NDArray[np.intp] | None, offsets: Offsets, values: Bytes
    ) -> Bytes:
        """Returns what a load of uint8[n, size] from the offsets gives."""
        memory = self._memory
        written = gather(memory.written, memory.written_words, offsets, values.shape[1])
        if written.all():
            return values
        self.suspect = True
        row, byte = (int(k) for k in np.argwhere(written == 0)[0])
        lane = None if lanes is None else int(lanes[row])
        suspect = Space.DEVICE, i.offset
        self._note(suspect, Read(i, wave.number, lane, int(offsets[row]) + byte))
        if self.others is not None and suspect not in self.others:
            return values
        return np.where(written == 0, self.others_at(offsets[:, None] + np.arange(values.shape[1])), values)

    def others_at(self, offsets: Offsets) -> Bytes:
        """Returns the other bytes of device memory."""
        return other_bytes(offsets, self.is_tame)


class Zeros(Trial):
    """An execution that reads zeros in place of what was never written: a row, a block or an expert that there is."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory, others=None)

    def others_at(self, offsets: Offsets) -> Bytes:
        return np.zeros(offsets.shape, np.uint8)
