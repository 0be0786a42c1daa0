"""Tracks what a wave has in flight, and what s_waitcnt proves to have arrived.

vmcnt counts vector memory, loads and stores and direct loads to LDS, which finish in order. lgkmcnt counts LDS, which
finishes in order, and scalar loads, which do not: only lgkmcnt(0) proves those. Flat instructions count in both. A
result may arrive as late as the waits allow, so a register in flight must not be touched before. A full counter makes a
wave wait, too: no more than 63 and 15 are in flight, and LLVM relies on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from mxcomp.sim.checks.marks import Cells
from mxcomp.sim.instruction import Instruction, RegisterSet, registers

NO_VECTOR_WAIT, NO_LGKM_WAIT = 63, 15


def waitcnt_fields(simm16: int) -> tuple[int, int]:
    """Returns vmcnt (63: no wait) and lgkmcnt (15: no wait) of s_waitcnt."""
    return simm16 & 15 | (simm16 >> 14 & 3) << 4, simm16 >> 8 & 15


@dataclass(frozen=True, slots=True)
class Flight:
    """Static facts of a memory instruction.

    Attributes:
        registers: Where its result goes.
        vector, lgkm: Counted by vmcnt, by lgkmcnt; flat instructions by both.
        ordered: LDS instructions finish in order among themselves, scalar and flat ones do not.
        direct: It brings data from global memory to LDS.
        local: It reads or writes LDS bytes that checks follow.
    """

    instruction: Instruction
    registers: RegisterSet
    vector: bool
    lgkm: bool
    ordered: bool
    direct: bool
    local: bool

    @classmethod
    def of(cls, i: Instruction) -> Flight | None:
        """Returns the facts of an instruction, or None if it accesses no memory."""
        if i.memory is None:
            return None
        op, result = i.memory.op, i.memory.result
        return cls(
            instruction=i,
            registers=0 if result is None or op.to_lds else registers((result,)),
            vector=op.is_vector,
            lgkm=not op.is_vector or op.space == "flat",
            ordered=op.space == "lds",
            direct=op.to_lds,
            local=op.to_lds or (op.space == "lds" and op.kind != "permute"),
        )


@dataclass(slots=True, eq=False)
class Transfer:
    """One memory instruction in flight.

    Attributes:
        counters: How many counters have yet to prove it (flat: 2).
        reads, writes: LDS bytes it reads or writes.
        interval: Barriers the wave had passed when it was issued.
        conflicts: Reports that depend on when it lands, see `lds`.
    """

    flight: Flight
    interval: int = 0
    counters: int = 1
    reads: tuple[Cells, ...] = ()
    writes: tuple[Cells, ...] = ()
    conflicts: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def instruction(self) -> Instruction:
        return self.flight.instruction

    @property
    def direct(self) -> bool:
        return self.flight.direct

    @property
    def is_scalar(self) -> bool:
        """Whether it is of no lane."""
        return self.instruction.encoding == "SMEM"


class Landing(Protocol):
    """The interface of LDS checks that waits call."""

    def land(self, wave: Issuer, transfer: Transfer) -> None: ...


class Issuer(Protocol):
    """A wave, as far as transfers go."""

    number: int
    barriers: int
    busy: RegisterSet
    outstanding: Outstanding

    @property
    def shadow(self) -> Landing: ...


class Outstanding:
    """The two queues of a wave, oldest first."""

    __slots__ = ("lgkm", "vector")

    def __init__(self) -> None:
        self.vector: list[Transfer] = []
        self.lgkm: list[Transfer] = []

    def transfers(self) -> list[Transfer]:
        return self.vector + [t for t in self.lgkm if t not in self.vector]

    def copy(self) -> Outstanding:
        """Returns the transfers without what they touch in LDS."""
        twins = {t: Transfer(t.flight, t.interval, t.counters) for t in self.transfers()}
        other = Outstanding()
        other.vector, other.lgkm = [twins[t] for t in self.vector], [twins[t] for t in self.lgkm]
        return other

    def issue(self, wave: Issuer, transfer: Transfer) -> None:
        flight = transfer.flight
        transfer.counters = flight.vector + flight.lgkm
        if flight.vector:
            self.wait(wave, NO_VECTOR_WAIT - 1, NO_LGKM_WAIT)
            self.vector.append(transfer)
        if flight.lgkm:
            self.wait(wave, NO_VECTOR_WAIT, NO_LGKM_WAIT - 1)
            self.lgkm.append(transfer)
        wave.busy |= flight.registers

    def wait(self, wave: Issuer, vector: int, lgkm: int) -> None:
        """Executes s_waitcnt vmcnt(vector) lgkmcnt(lgkm)."""
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
        """Returns the transfers that have arrived if at most `lgkm` are outstanding: the oldest of the ordered ones,
        and the others only when it is 0."""
        if lgkm == 0:
            return list(self.lgkm)
        ordered = [t for t in self.lgkm if t.flight.ordered]
        return ordered[: max(0, len(ordered) - lgkm)]

    def _land(self, wave: Issuer, arrived: list[Transfer]) -> None:
        for transfer in arrived:
            transfer.counters -= 1
            if transfer.counters == 0 and (transfer.writes or transfer.reads):
                wave.shadow.land(wave, transfer)
        busy = 0
        for transfer in (*self.vector, *self.lgkm):
            busy |= transfer.flight.registers
        wave.busy = busy
