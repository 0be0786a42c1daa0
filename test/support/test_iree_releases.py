"""Another IREE than the one that mxcomp is made for is said in one sentence."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from mxcomp.errors import InputError
from mxcomp.support import iree_versions

ROOT = Path(__file__).parents[2]
INSTALL = "pip install 'iree-base-compiler~=3.13.0' 'iree-base-runtime~=3.13.0'"


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    iree_versions.check.cache_clear()
    yield
    iree_versions.check.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    """Has other versions installed."""
    of = {f"iree-base-{name}": version for name, version in found.items()}
    monkeypatch.setattr(metadata, "version", lambda package: of[package])


def test_the_one_that_is_here() -> None:
    with warnings.catch_warnings(action="error"):
        iree_versions.check()


def test_it_is_the_one_of_the_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    series = ".".join(map(str, iree_versions.MADE_FOR))
    for package in iree_versions.PACKAGES:
        assert f"{package}~={series}.0" in project["dependencies"]
    assert INSTALL == iree_versions._INSTALL


@pytest.mark.parametrize(
    "found", [{"compiler": "3.12.0", "runtime": "3.12.0"}, {"compiler": "3.13.0", "runtime": "3.9.0rc20260101"}]
)
def test_an_older_one_is_an_error(found: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, **found)
    with pytest.raises(InputError, match=re.escape(INSTALL)):
        iree_versions.check()


def test_a_newer_one_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, compiler="3.14.0", runtime="3.14.0")
    with pytest.warns(UserWarning, match=r"3\.14\.0 is newer than IREE 3\.13.*test_iree_contract") as found:
        iree_versions.check()
        iree_versions.check()
    assert len(found) == 1


def test_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", missing)
    iree_versions.check()  # a build of IREE's own has no metadata
    iree_versions.check.cache_clear()
    monkeypatch.setattr(iree_versions, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=re.escape(f"iree-base-compiler is not installed: {INSTALL}")):
        iree_versions.check()


def test_commands_and_the_api_say_so() -> None:
    """Before they import anything of IREE that another version may lack; no traceback from a command."""
    old = "from importlib import metadata; metadata.version = lambda package: '3.12.0'\n"
    ends = {
        "from mxcomp.tools.compile import main; main(['--version'])": f"error: iree-base-compiler .* older.*{INSTALL}",
        "import mxcomp; mxcomp.compile('module {}')": r"InputError: iree-base-compiler 3\.12\.0 is older",
    }  # fmt: skip
    for code, message in ends.items():
        done = subprocess.run([sys.executable, "-c", old + code], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1
        assert re.search(message, done.stderr), done.stderr
        assert ("Traceback" in done.stderr) == ("InputError" in message)
