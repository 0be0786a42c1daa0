"""The boundary between a launch and the engine that executes it.

`mxcomp.sim.device` decodes, places arguments and builds a `Dispatch`; an engine runs its workgroups and returns their
counters. Two engines that follow these rules leave identical bytes in memory:

- **Program.** `dispatch.program.instructions` maps virtual addresses to `Instruction`; execution starts at
  `dispatch.entry`. The program counter a kernel sees (s_getpc_b64, s_swappc_b64) is virtual address + `load_bias`.
- **Semantics** come from `mxcomp.sim.semantics`: functions of plain values. The engine fetches operands (constants:
  `semantics.constants`), applies EXEC, and writes results; it handles `salu.CONTROL` itself.
- **Memory.** `dispatch.memory.data` is a flat uint8 array; device address − `memory.BASE` is the index. Loads and
  stores take effect at issue, in program order of a wave, lanes in ascending order (the highest lane wins a store
  conflict). Every byte stored is marked in `memory.written`. Accesses that leave an allocation read UNWRITTEN bytes
  and store nothing; they are reported by the check "bounds", which cannot be left out of an engine (turned off, it
  only keeps silent).
- **LDS** is `dispatch.lds_bytes` of UNWRITTEN bytes per workgroup, **scratch** `dispatch.scratch_bytes` per lane;
  a trial that is not the first fills both otherwise (`checks.trial.Trial.content`).
- **Waves** start as `dispatch.wave_start(workgroup, wave)` says; VGPRs other than v0 hold `UNDEFINED_VGPR`
  (others in a trial of registers, `checks.trial.Trial.registers`).
- **Order.** Workgroups run one after another. Between barriers waves take turns as `dispatch.schedule` says: within a
  round, each wave that can run gets one turn of at most that many instructions; a turn ends at a barrier or s_endpgm.
  When all waves wait or have ended, the barrier opens; waves that have ended while others wait are a "barrier" error.
- **Checks.** Only those in `dispatch.checks`; findings go to `dispatch.findings` and never change results. Workgroups
  are run by way of `checks.unwritten.UnwrittenCheck`, maybe several times; stores are journaled for that.
- **Limits.** More than `dispatch.max_instructions` wave instructions in a workgroup raise SimulationError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.counters import Counters
from mxcomp.sim.findings import Findings
from mxcomp.sim.instruction import RegisterSet
from mxcomp.sim.memory import BASE, Memory
from mxcomp.sim.program import Program
from mxcomp.sim.schedule import Schedule
from mxcomp.target import Target

UNDEFINED_VGPR = 0xFFFBAD00
UNDEFINED_SGPR = 0xBAD0BAD0

Workgroup = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WaveStart:
    """The registers of a wave before its first instruction.

    Attributes:
        sgprs: 128 values by operand code; EXEC is in 126 and 127.
        v0: uint32[64], work-item ids x | y << 10 | z << 20, of the dimensions that the kernel asks for.
        mode: The MODE register.
        defined: Registers that hold something meaningful.
    """

    sgprs: tuple[int, ...]
    v0: NDArray[np.uint32]
    mode: int
    defined: RegisterSet


WaveStarts = Callable[[Workgroup, int], WaveStart]
"""Gives the initial registers of each wave."""


@dataclass(frozen=True)
class Dispatch:
    """Everything an engine needs for one launch.

    Attributes:
        target: The GPU.
        program: Decoded code, all of it implemented.
        memory: Device memory, arguments included.
        entry: Virtual address of the first instruction.
        load_bias: Device address of the module's virtual address 0.
        grid: Workgroups in x, y and z.
        workgroups: Which ones to run, in order.
        waves: Waves per workgroup.
        wave_start: State of each wave.
        lds_bytes, scratch_bytes: LDS per workgroup, private memory per lane.
        max_instructions: Limit per workgroup, against endless loops.
        arguments: Those that may be addresses, in order.
    """

    target: Target
    program: Program
    memory: Memory
    entry: int
    load_bias: int
    grid: Workgroup
    workgroups: tuple[Workgroup, ...]
    waves: int
    wave_start: WaveStarts
    lds_bytes: int
    scratch_bytes: int
    checks: frozenset[str]
    schedule: Schedule
    findings: Findings
    max_instructions: int
    arguments: tuple[int, ...] = ()

    def place_of(self, address: int) -> str:
        """Returns the name of a byte: the last argument that starts before it in its allocation, or the allocation."""
        start = BASE + self.memory.allocation(address)[0]
        before = [(given, number) for number, given in enumerate(self.arguments) if start <= given <= address]
        if not before:
            return f"byte {address - start} of the allocation at {start:#x}"
        given, number = max(before)
        return f"byte {address - given} of argument {number}"


class Engine(Protocol):
    """Executes dispatches."""

    name: str

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        """Runs every workgroup; returns their counters."""
        ...
