"""Counts what a launch did: instructions by kind, bytes, bank conflicts, occupancy."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mxcomp.sim.code_object import Descriptor
from mxcomp.sim.findings import Finding
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.semantics import SCALAR, VECTOR, mfma, salu
from mxcomp.target import Target

Counters = Counter[str]
"""The number of each event. Instructions count once per wave:

``valu``, ``salu``, ``branch``, ``wait``, ``barrier``, ``mfma`` and ``mfma.fp4`` (by format), ``lds.load`` … ,
``global.load`` … , ``scalar.load``; ``instructions`` is their sum with the rest. Bytes, summed over active lanes:
``lds.load.bytes``, ``lds.store.bytes``, ``global.load.bytes``, ``global.store.bytes``, ``global.atomic.bytes``,
``lds.direct.bytes`` (global to LDS), ``scalar.load.bytes``, ``scratch.*``. ``lds.conflict.cycles``: see
`mxcomp.sim.banks`.
"""

_SPACES = {"buffer": "global", "flat": "global", "scalar_buffer": "scalar"}


def memory_event(instruction: Instruction) -> str | None:
    """Returns the name of a memory instruction's events, e.g. ``global.load``."""
    if instruction.memory is None:
        return None
    op = instruction.memory.op
    return "lds.direct" if op.to_lds else f"{_SPACES.get(op.space, op.space)}.{op.kind}"


_KINDS = {
    **dict.fromkeys(VECTOR, "valu"),
    **dict.fromkeys(SCALAR, "salu"),
    **dict.fromkeys(salu.BRANCHES, "branch"),
    "s_waitcnt": "wait",
    "s_barrier": "barrier",
}


def events(instruction: Instruction) -> tuple[str, ...]:
    """Returns the events that one execution of an instruction counts as, other than bytes."""
    if instruction.encoding == "MFMA":
        shape = mfma.of(instruction)
        return ("instructions", "mfma") if shape is None else ("instructions", "mfma", f"mfma.{shape.format}")
    kind = _KINDS.get(instruction.mnemonic) or memory_event(instruction)
    return ("instructions",) if kind is None else ("instructions", kind)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The number of waves that fit on a SIMD, and what limits it."""

    vgprs: int
    lds_bytes: int
    waves_per_simd: int
    limited_by: str


def occupancy(target: Target, descriptor: Descriptor, lds_bytes: int, waves: int) -> Occupancy:
    most = target.waves_per_simd
    by_registers = min(most, target.registers // max(target.register_granule, descriptor.vgprs))
    granules = -(-lds_bytes // target.lds_granule) * target.lds_granule
    workgroups = target.lds_bytes // granules if granules else 1 << 30
    by_lds = min(most, workgroups * waves // target.simds)
    limit = "vgprs" if by_registers <= by_lds and by_registers < most else "lds" if by_lds < most else "waves"
    return Occupancy(descriptor.vgprs, lds_bytes, min(by_registers, by_lds), limit)


@dataclass(frozen=True)
class LaunchStats:
    """Result of a launch.

    Attributes:
        counters: Sums over the workgroups that ran.
        workgroups: The same for each.
        findings: What the checks reported, errors first.
        seconds: Wall-clock time.
    """

    kernel: str
    counters: Counters
    workgroups: dict[tuple[int, int, int], Counters]
    findings: tuple[Finding, ...]
    occupancy: Occupancy
    seconds: float
