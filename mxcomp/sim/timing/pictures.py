"""Draws modelled times as PNG. Needs matplotlib (extra "plot")."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np

from mxcomp.sim.errors import SimulationError
from mxcomp.sim.timing.costs import Unit
from mxcomp.sim.timing.timeline import Timeline

FP4_PEAK, HBM_PEAK = 10.06e15, 8e12
"""The peak FLOP/s and bytes/s (AMD Instinct MI355X data sheet)."""

_COLOURS = {
    Unit.SCALAR: "#9e9e9e", Unit.VECTOR: "#4c78a8", Unit.MATRIX: "#e45756", Unit.LDS: "#f2a900",
    Unit.GLOBAL: "#54a24b", Unit.SCALAR_MEMORY: "#b279a2", Unit.BARRIER: "#000000", Unit.NONE: "#d5d5d5",
}  # fmt: skip


def timeline(found: Timeline, cycles: float = 6000.0) -> bytes:
    """Draws what each wave issues in some cycles in the middle. Raises SimulationError without matplotlib."""
    plt = pyplot()
    middle = max(float(issued.max()) for _, issued in found.waves if len(issued)) / 2
    begin, end = max(0.0, middle - cycles / 2), middle + cycles / 2
    figure, axes = plt.subplots(figsize=(12, 1 + 0.5 * len(found.waves)), dpi=110)
    for wave, (codes, issued) in enumerate(found.waves):
        ends = np.append(issued[1:], issued[-1:] + 4)
        inside = (ends > begin) & (issued < end)
        for unit, colour in _COLOURS.items():
            chosen = inside & (found.unit[codes] == unit)
            bars = list(zip(issued[chosen], np.minimum(ends[chosen] - issued[chosen], 64), strict=True))
            axes.broken_barh(bars, (wave - 0.4, 0.8), color=colour, label=unit.name if wave == 0 else None)
    axes.set(xlim=(begin, end), xlabel="cycles (modelled)", ylabel="wave", title=found.kernel)
    axes.legend(ncols=len(_COLOURS), fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return png(plt, figure)


def roofline(dispatches: Sequence[tuple[str, float, float, float]]) -> bytes:
    """Draws dispatches under the roofs of the chip: (name, FLOP, bytes of HBM, modelled µs) of each.

    Beside it, the bytes per second that each moves. Raises SimulationError without matplotlib.
    """
    plt = pyplot()
    figure, (axes, moved) = plt.subplots(1, 2, figsize=(12, 5), dpi=110, width_ratios=(3, 2), layout="constrained")
    intensity = np.logspace(0, 5, 100)
    axes.plot(intensity, np.minimum(FP4_PEAK, intensity * HBM_PEAK), color="black", label="FP4 peak, HBM peak")
    rates = []
    for name, flops, nbytes, us in dispatches:
        rates.append((name[:32], nbytes / us * 1e-6))
        if flops:
            axes.plot(flops / nbytes, flops / us * 1e6, "o", label=name[:48])
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte, each byte once", ylabel="modelled FLOP/s")
    axes.legend(fontsize=6)
    moved.barh([name for name, _ in rates], [rate for _, rate in rates])
    moved.axvline(HBM_PEAK * 1e-12, color="black")
    moved.set(xlabel="modelled TB/s, each byte once")
    moved.tick_params(axis="y", labelsize=6)
    return png(plt, figure)


def check() -> None:
    """Raises SimulationError where matplotlib is missing, before anything slow is computed for a picture."""
    if find_spec("matplotlib") is None:
        raise SimulationError("pictures need matplotlib: pip install 'mxcomp[plot]'")


def pyplot() -> Any:
    """Returns matplotlib, set to draw into files. Raises SimulationError where it is not installed."""
    check()
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def png(plt: Any, figure: Any) -> bytes:
    """Returns a figure as a PNG file, and closes it."""
    written = BytesIO()
    figure.savefig(written, bbox_inches="tight")
    plt.close(figure)
    return written.getvalue()
