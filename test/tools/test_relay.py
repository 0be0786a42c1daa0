"""What a child says on stderr comes through as it is, but for a line in front of IREE's statuses."""

from __future__ import annotations

import os
from threading import Thread

import pytest

from mxcomp.tools import relay

STATUS = (
    "c/runtime/src/iree/vm/invocation.c:103: INVALID_ARGUMENT; input list and function mismatch; "
    "expected 4 arguments but passed 1; invoking function 'main'\n"
)


def relayed(*pieces: str) -> list[str]:
    """What was written when, if these are said one after the other."""
    reading, writing = os.pipe()
    seen: list[str] = []
    said = Thread(target=relay.pass_on, args=(reading, "mxcomp-run", lambda data: seen.append(data.decode())))
    said.start()
    for piece in pieces:
        os.write(writing, piece.encode())
    os.close(writing)
    said.join()
    return seen


def test_a_status_gets_a_line() -> None:
    expected = f"before\nmxcomp-run: error: 1 arguments are given, expected 4\n{STATUS}after\n"
    assert "".join(relayed("before\n", STATUS[:30], STATUS[30:], "after\n")) == expected


def test_the_rest_comes_as_it_is() -> None:
    text = "\r 10 % of 3\r 20 %\x1b[K", "c/", "other\n", "ä no end"
    assert "".join(relayed(*text)) == "".join(text)


def test_a_terminal_is_one_for_children_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setattr(relay, "_STDERR", theirs)
    reading, writing = relay.ends()
    assert os.isatty(writing)
    os.write(writing, b"line\n")
    assert os.read(reading, 100) == b"line\n"
    for end in (ours, theirs, reading, writing):
        os.close(end)
