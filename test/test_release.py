"""What is released: a wheel with all that runs, a source distribution that makes it, and one version everywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import mxcomp
from mxcomp.hip import build, library

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_BUILD = "import sys; from setuptools import build_meta as b; print(b.build_{kind}(sys.argv[1]))"


def test_one_version() -> None:
    """The changelog's first entry is of the version that the package says it is."""
    (first, *_) = re.findall(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first[0] == mxcomp.__version__ == PROJECT["version"]


def test_a_wheel_says_where_it_runs() -> None:
    """By the glibc whose functions the library takes; this machine has at least that one."""
    tag = build.platform_tag(library.hip_dylib(), "linux_x86_64")
    found = re.fullmatch(r"manylinux_2_(\d+)_\w+", tag)
    assert found is not None
    assert int(found[1]) <= int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[-1])


def test_a_library_without_glibc_keeps_its_tag(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"\x7fELF")
    assert build.platform_tag(tmp_path / "lib.so", "linux_riscv64") == "linux_riscv64"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a checkout has."""
    folder = tmp_path_factory.mktemp("tree") / "mxcomp"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target, follow_symlinks=False)
    return folder


def built(tree: Path, kind: str, target: Path) -> Path:
    command = [sys.executable, "-c", _BUILD.format(kind=kind), str(target)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_the_wheel_runs_elsewhere(tree: Path, tmp_path: Path) -> None:
    """It has every file of the package, and compiles and runs the first model out of another folder."""
    wheel = built(tree, "wheel", tmp_path)
    assert re.fullmatch(r"mxcomp-[\d.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    data = (".py", ".mlir", ".in", ".toml", ".csv", ".c", ".h", ".typed")
    files = {path.relative_to(tree) for path in (tree / "mxcomp").rglob("*") if path.suffix in data}
    links = {
        Path("mxcomp") / path.relative_to(tree) for room in ("passes", "ukernels") for path in (tree / room).rglob("*")
    }
    wanted = files | {path for path in links if path.suffix in data}
    assert {str(path) for path in wanted} <= names
    assert "mxcomp/hip/_lib/libamdhip64.so" in names
    code = """
import numpy as np, ml_dtypes, mxcomp, sys
program = mxcomp.compile(sys.argv[1])
x, w = (np.ones((n, 16, 32), ml_dtypes.float8_e4m3fn) for n in (64, 256))
x_scales, w_scales = (np.ones((n, 16), ml_dtypes.float8_e8m0fnu) for n in (64, 256))
(y,) = program.run(x, w, x_scales, w_scales)
assert mxcomp.__file__.startswith(sys.argv[2]) and (y == 512).all()
"""
    command = [sys.executable, "-P", "-c", code, str(ROOT / "examples" / "first.mlir"), str(tmp_path / "site")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_source_distribution_has_what_a_build_needs(tree: Path, tmp_path: Path) -> None:
    """The C sources, and no library of this machine."""
    with tarfile.open(built(tree, "sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {f"mxcomp/hip/driver/{path.name}" for path in build.SOURCES.glob("*.[ch]")}
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", *sources} <= names
    assert not [name for name in names if name.endswith(".so")]
    assert "mxcomp/passes/encode.py" in names
    assert any(name.startswith("mxcomp/ukernels/gfx950/") for name in names)
