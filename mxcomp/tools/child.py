"""Runs a program of IREE's as a child that ends with this process, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Thread

from mxcomp.tools import relay

_PR_SET_PDEATHSIG = 1
"""Of linux/prctl.h: the signal that a process gets when the thread that started it is gone."""


_LAST_WORDS = 2.0
"""Seconds after the end of a child in which those that have its stderr may say something."""


def call(program: Path, arguments: Sequence[str], name: str) -> int:
    """The exit code of `program`, whose errors are those of the command `name`; call it in the main thread."""
    prctl = ctypes.CDLL(None).prctl  # found here: after the fork as little as can be is to happen
    reading, writing = relay.ends()
    try:
        child = subprocess.Popen(
            [program, *arguments], stderr=writing, preexec_fn=partial(_end_with, os.getpid(), prctl)
        )
    finally:
        os.close(writing)
    relaying = Thread(target=relay.pass_on, args=(reading, name), daemon=True)
    relaying.start()
    with child:
        try:
            return child.wait()
        except BaseException:
            child.kill()
            raise
        finally:
            relaying.join(_LAST_WORDS)


def _end_with(parent: int, prctl: ctypes._NamedFuncPointer) -> None:
    """In the child, before it becomes the program."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which was gone before
        os._exit(1)
