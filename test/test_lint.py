"""The code is clean for ruff and mypy, and every file stays one idea."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MACHINE_PATH = re.compile(rb"(?<![\w.$}])/(?:home|root|Users|work|mnt|workspace|builds?)/\w")
"""Somebody's own folders; what stands in front of it makes other things, such as a path below a variable."""


COMMANDS = [
    ["ruff", "check"], ["ruff", "format", "--check"], ["mypy", "mxcomp"], pytest.param(["mypy"], marks=pytest.mark.slow)
]  # fmt: skip
"""What mypy sees by default is the product: the tests take it as long again."""


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_clean(command: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_imports_run_one_way() -> None:
    """In the order of docs/architecture.md, which is that of pyproject.toml."""
    from importlinter.cli import lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


def test_no_machine_paths() -> None:
    """In all that git would add, if this is a repository; the same wherever it is checked out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert [path for path in files if path.is_file() and MACHINE_PATH.search(path.read_bytes())] == []


def test_machine_paths_are_noticed() -> None:
    assert MACHINE_PATH.search(b"see /" + b"home/somebody/model.mlir")
    assert not MACHINE_PATH.search(b"$PREFIX/" + b"home/x, ./" + b"work/x, a/" + b"build/x")
