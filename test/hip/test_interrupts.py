"""Ctrl-C ends calls; what is started ends with what has started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from modules import Matmul, source
from processes import children, cpu_seconds, ends_within, program, workers
from test_processes import finish, python

import mxcomp
from mxcomp.run import devices

PATIENCE = 60
"""Seconds until a test gives up; things take far less."""

LARGE = """
from mxcomp.run.runtime import run
large = Matmul(1024, 1024, 2048)
vmfb = mxcomp.compile(source(large)).vmfb
"""


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def simulates(host: int) -> bool:
    """Whether its worker has been busy for longer than it takes to start."""
    return any(cpu_seconds(worker) > 1 for worker in workers(host))


def test_an_interrupt_ends_the_call() -> None:
    """The NumPy engine would take minutes for the program; afterwards the process is as good as new."""
    script = """
import time
from processes import workers
check()
before = workers()
print("ready", flush=True)
try:
    run(vmfb, None, large.inputs, device="sim", engine="numpy")
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
assert not set(before) & set(workers())
run(program.vmfb, None, matmul.inputs, device="sim", engine="fast")
check()
print("fine")
"""
    process = python(LARGE + script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    before = sum(map(cpu_seconds, workers(process.pid)))  # what it computed already can have taken seconds
    wait_for(lambda: sum(map(cpu_seconds, workers(process.pid))) > before + 1)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    lines = finish(process).splitlines()
    assert float(lines[0]) - start < 10
    assert lines[1:] == ["fine"]


def test_whatever_a_handler_raises_ends_the_call() -> None:
    """Where the work cannot be ended, it is left alone; other handlers, and other threads, disturb nothing."""
    script = """
import signal, threading, time
from mxcomp.hip.interrupts import interruptible
class Alarm(Exception):
    pass
def raises(number, frame):
    raise Alarm
forever, calls = threading.Event(), []
signal.signal(signal.SIGALRM, raises)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    interruptible(forever.wait, None)
except Alarm:
    print("left")
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    interruptible(forever.wait, forever.set)
except Alarm:
    print("ended", forever.is_set())
aborted = []
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    interruptible(lambda: time.sleep(0.8), lambda: aborted.append(None))
except Alarm:
    print("aborted again, between waits:", 1 <= len(aborted) < 20)
signal.signal(signal.SIGALRM, lambda number, frame: calls.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.1)
print(interruptible(lambda: time.sleep(0.3) or 5, forever.set), len(calls))
try:
    interruptible(lambda: {}["key"], None)
except KeyError as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert process.stdout.splitlines() == ["left", "ended True", "aborted again, between waits: True", "5 1", "'key'"]


def test_interrupt_without_a_simulation() -> None:
    """Before the library is in use there is nothing to end; devices are lost when nothing is simulated, too."""
    script = """
from mxcomp.hip import library
library.interrupt(library.hip_dylib())
check()
library.interrupt(library.hip_dylib())
try:
    check()
except mxcomp.run.runtime.RunError as error:
    assert "make a new device" in str(error), error
else:
    raise AssertionError
check()
print("fine")
"""
    assert finish(python(script)) == "fine\n"


def test_nothing_outlives_mxcomp_run(tmp_path: Path) -> None:
    """iree-run-module is a process of its own, which does not notice."""
    matmul = Matmul(1024, 1024, 2048)
    mxcomp.compile(source(matmul)).save(tmp_path / "m.vmfb")
    for k, array in enumerate(matmul.inputs):
        np.save(tmp_path / f"{k}.npy", array)
    inputs = [f"--input=@{tmp_path}/{k}.npy" for k in range(4)]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "mxcomp.tools.run", tmp_path / "m.vmfb", "--engine=numpy", *inputs],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: any(simulates(child) for child in children(launcher.pid)))
        (host,) = children(launcher.pid)
        (worker,) = workers(host)
    finally:
        launcher.kill()
        launcher.wait(PATIENCE)
    assert ends_within(host, PATIENCE)
    assert ends_within(worker, PATIENCE)


@pytest.mark.parametrize("device", devices.DRIVERS)
def test_iree_run_module_ends_with_mxcomp_run(tmp_path: Path, device: str) -> None:
    """On every device; here while it waits for its module, which never comes."""
    os.mkfifo(tmp_path / "m.vmfb")
    command = [sys.executable, "-m", "mxcomp.tools.run", str(tmp_path / "m.vmfb"), f"--device={device}"]
    launcher = subprocess.Popen(command)
    try:
        wait_for(lambda: any("iree-run-module" in program(child) for child in children(launcher.pid)))
        (host,) = children(launcher.pid)
    finally:
        launcher.kill()
        launcher.wait(PATIENCE)
    try:
        assert ends_within(host, 10)
    finally:
        with suppress(ProcessLookupError):
            os.kill(host, signal.SIGKILL)
