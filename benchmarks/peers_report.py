"""Published times beside modelled ones, as tables in docs/timing.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import marked
import numpy as np

from mxcomp.profiling import Estimate

BEGIN, END = "<!-- peers: written by benchmarks/peers.py -->", "<!-- end of peers -->"


@dataclass(frozen=True)
class Comparison:
    """A published time and a modelled one."""

    kernel: str
    size: str
    published_us: float
    modelled: Estimate

    @property
    def error(self) -> float:
        return self.modelled.us / self.published_us - 1


def table(first: str, found: Sequence[Comparison]) -> str:
    """A line for each, in Markdown."""
    lines = [f"| {first} | published µs | modelled | low–high | error | bound by |", "|---|---|---|---|---|---|"]
    for one in found:
        modelled = one.modelled
        lines.append(
            f"| {one.kernel}, {one.size} | {_rounded(one.published_us)} | {_rounded(modelled.us)} "
            f"| {_rounded(modelled.low)}–{_rounded(modelled.high)} | {one.error:+.1%} | {modelled.bound} |"
        )
    return "\n".join(lines)


def _rounded(us: float) -> str:
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def summary(found: Sequence[Comparison]) -> str:
    """In one sentence."""
    errors = np.array([one.error for one in found])
    inside = np.mean([one.modelled.low <= one.published_us <= one.modelled.high for one in found])
    return (
        f"{len(found)} times: bias {errors.mean():+.1%}, median error {np.median(abs(errors)):.1%}, "
        f"90th percentile {np.quantile(abs(errors), 0.9):.1%}; {inside:.0%} lie between low and high."
    )


def markdown(dense: Sequence[Comparison], grouped: Sequence[Comparison]) -> str:
    parts = [table("FlyDSL's MXFP4 GEMM", dense), summary(dense)]
    if grouped:
        parts.append(table("MoE layer, tokens, GEMM and tile", grouped))
        for stage in (1, 2):
            chosen = [one for one in grouped if f"gemm{stage}" in one.size]
            parts.append(f"gemm{stage}, {summary(chosen)}")
    return "\n\n".join(parts)


def put(text: str, tables: str) -> str:
    """A document with other tables between the markers."""
    return marked.put(text, BEGIN, END, tables)
