"""Runs a program of IREE's as a child that ends with this process, however that ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Thread

from mxcomp.support import workers
from mxcomp.tools import relay

_LAST_WORDS = 2.0
"""The number of seconds after the end of a child in which other processes that have its stderr may still write."""


def call(program: Path, arguments: Sequence[str], name: str) -> int:
    """Returns the exit code of `program`, whose errors are those of the command `name`; call it in the main thread."""
    reading, writing = relay.ends()
    try:
        child = subprocess.Popen(
            [program, *arguments], stderr=writing, preexec_fn=partial(workers.end_with, os.getpid())
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
