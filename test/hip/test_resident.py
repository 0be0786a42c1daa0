"""Programs that are loaded once and called many times, and programs that are loaded from files."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from iree import runtime as rt
from iree.compiler import compile_str
from modules import Matmul, source
from stock import compiled

import mxcomp
from mxcomp import profiling
from mxcomp.errors import InputError, MxcompError
from mxcomp.report import Report
from mxcomp.run.runtime import RunError

MATMUL = Matmul(64, 256, 512)
COUNTS = """
util.global private mutable @count = dense<0.0> : tensor<4xf32>
func.func @add(%x: tensor<4xf32>) -> tensor<4xf32> {
  %old = util.global.load @count : tensor<4xf32>
  %new = arith.addf %old, %x : tensor<4xf32>
  util.global.store %new, @count : tensor<4xf32>
  return %new : tensor<4xf32>
}
func.func @close(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.mulf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
ONES = np.ones(4, np.float32)


@pytest.fixture(scope="module")
def program() -> mxcomp.Program:
    return mxcomp.compile(source(MATMUL))


@pytest.fixture(scope="module")
def counting() -> mxcomp.Program:
    return mxcomp.Program(compiled(COUNTS), Report("gfx950"))


def test_state_stays_between_calls(counting: mxcomp.Program) -> None:
    with counting.session() as s, counting.session() as other:
        assert s.functions == ("add", "close")
        assert [s.add(ONES)[0].tolist() for _ in range(3)] == [[k] * 4 for k in (1, 2, 3)]
        assert other.add(ONES)[0].tolist() == [1] * 4
        assert counting.run(ONES, function="add")[0].tolist() == [1] * 4
        assert s.run(2 * ONES, function="close")[0].tolist() == [4] * 4
        assert s.add(ONES)[0].tolist() == [4] * 4
    with pytest.raises(InputError, match="closed"):
        s.add(ONES)


def test_what_is_no_function(counting: mxcomp.Program) -> None:
    with counting.session() as s:
        with pytest.raises(AttributeError, match="no function 'subtract': expected add, close"):
            s.subtract(ONES)
        with pytest.raises(InputError, match="which function"):
            s.run(ONES)
        with pytest.raises(InputError, match="no function 'subtract'"):
            s.run(ONES, function="subtract")


def test_a_kernel_that_fails_starts_anew(counting: mxcomp.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    with counting.session(engine="numpy") as s:
        assert s.add(ONES)[0].tolist() == [1] * 4
        monkeypatch.setenv("MXCOMP_SIM_MAX_INSTRUCTIONS", "1")
        with pytest.raises(RunError, match="more than 1 instructions"):
            s.add(ONES)
        monkeypatch.undo()
        assert s.add(ONES)[0].tolist() == [1] * 4


WRONG = [
    ((np.ones(5, np.float32),), "argument 0 has the shape 5, expected 4"), ((), "0 arguments are given, expected 1"),
    ((np.ones(4),), "argument 0 has the element type f64"), ((ONES[None],), "argument 0 has 2 dimensions, expected 1"),
    ((ONES, ONES), "2 arguments are given"), ((np.array(["one"] * 4),), "an argument is an array of <U3"),
    ((np.zeros(0, np.float32),), r"argument 0.*(no elements|the shape 0)"),
]  # fmt: skip


@pytest.mark.parametrize("device", ["sim", "cpu"])
def test_refused_arguments_leave_the_state(counting: mxcomp.Program, device: str) -> None:
    """On a device that is not simulated, every call did away with it."""
    program = counting if device == "sim" else mxcomp.Program(_on_cpu(COUNTS), Report("gfx950"))
    with program.session(device=device) as s:
        for calls, (arguments, message) in enumerate(WRONG, start=1):
            assert s.add(ONES)[0].tolist() == [calls] * 4
            with pytest.raises(MxcompError, match=message):
                s.add(*arguments)
        assert s.add(ONES)[0].tolist() == [len(WRONG) + 1] * 4


def _on_cpu(text: str) -> bytes:
    flags = ["--iree-llvmcpu-target-cpu=generic"]
    return bytes(compile_str(text, target_backends=["llvm-cpu"], extra_args=flags))


WEIGHT = 1 << 22
WEIGHED = f"""
util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<{WEIGHT}xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %w = util.global.load @w : tensor<{WEIGHT}xf32>
  %some = tensor.extract_slice %w[100][4][1] : tensor<{WEIGHT}xf32> to tensor<4xf32>
  %y = arith.mulf %x, %some : tensor<4xf32>
  return %y : tensor<4xf32>
}}
"""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What happens here does not wait for a garbage collection."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> dict[str, int]:
    """What this process has: bytes of simulated memory, file descriptors, threads of the operating system."""
    files = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    memory = [file for file in files if "mxcomp-device-memory" in (os.readlink(file) if file.is_symlink() else "")]
    blocks = sum(file.stat().st_blocks for file in memory)
    return {"bytes": 512 * blocks, "files": len(files), "threads": len(os.listdir("/proc/self/task"))}


@pytest.mark.usefixtures("uncollected")
def test_close_gives_the_device_back(tmp_path: Path) -> None:
    """At once, its parameters with it, even while someone has results."""
    index = rt.ParameterIndex()
    index.add_buffer("w", np.arange(WEIGHT, dtype=np.float32))
    index.create_archive_file(str(tmp_path / "w.irpa"))
    program, kept, after = mxcomp.Program(compiled(WEIGHED), Report("gfx950")), [], []
    for _ in range(3):
        with program.session(checks="none", parameters={"model": tmp_path / "w.irpa"}) as s:
            kept += s.main(ONES)
            during = held()
        after.append(held())
    assert all(result.tolist() == [100, 101, 102, 103] for result in kept)
    assert during["bytes"] > after[0]["bytes"] + 4 * WEIGHT
    for each in after[1:]:
        assert each["bytes"] <= after[0]["bytes"] + (1 << 20)
        assert each["files"] <= after[0]["files"] < during["files"]


@pytest.mark.usefixtures("uncollected")
def test_a_thread_gives_its_device_back(counting: mxcomp.Program) -> None:
    """When it ends; 4 threads and 2 descriptors each, while it has one."""
    results: list[np.ndarray] = []

    def work() -> None:
        results.extend(counting.run(ONES, function="add"))

    work()
    before = held()
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [[1] * 4] * 9
    # joined threads may take a moment to leave
    assert held()["files"] <= before["files"] and held()["threads"] < before["threads"] + 2 * len(threads)


def test_settings_hold_for_every_call(program: mxcomp.Program, tmp_path: Path) -> None:
    """Whatever other calls say in between; a profile gets a line for each launch."""
    path = tmp_path / "profile.jsonl"
    with program.session(checks=("race", "late"), profile=path) as s:
        results = [s.main(*MATMUL.inputs)[0]]
        lines = len(profiling.read(path).dispatches)
        program.run(*MATMUL.inputs, checks="none", engine="fast")
        results += s.main(*MATMUL.inputs)
    assert len(profiling.read(path).dispatches) == 2 * lines == 2 * len(program.report.matmuls[0].dispatches)
    assert all(MATMUL.error(result) <= MATMUL.bound for result in results)


def test_settings_without_meaning(program: mxcomp.Program) -> None:
    for settings in ({"engine": "steam"}, {"checks": ["late", "early"]}, {"device": "toaster"}):
        with pytest.raises(InputError, match=r"steam|early|toaster"):
            program.run(*MATMUL.inputs, **settings)
        with pytest.raises(InputError, match=r"steam|early|toaster"):
            program.session(**settings)


def test_load(program: mxcomp.Program, tmp_path: Path) -> None:
    """With the report a profile says whose dispatches they are."""
    program.save(tmp_path / "model.vmfb")
    (tmp_path / "report.json").write_text(program.report.to_json())
    loaded = mxcomp.Program.load(tmp_path / "model.vmfb", tmp_path / "report.json")
    assert loaded == program
    found = loaded.profile(*MATMUL.inputs, execute=False)
    parts = [f"{part} of {program.report.matmuls[0].location}" for part in program.report.matmuls[0].dispatches]
    assert [dispatch.owner for dispatch in found.dispatches] == parts
    assert mxcomp.Program.load(tmp_path / "model.vmfb").report.matmuls == []
    headers = [column.header for column in found.table().columns]
    assert [str(cell) for cell in found.table().columns[0].cells] == parts
    assert not any("simulated" in str(header) for header in headers)
    assert f"{found.modelled_us:.1f} µs on an MI355X, modelled" in str(found.table().caption)


def test_load_what_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text("module {}\n")
    with pytest.raises(InputError, match=r"model\.mlir is no compiled program"):
        mxcomp.Program.load(tmp_path / "model.mlir")
    with pytest.raises(InputError, match="cannot read"):
        mxcomp.Program.load(tmp_path / "missing.vmfb")


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"target": "gfx950", "matmuls": [{"new": 1}]})])
def test_report_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match="no report of this version"):
        Report.from_json(text)
