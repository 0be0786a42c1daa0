"""Workers end with the command that they work for, and say nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor

import pytest

from mxcomp.support import workers
from mxcomp.support.workers import WorkerError

COMMAND = """
import sys, time
from mxcomp.support import workers
from mxcomp.tools import common

def run():
    with workers.pool(2, fresh=FRESH) as executor:
        futures = [executor.submit(time.sleep, 100) for _ in range(4)]
        print("ready", flush=True)
        futures[0].result()

if __name__ == "__main__":
    sys.exit(common.exit_code("mxcomp-test", run))
"""


def _hear_interrupts() -> None:
    """A shell starts what runs in the background, tests for instance, so that it ignores them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_an_interrupt_is_one_line(send: Callable[[int, int], None], fresh: bool, tmp_path: object) -> None:
    """Of this process alone, or of a terminal's whole group, also while workers are being started."""
    script = COMMAND.replace("FRESH", str(fresh))
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, cwd=str(tmp_path), preexec_fn=_hear_interrupts,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    send(process.pid, signal.SIGINT)
    assert process.stderr.read() == "mxcomp-test: interrupted\n"  # to its end: workers hold it open as long as they are
    assert process.wait() == 130


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_workers_end_with_a_command_that_is_killed(way: signal.Signals, fresh: bool, tmp_path: object) -> None:
    """By the system's job control, a terminal that is closed, or for lack of memory."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.replace("FRESH", str(fresh))], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=str(tmp_path),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(way)
    assert process.wait() == -way
    process.communicate(timeout=60)  # to the end of both: workers hold them open as long as they are


def test_work_is_done() -> None:
    with workers.pool(2) as executor:
        assert list(executor.map(abs, [-1, -2])) == [1, 2]


def test_an_error_of_the_command_ends_workers() -> None:
    started: list[Executor] = []
    with pytest.raises(ValueError, match="enough"), workers.pool(1) as executor:
        started.append(executor)
        executor.submit(time.sleep, 100)
        raise ValueError("enough")
    with pytest.raises(RuntimeError):
        started[0].submit(abs, -1)


def test_a_worker_that_dies_is_an_error_of_ours() -> None:
    with pytest.raises(WorkerError, match="a worker process is gone"), workers.pool(1) as executor:
        executor.submit(os._exit, 3).result()
