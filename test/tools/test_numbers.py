"""MX data shown as numbers: results of mxcomp-run, files with mxcomp-show, and that dumping tells what it lacks."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from modules import KINDS, Matmul, dequantise, source

import mxcomp
from mxcomp.tools import run as run_tool
from mxcomp.tools import show as show_tool

ROWS, K = 3, 64
COPY = """
func.func @main(%a: tensor<{rows}x{bytes}xi8>, %s: tensor<{rows}x2xi8>, %x: tensor<2xf32>)
    -> (tensor<{rows}x{bytes}xi8>, tensor<{rows}x2xi8>, tensor<2xf32>) {{
  return %a, %s, %x : tensor<{rows}x{bytes}xi8>, tensor<{rows}x2xi8>, tensor<2xf32>
}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def show(capfd: pytest.CaptureFixture[str]) -> Tool:
    return partial(_called, capfd, show_tool.main)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Tool:
    return partial(_called, capfd, run_tool.main)


def _called(
    capfd: pytest.CaptureFixture[str], main: Callable[[list[str]], int], *flags: str
) -> subprocess.CompletedProcess[str]:
    """A tool in this process, whose start takes longer than what it does."""
    capfd.readouterr()
    code = main(list(flags))
    return subprocess.CompletedProcess(flags, code, *capfd.readouterr())


def stored(kind: str) -> np.ndarray:
    """Writes elements and scales of a random operand to a.npy and s.npy; gives what they are, float64 [ROWS, K]."""
    lhs, _, scales, _ = Matmul(ROWS, ROWS, K, types=(kind, kind)).operands
    np.save("a.npy", lhs.view(np.int8))
    np.save("s.npy", scales)
    return dequantise(lhs, scales, kind)


@pytest.fixture
def copied(run: Tool) -> Tool:
    return partial(_copied, run)


def _copied(run: Tool, *outputs: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Runs a program that returns what it is given."""
    text = COPY.format(rows=ROWS, bytes=np.load("a.npy").shape[1])
    mxcomp.compile(text).save("copy.vmfb")
    inputs = ("--input=@a.npy", "--input=@s.npy", "--input=2xf32=1.5,2.5")
    return run("copy.vmfb", "--function=main", *inputs, *(f"--output={output}" for output in outputs), *flags)


def parsed(line: str, text: str) -> np.ndarray:
    """The numbers of the array behind `line`."""
    body = text[text.index(line) + len(line) :]
    found = re.findall(r"[-\d.e+]+|nan|inf", body[: body.index("]]")])
    return np.array(found, np.float32)  # printed with as few digits as tell a float32 from others


def test_results_as_numbers(copied: Tool) -> None:
    expected = stored("f6E3M2FN")
    done = copied("f6E3M2FN*1", "f8E8M0FNU", "-")
    assert done.returncode == 0, done.stderr
    assert "2xf32=1.5 2.5" in done.stdout
    np.testing.assert_array_equal(
        parsed("result[0]: f6E3M2FN * result[1]\n3x64xf32=", done.stdout), expected.ravel().astype(np.float32)
    )
    scales = np.exp2(np.load("s.npy").astype(np.float64) - 127)
    np.testing.assert_array_equal(parsed("result[1]: f8E8M0FNU\n3x2xf32=", done.stdout), scales.ravel())


def test_results_into_files(copied: Tool) -> None:
    expected = stored("f4E2M1FN")
    done = copied("E2M1*1@y.npy", "f8E8M0FNU@scales.npy", "@x.npy")
    assert done.returncode == 0, done.stderr
    assert "result[" not in done.stdout
    assert np.load("y.npy").dtype == np.float32
    np.testing.assert_array_equal(np.load("y.npy"), expected)
    np.testing.assert_array_equal(np.load("x.npy"), [1.5, 2.5])
    done = copied("f4E2M1FN@elements.npy", "", "")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load("elements.npy") * np.load("scales.npy").repeat(32, 1), expected)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (("f4E2M1FN*1", "-", "-"), r"--output=f4E2M1FN\*1: result 1 are scales: its --output has to be f8E8M0FNU"),
        (("", "f8E8M0FNU*0", ""), r"--output=f8E8M0FNU\*0: f8E8M0FNU is a type of scales"),
        (("", "", "f4E2M1FN"), r"--output=f4E2M1FN: elements are float32 \[2\]: expected an array of bytes"),
        (
            ("f8E4M3FN*1", "f8E8M0FNU", ""),
            r"elements \(3, 32\) and scales \(3, 2\): expected one scale per 32 elements",
        ),
        (("f4E2M1FN@no/such.npy", "", ""), r"--output=f4E2M1FN@no/such.npy: cannot write no/such.npy: No such file"),
    ],
)
def test_results_that_are_no_numbers(outputs: tuple[str, ...], message: str, copied: Tool) -> None:
    stored("f4E2M1FN")
    done = copied(*outputs)
    assert done.returncode == 1
    assert re.search(f"^mxcomp-run: error: .*{message}", done.stderr, re.MULTILINE), done.stderr
    assert "Traceback" not in done.stderr


def test_failed_call_is_the_only_error(copied: Tool) -> None:
    stored("f4E2M1FN")
    done = copied("f4E2M1FN")  # for three results
    assert done.returncode == 1
    assert "OUT_OF_RANGE" in done.stderr
    assert done.stderr.count("mxcomp-run: error") == 1  # what IREE's status means


@pytest.mark.parametrize("kind", KINDS)
def test_show(kind: str, show: Tool) -> None:
    expected = stored(kind)
    done = show("a.npy", f"--type={kind}", "--scales=s.npy", "-o", "y.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load("y.npy"), expected)
    np.save("blocks.npy", np.load("a.npy").reshape(ROWS, 2, -1))  # bytes of a block apart
    done = show("blocks.npy", f"--type={kind}", "--scales=s.npy")
    np.testing.assert_array_equal(parsed("3x64xf32=", done.stdout), expected.ravel())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("a.npy", "--type=fp4"), "a.npy: unknown type 'fp4': expected one of E2M1, f4E2M1FN"),
        (("none.npy", "--type=E2M1"), "cannot read none.npy: No such file or directory"),
        (("text.npy", "--type=E2M1"), "text.npy is not a .npy file"),
        (("a.npy", "--type=E2M1", "--scales=a.npy"), "expected one scale per 32 elements"),
        (("a.npy", "--type=E2M1", "-o", "no/such.npy"), "cannot write no/such.npy"),
    ],
)
def test_what_cannot_be_shown(flags: tuple[str, ...], message: str, show: Tool) -> None:
    stored("f4E2M1FN")
    Path("text.npy").write_text("text")
    done = show(*flags)
    assert done.returncode == 1
    assert done.stderr.startswith("mxcomp-show: error: ")
    assert message in done.stderr


def test_dump() -> None:
    """As a command: the arrays are tested elsewhere."""
    matmul = Matmul(64, 128, 256)
    program = mxcomp.compile(source(matmul))
    program.save("m.vmfb")
    Path("report.json").write_text(program.report.to_json())
    for k, array in enumerate(matmul.inputs):
        np.save(f"{k}.npy", array)
    flags = (*(f"--input=@{k}.npy" for k in range(4)), "--output=", "--report=report.json", "--dump-operands=operands")
    command = [sys.executable, "-m", "mxcomp.tools.run", "m.vmfb", "--function=main", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    shapes = {"lhs": (64, 256), "rhs": (128, 256), "lhs_scale": (64, 8), "rhs_scale": (128, 8)}
    assert {name: np.load(f"operands/000.{name}.npy").shape for name in shapes} == shapes
    assert re.search(r"000\.rhs\.npy +│ rhs +│ f4E2M1FN +│ 128×256 ", done.stderr)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--dump-operands needs --report=FILE"),
        (("--report=none.json",), "mxcomp-run: error: cannot read none.json: No such file or directory"),
        (("--report=report.json",), "no matmul dispatch of report.json was launched: is it the report of this module?"),
        (("--report=a.npy",), "a.npy is no report of this version of mxcomp: mxcomp-compile"),
        (("--report=report.json", "--device=cpu"), "--dump-operands is about the simulator"),
    ],
)
def test_what_cannot_be_dumped(flags: tuple[str, ...], message: str, copied: Tool) -> None:
    stored("f4E2M1FN")
    Path("report.json").write_text('{"target": "gfx950", "matmuls": [], "launches": []}')
    done = copied("", "", "", flags=("--dump-operands=operands", *flags))
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
