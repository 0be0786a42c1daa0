"""Makes long calls interruptible by signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")

_PATIENCE_SECONDS = 5
_BETWEEN_SECONDS = 0.1


def interruptible(work: Callable[[], Result], abort: Callable[[], None] | None) -> Result:
    """Returns or raises what `work` does, or raises what a signal handler raises meanwhile, such as KeyboardInterrupt.

    Python runs signal handlers in its main thread and not during a call into C, so that the main thread leaves the
    work to another one and waits. `abort` is to make the work fail soon; work that cannot be aborted goes on by
    itself, and its outcome is dropped.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    found: Future[Result] = Future()
    thread = threading.Thread(target=_settle, args=(found, work), name="mxcomp-run", daemon=True)
    try:  # a program does not wait for a daemon thread at its end
        thread.start()
        thread.join()
        return found.result()
    except BaseException:
        end = time.monotonic() + _PATIENCE_SECONDS
        while abort is not None and not found.done() and time.monotonic() < end:
            abort()  # again, as it may have been too early
            wait([found], _BETWEEN_SECONDS)  # an interrupted thread.join() returns at once ever after
        raise
    finally:
        del found  # an error keeps the objects of its frames alive


def _settle(found: Future[Result], work: Callable[[], Result]) -> None:
    """Sets the outcome of one call, and forgets it."""
    try:
        found.set_result(work())
    except BaseException as error:
        found.set_exception(error)
    finally:
        del found, work
