"""The code is clean for ruff and mypy, and every file stays one idea."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("command", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join)
def test_clean(command: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_machine_paths() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    here = f"{ROOT.parent}/"
    offenders = [
        name
        for name in tracked.stdout.split("\0")
        if name and (ROOT / name).is_file() and here.encode() in (ROOT / name).read_bytes()
    ]
    assert offenders == []
