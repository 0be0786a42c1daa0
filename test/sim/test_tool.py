"""mxcomp-sim lists and runs kernels; what a launch counts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from mxcomp.sim.banks import conflict_cycles
from mxcomp.tools.sim import main

FILE = str(Path(__file__).parent / "kernels" / "faults.hsaco")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FILE, "--kernel=fine_lds"]) == 0
    output = capsys.readouterr().out
    assert "kernel fine_lds" in output
    assert "512 bytes of LDS" in output
    assert "ds_write_b32 v1, v0" in output


def test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = str(tmp_path / "in.npy"), str(tmp_path / "out.npy")
    np.save(source, np.arange(128, dtype=np.uint32))
    command = [FILE, "--run=fine_copy", "--block=128", f"--arg=@{source}", "--arg=empty:512", f"--output={target}"]
    assert main(command) == 0
    np.testing.assert_array_equal(np.load(target).view(np.uint32), np.arange(128))
    counted = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert counted["global.load.bytes"] == counted["global.store.bytes"] == "512"
    assert counted["instructions"] == "14"  # two waves
    assert counted["valu"] == "2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--run=nothing"], "no kernel 'nothing'"),
        (["--run=fine_copy", "--block=128"], "bytes of arguments"),
        (["--run=fine_copy", "--block=128", "--arg=f16:1"], "expected @FILE.npy"),
        (["--run=lds_never_written", "--block=128", "--arg=zeros:512", "--arg=zeros:512"], "the checks report errors"),
    ],
)
def test_errors(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FILE, *options]) == 1
    assert message in capsys.readouterr().err


def test_bank_conflicts() -> None:
    lanes, active = np.arange(64), np.ones(64, bool)
    assert conflict_cycles(lanes * 4, active, 4, "load") == 0
    assert conflict_cycles(lanes * 8, active, 8, "load") == 0  # 32 lanes at a time, on 64 banks
    assert conflict_cycles(lanes * 16, active, 16, "load") == 0
    assert conflict_cycles(lanes * 16, active, 16, "store") == 0  # 8 lanes at a time
    assert conflict_cycles(0 * lanes, active, 4, "load") == 0  # one dword for all
    assert conflict_cycles(lanes * 128, active, 4, "load") == 31  # 32 lanes on each of two banks
    assert conflict_cycles(lanes * 128, active, 4, "store") == 2 * 31  # writes have 32 banks, for 32 lanes at a time
    assert conflict_cycles(lanes * 16, active, 12, "load") == 0  # 8 lanes at a time, 4 and 4 that lie 16 apart
    assert conflict_cycles(lanes * 12, active, 12, "load") == 8
    assert conflict_cycles(lanes * 128, lanes < 1, 4, "store") == 0


def test_timing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A modelled time with what it consists of, and a timeline of both waves."""
    timeline = tmp_path / "trace.json"
    command = [FILE, "--timing", "--run=fine_copy", "--block=128", "--arg=empty:512", "--arg=empty:512"]
    assert main([*command, f"--timeline={timeline}"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    pattern = r"kernel fine_copy: modelled \d+\.\d µs \(\d+\.\d to \d+\.\d, of kernels unlike those fitted\)"
    assert re.match(pattern + ", bound by launch$", first)
    assert not any(line.startswith("loop ") for line in rest)
    assert any(line.startswith("without launch") for line in rest)
    events = json.loads(timeline.read_text())["traceEvents"]
    issued = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
    assert len(issued) == 14  # as test_run counts them
    assert {event["tid"] for event in issued} == {0, 1}
    assert all(event["dur"] >= 0 for event in issued)
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"wave 0, SIMD 0", "wave 1, SIMD 1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--timing"], "--timing of which kernel? give --run="),
        (["--run=fine_copy", "--timeline=t.json"], "--timeline and --picture show what --timing models"),
        (["--timing", "--run=fine_copy", "--block=128"], "bytes of arguments"),
        (["--timing", "--run=fine_copy", "--arg=empty:99999999999", "--arg=empty:4"], "cannot allocate 99999999999"),
    ],
)
def test_timing_errors(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([FILE, *options]) == 1
    assert message in capsys.readouterr().err
