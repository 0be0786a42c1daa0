"""What mxcomp-bench keeps from an earlier run, and what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mxcomp.measuring import records
from mxcomp.measuring.configurations import CONFIGURATIONS
from mxcomp.measuring.records import Record
from mxcomp.selection.tuned_lines import Line
from mxcomp.tools import bench, bench_configurations, bench_matmuls, run, sim
from mxcomp.tools.bench_matmuls import Entry

INPUTS = Path(__file__).parent.parent / "tools"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to time: expected MxNxK or --rows=FILE.csv"),
        (["--configurations"], "nothing to time: expected MxNxK or model.mlir"),
        (["--configurations", "16x64x33"], "16x64x33: expected K to be a multiple of 32"),
        (["--configurations", "16x64x64", f"--rows={INPUTS}/inputs/bench.csv"], "expected sizes or models"),
        (["--configurations", "no_such.mlir"], "cannot read no_such.mlir: No such file or directory"),
        (["--configurations", f"{INPUTS}/compile.mlir", "--result=f32"], "--types and --result are for sizes"),
        (["64x64x64", "--jobs=0"], "--jobs=0: expected 1 or more"),
        (["64x64x64", f"--picture={__file__}"], "pictures cannot be written: [Errno 17] File exists"),
        (["64x64x64", "--json=/no/such/place.json"], "cannot write /no/such/place.json: No such file or directory"),
    ],
)
def test_bad_input(arguments: Sequence[str], message: str, capfd: Any) -> None:
    assert bench.main(list(arguments)) == 1
    error = capfd.readouterr().err
    assert error.startswith("mxcomp-bench: error: ")
    assert message in error


def test_what_is_written_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """Nothing is timed where all is known: the table shows it, whatever the numbers are."""
    name = "16x64x128 f4E2M1FN × f4E2M1FN → f32"
    listed = [Record(name, each, "matmul", "f", "modelled", 1234.5, 1.0, 2.0) for each in CONFIGURATIONS]
    (tmp_path / "r.json").write_bytes(records.to_json(listed))
    monkeypatch.setattr(bench_configurations, "timed", None)
    assert bench.main(["--configurations", "16x64x128", f"--json={tmp_path}/r.json"]) == 0
    assert capfd.readouterr().out.count("1.23 ms") == len(CONFIGURATIONS)


def test_measured_matmuls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """What the device says comes in the place of modelled times, and is kept for the next run."""
    asked: list[Any] = []

    def measuring(keys: Sequence[Any], settings: Any, executor: Any) -> Any:
        asked.append((len(keys), settings.device, settings.candidates))
        return (Line(key, "mx_any", "measured", 7.5) for key in keys)

    monkeypatch.setattr(bench_matmuls, "tune", measuring)
    shapes = ["16x64x128", "32x64x128"]
    arguments = ["--device=hip", "--jobs=1", f"--json={tmp_path}/r.json"]
    assert bench.main([*arguments, *shapes]) == 0
    assert "measured µs" in capfd.readouterr().out
    found = records.from_json(tmp_path / "r.json", Entry, "mxcomp-bench")
    assert [(each.m, each.ours_us, each.source, each.bound) for each in found] == [
        (16, 7.5, "measured", ""),
        (32, 7.5, "measured", ""),
    ]
    assert bench.main([*arguments, *shapes, "64x64x128"]) == 0
    assert asked == [(2, "hip", 1), (1, "hip", 1)]


@pytest.mark.parametrize(
    "command",
    [
        (bench.main, "64x64x64", "--picture=pictures"),
        (sim.main, "no_such.hsaco", "--timing", "--picture=p.png"),
        (run.main, "--module=no_such.vmfb", "--device=sim", "--roofline=p.png"),
    ],
    ids=["bench", "sim", "run"],
)
def test_pictures_that_cannot_be_are_refused_first(
    command: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: Any
) -> None:
    """Before anything is read or run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    main, *arguments = command
    assert main(arguments) == 1
    assert "pictures need matplotlib: pip install 'mxcomp[plot]'" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
