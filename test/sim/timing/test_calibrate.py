"""benchmarks/calibrate.py, on times that the model itself makes for a kernel of ours."""

from __future__ import annotations

import sys
from pathlib import Path

import checkout
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import calibrate
import replays
from timing_report import Report, ranking

from mxcomp.sim.timing.aiter import Gemm, Kernels
from mxcomp.sim.timing.estimates import estimate
from mxcomp.sim.timing.parameters import mi355x
from mxcomp.sim.timing.rows import Row

SIZES = [(m, n, k) for k in (512, 8192) for n in (256, 16384) for m in (8, 64, 512)]
ROBUST = 0.01
"""The most that one such row may move another one. It is 1.6 % where the loss grows linearly."""
FEW = 3
"""How many rows show what a report says."""


@pytest.fixture(scope="module")
def aiter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout.make(tmp_path_factory.mktemp("aiter"))


@pytest.fixture(scope="module")
def cases(aiter: Path) -> list[replays.Case]:
    return cases_of(aiter, SIZES)


@pytest.fixture(scope="module")
def few(aiter: Path) -> list[replays.Case]:
    return cases_of(aiter, SIZES[:FEW])


def cases_of(aiter: Path, sizes: list[tuple[int, int, int]]) -> list[replays.Case]:
    gemms = [Gemm(*size, checkout.TILE_M, checkout.TILE_N) for size in sizes]
    found = replays._cases(aiter, [Row(line, {}, gemm, 1.0) for line, gemm in enumerate(gemms, 2)])
    return [case for case in found if isinstance(case, replays.Case)]


def test_interpolation_is_the_model(aiter: Path, cases: list[replays.Case]) -> None:
    """Between the nodes of its grid too: against a replay of each row."""
    assert len(cases) == len(SIZES)
    kernels = Kernels(aiter)
    expected = [estimate(kernels.examine(case.row.gemm)).us for case in cases]
    np.testing.assert_allclose(calibrate.Model(cases).us(mi355x()), expected, rtol=0.02)


def test_a_fit_finds_times_that_other_parameters_make(cases: list[replays.Case]) -> None:
    model, start = calibrate.Model(cases), mi355x()
    model.measured = model.us(start.replaced(launch_us=3.1, cu_bytes=21.0, cold_latency=1350.0))
    assert np.abs(model.us(start) / model.measured - 1).max() > 0.2
    fitted = model.fit(start)
    assert np.abs(model.us(fitted) / model.measured - 1).max() < 0.02
    assert fitted.launch_us == pytest.approx(3.1, rel=0.05)


def test_rows_of_other_conditions_hardly_move_a_fit(cases: list[replays.Case]) -> None:
    """One of twelve that was measured a third too long."""
    model, start = calibrate.Model(cases), mi355x()
    true = model.us(start)
    model.measured = true * np.where(np.arange(len(cases)) == len(cases) - 2, 4 / 3, 1.0)
    found = model.us(model.fit(start))
    assert np.abs(found / true - 1).max() < ROBUST


def test_report(few: list[replays.Case]) -> None:
    """What it says of estimates that are all 10 % too long."""
    measured = np.linspace(5.0, 500.0, FEW)
    fits = np.exp(np.random.default_rng(0).standard_normal((20, 2)))
    report = Report(few, measured, 1.05 * measured, 1.1 * measured, mi355x(), ("launch_us", "power"), fits)
    assert "fit to all 3 rows: error median 5.00%" in report.summary()
    assert "left-out tiles: error median 10.00%, mean 10.00%" in report.summary()
    assert "| 32×128 | 3 | +10.0% | 10.0% | 10.0% |" in report.markdown()
    assert [low for _, low, _ in report.residuals] == pytest.approx([1 / 1.1] * 4)


def test_ranking(few: list[replays.Case]) -> None:
    """There is one tile only: nothing to rank."""
    _, pairs = ranking(few, np.ones(FEW), np.ones(FEW))
    assert pairs == 0
