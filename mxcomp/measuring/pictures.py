"""Draws compared times as PNG. Needs matplotlib (extra "plot")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxcomp.measuring.configurations import PARTS
from mxcomp.measuring.models import KINDS, TOKEN, Entry
from mxcomp.measuring.records import END_TO_END, Record
from mxcomp.sim.timing.pictures import FP4_PEAK, png, pyplot

Points = Sequence[tuple[float, float]]
"""Pairs of a matmul's FLOP and its µs."""


def bars(records: Sequence[Record]) -> bytes:
    """Draws a bar for each configuration of one program, of its dispatches, and bars for each of its parts."""
    plt = pyplot()
    names = list(dict.fromkeys(each.configuration for each in records))
    dispatches = [each for each in records if each.part != END_TO_END]
    parts = list(dict.fromkeys([*(part for part in PARTS if any(d.part == part for d in dispatches)),
                                *(each.part for each in dispatches)]))  # fmt: skip
    us = {(each.configuration, each.part): each for each in dispatches}
    figure, (whole, single) = plt.subplots(1, 2, figsize=(13, 5), dpi=110)
    left = dict.fromkeys(names, 0.0)
    width = 0.8 / len(names)
    for part in parts:
        values = [us[name, part].us if (name, part) in us else 0.0 for name in names]
        whole.barh(names, values, left=list(left.values()), label=part[:40])
        left = {name: left[name] + value for name, value in zip(names, values, strict=True)}
    for index, name in enumerate(names):
        found = [(place, us[name, part]) for place, part in enumerate(parts) if (name, part) in us]
        single.bar(
            [place + (index - len(names) / 2 + 0.5) * width for place, _ in found],
            [each.us for _, each in found],
            width,
            yerr=[[each.us - each.low for _, each in found], [each.high - each.us for _, each in found]],
            label=name,
        )
    whole.invert_yaxis()
    whole.set(xlabel=f"{records[0].source} µs, dispatches one after the other", title=records[0].subject)
    whole.legend(fontsize=7)
    single.set(yscale="log", ylabel=f"{records[0].source} µs")
    single.set_xticks(range(len(parts)), [part[:24] for part in parts], rotation=20, fontsize=7)
    single.legend(fontsize=7)
    return png(plt, figure)


def decoding(entries: Sequence[Entry]) -> bytes:
    """Draws a token of a model by kind of work, with a bar for each setting, and its lower bound."""
    plt = pyplot()
    tokens = [each for each in entries if each.piece == TOKEN]
    names = [f"batch {each.batch}\ncontext {each.context}" for each in tokens]
    figure, axes = plt.subplots(figsize=(max(4.0, 1.2 * len(tokens) + 2), 5), dpi=110, layout="constrained")
    bottom = [0.0] * len(tokens)
    for kind in KINDS:
        values = [getattr(each, kind) / 1e3 for each in tokens]
        axes.bar(names, values, 0.7, bottom=bottom, label=kind)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    floors = [each.floor_us / 1e3 for each in tokens]
    axes.hlines(floors, [k - 0.4 for k in range(len(tokens))], [k + 0.4 for k in range(len(tokens))], color="black")
    axes.set(ylabel="modelled ms of a token; the line: its floor", title=tokens[0].model)
    axes.legend(fontsize=8)
    return png(plt, figure)


def speed(series: Mapping[str, Points], source: str) -> bytes:
    """Draws FLOP/s over FLOP, of some kernels of each series."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(8, 5), dpi=110)
    for name, points in series.items():
        if points:
            flops, us = zip(*sorted(points), strict=True)
            axes.plot(flops, [f / u * 1e6 for f, u in zip(flops, us, strict=True)], "o", markersize=3, label=name)
    axes.axhline(FP4_PEAK, color="black", label="FP4 peak")
    axes.set(xscale="log", yscale="log", xlabel="FLOP of the matmul", ylabel=f"{source} FLOP/s")
    axes.legend(fontsize=8)
    return png(plt, figure)
