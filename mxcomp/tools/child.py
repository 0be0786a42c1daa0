"""Runs a program of IREE's as a child that ends with this process, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

_PR_SET_PDEATHSIG = 1
"""Of linux/prctl.h: the signal that a process gets when the thread that started it is gone."""


def call(program: Path, arguments: Sequence[str]) -> int:
    """The exit code of `program`; call it in the main thread."""
    prctl = ctypes.CDLL(None).prctl  # found here: after the fork as little as can be is to happen
    return subprocess.call([program, *arguments], preexec_fn=partial(_end_with, os.getpid(), prctl))


def _end_with(parent: int, prctl: ctypes._NamedFuncPointer) -> None:
    """In the child, before it becomes the program."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which was gone before
        os._exit(1)
