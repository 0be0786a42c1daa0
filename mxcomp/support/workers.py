"""Worker processes that end with their command: an interrupt prints one line of the command, and none of theirs."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from mxcomp.errors import MxcompError

_ALSO_INTERRUPTED_SECONDS = 0.2

_PR_SET_PDEATHSIG = 1
"""The option of Linux's prctl that sets the signal a process gets when the thread that started it ends."""

_prctl = ctypes.CDLL(None).prctl  # found here: between a fork and what comes then as little as can be is to happen


class WorkerError(MxcompError):
    """A worker process died."""


@contextmanager
def pool(jobs: int | None = None, fresh: bool = False) -> Iterator[Executor]:
    """Returns an executor over `jobs` processes, by default one for each core.

    Ctrl-C reaches all processes of a terminal: workers end at once and silently. Where it, or any other error, reaches
    this process alone, workers are ended from here; where this process is killed, by the system: call it in a thread
    that lives as long as they. Raises WorkerError where one is gone for another reason.

    Args:
        fresh: Workers start anew, as for libraries whose threads a copy of this process would lack.
    """
    count = jobs or os.cpu_count() or 1
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn" if fresh else "fork")
    executor = ProcessPoolExecutor(count, context, _begin, (os.getpid(),))
    try:
        _start(executor, count)
        yield executor
    except BaseException as error:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        if not isinstance(error, BrokenProcessPool):
            raise
        time.sleep(_ALSO_INTERRUPTED_SECONDS)  # if so, that is what is raised
        raise WorkerError("a worker process is gone; was memory short? Fewer --jobs take less of it") from None
    else:
        executor.shutdown()


def _start(executor: Executor, count: int) -> None:
    """Starts all workers with interrupts blocked until they can end silently."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(count):
            executor.submit(os.getpid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """Initialises a worker."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def end_with(parent: int) -> None:
    """Makes this process be killed when the thread that started it ends, for whatever reason."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which was gone before
        os._exit(1)
