"""Fits the timing model to published measurements of AITER's MXFP4 GEMM kernels, and writes what it is worth.

python benchmarks/calibrate.py --aiter DIR [--cases cases.pkl] [--write]

DIR is a checkout of ROCm/aiter. Each row of benchmarks/data/mi355x_mxfp4_gemm.csv is examined: its kernel is traced and
replayed for a grid of latencies and rates. The device's parameters are fitted to all rows, and to the clocks of loops
that AMD traced (mi355x_clocks.csv); each tile is predicted from a fit to the others. --write puts the numbers into
mxcomp/sim/timing/mi355x.toml and docs/timing.md. --cases keeps what examination found, to fit again without it.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import timing_report
from numpy.typing import NDArray
from replays import LATENCIES, RATES, Case, load

from mxcomp.sim.timing.chip import Floats, Launches, Rates, modelled_us, power_ns
from mxcomp.sim.timing.parameters import Parameters, mi355x

FOLDER = Path(__file__).parent / "data"
DATA, CLOCKS = FOLDER / "mi355x_mxfp4_gemm.csv", FOLDER / "mi355x_clocks.csv"
FITTED = (
    "launch_us", "dispatch_us", "cold_latency", "cu_bytes", "fabric_bytes", "power", "power_mfma", "power_wide",
    "power_loads",
)  # fmt: skip
BOOTSTRAPS = 40
_LOSS = 0.03
"""Relative error from which on rows count less (Cauchy's loss): some were measured under other conditions."""


@dataclass(frozen=True)
class Clocks:
    """Clocks of loops on ROCm/gfx950-gluon-tutorials' GPU, figures only.

    Attributes:
        mfma_share: Part of the cycles that MFMA pipes are busy.
        wide: 1 where they are of scaled 32×32×64.
        load_bytes: Per cycle and CU.
        weight: Of a row, beside one of AITER's.
    """

    mfma_share: Floats
    wide: Floats
    load_bytes: Floats
    ghz: Floats
    weight: Floats

    @classmethod
    def read(cls, path: Path = CLOCKS) -> Clocks:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        return cls(*(np.array([float(row[field.name]) for row in rows]) for field in fields(cls)))

    def modelled(self, p: Parameters) -> Floats:
        """GHz, on the die that the law is stated for."""
        found: Floats = 1 / power_ns(p, self.mfma_share, self.wide, self.load_bytes)
        return found

    def errors(self, p: Parameters) -> Floats:
        found: Floats = np.sqrt(self.weight) * np.log(self.modelled(p) / self.ghz)
        return found


class Model:
    """The model over cases, by interpolation of their replays."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.clocks = Clocks.read()
        self.launches = Launches.of([case.work for case in cases])
        self.first, self.later = (
            np.log(np.array(grids))[self.launches.launch]
            for grids in ([case.cycles for case in cases], [case.later for case in cases])
        )
        self.matrix = np.array([case.matrix for case in cases])[self.launches.launch]
        self.measured = np.array([case.row.us for case in cases], float)

    def ask(self, rates: Rates, is_first: bool) -> tuple[Floats, Floats]:
        """Cycles and busy cycles of each batch: bilinear in logarithms."""
        i, u = _place(LATENCIES, rates.latency)
        j, v = _place(RATES, rates.bytes)
        k, grids = np.arange(len(i)), self.first if is_first else self.later
        low = grids[k, i, j] * (1 - v) + grids[k, i, j + 1] * v
        high = grids[k, i + 1, j] * (1 - v) + grids[k, i + 1, j + 1] * v
        return np.exp(low * (1 - u) + high * u), self.matrix

    def us(self, p: Parameters) -> Floats:
        return modelled_us(self.launches, p, self.ask)

    def fit(self, start: Parameters, weights: NDArray[np.float64] | None = None) -> Parameters:
        """Parameters with the smallest error of the rows' logarithms; weights of rows, 0 leaves one out."""
        from scipy.optimize import least_squares  # here, as each worker of pytest imports all tests

        root = np.sqrt(np.ones(len(self.measured)) if weights is None else weights)

        def errors(logs: Floats) -> Floats:
            p = _with(start, logs)
            return np.concatenate([root * np.log(self.us(p) / self.measured), self.clocks.errors(p)])

        logs = np.log([getattr(start, name) for name in FITTED])
        return _with(start, least_squares(errors, logs, loss="cauchy", f_scale=_LOSS).x)


def _place(nodes: Floats, values: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The node before each value, and how far it is to the next one, in logarithms; ends hold beyond."""
    logs, at = np.log(nodes), np.log(np.clip(values, nodes[0], nodes[-1]))
    before = np.clip(np.searchsorted(logs, at, side="right") - 1, 0, len(nodes) - 2)
    return before, (at - logs[before]) / (logs[before + 1] - logs[before])


def _with(p: Parameters, logs: Iterable[float]) -> Parameters:
    return p.replaced(**dict(zip(FITTED, np.exp(np.array(list(logs))).tolist(), strict=True)))


def left_out(model: Model, cases: Sequence[Case], start: Parameters) -> Floats:
    """µs of each row, by a fit to the rows of all other tiles."""
    tiles = np.array([case.row.gemm.tile_m * 10_000 + case.row.gemm.tile_n for case in cases])
    result = np.zeros(len(cases))
    for tile in np.unique(tiles):
        result[tiles == tile] = model.us(model.fit(start, (tiles != tile).astype(float)))[tiles == tile]
    return result


def resampled(model: Model, start: Parameters, seed: int = 0) -> NDArray[np.float64]:
    """float64[fits, parameters]: fits to rows drawn with replacement."""
    random = np.random.default_rng(seed)
    rows = len(model.measured)
    fits = []
    for _ in range(BOOTSTRAPS):
        weights = np.bincount(random.integers(0, rows, rows), minlength=rows).astype(float)
        fitted = model.fit(start, weights)
        fits.append([getattr(fitted, name) for name in FITTED])
    return np.array(fits)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="a checkout of ROCm/aiter")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FILE.csv")
    parser.add_argument("--cases", type=Path, metavar="FILE", help="keep what examination found, or take it from there")
    parser.add_argument("--write", action="store_true", help="write parameters and docs/timing.md")
    args = parser.parse_args()
    cases = load(args.cases, args.aiter, args.data)
    model = Model(cases)
    p = model.fit(mi355x())
    others = left_out(model, cases, p)
    report = timing_report.Report(cases, model.measured, model.us(p), others, p, FITTED, resampled(model, p))
    print(report.summary())
    if args.write:
        report.write()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
