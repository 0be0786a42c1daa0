"""Programs in Python that use the driver library by ctypes, each a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mxcomp.hip import library

HERE = Path(__file__).parent


def module_path() -> str:
    """PYTHONPATH for what imports helpers of tests."""
    folders = [HERE, HERE.parent / "sim", HERE.parent / "e2e", HERE.parent, os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(str(folder) for folder in folders if folder != "")


def run(script: str, **variables: str) -> str:
    """What a program prints that finds the library in the variable LIBRARY; it ends well."""
    done = process(script, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def process(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The end of such a program."""
    environment = os.environ | library.environment() | {"LIBRARY": str(library.hip_dylib())}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment | {"PYTHONPATH": module_path()} | variables,
        capture_output=True,
        text=True,
        timeout=100,
    )
