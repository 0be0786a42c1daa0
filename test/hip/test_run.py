"""mxcomp-run, and IREE's own tools with the driver library, as commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import iree._runtime_libs
import numpy as np
import pytest
from corpus.mutation import sites
from modules import Matmul, source
from stock import ELEMENTWISE, compiled

import mxcomp
from mxcomp.hip import library
from mxcomp.sim.code_object import load
from mxcomp.tools import run

MATMUL = Matmul(64, 256, 512)
IREE = Path(iree._runtime_libs.__path__[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, m.vmfb, its inputs, and the program broken."""
    path = tmp_path_factory.mktemp("program")
    vmfb = mxcomp.compile(source(MATMUL)).vmfb
    (path / "m.vmfb").write_bytes(vmfb)
    start = vmfb.index(b"\x7fELF\2\1")
    site = sites(vmfb[start:], next(iter(load(vmfb[start:]).kernels)))[-1]
    (path / "broken.vmfb").write_bytes(vmfb[:start] + site.removed(vmfb[start:]))
    (path / "elementwise.vmfb").write_bytes(compiled(ELEMENTWISE))
    for k, array in enumerate(MATMUL.inputs):
        np.save(path / f"{k}.npy", array)
    np.save(path / "expected.npy", MATMUL.expected.astype(np.float32))
    return path


@pytest.fixture(autouse=True)
def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    yield
    (folder / "y.npy").unlink(missing_ok=True)


CALL = ["--function=main", *(f"--input=@{k}.npy" for k in range(4)), "--output=@y.npy"]


def execute(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), env=os.environ | variables, capture_output=True, text=True, timeout=100
    )


def mxcomp_run(*flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return execute(sys.executable, "-m", "mxcomp.tools.run", *flags, **variables)


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert MATMUL.error(np.load("y.npy")) <= MATMUL.bound


@pytest.mark.parametrize(
    "flags",
    [
        ["m.vmfb"],
        ["--module=m.vmfb", "--device=sim://0", "--engine=numpy", "--checks=none"],
        ["m.vmfb", "--device=sim", "--schedule=random", "--seed=3", "--checks=race,late"],
        ["m.vmfb", "--hip_use_streams=false"],
        ["m.vmfb", "--hip_async_allocations=false", "--hip_async_caching=false"],
        ["m.vmfb", "--hip_allow_inline_execution=true"],
    ],
    ids=" ".join,
)
def test_runs(flags: list[str]) -> None:
    check(mxcomp_run(*flags, *CALL))


@pytest.mark.parametrize(("value", "said"), [(0, "[SUCCESS]"), (1, "[FAILED]")])
def test_expected_output(value: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    flags = ["elementwise.vmfb", "--function=main", "--input=37x129xf32=0", "--input=129xf32=0"]
    assert run.main([*flags, f"--expected_output=37x129xf32={value}"]) == value
    assert said in capfd.readouterr().out


def test_profile() -> None:
    done = mxcomp_run("m.vmfb", *CALL, "--profile", COLUMNS="200")
    check(done)
    heads, *rows = [
        [cell.strip() for cell in re.split("[┃│]", line)[1:-1]] for line in done.stderr.splitlines() if line[:1] in "┃│"
    ]
    while "grid" not in heads:  # kinds of dispatches are above
        heads, *rows = rows
    dispatches = [dict(zip(heads, row, strict=True)) for row in rows]
    assert len(dispatches) == 5
    assert sum(int(row["MFMA"].replace(",", "")) for row in dispatches) >= MATMUL.m * MATMUL.n * MATMUL.k // (
        16 * 16 * 128
    )
    for row in dispatches:
        for name in ("instructions", "bytes read", "bytes written"):
            assert int(row[name].replace(",", "")) > 0
        low, high = map(float, row["80 % between"].split(" to "))
        assert 0 < low <= float(row["modelled µs"]) <= high


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--profile=top:none"], "--profile=top:none: expected top:N, in-order, or both with a comma between"),
        (["--profile", "--report=m.vmfb"], "m.vmfb is no report of this version of mxcomp: mxcomp-compile"),
        (["--profile-csv=nowhere/p.csv"], "--profile-csv: cannot write nowhere/p.csv: No such file or directory"),
        (["--profile=top:3", "--device=cpu"], "--profile is about the simulator: expected --device=sim, not cpu"),
    ],
)
def test_errors_of_profiles_come_first(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["m.vmfb", "--function=nothing", *flags]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"mxcomp-run: error: {message}")
    assert "function" not in said


def test_finding_is_an_error_on_stderr() -> None:
    done = mxcomp_run("broken.vmfb", *CALL)
    assert done.returncode == 1
    assert "error[late] reads v" in done.stderr


@pytest.mark.parametrize("tool", ["iree-run-module", "iree-benchmark-module"])
def test_tools_of_iree(tool: str) -> None:
    """The binaries, with no variable of ours set."""
    directory = run_printing("--print-hip-dylib").strip()
    flags = ["--device=hip", f"--hip_dylib_path={directory}", "--module=m.vmfb", *CALL[:-1]]
    extra = [CALL[-1]] if tool == "iree-run-module" else ["--benchmark_min_time=1x"]
    done = execute(IREE / tool, *flags, *extra)
    if tool == "iree-run-module":
        check(done)
    else:
        assert done.returncode == 0, done.stderr
        assert "BM_main" in done.stdout


def run_printing(*flags: str) -> str:
    done = mxcomp_run(*flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_device_is_a_gfx950() -> None:
    flag = f"--hip_dylib_path={library.hip_dylib_directory()}"
    done = execute(IREE / "iree-run-module", flag, "--dump_devices=hip")
    assert "gpu-arch-name: gfx950" in done.stdout
    assert "block-max-shared-memory: 160 KB" in done.stdout
    assert "gpu-warp-size: 64" in done.stdout


def test_settings_reach_iree_s_tool_by_variables() -> None:
    flags = [f"--hip_dylib_path={library.hip_dylib_directory()}", "--device=hip", "--module=broken.vmfb", *CALL]
    tool = IREE / "iree-run-module"
    numpy = {"MXCOMP_SIM_ENGINE": "numpy"}  # compiles no kernels anew for other checks
    check(execute(tool, *flags, **numpy, MXCOMP_SIM_CHECKS="none"))
    for name, value, message in (
        ("CHECKS", "late", "error[late]"),
        ("CHECKS", "later", "check 'later': expected late"),
        ("ENGINE", "slow", "engine 'slow': expected fast"),
    ):
        done = execute(tool, *flags, **numpy | {f"MXCOMP_SIM_{name}": value})
        assert done.returncode != 0
        assert message in done.stderr
    done = execute(tool, *flags, MXCOMP_PYTHON="/nowhere/python")
    assert "cannot run /nowhere/python" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device=gpu"], "--device=gpu: expected cpu, sim, hip"),
        (["--device=hip", "--seed=1"], "--seed is about the simulator"),
        (["--checks=foo"], "check 'foo': expected late"),
        (["--seed=x"], "seed 'x': expected a whole number"),
    ],
)
def test_errors(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["m.vmfb", *flags]) == 1
    assert message in capsys.readouterr().err


def test_without_a_library_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "from mxcomp.hip import build, library; build._candidates = lambda: iter(());"
        "library._PACKAGED = build.Path('/nowhere'); from mxcomp.tools import run; run.main(['--print-hip-dylib'])"
    )
    done = execute(sys.executable, "-c", script, XDG_CACHE_HOME=str(tmp_path))
    assert "needs its HIP driver library" in done.stderr
    assert "pip install ziglang" in done.stderr


def test_library_is_built_when_it_is_missing_or_old(tmp_path: Path) -> None:
    script = (
        "from mxcomp.hip import build, library; old = build.Path('old.so'); old.write_bytes(b'old');"
        "library._PACKAGED = old; print(library.hip_dylib())"
    )
    done = execute(sys.executable, "-c", script, XDG_CACHE_HOME=str(tmp_path))
    path = Path(done.stdout.strip())
    assert path.is_relative_to(tmp_path), done.stderr
    assert path.name == "libamdhip64.so"
    assert [file.name for file in path.parent.iterdir()] == ["libamdhip64.so"]


def test_library_that_others_could_have_written(tmp_path: Path) -> None:
    """Is built again; in another user's directory it neither is looked for nor built, but for this process alone."""
    script = """
import os, shutil
from mxcomp.hip import build, library
from mxcomp.tools import run
library._PACKAGED = build.Path("/nowhere")
path, user = library.hip_dylib(), os.geteuid()
kept = shutil.copy(path, os.environ["XDG_CACHE_HOME"])
build.build = lambda path: os.replace(shutil.copy(kept, f"{path}.part"), path)  # for more seconds each time
assert [oct(each.stat().st_mode & 0o777) for each in (path, *path.parents[:3])] == ["0o700"] * 4
path.chmod(0o777)
before = path.stat().st_ino
assert library.hip_dylib() == path and path.stat().st_ino != before
os.geteuid = lambda: user + 1
path.unlink()
assert not library.hip_dylib().is_relative_to(os.environ["XDG_CACHE_HOME"])
os.geteuid = lambda: user + 2
print(run.main(["--print-hip-dylib"]), path.exists(), library.hip_dylib())
"""
    done = execute(sys.executable, "-c", script, XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    code, exists, of_process = done.stdout.split()
    assert (code, exists) == ("1", "False") and not Path(of_process).exists()
    assert done.stderr.count("the HIP driver library is built again each time") == 1
    assert f"mxcomp-run: error: {tmp_path}/mxcomp belongs to user" in done.stderr


# Which Python simulates, where no variable of ours says it.

STOCK = [IREE / "iree-run-module", "--device=hip", "--module=m.vmfb", *CALL]
UNSET = {"MXCOMP_PYTHON": "", "PATH": "/usr/bin:/bin"}


def plant(path: Path, marker: Path) -> None:
    """An interpreter that leaves a mark when it is used."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\ntouch "{marker}"\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)


def test_nothing_is_written_and_no_file_is_believed(tmp_path: Path) -> None:
    """Neither a file beside the library nor a folder above it that is no environment says what is executed."""
    folder, marker = tmp_path / "source" / "mxcomp" / "hip" / "_lib", tmp_path / "marker"
    folder.mkdir(parents=True)
    shutil.copy(library.hip_dylib(), folder)
    plant(tmp_path / "planted", marker)
    for above in (tmp_path, tmp_path / "source", folder):
        plant(above / "bin" / "python3", marker)
    (folder / "python.txt").write_text(f"{tmp_path / 'planted'}\n")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    check(execute(*STOCK, f"--hip_dylib_path={folder}", **UNSET))
    assert not marker.exists()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("interpreter", ["python3.11", "python3"])
def test_environment_of_the_library(interpreter: str, tmp_path: Path) -> None:
    """Is asked first. An environment without mxcomp is none."""
    marker = tmp_path / "marker"
    plant(tmp_path / "bin" / interpreter, marker)
    folder = tmp_path / "lib" / "python3.11" / "site-packages" / "mxcomp" / "hip" / "_lib"
    folder.mkdir(parents=True)
    shutil.copy(library.hip_dylib(), folder)
    check(execute(*STOCK, f"--hip_dylib_path={folder}", **UNSET))
    assert marker.exists()
    marker.unlink()
    other = folder.parent.parent.with_name("other")
    folder.parent.parent.rename(other)
    check(execute(*STOCK, f"--hip_dylib_path={other / 'hip' / '_lib'}", **UNSET))
    assert not marker.exists()
