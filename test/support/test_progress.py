"""Progress is shown on terminals, of what takes longer than two seconds, in one line that goes away."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from itertools import count

import pytest

from mxcomp.support.progress import Bar, tracked


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def seconds(step: float) -> Iterator[float]:
    """A clock that goes on at each look."""
    return count(0.0, step)


def drawn(stream: StringIO) -> list[str]:
    """What the line held, one after the other."""
    return stream.getvalue().split("\r\x1b[2K")[1:]


def test_nothing_before_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream, clock = Terminal(), seconds(0.5)
    with Bar("packing", 8, stream=stream, clock=lambda: next(clock)) as bar:
        for k in range(3):
            bar.advance(f"layer.{k}")
        assert stream.getvalue() == ""
        for k in range(3, 8):
            bar.advance(f"layer.{k}")
    first, *_, last, erased = drawn(stream)
    assert first.startswith("packing ")
    assert " 4/8 2 s layer.3" in first
    assert " 8/8 4 s layer.7" in last
    assert erased == ""
    assert "\n" not in stream.getvalue()


def test_lines_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream, clock = Terminal(), seconds(3)
    with Bar("simulating a_kernel_with_a_long_name_of_its_own", 2, stream=stream, clock=lambda: next(clock)) as bar:
        bar.advance()
    assert 0 < len(drawn(stream)[0]) < 30


def test_nothing_where_there_is_no_terminal() -> None:
    stream, clock = StringIO(), seconds(10)
    with Bar("packing", 2, ticking=True, stream=stream, clock=lambda: next(clock)) as bar:
        bar.advance()
    assert stream.getvalue() == ""


def test_a_thread_draws_where_steps_take_long() -> None:
    stream, clock = Terminal(), seconds(10)
    with Bar("compiling", ticking=True, stream=stream, clock=lambda: next(clock)):
        while "compiling" not in stream.getvalue():
            pass
    assert drawn(stream)[-1] == ""


def test_tracked_items_are_those_given() -> None:
    stream = Terminal()
    assert list(tracked(range(5), "counting", stream)) == list(range(5))
    assert stream.getvalue() == ""
