"""Shows the progress of long work: a line on stderr, on a terminal only, and not before two seconds have passed.

It is one line that is written over, with the cursor left as it is: whoever is killed in between leaves nothing behind.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO, TypeVar

PATIENCE = 2.0
"""The number of seconds in which nothing is shown."""

_BETWEEN = 0.2
"""The number of seconds between two redraws."""

_WIDTH = 24
_ERASE = "\r\x1b[2K"

Item = TypeVar("Item")


class Bar:
    """A progress bar: `with Bar("packing", 24) as bar: … bar.advance("layer.3")`; not started where `stream` is no
    terminal.

    Args:
        total: Steps; 0 where that is not known.
        ticking: Draw by a thread of its own, for steps that take seconds outside of Python.
        clock: Seconds.
    """

    def __init__(
        self,
        what: str,
        total: int = 0,
        ticking: bool = False,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._total, self._clock, self._step = what, total, clock, ""
        self._stream = sys.stderr if stream is None else stream
        self._is_on = self._stream.isatty()
        self._start = self._last = clock()
        self.done, self._drawn = 0, False
        self._ended = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True) if ticking and self._is_on else None

    def __enter__(self) -> Self:
        if self._ticking is not None:
            self._ticking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticking is not None:
            self._ticking.join()
        if self._drawn:
            self._stream.write(_ERASE)
            self._stream.flush()

    def begin(self, step: str) -> None:
        """Sets the text that says what is being done now."""
        self._step = step
        self._draw_if_due()

    def advance(self, step: str | None = None) -> None:
        """Advances by one step; `step` is the next one."""
        self.done += 1
        self.begin(self._step if step is None else step)

    def _draw_if_due(self) -> None:
        now = self._clock()
        if self._is_on and now - self._start >= PATIENCE and (not self._drawn or now - self._last >= _BETWEEN):
            self._last, self._drawn = now, True
            self._draw(now - self._start)

    def _draw(self, seconds: float) -> None:
        from rich.console import Console  # only where something takes long
        from rich.text import Text

        parts = [(f"{self._what} ", "")]
        if self._total:
            full = _WIDTH * min(self.done, self._total) // self._total
            parts += [("━" * full, "green"), ("━" * (_WIDTH - full), "dim"), (f" {self.done}/{self._total}", "")]
        parts.append((f" {seconds:.0f} s {self._step}", ""))
        console = Console(file=self._stream, highlight=False)
        line = Text.assemble(*parts)
        line.truncate(max(console.width - 1, 1), overflow="ellipsis")
        self._stream.write(_ERASE)
        console.print(line, end="", soft_wrap=True)
        self._stream.flush()

    def _tick(self) -> None:
        while not self._ended.wait(_BETWEEN):
            self._draw_if_due()


def tracked(items: Iterable[Item], what: str, stream: TextIO | None = None, total: int = 0) -> Iterator[Item]:
    """Yields the items, with a bar for how many of them, of `total` or of all that a collection has, are done."""
    with Bar(what, len(items) if isinstance(items, Sized) else total, stream=stream) as bar:
        for item in items:
            yield item
            bar.advance()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows the elapsed time of work that has no steps."""
    with Bar(what, ticking=True):
        yield
