"""Examines a launch without executing it: what its workgroups execute, and which of them load the same data.

Three workgroups are traced, and a sample of them where these do not execute the same, as in causal attention; the loads
of others are computed from samples (`mxcomp.sim.timing.sharing`). The order of dispatch determines which workgroups run
at the same time.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mxcomp.sim.checks.trial import Trial, Zeros
from mxcomp.sim.code_object import Kernel
from mxcomp.sim.counters import Counters, occupancy
from mxcomp.sim.device import Device
from mxcomp.sim.engine import Dispatch, Workgroup
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.findings import Findings
from mxcomp.sim.instruction import Instruction
from mxcomp.sim.memory import BASE
from mxcomp.sim.semantics import mfma
from mxcomp.sim.timing.chip import Launch
from mxcomp.sim.timing.sharing import Sharing, Survey, coordinates_of, global_kind, number_of
from mxcomp.sim.timing.trace import Recorder, Trace, TracedProgram
from mxcomp.target import Target

SIMDS = 4


@dataclass(frozen=True)
class Examination(Launch):
    """The facts of a launch from which its time is estimated.

    Attributes:
        target: The GPU.
        parts: Traces of workgroups, and how often each counts: ((trace, 1.0),) unless workgroups differ, or a loop was
            extrapolated.
        fitted: Whether it is of the kind that the model was fitted to: four waves, all MFMA scaled 16×16×128.
        flops: Of the whole launch's matrix instructions.
        depends: On what data that nobody has written its way depends; "" where it depends on none.
    """

    target: Target
    kernel: str
    parts: tuple[tuple[Trace, float], ...]
    fitted: bool
    flops: float
    depends: str = ""

    def with_parts(self, *parts: tuple[Trace, float]) -> Examination:
        """Returns the same launch with other traces of a workgroup."""
        loaded, stored = (sum(weight * moved_bytes(trace, kind) for trace, weight in parts) for kind in _KINDS)
        flops = self.workgroups * sum(weight * matrix_flops(trace) for trace, weight in parts)
        return replace(self, parts=parts, load_bytes=loaded, store_bytes=stored, flops=flops)


_KINDS = ("load", "store")


def moved_bytes(trace: Trace, kind: str) -> int:
    """Returns the bytes that a workgroup loads or stores in global memory; atomics are stores."""
    wanted = np.array([global_kind(i) == kind for i in trace.instructions])
    codes, accesses = np.concatenate(trace.codes), np.concatenate(trace.accesses)
    is_access = accesses >= 0
    return int(trace.nbytes[accesses[is_access]][wanted[codes[is_access]]].sum())


def matrix_flops(trace: Trace) -> int:
    """Returns the multiplications and additions of a workgroup's matrix instructions."""
    each = np.array([_flops(i) for i in trace.instructions], np.int64)
    return int(each[np.concatenate(trace.codes)].sum())


def _part(trace: Trace, rows: int) -> float:
    """Returns the fraction of the MFMA cycles that scaled instructions with so many rows of a result take."""
    shapes = [mfma.of(i) if i.encoding == "MFMA" else None for i in trace.instructions]
    passes = np.array([shape.passes if shape else 0 for shape in shapes])
    wanted = np.array([bool(shape and shape.scaled and shape.dim == rows) for shape in shapes])
    taken = passes * np.bincount(np.concatenate(trace.codes), minlength=len(shapes))
    return float(taken[wanted].sum() / max(1, taken.sum()))


_WIDE, _NARROW = 32, 16
"""The number of rows and columns of the two MFMA shapes."""


def _flops(i: Instruction) -> int:
    shape = mfma.of(i) if i.encoding == "MFMA" else None
    return 0 if shape is None else 2 * shape.dim * shape.dim * shape.k


def examine(
    device: Device, kernel: Kernel, grid: Sequence[int], kernarg: bytes, block: Sequence[int] | None = None,
    dynamic_lds: int = 0, asks: bool = True,
) -> Examination:  # fmt: skip
    """Follows a launch on a device whose memory holds the kernel's arguments. Memory stays as it is.

    `asks`: whether it finds out if the way depends on data that nobody has written, which takes longer than the rest.

    Raises UnsupportedInstruction, CodeObjectError and SimulationError as a launch does, and for a workgroup that
    executes nothing.
    """
    examiner = Examiner(asks)
    device.launch(kernel, grid, block, kernarg, dynamic_lds, workgroups=[(0, 0, 0)], engine=examiner)
    return examiner.examination


class Examiner:
    """An engine that examines a launch instead of executing it."""

    name = "examine"

    def __init__(self, asks: bool = True) -> None:
        self.examination: Examination
        self._asks = asks

    def run(self, dispatch: Dispatch) -> dict[Workgroup, Counters]:
        """Sets `examination`, from some of the workgroups in full; the mean of their counters is multiplied."""
        program = TracedProgram.of(dispatch.program)
        with np.errstate(all="ignore"):
            traces, seen, tail = _sampled(dispatch, program, _resident(dispatch) * dispatch.target.cus)
            trace = max(traces, key=lambda each: each.steps)
            survey = Survey(dispatch, program, [trace, *seen])
            depends = _depends(dispatch, program, trace) if self._asks else ""
            self.examination = replace(_examination(dispatch, traces, tail, trace, survey), depends=depends)
        total: Counters = Counter()
        for each in traces:
            total.update(each.counters)
        times = len(dispatch.workgroups) / len(traces)
        return {trace.workgroup: Counter({event: round(times * count) for event, count in total.items()})}


_PROBES, _SAMPLES = 2, 16
"""The numbers of workgroups beside the first that show whether all execute the same, and of those that stand for all
where they do not."""


_MOST_STEPS = 200_000
"""The number of instructions of a wave up to which other workgroups than the first are followed, or twice those of the
first: where control flow depends on data that is not there, they may not end."""


def _sampled(dispatch: Dispatch, program: TracedProgram, capacity: int) -> tuple[list[Trace], list[Trace], Trace]:
    """Returns the trace of the first workgroup alone if others execute as much, else those of a sample; all; and one.

    The last is the longest found among those that run at the end, of which there are up to `capacity`. The sample has
    the first and the last workgroup, one of which is the longest where the length follows the number.
    """
    total, draw = math.prod(dispatch.grid), random.Random(0)
    first = Recorder(dispatch, dispatch.workgroups[0], program).run()
    most = max(_MOST_STEPS, 2 * max(map(len, first.codes)))
    steps = min(most, dispatch.max_instructions)
    limited = replace(dispatch, max_instructions=steps, checks=frozenset(), findings=Findings())

    def traced(number: int) -> Trace:
        return Recorder(limited, coordinates_of(number, dispatch.grid), program).run()

    try:
        probes = [traced(number) for number in {total - 1, *draw.sample(range(total), min(total, _PROBES - 1))}]
        if all(each.steps == first.steps for each in probes):
            return [first], [first, *probes], first
        sample = [first, *probes, *(traced(number) for number in draw.sample(range(total), min(total, _SAMPLES)))]
        begin = (total - 1) // capacity * capacity
        opening = traced(begin)
    except SimulationError:
        return [first], [first], first
    last = [opening, *(each for each in sample if number_of(each.workgroup, dispatch.grid) >= begin)]
    return sample, sample, max(last, key=lambda each: each.steps)


def _depends(dispatch: Dispatch, program: TracedProgram, trace: Trace) -> str:
    """Returns the never-written memory that a workgroup's control flow depends on, or "".

    More is read than decides (`essential`). So the workgroup is followed with other bytes in the places of these.
    """
    if not trace.unwritten:
        return ""
    quiet = replace(dispatch, checks=frozenset(), findings=Findings())
    memory = dispatch.memory
    for trial in (Trial(memory, others=None, is_tame=True), Trial(memory, others=None), Zeros(memory)):
        try:
            other = Recorder(quiet, trace.workgroup, program, trial).run()
        except SimulationError:  # as from a loop that does not end
            other = None
        if other is None or not trace.goes_like(other):
            return dispatch.place_of(BASE + trace.unwritten[0].offset)
    return ""


def _parts(traces: Sequence[Trace], tail: Trace, batches: int) -> tuple[tuple[Trace, float], ...]:
    """Returns the weights of traces in the cycles of a batch. Workgroups of later batches start when any has ended, so
    batches take the mean of all; only at the end of a launch CUs wait for the longest of the last batch."""
    if len(traces) == 1:
        return ((tail, 1.0),)
    share = (1 - 1 / batches) / len(traces)
    return ((tail, 1 / batches), *((each, share) for each in traces if share))


def _resident(dispatch: Dispatch) -> int:
    """Returns how many workgroups of a CU run at the same time."""
    target = dispatch.target
    shape = occupancy(target, dispatch.program.kernel.descriptor, dispatch.lds_bytes, dispatch.waves)
    return max(1, min(shape.waves_per_simd * SIMDS // dispatch.waves, -(-math.prod(dispatch.grid) // target.cus)))


def _examination(dispatch: Dispatch, traces: Sequence[Trace], tail: Trace, trace: Trace, survey: Survey) -> Examination:
    grid, target, resident = dispatch.grid, dispatch.target, _resident(dispatch)
    total = math.prod(grid)
    sharing = Sharing(survey, grid, target.xcds)
    batches = sharing.batches(resident * target.cus)
    loaded, stored = (sum(moved_bytes(each, kind) for each in traces) / len(traces) for kind in _KINDS)
    return Examination(
        target=target,
        kernel=dispatch.program.kernel.name,
        parts=_parts(traces, tail, sum(each.count for each in batches)),
        resident=resident,
        batches=batches,
        load_bytes=loaded,
        store_bytes=stored,
        wide=_part(trace, _WIDE),
        fitted=dispatch.waves == SIMDS and _part(trace, _NARROW) == 1,
        unique_bytes=sharing.unique_bytes() + total * stored,
        workgroups=total,
        flops=total * sum(map(matrix_flops, traces)) / len(traces),
    )
