"""State of one wave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.checks.hazards import HazardTracker
from mxcomp.sim.checks.lds import NO_SHADOW, Shadow
from mxcomp.sim.checks.registers import Origin
from mxcomp.sim.checks.report import Reporter
from mxcomp.sim.checks.trial import Trial
from mxcomp.sim.checks.waits import Outstanding
from mxcomp.sim.counters import Counters
from mxcomp.sim.engine import UNDEFINED_VGPR, Dispatch, WaveStart
from mxcomp.sim.instruction import EXEC, RegisterSet, Space
from mxcomp.sim.memory import UNWRITTEN

Lanes = NDArray[Any]
MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1

END, BARRIER = -1, -2
"""Values that a step returns instead of a program counter."""

Step = Callable[["Wave"], int | None]
"""Executes one instruction: None goes on with the next, an address jumps."""


def lanes_of(mask: int) -> NDArray[np.bool_]:
    """Returns a 64-bit mask as bool[64]."""
    return np.unpackbits(np.array([mask], np.uint64).view(np.uint8), bitorder="little").view(np.bool_)


class Wave:
    """The registers and execution mask of a wave, and what it has in flight.

    Attributes:
        v: uint32[512, 64], accumulation registers from 256.
        s: SGPRs by operand code; EXEC in 126 and 127 is mirrored in `active`.
        active, full: EXEC as bool[64], and whether all lanes are in it.
        group: The workgroup.
        index_mode: (mode, index) while GPR-index mode is on.
        skips: Vector instructions are not issued (s_setvskip).
        busy, defined: Registers in flight, and registers ever written.
        outstanding, hazards: What checks know of instructions past.
        state: 0 running, BARRIER, END.
    """

    __slots__ = (
        "active", "barriers", "busy", "counters", "defined", "full", "group", "hazards", "index_mode", "mode",
        "number", "origins", "outstanding", "pc", "s", "scc", "scratch", "skips", "state", "v",
    )  # fmt: skip

    def __init__(self, group: Group, number: int, start: WaveStart) -> None:
        self.group, self.number, self.pc = group, number, group.dispatch.entry
        self.v: NDArray[np.uint32] = np.full((512, 64), UNDEFINED_VGPR, np.uint32)
        self.s = list(start.sgprs)
        if group.trial is not None and group.trial.has_other_registers:
            unwritten = np.vstack([np.array(self.s, np.uint32).reshape(2, 64), self.v])
            others = group.trial.registers(number, unwritten)
            scalars, self.v = others[:2].reshape(-1).tolist(), others[2:]
            self.s = [value if start.defined >> k & 1 else scalars[k] for k, value in enumerate(self.s)]
        self.v[0] = start.v0
        self.scc, self.mode, self.state, self.barriers = 0, start.mode, 0, 0
        self.index_mode: tuple[int, int] | None = None
        self.skips = False
        self.busy: RegisterSet = 0
        self.defined = start.defined
        self.origins: dict[int, Origin] = {}
        self.outstanding = Outstanding()
        self.hazards = HazardTracker()
        self.counters = Counters()
        self.scratch: tuple[NDArray[np.uint8], NDArray[np.bool_]] | None = None
        self.update_exec()

    @property
    def exec(self) -> int:
        return self.s[EXEC] | self.s[EXEC + 1] << 32

    @property
    def is_plain(self) -> bool:
        """Whether instructions act as encoded: neither GPR-index mode nor skipping is on."""
        return self.index_mode is None and not self.skips

    @property
    def report(self) -> Reporter:
        return self.group.report

    @property
    def shadow(self) -> Shadow:
        return self.group.shadow

    def update_exec(self) -> None:
        self.active = lanes_of(self.exec)
        self.full = self.exec == MASK64

    def set32(self, code: int, value: int) -> None:
        self.s[code] = value
        if code >= EXEC:
            self.update_exec()

    def set64(self, code: int, value: int) -> None:
        self.s[code] = value & MASK32
        self.s[code + 1] = value >> 32
        if code >= EXEC:
            self.update_exec()

    def put(self, row: int, value: Lanes) -> None:
        """Writes a vector register in the active lanes."""
        if self.full:
            self.v[row] = value
        else:
            np.copyto(self.v[row], value, where=self.active)

    def private(self) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Returns the scratch of the lanes, uint8[64, bytes], and which of it has been written."""
        if self.scratch is None:
            size = max(4, self.group.dispatch.scratch_bytes)
            content = self.group.content(Space.SCRATCH, self.number * 64 * size, 64 * size)
            self.scratch = content.reshape(64, size), np.zeros((64, size), np.bool_)
        return self.scratch


class Group:
    """A workgroup: its LDS, and the reporter of its waves. The engine sets its `shadow`."""

    def __init__(self, dispatch: Dispatch, number: tuple[int, int, int], trial: Trial | None = None) -> None:
        self.dispatch, self.number, self.trial, self.clock = dispatch, number, trial, 0
        self.lds = self.content(Space.LDS, 0, -(-dispatch.lds_bytes // 8) * 8 + 8)
        self.lds_words = self.lds.view(np.uint32)
        self.report = Reporter(dispatch, number)
        self.shadow: Shadow = NO_SHADOW

    def content(self, space: Space, first: int, count: int) -> NDArray[np.uint8]:
        """Returns the bytes of LDS or scratch before anything is written there."""
        return np.full(count, UNWRITTEN, np.uint8) if self.trial is None else self.trial.content(space, first, count)
