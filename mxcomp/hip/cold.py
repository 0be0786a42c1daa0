"""Compiles kernels that were never simulated on this machine once, on all of its cores (cold starts).

The worker compiles a kernel when it is launched, in the order of launches. Meanwhile other processes compile the other
kernels of the code object from the last one on, so that they meet in the middle. What is compiled goes to the cache,
and stays there for all later runs.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mxcomp.hip.protocol import SOCKET
from mxcomp.sim import Kernel, Module
from mxcomp.sim.fast import object_cache, objects
from mxcomp.support import caches, workers

_NICE = 5
"""The niceness of compiling processes, so that launches of other kernels come first."""


class ColdStarts:
    """The kernels of one worker that are being compiled."""

    def __init__(self, processes: int | None = None, own_files: Sequence[int] = (SOCKET,)) -> None:
        """Starts up to `processes`, by default one for each core; they close `own_files`, which belong to this one."""
        self._own_files = own_files
        self._processes = (os.cpu_count() or 1) if processes is None else processes
        self._known: set[tuple[Module, bool]] = set()
        self._numbers: dict[Kernel, int] = {}
        self._helpers: list[int] = []
        self._file = os.memfd_create("mxcomp-cold")
        """Whose byte of a kernel's number is locked by the process that compiles it, until it is done, or gone."""

    def prepare(self, kernel: Kernel, checks: Collection[str]) -> None:
        """Compiles the code object's other kernels too, before the first launch that needs compilation.

        Says on stderr how many there are. Waits where the launch's own kernel is about to be done. A program whose
        launches all have their kernels leaves it at that: what it does not launch would not be done before it ends.
        """
        kind = kernel.module, objects.is_watched(checks)
        if kind not in self._known and objects.missing([kernel], checks):
            self._known.add(kind)
            self._begin(objects.missing(tuple(kernel.module.kernels.values()), checks), kernel, checks)
        if kernel in self._numbers:
            with self._compiling(kernel):
                pass
        self._helpers = [process for process in self._helpers if _is_running(process)]

    def _begin(self, missing: Sequence[Kernel], first: Kernel, checks: Collection[str]) -> None:
        directory = _cache()
        print(_announcement(len(missing), directory), file=sys.stderr, flush=True)
        if directory is None:
            return  # what another process compiled would stay there
        others = [kernel for kernel in reversed(missing) if kernel is not first]
        self._numbers |= {kernel: number for number, kernel in enumerate(others, len(self._numbers))}
        count = min(self._processes - 1, len(others))
        self._helpers += [self._help(others[k::count], checks) for k in range(count)]

    @contextmanager
    def _compiling(self, kernel: Kernel) -> Iterator[None]:
        """Waits until no other process compiles a kernel, and lets none begin within."""
        number = self._numbers[kernel]
        fcntl.lockf(self._file, fcntl.LOCK_EX, 1, number)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def _help(self, kernels: Sequence[Kernel], checks: Collection[str]) -> int:
        """Starts a process that compiles these kernels; it ends with this one."""
        parent = os.getpid()
        if process := os.fork():
            return process
        try:
            workers.end_with(parent)
            for file in self._own_files:  # the host is to see when the worker is gone
                os.close(file)
            os.nice(_NICE)
            for kernel in kernels:
                with self._compiling(kernel):
                    objects.make(kernel, checks)
        finally:
            os._exit(0)  # whatever went wrong: the launch compiles the kernel itself, and says so


def _is_running(process: int) -> bool:
    """Returns whether a child has not ended; one that has is forgotten."""
    try:
        return os.waitpid(process, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def _announcement(count: int, directory: Path | None) -> str:
    kernels = "1 kernel" if count == 1 else f"{count} kernels"
    where = "for this process only" if directory is None else f"once: kept in {_short(directory)}"
    return f"mxcomp simulator: compiling {kernels} for this processor, {where}"


def _cache() -> Path | None:
    """Returns the cache directory of kernels, or None if there cannot be one; the reason has been reported."""
    try:
        return object_cache.directory()
    except caches.CacheError:
        return None


def _short(path: Path) -> str:
    home = os.path.expanduser("~")
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
