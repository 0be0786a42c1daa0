"""benchmarks/aiter_times.py: tables in and out, and what is wrong with them."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import checkout
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from aiter_times import main

HEADER = "m,n,k,tile_m,tile_n,us"


@pytest.fixture
def aiter(tmp_path: Path) -> Path:
    return checkout.make(tmp_path / "aiter")


def predict(aiter: Path, lines: list[str], folder: Path) -> tuple[int, list[dict[str, str]]]:
    given, written = folder / "rows.csv", folder / "predicted.csv"
    given.write_text("\n".join(lines) + "\n")
    code = main(["--aiter", str(aiter), "--rows", str(given), "-o", str(written), "--jobs=1"])
    return code, list(csv.DictReader(written.open())) if written.exists() else []


def test_estimates_are_added(aiter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the lines; other columns stay."""
    lines = ["note," + HEADER, "a,64,256,1024,32,128,9", "b,64,4096,1024,32,128,", "c,64,256,512,32,128,8"]
    code, rows = predict(aiter, lines, tmp_path)
    assert code == 0
    assert [row["note"] for row in rows] == ["a", "b", "c"]
    for row in rows:
        assert 0 < float(row["low"]) < float(row["modelled_us"]) < float(row["high"])
        assert row["bound"]
    assert float(rows[1]["modelled_us"]) > float(rows[0]["modelled_us"]) > float(rows[2]["modelled_us"])
    assert "3 of 3 rows modelled; against measured times: error median" in capsys.readouterr().out


def test_times_may_be_missing(aiter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = predict(aiter, ["m,n,k,tile_m,tile_n", "64,256,1024,32,128"], tmp_path)
    assert (code, len(rows)) == (0, 1)
    assert capsys.readouterr().out == "1 of 1 rows modelled\n"


def test_faulty_lines(aiter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is named with what was expected; the others are done."""
    lines = [HEADER, "64,256,1024,99,128,9", "64,256,1024,32,128,9", "64,x,1024,32,128,9", "64,256,1000,32,128,9",
             "64,256,1024,32,128,fast"]  # fmt: skip
    code, rows = predict(aiter, lines, tmp_path)
    assert code == 1
    assert [row["modelled_us"] != "" for row in rows] == [False, True, False]
    errors = capsys.readouterr().err.splitlines()
    place = str(tmp_path / "rows.csv")
    assert [error.split(": ")[0] for error in errors] == [f"{place}:{line}" for line in (2, 4, 5, 6)]
    for error, text in zip(errors, ("no kernel for tile 99×128", "expected whole numbers m,n,k,tile_m,tile_n",
                                    "K in blocks of 32", "us is fast: expected a number"), strict=True):  # fmt: skip
        assert text in error


def test_missing_columns(aiter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = predict(aiter, ["m,n,tile_m,tile_n", "64,256,32,128"], tmp_path)
    assert (code, rows) == (1, [])
    assert "rows.csv:1: no column k: expected m,n,k,tile_m,tile_n and perhaps us" in capsys.readouterr().err


def test_no_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = predict(tmp_path, [HEADER, "64,256,1024,32,128,9"], tmp_path)
    assert code == 1
    assert "no checkout of ROCm/aiter: expected hsa/gfx950/f4gemm in it" in capsys.readouterr().err
