"""Object code of kernels: whether it is cached, and compiling it ahead of a launch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from mxcomp.sim.code_object import Kernel
from mxcomp.sim.errors import SimulationError
from mxcomp.sim.fast import jit
from mxcomp.sim.fast.kernel import NAME, Segment, kernel_text, segments
from mxcomp.sim.fast.matrix import forms, matrix_text
from mxcomp.sim.program import program_of

_WATCHING = frozenset(("late", "race", "hazard", "uninit"))
"""Checks for which compiled code logs what it does; "bounds" needs no log."""


def is_watched(checks: Collection[str]) -> bool:
    """Returns whether one of the checks needs a log of compiled code."""
    return not _WATCHING.isdisjoint(checks)


def compiled(kernel: Kernel, parts: list[Segment], watched: bool) -> jit.Compiled:
    """Returns a kernel's loaded code, from the cache if it is there."""
    return jit.Compiled((jit.objects(*module) for module in _modules(kernel, parts, watched)), NAME)


def missing(kernels: Sequence[Kernel], checks: Collection[str]) -> list[Kernel]:
    """Returns the kernels whose code is not in the cache, without those that cannot be simulated."""
    watched, found = is_watched(checks), []
    for kernel in kernels:
        parts = _parts(kernel)
        if parts and not all(jit.is_kept(key) for key, _ in _modules(kernel, parts, watched)):
            found.append(kernel)
    return found


def make(kernel: Kernel, checks: Collection[str]) -> None:
    """Compiles a kernel into the cache, unless it is there."""
    for module in _modules(kernel, _parts(kernel), is_watched(checks)):
        jit.objects(*module)


def _modules(kernel: Kernel, parts: list[Segment], watched: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yields the keys of a kernel's modules with functions that make their LLVM IR: its own, and those of its matrix
    instructions."""
    yield _key(kernel, parts, watched), partial(kernel_text, parts, watched)
    for form in forms(i for part in parts for i in part.instructions):
        yield form.name, partial(matrix_text, form)


def _parts(kernel: Kernel) -> list[Segment]:
    try:
        return segments(program_of(kernel))
    except SimulationError:  # which its launch will raise as well
        return []


def _key(kernel: Kernel, parts: list[Segment], watched: bool) -> str:
    text = hashlib.sha256(kernel.module.text).hexdigest()
    cuts = [part.start for part in parts]  # they depend on symbols as well
    return f"{kernel.name} {kernel.entries} {kernel.module.text_address} {text} {cuts} {watched}"
