"""benchmarks/pages.py: tables stand between marks in pages, and say what mxcomp-bench found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import pages

ROOT = Path(__file__).parents[2]


def test_every_table_has_its_place() -> None:
    for page, tables in pages.PAGES.items():
        text = (ROOT / page).read_text()
        for name in tables:
            begin, end = f"<!-- {name}: written by benchmarks/pages.py -->", f"<!-- end of {name} -->"
            assert text.count(begin) == text.count(end) == 1
            assert text.partition(begin)[2].partition(end)[0].count("\n| ") >= 3


def test_a_table_is_put_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x: written by benchmarks/pages.py -->\nold\n<!-- end of x -->\nb\n")
    pages._put(page, "x", "new")
    assert page.read_text() == "a\n<!-- x: written by benchmarks/pages.py -->\nnew\n<!-- end of x -->\nb\n"


def test_speeds_beside_a_peer() -> None:
    """Twice as fast with one row, half as fast with many: as fast in the geometric mean."""

    def bench(name: str, *args: str, peer: bool = False) -> list[dict[str, Any]]:
        return [
            {"m": m, "ours_us": 10.0, "peer_us": us}
            for m, us in [(low, us) for low, _ in pages._RANGES for us in (20.0, 5.0)]
        ]

    text = pages.aiter(cast(pages.Bench, bench))
    assert "**1.00 × as fast** (geometric mean of 12), at least as fast in 50%, and 0.50 × at worst" in text
    assert "| 1 to 16 | 2 | 1.00 | 50% | 0.50 |" in text


def test_the_results_of_the_readme() -> None:
    """Results are made of other tables: here a size in 8 to 12 µs, MXFP8 in 1 ms, layers in half of published times."""
    found: dict[str, list[dict[str, Any]]] = {
        "aiter": [{"m": 1, "ours_us": 10.0, "peer_us": 20.0}, {"m": 2048, "ours_us": 10.0, "peer_us": 5.0}],
        "sizes": [{"m": 10000, "n": 16384, "k": 16384, "ours_us": 10.0, "low": 8.0, "high": 12.0}],
        "configurations_bf16": [{"configuration": "dt", "us": 1.0}, {"configuration": "AITER", "us": 7.0}],
        "bits_fp8_fp8": [{"m": 8192, "n": 8192, "k": 8192, "ours_us": 1000.0}] * len(pages._SQUARES),
        "moe": [{"model": "gptoss", "published_us": 8.0, "ours_us_gemm1": 3.0, "ours_us_gemm2": 1.0}],
        "model-llama3-8b": [{"us": 40.0, "floor_us": 32.0}],
    }

    class Bench:
        folder = Path()

        def __call__(self, name: str, *args: str, peer: bool = False) -> list[dict[str, Any]]:
            return found[name]

    lines = pages.results(cast(pages.Bench, Bench())).splitlines()
    assert "| 1.00 × as fast (geometric mean); at least as fast in 50%; 0.50 × at worst |" in lines[2]
    assert "| 2.00 ×; 0.50 × |" in lines[3]
    assert lines[4].endswith("| 10 µs | AITER 7 µs, same model | 8 to 12 µs |")
    assert "| 1100 TFLOP/s |" in lines[5] and lines[5].endswith("| ± 20 % |")
    assert "MoE layers, 1 of four models | 2.00 × as fast" in lines[6]
    assert "| 40.0 µs, 1.25 × its bytes and launches |" in lines[7]


def test_a_page_without_marks(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing\n")
    with pytest.raises(AssertionError, match="no marks of x"):
        pages._put(tmp_path / "page.md", "x", "new")
