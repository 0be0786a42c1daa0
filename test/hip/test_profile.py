"""What each dispatch of a program does, and its modelled time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from modules import Matmul, source

import mxcomp
from mxcomp.profiling import Profile
from mxcomp.sim.timing.pictures import roofline
from mxcomp.tools import run

MATMUL = Matmul(64, 256, 512)


@pytest.fixture(scope="module")
def program() -> mxcomp.Program:
    return mxcomp.compile(source(MATMUL))


@pytest.fixture(scope="module")
def inputs() -> list[np.ndarray]:
    return [array.view(np.int8) for array in MATMUL.operands]


@pytest.fixture(scope="module")
def profile(program: mxcomp.Program, inputs: list[np.ndarray]) -> Profile:
    return program.profile(*inputs)


def test_each_dispatch_has_a_time(program: mxcomp.Program, profile: Profile) -> None:
    kernels = [dispatch.kernel for dispatch in profile.dispatches]
    assert len(kernels) == len(program.report.matmuls[0].dispatches)
    assert kernels[-1] == program.report.matmuls[0].kernel
    for dispatch in profile.dispatches:
        assert dispatch.modelled is not None, dispatch.reason
        assert 0 < dispatch.modelled.low < dispatch.modelled.us < dispatch.modelled.high
        assert dispatch.modelled.bound in dispatch.modelled.saved
    assert profile.modelled_us == sum(d.modelled.us for d in profile.dispatches if d.modelled)
    assert profile.dispatches[-1].counters["mfma"] == 64 // 16 * 256 // 16 * 512 // 128


def test_nothing_need_be_computed(program: mxcomp.Program, inputs: list[np.ndarray], profile: Profile) -> None:
    """The same kernels, times and counters."""
    followed = program.profile(*inputs, execute=False)
    for a, b in zip(followed.dispatches, profile.dispatches, strict=True):
        assert (a.kernel, a.grid, a.modelled) == (b.kernel, b.grid, b.modelled)
        assert a.counters["instructions"] == b.counters["instructions"]
    assert MATMUL.error(program.run(*inputs)[0]) <= MATMUL.bound  # later runs compute again


def test_table_and_json(profile: Profile) -> None:
    data = json.loads(profile.to_json())
    assert data["modelled_us"] == profile.modelled_us
    assert [line["kernel"] for line in data["dispatches"]] == [d.kernel for d in profile.dispatches]
    assert "modelled µs" in [column.header for column in profile.table().columns]
    assert profile.table().row_count == len(profile.dispatches)


def test_command(program: mxcomp.Program, inputs: list[np.ndarray], tmp_path: Path) -> None:
    """mxcomp-run writes the same, and a timeline for each dispatch."""
    program.save(tmp_path / "m.vmfb")
    flags = [str(tmp_path / "m.vmfb"), f"--output=@{tmp_path / 'y.npy'}", f"--function={FUNCTION}"]
    for k, array in enumerate(inputs):
        np.save(tmp_path / f"{k}.npy", array)
        flags.append(f"--input=@{tmp_path / f'{k}.npy'}")
    written, timelines = tmp_path / "profile.json", tmp_path / "timelines"
    assert run.main([*flags, f"--profile-json={written}", f"--timeline={timelines}"]) == 0
    assert len(json.loads(written.read_text())["dispatches"]) == len(list(timelines.glob("*.json"))) > 1
    assert MATMUL.error(np.load(tmp_path / "y.npy")) <= MATMUL.bound


def test_roofline(profile: Profile) -> None:
    pytest.importorskip("matplotlib")
    times = [(d.kernel, d.modelled) for d in profile.dispatches if d.modelled]
    assert times[-1][1].flops == 2 * MATMUL.m * MATMUL.n * MATMUL.k
    assert roofline([(name, m.flops, m.unique_bytes, m.us) for name, m in times]).startswith(b"\x89PNG")


FUNCTION = "main"
