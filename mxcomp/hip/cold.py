"""Compiles kernels that were never simulated on this machine once, on all of its cores (cold starts).

The worker compiles a kernel when it is launched, in the order of launches. Meanwhile other processes compile the other
kernels of the code object from the last one on, so that they meet in the middle. What is compiled goes to the cache,
and stays there for all later runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mxcomp.hip.protocol import SOCKET
from mxcomp.sim import Kernel, Module
from mxcomp.sim.fast import object_cache, objects
from mxcomp.support import caches, workers

_NICE = 5
"""The niceness of compiling processes, so that launches of other kernels come first."""


@dataclass
class _Helper:
    """A process that compiles; it writes a kernel's number, a byte pair, when it begins and when it is done."""

    process: int
    stream: int
    seen: dict[int | None, int] = field(default_factory=dict)
    is_gone: bool = False

    def take(self, block: bool) -> bool:
        """Reads what was written, and returns whether the process may write more."""
        os.set_blocking(self.stream, block)
        try:
            data = os.read(self.stream, 2)
        except BlockingIOError:
            return False
        self.is_gone = not data
        if data:
            number = int.from_bytes(data, "little")
            self.seen[number] = self.seen.get(number, 0) + 1
        return bool(data)

    def wait_for(self, number: int | None) -> None:
        """Waits until a kernel that has been begun is done, or the process is gone."""
        while self.take(block=False):
            pass
        while self.seen.get(number) == 1 and self.take(block=True):
            pass

    def end(self) -> None:
        """Waits for the end of the process, which has closed the stream."""
        os.close(self.stream)
        with suppress(ChildProcessError):
            os.waitpid(self.process, 0)


class ColdStarts:
    """The kernels of one worker that are being compiled."""

    def __init__(self, processes: int | None = None, own_files: Sequence[int] = (SOCKET,)) -> None:
        """Starts up to `processes`, by default one for each core; they close `own_files`, which belong to this one."""
        self._own_files = own_files
        self._processes = (os.cpu_count() or 1) if processes is None else processes
        self._known: set[tuple[Module, bool]] = set()
        self._numbers: dict[Kernel, int] = {}
        self._helpers: list[_Helper] = []

    def prepare(self, kernel: Kernel, checks: Collection[str]) -> None:
        """Compiles the code object's other kernels too, before the first launch that needs compilation.

        Says on stderr how many there are. Waits where the launch's own kernel is about to be done. A program whose
        launches all have their kernels leaves it at that: what it does not launch would not be done before it ends.
        """
        kind = kernel.module, objects.is_watched(checks)
        if kind not in self._known and objects.missing([kernel], checks):
            self._known.add(kind)
            self._begin(objects.missing(tuple(kernel.module.kernels.values()), checks), kernel, checks)
        for helper in self._helpers:
            helper.wait_for(self._numbers.get(kernel))
            if helper.is_gone:
                helper.end()
        self._helpers = [helper for helper in self._helpers if not helper.is_gone]

    def _begin(self, missing: Sequence[Kernel], first: Kernel, checks: Collection[str]) -> None:
        directory = _cache()
        print(_announcement(len(missing), directory), file=sys.stderr, flush=True)
        if directory is None:
            return  # what another process compiled would stay there
        others = [kernel for kernel in reversed(missing) if kernel is not first]
        self._numbers |= {kernel: number for number, kernel in enumerate(others, len(self._numbers))}
        count = min(self._processes - 1, len(others))
        self._helpers += [self._help(others[k::count], checks) for k in range(count)]

    def _help(self, kernels: Sequence[Kernel], checks: Collection[str]) -> _Helper:
        """Starts a process that compiles these kernels; it ends with this one."""
        reading, writing = os.pipe()
        parent = os.getpid()
        if process := os.fork():
            os.close(writing)
            return _Helper(process, reading)
        try:
            workers.end_with(parent)
            for file in self._own_files:  # the host is to see when the worker is gone
                os.close(file)
            os.nice(_NICE)
            for kernel in kernels:
                number = self._numbers[kernel].to_bytes(2, "little")
                os.write(writing, number)
                objects.make(kernel, checks)
                os.write(writing, number)
        finally:
            os._exit(0)  # whatever went wrong: the launch compiles the kernel itself, and says so


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
