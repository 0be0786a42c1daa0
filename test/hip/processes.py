"""Looks at processes of the system."""

from __future__ import annotations

import os
import time
from pathlib import Path


def workers(parent: int | None = None) -> list[int]:
    """Simulator processes that a process has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(fields[1]) == (parent or os.getpid()) and fields[0] != "Z" and b"mxcomp.hip.worker" in words:
            found.append(int(path.name))
    return found


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
