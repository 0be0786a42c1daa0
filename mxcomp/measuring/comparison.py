"""Times each dispatch of a program in several configurations, and a peer's kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from iree import runtime as rt

from mxcomp.errors import InputError, MxcompError
from mxcomp.measuring.configurations import CONFIGURATIONS, MATMUL
from mxcomp.measuring.dispatches import Dispatch, Stopwatch, modelled
from mxcomp.measuring.records import END_TO_END, Record
from mxcomp.measuring.repeats import Recorded
from mxcomp.measuring.subject import Subject
from mxcomp.run import signature
from mxcomp.selection.tuned_lines import MEASURED, MODELLED

AITER = "AITER"
"""The configuration that stands for AITER's fastest kernel for the size, by the model: the dispatch alone."""


@dataclass(frozen=True)
class Task:
    """A program in one configuration, to be timed on "sim" (modelled) or "hip" (measured).

    Attributes:
        name: How records call the program.
        source: MLIR, with one function of static arguments.
        subject: What it multiplies, if it is nothing but a matmul.
        aiter: A checkout, for the configuration AITER.
    """

    name: str
    source: bytes
    configuration: str
    device: str = "sim"
    subject: Subject | None = None
    aiter: Path | None = None


@dataclass(frozen=True)
class Failed:
    """A task that failed, with the reason."""

    task: Task
    reason: str


def timed(task: Task, stopwatch: Stopwatch | None = None) -> list[Record] | Failed:
    """Returns records of each dispatch, and of their sum. Raises InputError for a device that does not exist."""
    try:
        if task.configuration == AITER:
            return [_aiter(task)]
        return _timed(task, stopwatch)
    except InputError:
        raise
    except MxcompError as error:
        return Failed(task, str(error).splitlines()[0])


def _timed(task: Task, stopwatch: Stopwatch | None) -> list[Record]:
    compiled = CONFIGURATIONS[task.configuration](task.source)
    program = Recorded(compiled.text, compiled.flags)
    vmfb = program.program()
    if task.device == "sim":
        found = modelled(vmfb, task.subject.nothing() if task.subject else nothing(vmfb))
        low, us, high = (sum(each) for each in zip(*((d.low, d.us, d.high) for d in found), strict=True))
        total, source = Dispatch("", us, low, high), MODELLED
    else:
        found, total = _measured(task, program, vmfb, stopwatch or Stopwatch())
        source = MEASURED
    parts = compiled.parts([each.kernel for each in found])
    named = zip([*parts, END_TO_END], [*found, total], strict=True)
    return [_record(task, part, dispatch, source) for part, dispatch in named]


def _record(task: Task, part: str, d: Dispatch, source: str) -> Record:
    us, low, high = (round(each, 3) for each in (d.us, d.low, d.high))
    return Record(
        task.name, task.configuration, part, d.kernel, source, us, low, high, d.bound, d.flops, d.unique_bytes
    )


def _measured(task: Task, program: Recorded, vmfb: bytes, stopwatch: Stopwatch) -> tuple[list[Dispatch], Dispatch]:
    """Returns records of dispatches, and of a call as a whole. The result of a matmul is compared with float64
    first."""
    arguments = task.subject.operands() if task.subject else [np.array(each) for each in nothing(vmfb)]
    results, taken = stopwatch.call(vmfb, arguments)
    if task.subject and (wrong := task.subject.objection(arguments, results[0])):
        raise MxcompError(f"its result is wrong: {wrong}")
    once = min(taken)
    found = [stopwatch.dispatch(program, arguments, index, once) for index in range(len(program.kernels))]
    return found, Dispatch("", once, once, max(taken))


def nothing(vmfb: bytes) -> list[np.ndarray]:
    """Returns the arguments of zeros, which take no memory, of the types that the only function declares. Raises
    InputError."""
    module = rt.VmModule.copy_buffer(rt.VmInstance(), vmfb)
    names = signature.functions(module)
    if len(names) != 1:
        raise InputError(f"a model with one function is expected, not with {', '.join(names) or 'none'}")
    declaration = module.lookup_function(names[0]).reflection.get(signature.DECLARATION, "")
    return [_zeros(each) for each in signature.arguments(declaration)]


def _zeros(kind: signature.Type) -> np.ndarray:
    if not isinstance(kind, signature.TensorType) or kind.element not in signature.ELEMENTS or None in kind.shape:
        expected = f"expected a tensor of static sizes of {', '.join(signature.ELEMENTS)}"
        raise InputError(f"argument {kind or 'that is neither tensor nor scalar'}: {expected}")
    return np.broadcast_to(np.zeros((), signature.ELEMENTS[kind.element]), [size or 0 for size in kind.shape])


def _aiter(task: Task) -> Record:
    """Returns the modelled time on any device: AITER's launch is no program of IREE's. Raises SimulationError."""
    from mxcomp.sim.timing.aiter import Gemm, Kernels
    from mxcomp.sim.timing.estimates import estimate

    if task.aiter is None or task.subject is None:
        raise MxcompError("a checkout and sizes are needed")
    kernels = Kernels(task.aiter)
    m, n, k = task.subject.sizes
    found = {tile: estimate(kernels.examine(Gemm(m, n, k, *tile))) for tile in kernels.tiles()}
    if not found:
        raise MxcompError(f"{task.aiter}: no kernels")
    tile = min(found, key=lambda each: found[each].us)
    return _record(task, MATMUL, Dispatch.of("f4gemm {}x{}".format(*tile), found[tile]), MODELLED)
