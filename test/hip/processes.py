"""Looks at processes of the system."""

from __future__ import annotations

import os
import time
from pathlib import Path


def children(parent: int | None = None) -> list[int]:
    """Processes that a process has started and that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == (parent or os.getpid()) and fields[0] != "Z":
            found.append(int(path.name))
    return found


def workers(parent: int | None = None) -> list[int]:
    """Those of them that simulate."""
    return [child for child in children(parent) if b"mxcomp.hip.worker" in _words(child)]


def program(process: int) -> str:
    """What it executes."""
    return _words(process)[0].decode()


def _words(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def cpu_seconds(process: int) -> float:
    """Time that a process has computed for so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_kib(process: int) -> int:
    """Memory of a process that is in RAM, shared memory included."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def ends_within(process: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False
