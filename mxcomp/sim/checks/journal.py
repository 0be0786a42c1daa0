"""Records what a workgroup overwrites in device memory, so that it can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.memory import Memory, gather

ROW_BYTES = 16
"""The size of a row in the journal of compiled code: an int64 offset, the dword's old bytes and their old marks."""

_Note = tuple[NDArray[Any], ...]
"""An entry of the journal: offsets, data and marks; or rows of compiled code."""


@dataclass(frozen=True)
class Contents:
    """The contents of some bytes of device memory.

    Attributes:
        offsets: Offsets, ascending.
        data, marks: What is there.
    """

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]
    marks: NDArray[np.uint8]

    @classmethod
    def of(cls, memory: Memory, offsets: NDArray[np.int64]) -> Contents:
        return cls(offsets, memory.data[offsets], memory.written[offsets])

    def restore(self, memory: Memory) -> None:
        memory.data[self.offsets], memory.written[self.offsets] = self.data, self.marks

    def over(self, others: Contents) -> Contents:
        """Returns the other contents, with these bytes replaced by the ones here."""
        at = np.searchsorted(others.offsets, self.offsets)
        data, marks = others.data.copy(), others.marks.copy()
        data[at], marks[at] = self.data, self.marks
        return Contents(others.offsets, data, marks)


class Journal:
    """Records bytes before each time they are overwritten, until its own size reaches a limit."""

    def __init__(self, memory: Memory, limit: int) -> None:
        self._memory, self._left = memory, limit
        self._notes: list[_Note] = []

    @property
    def is_full(self) -> bool:
        """Whether something could not be recorded."""
        return self._left < 0

    def note(self, offsets: NDArray[np.int64], size: int) -> None:
        """Records `size` bytes at each of the offsets, which are about to be overwritten."""
        memory = self._memory
        data = gather(memory.data, memory.words, offsets, size)
        self._add((offsets, data, gather(memory.written, memory.written_words, offsets, size)))

    def note_rows(self, rows: NDArray[np.uint8]) -> None:
        """Records rows of `ROW_BYTES` that compiled code has left."""
        self._add((rows.copy(),))

    def _add(self, note: _Note) -> None:
        self._left -= sum(array.nbytes for array in note)
        if self.is_full:
            self._notes.clear()
        else:
            self._notes.append(note)

    def before(self) -> Contents:
        """Returns the contents before the first record."""
        columns: list[list[NDArray[Any]]] = [[np.empty(0, np.int64)], [np.empty(0, np.uint8)], [np.empty(0, np.uint8)]]
        for note in self._notes:
            offsets, data, marks = note if len(note) > 1 else _columns(note[0])
            offsets = offsets[:, None] + np.arange(data.shape[1])
            for column, part in zip(columns, (offsets, data, marks), strict=True):
                column.append(part.reshape(-1))
        offsets, data, marks = map(np.concatenate, columns)
        offsets, first = np.unique(offsets, return_index=True)
        return Contents(offsets, data[first], marks[first])


def _columns(rows: NDArray[np.uint8]) -> _Note:
    return rows[:, :8].copy().view(np.int64)[:, 0], rows[:, 8:12], rows[:, 12:]
