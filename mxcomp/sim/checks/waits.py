"""What a wave has in flight, and what s_waitcnt proves to have arrived.

vmcnt counts vector memory, loads and stores and direct loads to LDS, which finish in order. lgkmcnt counts LDS, which
finishes in order, and scalar loads, which do not: only lgkmcnt(0) proves those. Flat instructions count in both.
A result arrives as late as the waits allow, so a register in flight is not to be touched before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mxcomp.sim.instruction import Instruction, RegisterSet

if TYPE_CHECKING:
    from mxcomp.sim.checks.lds import Cells
    from mxcomp.sim.oracle.wave import Wave

NO_VECTOR_WAIT, NO_LGKM_WAIT = 63, 15


@dataclass(slots=True, eq=False)
class Transfer:
    """One memory instruction in flight.

    Attributes:
        registers: Where its result goes.
        ordered: LDS instructions finish in order among themselves, scalar and flat ones do not.
        counters: How many counters have yet to prove it (flat: 2).
        reads, writes: LDS bytes it reads or writes.
        direct: It brings data from global memory to LDS.
        interval: Barriers the wave had passed when it was issued.
        conflicts: Reports that depend on when it lands, see `lds`.
    """

    instruction: Instruction
    registers: RegisterSet = 0
    ordered: bool = True
    counters: int = 1
    reads: tuple[Cells, ...] = ()
    writes: tuple[Cells, ...] = ()
    direct: bool = False
    interval: int = 0
    conflicts: list[tuple[int, int, int]] = field(default_factory=list)


class Outstanding:
    """The two queues of a wave, oldest first."""

    __slots__ = ("lgkm", "vector")

    def __init__(self) -> None:
        self.vector: list[Transfer] = []
        self.lgkm: list[Transfer] = []

    def transfers(self) -> list[Transfer]:
        return self.vector + [t for t in self.lgkm if t not in self.vector]

    def issue_vector(self, wave: Wave, transfer: Transfer) -> None:
        self.vector.append(transfer)
        wave.busy |= transfer.registers

    def issue_lgkm(self, wave: Wave, transfer: Transfer) -> None:
        self.lgkm.append(transfer)
        wave.busy |= transfer.registers

    def issue_flat(self, wave: Wave, transfer: Transfer) -> None:
        transfer.counters, transfer.ordered = 2, False
        self.vector.append(transfer)
        self.issue_lgkm(wave, transfer)

    def wait(self, wave: Wave, vector: int, lgkm: int) -> None:
        """s_waitcnt vmcnt(vector) lgkmcnt(lgkm)."""
        arrived: list[Transfer] = []
        if vector != NO_VECTOR_WAIT and len(self.vector) > vector:
            count = len(self.vector) - vector
            arrived, self.vector = self.vector[:count], self.vector[count:]
        if lgkm != NO_LGKM_WAIT and self.lgkm:
            proven = self._proven(lgkm)
            self.lgkm = [t for t in self.lgkm if t not in proven]
            arrived += proven
        if arrived:
            self._land(wave, arrived)

    def _proven(self, lgkm: int) -> list[Transfer]:
        """At most `lgkm` are left: all but so many of the ordered ones have finished, the others only when it is 0."""
        if lgkm == 0:
            return list(self.lgkm)
        ordered = [t for t in self.lgkm if t.ordered]
        return ordered[: max(0, len(ordered) - lgkm)]

    def _land(self, wave: Wave, arrived: list[Transfer]) -> None:
        for transfer in arrived:
            transfer.counters -= 1
            if transfer.counters == 0 and (transfer.writes or transfer.reads):
                wave.group.shadow.land(wave, transfer)
        busy = 0
        for transfer in (*self.vector, *self.lgkm):
            busy |= transfer.registers
        wave.busy = busy
