"""The instruction cache: which lines of a program are in it, and when a wave gets its next instruction.

Two CUs share a cache of 64 KiB (the CDNA 4 architecture page of ROCm's documentation). They are taken to run the same
code at the same pace, so either finds what it would find alone. A wave that comes to a line which is not there waits
for it; lines behind it are fetched at the same time, as many as hardware may read ahead. Of the lines of a set the one
that was not used for longest makes room. Hits cost nothing: fetches of 32 bytes (LLVM aligns loops for them), one
a cycle, are more than the SIMDs of two CUs issue.

Numba's cache of `replay`, which has these functions inside, does not notice a change here: delete `__pycache__` then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from mxcomp.sim.timing.parameters import Machine


class Code(NamedTuple):
    """A program and its lines in the cache.

    Attributes:
        first, last: int64[instructions]: lines of an instruction's first and last byte, counted from the program's
            first line.
        there: float64[lines]: the cycle from which on a line is in the cache; infinite where it is not.
        used: float64[lines]: the cycle when a line was last wanted.
        sets, ahead: Sets of the cache, and lines that are fetched behind one that a wave comes to.
    """

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    there: NDArray[np.float64]
    used: NDArray[np.float64]
    sets: int
    ahead: int

    @classmethod
    def of(cls, ranges: NDArray[np.int64], machine: Machine) -> Code:
        """Returns a program that is not cached.

        Args:
            ranges: int64[2, instructions]: addresses of an instruction's first byte and of the one behind it.
        """
        size = int(machine.fetch_line)
        first, last = ranges[0] // size, (ranges[1] - 1) // size
        lines = int(last.max() - first.min()) + 1
        sets = int(machine.fetch_bytes / (machine.fetch_line * machine.fetch_ways))
        base = first.min()
        return cls(
            first - base, last - base, np.full(lines, np.inf), np.zeros(lines), sets, int(machine.fetch_ahead / size)
        )

    def fits(self, machine: Machine) -> bool:
        """Returns whether the whole program fits into the cache."""
        return len(self.there) <= self.sets * machine.fetch_ways

    def complete(self) -> Code:
        """Returns the program with all lines cached."""
        return self._replace(there=np.zeros_like(self.there))

    def later(self) -> Code:
        """Returns the cache as one workgroup leaves it to the next, which begins at cycle 0."""
        before = self.used - self.used.max() - 1
        return self._replace(there=np.where(np.isinf(self.there), np.inf, 0.0), used=before)


@njit(cache=True, boundscheck=False)
def fetched(machine: Any, code: Any, instruction: int, now: float) -> Any:
    """Returns the cycle when a wave has the instruction that it wants `now`, and the lines that are loaded for that."""
    first, last, there, used, sets = code.first[instruction], code.last[instruction], code.there, code.used, code.sets
    brought = 0
    for line in range(first, min(last + 1 + code.ahead, len(there))):
        if there[line] == np.inf:
            held, oldest = 0, -1
            for other in range(line % sets, len(there), sets):
                if there[other] < np.inf:
                    held += 1
                    if oldest < 0 or used[other] < used[oldest]:
                        oldest = other
            if held >= machine.fetch_ways:
                there[oldest] = np.inf
            there[line] = now + machine.fetch_latency
            used[line] = now
            brought += 1
    ready = now
    for line in range(first, last + 1):
        used[line] = now
        ready = max(ready, there[line])
    return ready, brought
