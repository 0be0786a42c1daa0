"""Kernels that this machine has never simulated: compiled by several processes, with one line about it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from modules import Matmul, source
from processes import children

import mxcomp
from mxcomp.hip.cold import ColdStarts
from mxcomp.hip.warned import Warnings
from mxcomp.sim import Kernel, Module, code_object
from mxcomp.sim.fast import jit, objects
from mxcomp.sim.findings import CHECKS, Finding, Severity

MATMUL = Matmul(64, 128, 256)


@cache
def module_bytes() -> bytes:
    vmfb = mxcomp.compile(source(MATMUL)).vmfb
    return vmfb[vmfb.index(b"\x7fELF\2\1") :]


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """Those of a program, with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    module: Module = code_object.load(module_bytes())
    return list(module.kernels.values())


def entries(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "mxcomp" / "sim").glob("*.o")}


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_all_are_compiled(
    kernels: list[Kernel], processes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for the code object; the launches' own kernels are compiled or waited for, each of them once."""
    assert len(objects.missing(kernels, CHECKS)) == len(kernels) == 5
    cold = ColdStarts(processes, own_files=())
    for kernel in kernels:
        cold.prepare(kernel, CHECKS)
        objects.make(kernel, CHECKS)
    assert objects.missing(kernels, CHECKS) == []
    assert len(entries(tmp_path)) == 6  # one of them the matrix instruction's
    line = f"mxcomp simulator: compiling 5 kernels for this processor, once: kept in {tmp_path}/mxcomp/sim\n"
    assert capsys.readouterr().err == line
    ColdStarts(processes, own_files=()).prepare(kernels[0], CHECKS)
    assert capsys.readouterr().err == ""


def test_what_no_launch_needs_is_left(
    kernels: list[Kernel], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Versions of a kernel for other sizes: nothing is said or compiled in a run that has its own."""
    for kernel in kernels[:2]:
        objects.make(kernel, CHECKS)
    cold, before = ColdStarts(2, own_files=()), set(children())
    for kernel in kernels[:2]:
        cold.prepare(kernel, CHECKS)
    assert capsys.readouterr().err == "" and set(children()) == before
    cold.prepare(kernels[2], CHECKS)
    assert "compiling 3 kernels" in capsys.readouterr().err


def test_others_compile_what_is_not_launched(kernels: list[Kernel], tmp_path: Path) -> None:
    """From the last one on, and a launch waits for one that has been begun."""
    cold, before = ColdStarts(2, own_files=()), set(children())
    cold.prepare(kernels[0], CHECKS)
    (process,) = set(children()) - before
    os.waitpid(process, 0)
    assert objects.missing(kernels, CHECKS) == [kernels[0]]
    cold.prepare(kernels[-1], CHECKS)  # which was done


def test_a_process_that_fails(kernels: list[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches compile for themselves then."""

    def fail(text: str) -> bytes:
        raise RuntimeError

    monkeypatch.setattr(jit, "compile_module", fail)
    cold = ColdStarts(2, own_files=())
    for kernel in kernels:
        cold.prepare(kernel, CHECKS)
    assert len(objects.missing(kernels, CHECKS)) == len(kernels)


def test_with_and_without_checks_are_two(kernels: list[Kernel], capsys: pytest.CaptureFixture[str]) -> None:
    cold = ColdStarts(1)
    for checks in (CHECKS, ("bounds",), ("race",)):
        cold.prepare(kernels[0], checks)
    assert capsys.readouterr().err.count("compiling 5 kernels") == 2


def test_warnings_are_grouped(capsys: pytest.CaptureFixture[str]) -> None:
    def finding(check: str, offset: int) -> Finding:
        return Finding(check, Severity.WARNING, "reads much", offset, "s_nop 0", (0, 0, 0), 0)

    warnings = Warnings()
    warnings.say("mxcomp_main_dispatch_0", [finding("uninit", k) for k in (4, 8, 12)])
    warnings.say("mxcomp_main_dispatch_0", [finding("uninit", 16), finding("hazard", 16)])
    warnings.say("main_dispatch_0", [finding("uninit", 4)])
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("mxcomp simulator: kernel mxcomp_main_dispatch_0 (made by mxcomp): warning[uninit] reads")
    assert first.endswith("; and at 2 more places")
    assert "warning[hazard]" in second
    assert "kernel main_dispatch_0 (not made by mxcomp)" in third
