"""Runs a program of IREE's as a child, and passes on its stderr as it comes, with an explanation in front of statuses.

    mxcomp-run: error: 1 arguments are given, expected 4
    c/runtime/src/iree/vm/invocation.c:103: INVALID_ARGUMENT; input list and function mismatch; expected 4 arguments …

A child that has a terminal here gets one, so that its progress bars stay.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import termios
import tty
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Thread

from mxcomp.run import statuses
from mxcomp.support import workers

_PLACE = b"c/runtime/src/iree/"
"""Matches the beginning of a line with a status: a file of IREE."""
_STATUS = re.compile(re.escape(_PLACE) + rb"\S+:\d+: [A-Z_]{2,}; ")
_STDERR, _CHUNK = 2, 2**16


def ends() -> tuple[int, int]:
    """Returns a stream to read from, and the end to give a child as its stderr."""
    if not os.isatty(_STDERR):
        return os.pipe()
    reading, writing = pty.openpty()
    tty.setraw(writing)  # what is written comes out as it is
    fcntl.ioctl(writing, termios.TIOCSWINSZ, fcntl.ioctl(_STDERR, termios.TIOCGWINSZ, b"\0" * 8))
    return reading, writing


def pass_on(reading: int, name: str, write: Callable[[bytes], object] | None = None) -> None:
    """Copies all that can be read to stderr, or to `write`, until all writers have closed it. `name` is the
    command's."""
    write = write or _to_stderr
    held = b""
    while data := _read(reading):
        *lines, held = (held + data).split(b"\n")
        for line in lines:
            write(_with_meaning(line, name) + b"\n")
        if held and not _may_be_status(held):
            write(held)
            held = b""
    write(held)


def _read(reading: int) -> bytes:
    try:
        return os.read(reading, _CHUNK)
    except OSError:  # a terminal that nobody has open any more
        return b""


def _may_be_status(line: bytes) -> bool:
    return line.startswith(_PLACE) or _PLACE.startswith(line)


def _with_meaning(line: bytes, name: str) -> bytes:
    """Returns a line with an explanation in front if it is a status."""
    if _STATUS.match(line) is None:
        return line
    meaning, _, status = statuses.explained(line.decode(errors="replace")).partition("\nIREE: ")
    return f"{name}: error: {meaning}\n".encode() + line if status else line


def _to_stderr(data: bytes) -> None:
    while data:
        data = data[os.write(_STDERR, data) :]


_LAST_WORDS = 2.0
"""The number of seconds after the end of a child in which other processes that have its stderr may still write."""


def call(program: Path, arguments: Sequence[str], name: str) -> int:
    """Returns the exit code of `program`, whose errors are those of the command `name`; call it in the main thread.

    The program ends with this process, however that ends.
    """
    reading, writing = ends()
    try:
        child = subprocess.Popen(
            [program, *arguments], stderr=writing, preexec_fn=partial(workers.end_with, os.getpid())
        )
    finally:
        os.close(writing)
    relaying = Thread(target=pass_on, args=(reading, name), daemon=True)
    relaying.start()
    with child:
        try:
            return child.wait()
        except BaseException:
            child.kill()
            raise
        finally:
            relaying.join(_LAST_WORDS)
