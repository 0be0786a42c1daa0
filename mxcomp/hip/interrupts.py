"""Makes long calls interruptible by signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

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
    worker = _Worker(work)
    try:
        worker.start()
        worker.join()
    except BaseException:
        end = time.monotonic() + _PATIENCE_SECONDS
        while abort is not None and not worker.finished.is_set() and time.monotonic() < end:
            abort()  # again, as it may have been too early
            worker.finished.wait(_BETWEEN_SECONDS)
        raise
    return worker.outcome()


class _Worker(threading.Thread, Generic[Result]):
    """Executes one call in a daemon thread, for which a program does not wait at its end."""

    def __init__(self, work: Callable[[], Result]) -> None:
        super().__init__(name="mxcomp-run", daemon=True)
        self.finished = threading.Event()
        self._work: Callable[[], Result] | None = work
        self._result: list[Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        assert self._work is not None
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._work = None
            self.finished.set()

    def outcome(self) -> Result:
        """Returns the outcome and forgets it, as an error keeps the objects of its frames alive."""
        try:
            if self._error is not None:
                raise self._error
            return self._result.pop()
        finally:
            self._error = None
            del self
