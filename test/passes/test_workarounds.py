"""What IREE gets wrong is wrong still: the day that it is not, the pass that works around it goes.

`passes/workarounds` has a program for each fault. A stock IREE compiles it here as its head says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import workarounds_page
from spread import quick_if
from workarounds_page import Computes, Crashes, Omits, Refuses, Workaround

import mxcomp
from mxcomp import pipeline
from mxcomp.errors import CompileError
from mxcomp.mlir.session import Session
from mxcomp.passes import workarounds
from mxcomp.run import runtime
from mxcomp.run.runtime import RunError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "iree.md"
FLAGS = ("--iree-hal-target-device=hip", "--iree-rocm-target=gfx950")
KNOWN = {name: workarounds_page.workaround(name) for name in workarounds.ALL}
SLOW = (Crashes, Computes)
"""Those of which a process, or a kernel, has to run."""


@dataclass(frozen=True)
class Report:
    """A program that shows a fault: its text, and what the commands in its head give it and expect."""

    text: str
    inputs: list[np.ndarray]
    outputs: list[np.ndarray]

    @staticmethod
    def of(name: str) -> Report:
        text = workarounds_page.report(name)
        given, expected = (re.findall(rf"--{flag}=(\S+)", text) for flag in ("input", "expected_output"))
        return Report(text, list(map(array, given)), list(map(array, expected)))

    def agrees(self, found: list[np.ndarray]) -> bool:
        return all(np.array_equal(*each) for each in zip(found, self.outputs, strict=True))


def array(text: str) -> np.ndarray:
    """An array as iree-run-module takes it: 2x3xf32=1,2,3,4,5,6, or one number for all."""
    kind, _, numbers = text.partition("=")
    *shape, element = kind.split("x")
    dtype = ml_dtypes.bfloat16 if element == "bf16" else {"i": "int", "f": "float"}[element[0]] + element[1:]
    values = np.array([float(number) for number in numbers.split(",")]).astype(dtype)
    return np.broadcast_to(values, list(map(int, shape))) if values.size == 1 else values.reshape(*map(int, shape))


def stock(text: str, phase: str = "end") -> Session:
    session = Session((*FLAGS, "--verify"))
    session.load(text.encode(), "report")
    session.run("start", phase)
    return session


def is_there(name: str, known: Workaround) -> bool:
    """Whether a stock IREE shows a fault."""
    report = Report.of(name)
    match known.stock:
        case Refuses(says):
            try:
                stock(report.text)
            except CompileError as error:
                return re.search(says, "\n".join(error.diagnostics)) is not None
        case Crashes(says, fill):
            command = [Path(sys.executable).with_name("iree-compile"), "-", *FLAGS, "-o", "/dev/null"]
            around = os.environ | ({"MALLOC_PERTURB_": str(fill)} if fill else {})
            done = subprocess.run(command, input=report.text, text=True, capture_output=True, env=around)
            return done.returncode != 0 and says in done.stderr
        case Omits(phase, pattern):
            return re.search(pattern, str(stock(report.text, phase).module)) is None
        case Computes(says):
            try:
                found = runtime.run(stock(report.text).vm_bytecode(), None, report.inputs, "sim", "numpy", "all")
            except RunError as error:
                return bool(says) and re.search(says, str(error)) is not None
            return not report.agrees(found)
    return False


@pytest.mark.parametrize("name", quick_if(lambda name: not isinstance(KNOWN[name].stock, SLOW), KNOWN))
def test_the_fault_is_there(name: str) -> None:
    file = workarounds.file(name)
    assert is_there(name, KNOWN[name]), (
        f"IREE {metadata.version('iree-base-compiler')} shows this fault no more: "
        f"{workarounds_page.fault(name)} If it is mended, "
        f"delete passes/workarounds/{file}.py, {file}.mlir, test/passes/workarounds/{file}.mlir and the name in "
        "passes/workarounds/__init__.py; if it only says so otherwise, write that into the file"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KNOWN if not KNOWN[name].left])
def test_it_is_worked_around(name: str) -> None:
    report = Report.of(name)
    program = mxcomp.compile(report.text, strict=True)
    if report.outputs:
        assert report.agrees(program.run(*report.inputs, engine="numpy"))


def test_versions() -> None:
    """Each is for the release that is here: a new one takes a look at all of them."""
    found = ".".join(metadata.version("iree-base-compiler").split(".")[:2])
    assert {name for name, known in KNOWN.items() if found not in known.versions} == set()


def test_files() -> None:
    """A pass, a report, a lit test; and nothing else in the folders."""
    files = {workarounds.file(name) for name in KNOWN}
    assert {path.stem for path in workarounds_page.FOLDER.glob("*.py")} == {"__init__", *files}
    assert {path.stem for path in workarounds_page.FOLDER.glob("*.mlir")} == files
    assert files <= {path.stem for path in (ROOT / "test" / "passes" / "workarounds").glob("*.mlir")}


def test_each_is_in_the_pipeline() -> None:
    found = {*pipeline.ENTRY_PASSES, *pipeline.MODULE_PASSES, *pipeline.DISPATCH_PASSES}
    assert set(workarounds.ALL) <= found


def test_reports_say_how_to_see_it() -> None:
    for name in KNOWN:
        report, file = Report.of(name), workarounds.file(name)
        assert f"iree-compile {file}.mlir {' '.join(FLAGS)} " in report.text, name
        fill = getattr(KNOWN[name].stock, "fill", 0)
        assert not fill or f" MALLOC_PERTURB_={fill} iree" in report.text, name
        assert report.outputs or not isinstance(KNOWN[name].stock, Computes), name
        assert not isinstance(known := KNOWN[name].stock, Refuses) or re.search(known.says, report.text), name


def test_the_page_is_up_to_date(pytestconfig: pytest.Config) -> None:
    """`pytest test/passes/test_workarounds.py --update-docs` writes it."""
    made = workarounds_page.page()
    if pytestconfig.getoption("--update-docs"):
        PAGE.write_text(made)
    assert PAGE.read_text() == made
