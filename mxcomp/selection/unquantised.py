"""How bf16 activations are multiplied as they are: by ukernels that dequantise weights."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from mxcomp.layout import RHS
from mxcomp.matching.decision import DATA_TILED, Decision, Version
from mxcomp.matching.operands import warning_of
from mxcomp.options import FASTEST, Options
from mxcomp.problem import Problem
from mxcomp.selection.passing import passing_us
from mxcomp.selection.quantising import entries, modelled_us
from mxcomp.selection.versions import Range
from mxcomp.ukernels import Registry, weight_only
from mxcomp.ukernels.weight_only import ACTIVATION_BYTES, MOST_ROWS, Instance

_RANGES = (Range(16, (1, 16)), Range(32, (24, 32)), Range(MOST_ROWS, (48, MOST_ROWS)), Range(None, (128, 512, 2048)))
"""Of a dynamic M. Up to `MOST_ROWS` a workgroup has all rows; of more it has a tile."""


def choose(problem: Problem, registry: Registry, options: Options, size: int) -> Decision:
    """A decision on a problem of bf16 activations and MX weights; `size` are the bytes of an element of the result."""
    weights = problem.types[RHS]
    stored = replace(problem, types=(weights, *problem.types[1:]))
    able = options.data_tiling and not options.reference and (problem.m is not None or options.versions)
    ranges = _RANGES if problem.m is None else (Range(None, (problem.m,)),)
    found = [_best(stored, each, registry, options, size) for each in ranges] if able else []
    best = [(instance, us) for instance, us in filter(None, found)]
    if not best or len(best) < len(ranges):
        missing = "ukernels for that" if problem.m is not None or options.versions else "kernels by ranges of M"
        lacking = next(filter(None, (registry.lacking(_fitting(stored, each)) for each in ranges)), "") if able else ""
        reason = f"activations are not quantised, and {lacking or f'{missing} are not asked for'}"
        return Decision(reason=f"left to IREE: {reason}", warning=warning_of([weights]) or None)
    *_, (last, us) = best
    note = f"RHS is dequantised by {last.name}" + (f", modelled {us:.1f} µs" if us is not None else "")
    versions: tuple[Version, ...] = ()
    if problem.m is None:
        fitting = [(each.max_m, instance) for each, (instance, _) in zip(ranges, best, strict=True)]
        versions = tuple(Version(max_m=max_m, **_entries(each, registry)) for max_m, each in fitting)
        names = [f"{each.name} up to M = {max_m}" for max_m, each in fitting[:-1]]
        note = f"RHS is dequantised by {', '.join(names)}, and {last.name}"
    return Decision(operands=DATA_TILED, versions=versions, note=note, **_entries(last, registry))


def _best(
    problem: Problem, rows: Range, registry: Registry, options: Options, size: int
) -> tuple[Instance, float | None] | None:
    """The fastest for a range of M, or that of the name that is asked for, and its modelled µs; None without any."""
    fitting = registry.able(_fitting(problem, rows))
    if named := [each for each in fitting if each.name == options.ukernels]:
        fitting = named
    elif options.ukernels != FASTEST:
        return None
    timed: dict[Instance, float] = {}
    for each in fitting:
        us = [us for m in rows.points if (us := in_tiles_us(each, replace(problem, m=m), registry, size)) is not None]
        if len(us) == len(rows.points):
            timed[each] = geometric_mean(us)
    if not timed:
        return (named[0], None) if named else None
    best = min(timed, key=lambda each: timed[each])
    return best, timed[best]


def _fitting(problem: Problem, rows: Range) -> list[Instance]:
    return weight_only.fitting(problem.types[RHS], max(rows.points), problem.n or 0, problem.k or 0)


def in_tiles_us(instance: Instance, problem: Problem, registry: Registry, size: int) -> float | None:
    """Modelled µs, with the dispatch that pads rows to whole tiles where there are more than one."""
    m, us = problem.m or 0, modelled_us(registry[instance.name], problem, size)
    if us is None or m <= instance.most_rows or m % instance.most_rows == 0:
        return us
    return us + passing_us(registry.target, 2 * m * (problem.k or 0) * ACTIVATION_BYTES)


def _entries(instance: Instance, registry: Registry) -> dict[str, Any]:
    """Those that say how an instance is launched, which no ukernel of a packed LHS stands for."""
    return entries(instance, instance, registry) | {"ukernel": instance.name}
