"""What a calibration found: as a summary, as parameters of the model, and as docs/timing.md with its picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import marked
import numpy as np
from numpy.typing import NDArray

from mxcomp.sim.timing.parameters import Parameters
from mxcomp.target.gfx950 import TARGET

if TYPE_CHECKING:
    from replays import Case

ROOT = Path(__file__).parents[1]
PARAMETERS = ROOT / "mxcomp" / "sim" / "timing" / TARGET.timing
DOCS = ROOT / "docs" / "timing.md"
PICTURE = ROOT / "docs" / "timing.png"
_BEGIN, _END = "<!-- calibration: written by benchmarks/calibrate.py -->", "<!-- end of calibration -->"
_SIZES = (8.0, 20.0, 40.0, 1e12)
"""Estimates in µs below which residuals are counted together."""
_COVERED = (0.1, 0.9)
_FEW = 10
"""Rows of a size from which on they have percentiles of their own."""
_ALIKE = 0.8
"""Correlation from which on two parameters count as not told apart."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Report:
    """Measured and modelled µs of rows.

    Attributes:
        fitted: By a fit to all rows.
        left_out: By fits to the rows of other tiles.
        fits: float64[fits, parameters] of resampled rows.
    """

    cases: Sequence[Case]
    measured: Floats
    fitted: Floats
    left_out: Floats
    parameters: Parameters
    names: tuple[str, ...]
    fits: Floats

    @cached_property
    def residuals(self) -> list[tuple[float, float, float]]:
        """(below µs, low, high): percentiles of measured / modelled of left-out tiles."""
        found, above = [], 0.0
        for below in _SIZES:
            chosen = (self.left_out >= above) & (self.left_out < below)
            if chosen.sum() < _FEW:
                chosen = np.ones_like(chosen)
            low, high = np.quantile(self.measured[chosen] / self.left_out[chosen], _COVERED)
            found.append((below, float(low), float(high)))
            above = below
        return found

    def summary(self) -> str:
        agree, pairs = ranking(self.cases, self.measured, self.left_out)
        inside = np.mean([low <= us <= high for us, (low, high) in zip(self.measured, self._intervals(), strict=True)])
        lines = [
            f"fit to all {len(self.measured)} rows: {describe(self.fitted / self.measured)}",
            f"left-out tiles: {describe(self.left_out / self.measured)}",
            f"the faster of two tiles is predicted in {agree:.1%} of {pairs} pairs more than 10 % apart",
            f"{inside:.0%} of left-out rows lie between low and high",
        ]
        lines += [f"{name} {value:.4g} ({low:.4g} to {high:.4g})" for name, value, low, high in self._values()]
        return "\n".join(lines)

    def _intervals(self) -> list[tuple[float, float]]:
        rows = [next(row for row in self.residuals if us < row[0]) for us in self.left_out]
        return [(us * low, us * high) for us, (_, low, high) in zip(self.left_out, rows, strict=True)]

    def _values(self) -> list[tuple[str, float, float, float]]:
        low, high = np.quantile(self.fits, _COVERED, axis=0)
        values = [getattr(self.parameters, name) for name in self.names]
        return list(zip(self.names, values, low.tolist(), high.tolist(), strict=True))

    def write(self) -> None:
        PARAMETERS.write_text(self._parameters_text(PARAMETERS.read_text()))
        DOCS.write_text(marked.put(DOCS.read_text(), _BEGIN, _END, self.markdown()))
        self.draw(PICTURE)

    def _parameters_text(self, text: str) -> str:
        """The file with other values of what was fitted, and other residuals."""
        for name, value, low, high in self._values():
            table = re.compile(rf"(\[device\.{name}\]\n)value = .*\n(?:low = .*\nhigh = .*\n)?")
            text, count = table.subn(rf"\g<1>value = {value:.6g}\nlow = {low:.4g}\nhigh = {high:.4g}\n", text)
            assert count == 1, name
        kept, _, _ = text.partition("[[residuals]]")
        rows = [
            f"[[residuals]]\nbelow_us = {b:g}\nlow = {low:.4f}\nhigh = {high:.4f}\n" for b, low, high in self.residuals
        ]
        return kept + "\n".join(rows)

    def markdown(self) -> str:
        agree, pairs = ranking(self.cases, self.measured, self.left_out)
        inside = np.mean([low <= us <= high for us, (low, high) in zip(self.measured, self._intervals(), strict=True)])
        parts = [
            f"| {len(self.measured)} rows | median error | mean | 90th percentile |\n|---|---|---|---|",
            f"| fit to all | {_row(self.fitted / self.measured)} |",
            f"| each tile predicted from the others | {_row(self.left_out / self.measured)} |\n",
            "The faster of two tiles on the same M×N×K, or on sizes within 5 % of its flops, is predicted in "
            f"{agree:.1%} of {pairs} pairs that are more than 10 % apart. {inside:.0%} of the rows lie between the low "
            "and the high of their estimates.\n",
            "![Modelled against measured times](timing.png)\n",
            "Errors of left-out tiles; bias is the mean of modelled / measured − 1.\n",
            self._groups("tile", lambda case: f"{case.row.gemm.tile_m}×{case.row.gemm.tile_n}", _tile_order),
            self._groups("M", lambda case: _range(case.row.gemm.m, (32, 128, 512, 2048, 8192)), _range_order),
            self._groups("measured µs", lambda case: _range(case.row.us or 0, (8, 20, 40, 100, 400)), _range_order),
            "| parameter | value | 80 % of fits to resampled rows |\n|---|---|---|",
            *(f"| {name} | {value:.4g} | {low:.4g} to {high:.4g} |" for name, value, low, high in self._values()),
            "\n" + self._alike(),
        ]
        return "\n".join(parts)

    def _groups(self, title: str, key: Callable[[Case], str], order: Callable[[str], Any]) -> str:
        ratios: dict[str, list[float]] = {}
        for case, ratio in zip(self.cases, self.left_out / self.measured, strict=True):
            ratios.setdefault(key(case), []).append(float(ratio))
        lines = [f"| {title} | rows | bias | median error | 90th percentile |", "|---|---|---|---|---|"]
        for name in sorted(ratios, key=order):
            values = np.array(ratios[name])
            errors = np.abs(values - 1)
            lines.append(
                f"| {name} | {len(values)} | {np.mean(values) - 1:+.1%} | {np.median(errors):.1%} "
                f"| {np.quantile(errors, 0.9):.1%} |"
            )
        return "\n".join(lines) + "\n"

    def _alike(self) -> str:
        """Which parameters trade against each other."""
        together = np.corrcoef(np.log(np.maximum(self.fits, 1e-12)).T)
        found = [
            f"{a} and {b} ({together[i, j]:+.2f})"
            for i, a in enumerate(self.names)
            for j, b in enumerate(self.names)
            if i < j and abs(together[i, j]) >= _ALIKE
        ]
        if not found:
            return f"No two parameters are correlated by more than {_ALIKE} among the fits."
        return "The measurements hardly tell apart, by their correlation among the fits: " + ", ".join(found) + "."

    def draw(self, path: Path) -> None:
        """Modelled / measured over measured times."""
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        figure, axes = plt.subplots(figsize=(8, 4), dpi=120)
        tiles = sorted({(case.row.gemm.tile_m, case.row.gemm.tile_n) for case in self.cases})
        ratio = self.left_out / self.measured
        for tile in tiles:
            chosen = [(case.row.gemm.tile_m, case.row.gemm.tile_n) == tile for case in self.cases]
            if sum(chosen) >= 10:
                axes.plot(self.measured[chosen], ratio[chosen], ".", markersize=4, label=f"{tile[0]}×{tile[1]}")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set(xscale="log", xlabel="measured µs", ylabel="modelled / measured", ylim=(0.6, 1.5))
        axes.set_title("AITER MXFP4 GEMM on MI355X: each tile predicted from the others")
        axes.legend(ncols=4, fontsize=7, loc="upper right")
        figure.tight_layout()
        figure.savefig(path)


def ranking(cases: Sequence[Case], measured: Floats, modelled: Floats) -> tuple[float, int]:
    """How often the faster of two tiles is predicted, and of how many pairs more than 10 % apart."""
    flops = np.array([case.row.gemm.m * case.row.gemm.n * case.row.gemm.k for case in cases], float)
    tiles = np.array([case.row.gemm.tile_m * 10_000 + case.row.gemm.tile_n for case in cases])
    near = np.abs(np.log(flops[:, None] / flops)) < np.log(1.05)
    apart = np.abs(np.log(measured[:, None] / measured)) > np.log(1.1)
    chosen = np.triu(near & apart & (tiles[:, None] != tiles), 1)
    same = (measured[:, None] < measured) == (modelled[:, None] < modelled)
    return float(same[chosen].mean()) if chosen.any() else 1.0, int(chosen.sum())


def describe(ratios: Floats) -> str:
    errors = np.abs(ratios - 1)
    tenth = np.quantile(errors, 0.9)
    return f"error median {np.median(errors):.2%}, mean {errors.mean():.2%}, 90th percentile {tenth:.2%}"


def _row(ratios: Floats) -> str:
    errors = np.abs(ratios - 1)
    return " | ".join(f"{value:.1%}" for value in (np.median(errors), errors.mean(), np.quantile(errors, 0.9)))


def _range(value: float, edges: Sequence[float]) -> str:
    above = [edge for edge in edges if value <= edge]
    below = [edge for edge in edges if value > edge]
    return f"≤ {above[0]:g}" if above else f"> {below[-1]:g}"


def _range_order(name: str) -> tuple[float, bool]:
    return float(name[2:]), name.startswith(">")


def _tile_order(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("×")))
