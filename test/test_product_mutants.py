"""Faults planted in the product are noticed by the default suite: `product_mutants.toml` has them, and by which tests.

With -m slow each is planted in a copy of the repository, where its tests have to fail: whoever takes a test away, or
makes it smaller, sees here what nothing else notices.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
LEAST = 60
FAILED = 1
"""What pytest returns where tests have run, and some failed."""


@dataclass(frozen=True)
class Mutant:
    """Code of a file, the fault in its place, and the tests of which one notices."""

    file: str
    code: str
    fault: str
    tests: list[str]

    def __str__(self) -> str:
        return f"{self.file}: {self.fault}"

    def planted(self, text: str) -> str:
        return text.replace(self.code, self.fault)


MUTANTS = [Mutant(**each) for each in tomllib.loads((TESTS / "product_mutants.toml").read_text())["mutant"]]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository once more, without what git does not know."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    path = tmp_path_factory.mktemp("copy")
    for name in filter(None, listed.split("\0")):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, path / name, follow_symlinks=False)
    return path


def test_places() -> None:
    """Each fault has one place, and tests that there are."""
    assert len({str(mutant) for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    for mutant in MUTANTS:
        assert (ROOT / mutant.file).read_text().count(mutant.code) == 1, mutant
        assert mutant.fault != mutant.code
        assert all((TESTS / name.split("::")[0]).exists() for name in mutant.tests), mutant


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_caught(copy: Path, tmp_path: Path, mutant: Mutant) -> None:
    """Numba compiles anew: its cache of a function does not know the functions in other files that it calls."""
    file = copy / mutant.file
    whole = file.read_text()
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", *(f"test/{name}" for name in mutant.tests)]
    try:
        file.write_text(mutant.planted(whole))
        environment = os.environ | {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    finally:
        file.write_text(whole)
    assert done.returncode == FAILED, done.stdout[-2000:]
