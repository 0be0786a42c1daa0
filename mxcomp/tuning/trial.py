"""Compiles and times one candidate in a worker. All types here are plain data, so that workers may be on other
machines."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxcomp import compiler
from mxcomp.compiler import Program
from mxcomp.errors import InputError, MxcompError
from mxcomp.measuring.dispatches import Stopwatch, modelled
from mxcomp.measuring.repeats import Recorded
from mxcomp.measuring.subject import Subject
from mxcomp.selection.tuned_lines import MEASURED, MODELLED, Key, Line, text
from mxcomp.target import get_target


@dataclass(frozen=True)
class Trial:
    """A ukernel for a problem, to be timed on "sim" (modelled, nothing is computed) or "hip" (measured, if correct).

    With K in `parts`, the dispatch that adds them up counts.
    """

    key: Key
    kernel: str
    device: str = "sim"
    ukernel_dirs: tuple[str, ...] = ()
    parts: int = 1


@dataclass(frozen=True)
class Outcome:
    """The µs of the matmul dispatch, or why there are none."""

    kernel: str
    source: str
    us: float | None = None
    reason: str = ""
    parts: int = 1


def attempt(trial: Trial, stopwatch: Stopwatch | None = None) -> Outcome:
    """Returns the outcome of a candidate; its own errors are part of it, so that the others go on.

    Raises InputError for what is not about the candidate, such as a device that is not there.
    `stopwatch` is how it is measured. In tests the simulated device stands in for the GPU, with a clock of theirs.
    """
    source = source_of(trial)
    try:
        us = _modelled(trial) if trial.device == "sim" else _measured(trial, stopwatch or Stopwatch())
    except InputError:
        raise
    except MxcompError as error:
        return Outcome(trial.kernel, source, reason=str(error).splitlines()[0], parts=trial.parts)
    return Outcome(trial.kernel, source, us, parts=trial.parts)


def source_of(trial: Trial) -> str:
    """Returns the source of its time: modelled or measured."""
    return MODELLED if trial.device == "sim" else MEASURED


def _modelled(trial: Trial) -> float:
    subject = Subject(trial.key.problem, trial.key.result or "f32")
    program = _compiled(trial, subject)
    kernel = _kernel(program, trial)
    found = modelled(program.vmfb, subject.nothing())
    first = next(i for i, dispatch in enumerate(found) if dispatch.kernel == kernel)
    return sum(dispatch.us for dispatch in found[first : first + _dispatches(trial)])


def _measured(trial: Trial, stopwatch: Stopwatch) -> float:
    """Returns the measured time, after its result has been compared with float64. Raises MxcompError where it is
    wrong."""
    subject = Subject(trial.key.problem, trial.key.result or "f32")
    program = _compiled(trial, subject, "hal")
    kernel = _kernel(program, trial)
    recorded = Recorded(program.vmfb, get_target(trial.key.target).iree_flags)
    operands = subject.operands()
    (result,), taken = stopwatch.call(recorded.program(), operands)
    if wrong := subject.objection(operands, result):
        raise MxcompError(f"its result is wrong: {wrong}")
    first = recorded.kernels.index(kernel)
    each = range(first, first + _dispatches(trial))
    return sum(stopwatch.dispatch(recorded, operands, i, min(taken)).us for i in each)


def _compiled(trial: Trial, subject: Subject, compile_to: str = "end") -> Program:
    """Returns the program of a candidate: by its name, or with split K by a table of one line."""
    with tempfile.TemporaryDirectory() as directory:
        how: dict[str, Any] = {"ukernels": trial.kernel}
        if trial.parts > 1:
            table = Path(directory, "tuned.csv")
            table.write_text(text([Line(trial.key, trial.kernel, MODELLED, 1.0, None, split_k=trial.parts)]))
            how = {"tuned": table}
        return compiler.compile(
            subject.source(),
            trial.key.target,
            ukernel_dirs=trial.ukernel_dirs,
            compile_to=compile_to,
            strict=True,
            **how,
        )


def _dispatches(trial: Trial) -> int:
    """Returns the dispatches from the matmul's on."""
    return 1 if trial.parts == 1 else 2


def _kernel(program: Program, trial: Trial) -> str:
    """Returns the matmul's function. Raises MxcompError where it is not the ukernel's."""
    (matmul,) = program.report.matmuls
    if matmul.ukernel != trial.kernel or matmul.kernel is None:
        raise MxcompError(f"it is not used: {matmul.reason}")
    return matmul.kernel
